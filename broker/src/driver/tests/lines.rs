//! The order of those who wait for a machine of one's own.

use std::time::Duration;

use runwhere_engine::{Context, TrialState, Unit};
use runwhere_model::{Bootstrapping, TrialId};
use runwhere_providers::testing::{SimProfile, Verb};

use super::site::Site;
use crate::driver::Others;

const MINUTE: Duration = Duration::from_secs(60);

/// A machine of one's own with so much room.
async fn machine(stock: u32) -> Site {
    let mut profile = SimProfile::token();
    profile.capabilities.bootstrapping = Bootstrapping::Direct;
    profile.capabilities.needs_public_url = false;
    let site = Site::new(profile).await;
    site.cloud.set_stock(&site.keys[1], stock);
    site
}

/// Which of the trials have a node.
async fn holding(site: &Site, trials: &[TrialId]) -> Vec<usize> {
    let mut found = Vec::new();
    for (number, trial) in trials.iter().enumerate() {
        let (_, lease) = site.unit(trial).await;
        if lease.is_some_and(|lease| lease.node.is_some() && !lease.state.is_terminal()) {
            found.push(number);
        }
    }
    found
}

#[tokio::test]
async fn sixteen_trials_take_three_places_in_order() {
    let site = machine(3).await;
    let mut trials = Vec::new();
    for number in 0..16 {
        trials.push(site.submit(number, &site.keys[1]).await);
    }
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    let looking = tokio::spawn(core.clone().run());
    for first in 0..16 {
        // Three at a time, and always those that came first.
        let wanted: Vec<usize> = (first..16.min(first + 3)).collect();
        site.until(5 * MINUTE, || async { holding(&site, &trials).await == wanted }).await;
        let stop = |unit: Unit, context: &Context<'_>| unit.stop(context);
        core.step_to_end(trials[first].clone(), false, stop).await.unwrap();
    }
    site.until(5 * MINUTE, || async { holding(&site, &trials).await.is_empty() }).await;
    for trial in &trials {
        assert_eq!(site.unit(trial).await.0.state, TrialState::Cancelled);
    }
    looking.abort();
}

#[tokio::test]
async fn a_stopped_or_restarted_line_keeps_its_order() {
    let site = machine(1).await;
    let mut trials = Vec::new();
    for number in 0..5 {
        trials.push(site.submit(number, &site.keys[1]).await);
    }
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    let looking = tokio::spawn(core.clone().run());
    site.until(5 * MINUTE, || async { holding(&site, &trials).await == [0] }).await;
    looking.abort();
    // Another process; the second in the line is stopped while it waits.
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    let looking = tokio::spawn(core.clone().run());
    for number in [1, 0] {
        let stop = |unit: Unit, context: &Context<'_>| unit.stop(context);
        core.step_to_end(trials[number].clone(), false, stop).await.unwrap();
    }
    site.until(5 * MINUTE, || async { holding(&site, &trials).await == [2] }).await;
    looking.abort();
}

#[tokio::test]
async fn a_place_freed_through_another_offer_wakes_who_waits() {
    let site = machine(1).await;
    let [large, small] = [&site.keys[0], &site.keys[1]];
    let holder = site.submit(0, small).await;
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    let looking = tokio::spawn(core.clone().run());
    let first = [holder.clone()];
    site.until(5 * MINUTE, || async { holding(&site, &first).await == [0] }).await;
    // One machine: what runs in the one kind of place leaves none of the other.
    site.cloud.set_stock(large, 0);
    let mut trials = vec![holder.clone()];
    for number in 1..4 {
        trials.push(site.submit(number, large).await);
    }
    core.signals.ring();
    // Until the pause between two tries is a minute; the holder's node may not take longer to boot.
    for _ in 0..420 {
        site.clock.advance(Duration::from_secs(1)).await;
    }
    // Nobody asks again and again while nothing changes.
    let asked = site.cloud.calls(Verb::Launch);
    assert!((8..24).contains(&asked), "{asked}");
    site.cloud.set_stock(large, 2);
    let stop = |unit: Unit, context: &Context<'_>| unit.stop(context);
    core.step_to_end(holder.clone(), false, stop).await.unwrap();
    site.until(5 * MINUTE, || async { holding(&site, &trials).await == [1, 2] }).await;
    let ended = site.unit(&holder).await.1.unwrap();
    assert!(ended.state.is_terminal());
    for trial in &trials[1..3] {
        let launched = site.unit(trial).await.1.unwrap().launched_at.unwrap();
        let waited = launched.duration_since(ended.since);
        assert!(waited.as_secs().abs() <= 2, "{waited}");
    }
    looking.abort();
}
