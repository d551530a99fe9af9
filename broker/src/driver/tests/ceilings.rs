//! The price a user agreed to is held against the present one before each launch.

use std::sync::Arc;
use std::time::Duration;

use runwhere_engine::{Budget, EndReason, Evidence, TrialState};
use runwhere_model::{Currency, HourlyPrice, OfferKey, PriceState, TrialId};
use runwhere_providers::testing::SimProfile;
use rust_decimal::Decimal;

use super::site::{PROJECT, Sheet, Site, project};
use crate::accounts::Caller;
use crate::api::runwhere::{JobService as _, SubmitRequest};
use crate::driver::{Core, Others};
use crate::jobs::Jobs;
use crate::ports::{Generation, Prices as _};
use crate::store::{Row, Store as _, sample};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn pr_007_a_price_that_rose_since_the_submit_is_refused_to_the_last_digit() {
    let site = Site::new(SimProfile::token()).await;
    let key = &site.keys[1];
    let exact = site.submit(1, key).await;
    // What was agreed to is the least bit below what it costs now.
    let least = Decimal::new(1, 12);
    let below = site.submit_as(2, key, |job| job.spec.ceiling.amount -= least).await;
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    tokio::spawn(core.clone().run());
    site.until(MINUTE, || async { site.unit(&exact).await.1.is_some() }).await;
    site.until(MINUTE, || async { site.unit(&below).await.0.state.is_terminal() }).await;
    let (trial, lease) = site.unit(&below).await;
    assert_eq!(trial.state, TrialState::Failed);
    assert_eq!(trial.end_reason, Some(EndReason::PriceChanged));
    assert!(lease.is_none() && trial.cleanup_confirmed, "nothing was launched");
}

#[tokio::test]
async fn pr_007_after_queueing_the_price_is_looked_at_again() {
    let site = Site::new(SimProfile::token()).await;
    let key = &site.keys[1];
    site.cloud.set_stock(key, 0);
    let least = Decimal::new(1, 12);
    let waiting = site.submit_as(1, key, |job| job.spec.ceiling.amount -= least).await;
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    tokio::spawn(core.clone().run());
    site.clock.advance(5 * MINUTE).await;
    site.cloud.set_stock(key, 1000);
    site.until(30 * MINUTE, || async { site.unit(&waiting).await.0.state.is_terminal() }).await;
    assert_eq!(site.unit(&waiting).await.0.end_reason, Some(EndReason::PriceChanged));
    assert!(site.live().is_empty());
}

/// The price of an offer rises at the last moment before each launch.
#[derive(Debug)]
struct Rising {
    prices: Arc<Sheet>,
    key: OfferKey,
}

#[async_trait::async_trait]
impl Generation for Rising {
    async fn launching(&self, _position: u64) {
        for offer in self.prices.offers.lock().unwrap().iter_mut().filter(|o| o.key == self.key) {
            if let PriceState::Known { price } = &mut offer.price.state {
                price.amount += Decimal::new(1, 12);
            }
        }
    }
}

#[tokio::test]
async fn a_price_that_rises_between_the_decision_and_the_call_is_refused() {
    let site = Site::new(SimProfile::token()).await;
    let key = site.keys[1].clone();
    let trial = site.submit(1, &key).await;
    let (core, _) = site.server();
    core.keep_generation(Arc::new(Rising { prices: site.prices.clone(), key }));
    core.recover(Others::Ended).await.unwrap();
    tokio::spawn(core.clone().run());
    site.until(30 * MINUTE, || async { site.unit(&trial).await.0.state.is_terminal() }).await;
    let (row, lease) = site.unit(&trial).await;
    assert_eq!(row.end_reason, Some(EndReason::PriceChanged));
    let lease = lease.expect("it was written down");
    assert!(lease.launched_at.is_some());
    assert!(matches!(lease.evidence, Some(Evidence::NothingLaunched { .. })), "no cloud was asked");
    assert!(row.cleanup_confirmed && site.cloud.truth().nodes.is_empty(), "nothing was launched");
}

