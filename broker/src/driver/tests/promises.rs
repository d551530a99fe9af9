//! What was agreed to at the launch holds: the price for the whole run, the place from the beginning.

use std::time::Duration;

use runwhere_engine::{EndReason, TrialState};
use runwhere_model::{HourlyPrice, PriceState};
use runwhere_providers::testing::SimProfile;
use rust_decimal::Decimal;

use super::site::Site;
use crate::driver::Others;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn pr_014_a_run_costs_what_it_was_launched_at_whatever_is_listed_later() {
    let site = Site::new(SimProfile::token()).await;
    let key = site.keys[1].clone();
    let listed = |amount: i64| {
        let mut offers = site.prices.offers.lock().unwrap();
        let offer = offers.iter_mut().find(|offer| offer.key == key).unwrap();
        let currency = offer.price.state.known().unwrap().currency;
        let price = HourlyPrice { amount: Decimal::from(amount), currency };
        offer.price.state = PriceState::Known { price };
        price
    };
    let launched_at = listed(2);
    site.cloud.set_price(&key, Some(launched_at));
    let trial = site.submit(1, &key).await;
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    tokio::spawn(core.clone().run());
    site.until(MINUTE, || async { site.live().len() == 1 }).await;
    let node = site.live().remove(0);
    // It is dearer now, for everybody else; then nobody sells it any more.
    site.cloud.set_price(&key, Some(listed(3)));
    site.clock.advance(5 * MINUTE).await;
    site.prices.offers.lock().unwrap().retain(|offer| offer.key != key);
    site.cloud.set_price(&key, None);
    site.clock.advance(5 * MINUTE).await;
    core.step(&trial, false, |unit, context| unit.stop(context)).await.unwrap();
    site.until(30 * MINUTE, || async { site.unit(&trial).await.0.cleanup_confirmed }).await;
    let (micros, cost) = site.billed(&node).await;
    assert!(micros > 7 * 60 * 1_000_000, "it ran through both changes: {micros}");
    let hours = Decimal::from(micros) / Decimal::from(3_600_000_000u64);
    let exact = launched_at.amount * hours;
    assert!((cost.amount - exact).abs() < Decimal::new(1, 11), "{cost} for {hours} h at 2");
    // The report is read from what was written then: it needs no price of today.
    let lease = site.unit(&trial).await.1.unwrap();
    assert_eq!(lease.price.price, launched_at);
    for segment in site.segments().await {
        assert_eq!(segment.price, launched_at);
    }
}

#[tokio::test]
async fn pr_062_a_node_in_another_region_than_shown_is_ended_and_the_job_says_why() {
    let site = Site::new(SimProfile::token()).await;
    let key = site.keys[1].clone();
    assert!(key.region.as_deref().is_some_and(|region| region != "elsewhere-9"));
    site.cloud.land_in(Some("elsewhere-9"));
    let misplaced = site.submit(1, &key).await;
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    tokio::spawn(core.clone().run());
    site.until(30 * MINUTE, || async { site.unit(&misplaced).await.0.cleanup_confirmed }).await;
    let trial = site.unit(&misplaced).await.0;
    assert_eq!(trial.state, TrialState::Failed);
    let Some(EndReason::NodeFailed { detail }) = trial.end_reason else { panic!("{trial:?}") };
    assert!(detail.contains("elsewhere-9") && detail.contains(key.region.as_deref().unwrap()));
    assert!(site.live().is_empty());
    // Where it was asked for, it runs.
    site.cloud.land_in(None);
    let placed = site.submit(2, &key).await;
    core.signals().ring();
    site.until(MINUTE, || async { site.live().len() == 1 }).await;
    site.clock.advance(MINUTE).await;
    assert!(!site.unit(&placed).await.0.state.is_terminal());
}
