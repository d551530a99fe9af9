//! The price a user agreed to is held against the present one before each launch.

use std::time::Duration;

use runwhere_engine::{EndReason, TrialState};
use runwhere_providers::testing::SimProfile;
use rust_decimal::Decimal;

use super::site::Site;
use crate::driver::Others;

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
