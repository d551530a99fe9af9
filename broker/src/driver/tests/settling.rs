//! What was only observed, once the provider's own bill is there.

use std::time::Duration;

use runwhere_engine::LeaseState;
use runwhere_providers::testing::{Outcome, SimProfile, Verb};
use rust_decimal::Decimal;

use super::site::{Site, project};
use crate::jobs::cost_of;
use crate::store::Store;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_estimate_becomes_the_providers_bill_and_nothing_booked_is_changed() {
    let site = Site::new(SimProfile::label_only()).await;
    let trial = site.submit(1, &site.keys[1]).await;
    let (core, _) = site.server();
    tokio::spawn(std::sync::Arc::clone(&core).run());
    let state = async || site.unit(&trial).await.1.map(|lease| lease.state);
    site.until(10 * MINUTE, || async { state().await == Some(LeaseState::Booting) }).await;
    site.clock.advance(70 * MINUTE / 10).await;
    core.step(&trial, false, |unit, context| unit.stop(context)).await.unwrap();
    site.until(30 * MINUTE, || async { state().await == Some(LeaseState::Released) }).await;
    let lease = site.unit(&trial).await.1.unwrap();
    let node = lease.node.clone().unwrap();
    let truth = site.cloud.truth().meter_micros(&node);
    let before = site.segments().await;
    assert!(before.iter().all(|one| one.estimated) && lease.meter.estimated);
    assert_ne!(site.billed(&node).await.0, truth, "an estimate that happens to be right");
    // The first two questions are not answered.
    site.cloud.script(Verb::Usage, Outcome::Auth);
    site.cloud.script(Verb::Usage, Outcome::NotDoneReplyLost);
    site.until(60 * MINUTE, || async { site.unit(&trial).await.1.unwrap().settled_at.is_some() })
        .await;
    assert_eq!(site.cloud.calls(Verb::Usage), 3);
    let after = site.segments().await;
    assert_eq!(after[..before.len()], before[..], "what was booked stands");
    let micros: i64 = after.iter().map(|one| one.billed_micros()).sum();
    assert_eq!(micros, i64::try_from(truth).unwrap());
    let guessed = after.iter().filter(|one| one.estimated);
    assert_eq!(guessed.map(|one| one.billed_micros()).sum::<i64>(), 0);
    assert!(after.iter().any(|one| one.usage_record.is_some()));
    // Ledger, budget and the job's own cost say the same.
    let cost: Decimal = after.iter().map(|one| one.amount.amount).sum();
    let entries = site.store.entries(&project(), None, 99).await.unwrap();
    assert_eq!(entries.len(), after.len());
    assert!(entries.iter().all(|(_, entry)| entry.is_balanced()));
    assert_eq!(site.store.budget(&project()).await.unwrap().unwrap().spent, cost);
    let view = site.store.job(&project(), &lease.job).await.unwrap().unwrap();
    let told = cost_of(&view, runwhere_providers::Clock::now(site.clock.as_ref())).unwrap();
    assert_eq!(told.billed_micros, truth);
    assert_eq!(told.amounts.iter().map(|money| money.amount).sum::<Decimal>(), cost);
    // Asked for once more it would say the same: nothing is due any more.
    site.clock.advance(60 * MINUTE).await;
    assert_eq!(site.cloud.calls(Verb::Usage), 3);
    assert_eq!(site.segments().await, after);
}
