//! Trials that cannot be stepped, providers that are gone, releases that take too long.

use std::time::Duration;

use runwhere_engine::{LeaseState, TrialState};
use runwhere_providers::testing::{Outcome, SimProfile, Verb};

use super::site::{Site, project};
use crate::driver::Others;
use crate::store::Store;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn many_trials_that_break_their_step_off_hold_up_no_other() {
    let site = Site::new(SimProfile::token()).await;
    site.prices.poisoned.lock().unwrap().insert(site.keys[2].clone());
    let mut broken = Vec::new();
    for number in 0..300 {
        broken.push(site.submit(number, &site.keys[2]).await);
    }
    let good = site.submit(900, &site.keys[1]).await;
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    tokio::spawn(core.clone().run());
    site.until(MINUTE, || async { site.unit(&good).await.1.is_some() }).await;
    assert!(core.quarantined() >= 300);
    // Ever more rarely: in ten minutes each is tried ten times, not hundreds of times.
    site.clock.advance(10 * MINUTE).await;
    let late = site.submit(901, &site.keys[1]).await;
    core.signals().ring();
    site.until(MINUTE, || async { site.unit(&late).await.1.is_some() }).await;
    // Whatever broke them off is mended: they go on by themselves.
    site.prices.poisoned.lock().unwrap().clear();
    site.cloud.set_stock(&site.keys[2], 1000);
    site.until(11 * MINUTE, || async {
        site.unit(&broken[0]).await.1.is_some() && site.unit(&broken[299]).await.1.is_some()
    })
    .await;
    assert_eq!(core.quarantined(), 0);
}

#[tokio::test]
async fn a_lease_that_cannot_be_recovered_does_not_stop_the_start() {
    let site = Site::new(SimProfile::token()).await;
    let poisoned = site.submit(1, &site.keys[2]).await;
    let good = site.submit(2, &site.keys[1]).await;
    let (core, _) = site.server();
    let task = tokio::spawn(core.clone().run());
    site.clock.advance(MINUTE).await;
    task.abort();
    site.prices.poisoned.lock().unwrap().insert(site.keys[2].clone());
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    tokio::spawn(core.clone().run());
    core.step(&good, false, |unit, context| unit.stop(context)).await.unwrap();
    site.until(30 * MINUTE, || async { site.unit(&good).await.0.cleanup_confirmed }).await;
    assert_eq!(site.unit(&poisoned).await.0.state, TrialState::Provisioning);
}

#[tokio::test]
async fn leases_of_a_provider_that_is_gone_are_held_and_go_on_when_it_is_back() {
    let site = Site::new(SimProfile::token()).await;
    let trial = site.submit(1, &site.keys[1]).await;
    let (core, _) = site.server();
    let task = tokio::spawn(core.clone().run());
    site.clock.advance(MINUTE).await;
    task.abort();
    let (core, sweeper) = site.server_with(false);
    core.recover(Others::Ended).await.unwrap();
    assert_eq!(sweeper.providers().count(), 0);
    let task = tokio::spawn(core.clone().run());
    core.step(&trial, false, |unit, context| unit.stop(context)).await.unwrap();
    site.clock.advance(600 * MINUTE).await;
    let (row, lease) = site.unit(&trial).await;
    let lease = lease.unwrap();
    assert_eq!((row.state, row.cleanup_confirmed), (TrialState::Cancelled, false));
    assert_eq!(lease.state, LeaseState::Releasing);
    assert!(lease.last_error.unwrap().contains("not connected"));
    assert!(!core.is_connected(&lease.offer.provider));
    assert_eq!(site.live().len(), 1);
    task.abort();
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    tokio::spawn(core.run());
    site.until(30 * MINUTE, || async { site.unit(&trial).await.0.cleanup_confirmed }).await;
    assert!(site.live().is_empty());
}

#[tokio::test]
async fn a_release_that_takes_too_long_alerts_ever_more_rarely_and_goes_on() {
    let site = Site::new(SimProfile::token()).await;
    let trial = site.submit(1, &site.keys[1]).await;
    let (core, _) = site.server();
    tokio::spawn(core.clone().run());
    site.clock.advance(MINUTE).await;
    let refused = Some(site.after(11 * 60 * MINUTE));
    site.cloud.script_until(Some(Verb::Terminate), refused, Outcome::Auth);
    site.cloud.script_until(Some(Verb::Describe), refused, Outcome::Auth);
    core.step(&trial, false, |unit, context| unit.stop(context)).await.unwrap();
    let alerts = async || {
        let job = site.store.unit(&trial).await.unwrap().unwrap().0.id;
        let events = site.store.events(&project(), &job).await.unwrap();
        let overdue = events.into_iter().filter(|event| event.kind == "lease.release_overdue");
        overdue.map(|event| event.at).collect::<Vec<_>>()
    };
    site.clock.advance(9 * MINUTE).await;
    assert!(alerts().await.is_empty());
    site.clock.advance(10 * 60 * MINUTE).await;
    let told = alerts().await;
    // After 10, 20, 40, 80, … minutes; a day at most between two.
    assert!((5..=6).contains(&told.len()), "{told:?}");
    let calls = site.cloud.calls(Verb::Terminate);
    assert!(calls > 10 * 60 / 2, "it never gives up: {calls}");
    assert_eq!(core.metrics().read().alerts["lease.release_overdue"], told.len() as u64);
    site.until(3 * 60 * MINUTE, || async { site.unit(&trial).await.0.cleanup_confirmed }).await;
    assert!(site.live().is_empty());
}

#[tokio::test]
async fn a_server_that_starts_beside_another_leaves_its_calls_to_it() {
    for others in [Others::MayLive, Others::Ended] {
        let site = Site::new(SimProfile::label_only()).await;
        // On its way for longer than it takes to be sure that there is no node.
        let slow = Outcome::Delay(100 * Duration::from_secs(1), Box::new(Outcome::Ok));
        site.cloud.script(Verb::Launch, slow);
        let trial = site.submit(1, &site.keys[1]).await;
        let (first, _) = site.server();
        tokio::spawn(first.clone().run());
        site.until(MINUTE, || async { site.unit(&trial).await.1.is_some() }).await;
        let call = site.unit(&trial).await.1.unwrap().in_flight;

        let (second, _) = site.server();
        second.recover(others).await.unwrap();
        let lease = site.unit(&trial).await.1.unwrap();
        if others == Others::Ended {
            assert_eq!(lease.state, LeaseState::Unknown);
            continue;
        }
        assert_eq!((lease.state, lease.in_flight), (LeaseState::Launching, call));
        tokio::spawn(second.run());
        site.until(3 * MINUTE, || async {
            site.unit(&trial).await.1.unwrap().state == LeaseState::Booting
        })
        .await;
        assert_eq!((site.cloud.calls(Verb::Launch), site.cloud.calls(Verb::Find)), (1, 0));
    }
}