/// A submit as a route makes it.
async fn submit(site: &Site, core: &Arc<Core>, name: &str, most: Option<HourlyPrice>) -> TrialId {
    let yaml = format!(
        "job:\n  name: {name}\nresources:\n  gpuType: A100-80G\n  gpuNum: 1\nenvironment:\n  command: [\"true\"]\n"
    );
    let request = SubmitRequest {
        yaml,
        offer_key: Some(site.keys[1].to_string()),
        offer_code: None,
        overage_confirmed: true,
        idempotency_key: None,
        sync: None,
        max_price: most,
        request_sha256: String::new(),
    };
    let caller = Caller {
        workspace: sample::workspace_id(),
        project: project(),
        principal: "ann".parse().unwrap(),
        key: "key-1".parse().unwrap(),
        permissions: Vec::new(),
        seen_in: None,
    };
    let jobs = Jobs::new(core.clone(), true);
    let submitted = jobs.submit(&caller, request).await.unwrap();
    submitted.report.view.trials[0].0.id.clone()
}

#[tokio::test]
async fn a_limit_of_the_users_own_is_the_ceiling_and_without_one_the_price_seen() {
    let site = Site::new(SimProfile::token()).await;
    let key = site.keys[1].clone();
    site.cloud.set_stock(&key, 0);
    let seen = site.prices.offer(&key).unwrap().price.state.known().unwrap();
    let risen = HourlyPrice { amount: seen.amount + Decimal::ONE, ..seen };
    let least = Decimal::new(1, 12);
    let (core, _) = site.server();
    let budget = Budget::unlimited(sample::workspace_id(), project(), Currency::USD);
    let (workspace, of_it) = (sample::workspace(), sample::project(PROJECT));
    site.put(vec![Row::Workspace(workspace), Row::Project(of_it), Row::Budget(budget)]).await;
    let none = submit(&site, &core, "none-given", None).await;
    let exact = submit(&site, &core, "to-the-digit", Some(risen)).await;
    let short = HourlyPrice { amount: risen.amount - least, ..risen };
    let short = submit(&site, &core, "a-digit-short", Some(short)).await;
    core.recover(Others::Ended).await.unwrap();
    tokio::spawn(core.clone().run());
    site.clock.advance(5 * MINUTE).await;
    for trial in [&none, &exact, &short] {
        assert!(!site.unit(trial).await.0.state.is_terminal(), "they wait for their turn");
    }

    // The price rises while they wait.
    site.cloud.set_price(&key, Some(risen));
    for offer in site.prices.offers.lock().unwrap().iter_mut().filter(|offer| offer.key == key) {
        offer.price.state = PriceState::Known { price: risen };
    }
    site.cloud.set_stock(&key, 1000);
    let launched = || async { site.unit(&exact).await.1.is_some_and(|lease| lease.node.is_some()) };
    site.until(30 * MINUTE, launched).await;
    let (_, lease) = site.unit(&exact).await;
    let lease = lease.expect("launched");
    assert_eq!((lease.ceiling, lease.price.price), (risen, risen), "billed at the present price");
    for refused in [&none, &short] {
        site.until(30 * MINUTE, || async { site.unit(refused).await.0.state.is_terminal() }).await;
        let (trial, lease) = site.unit(refused).await;
        assert_eq!(trial.end_reason, Some(EndReason::PriceChanged));
        // What was tried while nothing was free is void.
        assert!(lease.is_none_or(|lease| lease.node.is_none()), "nothing was launched");
    }

    // What it cost when it was submitted is kept beside the limit.
    let (job, ..) = site.store.unit(&exact).await.unwrap().unwrap();
    assert_eq!((job.spec.price_at_submit(), job.spec.max_price), (seen, Some(risen)));
}
