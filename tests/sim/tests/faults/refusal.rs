//! Faults 10 to 14 and 17: no machine, or none at that price.

use runwhere_engine::{EndReason, LeaseState, TrialState};
use runwhere_model::{BlockScope, ErrorKind};
use runwhere_providers::testing::{Outcome, SimProfile, Verb};

use super::world::{World, seconds, usd};

#[test]
fn fault_10_no_stock_is_typed_bounded_and_asked_for_rarely() {
    let asked = |trials: usize| {
        let mut world = World::new(SimProfile::token());
        world.policy.queue_limit = seconds(900);
        world.restart();
        world.cloud.set_stock(&world.offer(), 0);
        let trials: Vec<_> = (0..trials).map(|_| world.submit()).collect();
        for trial in &trials {
            world.until(seconds(1800), "the end", |world| world.state(trial).is_terminal());
            let EndReason::NoCapacity { detail } = world.end_reason(trial) else {
                panic!("{:?}", world.end_reason(trial));
            };
            assert!(detail.contains(&world.offer().to_string()), "{detail}");
            assert!(detail.contains("capacity") && detail.contains("none left"), "{detail}");
            let refusals = world.trial(trial).refusals;
            assert_eq!(refusals[0].kind, ErrorKind::Capacity);
            world.assert_clean(trial);
        }
        world.cloud.calls(Verb::Launch)
    };
    let alone = asked(1);
    assert!((8..=25).contains(&alone), "{alone}");
    // Ten that want the same do not ask ten times as often.
    let ten = asked(10);
    assert!(ten <= alone * 4, "{ten} against {alone}");
}

#[test]
fn fault_11_a_quota_blocks_its_scope_and_is_shown() {
    let mut world = World::new(SimProfile::token());
    let refused = Outcome::Refused(ErrorKind::Quota, BlockScope::Region, None);
    world.cloud.script_until(Some(Verb::Launch), None, refused);
    let trial = world.submit();
    world.pass(seconds(3600));
    let calls = world.cloud.calls(Verb::Launch);
    assert!((2..=12).contains(&calls), "{calls} in an hour");
    let row = world.trial(&trial);
    assert!(row.waiting_for.unwrap().starts_with("quota"), "shown to the user");
    assert_eq!(row.refusals[0].kind, ErrorKind::Quota);
    // Refused a moment ago, the same region is not asked for something else; another region is. How long after a
    // refusal's end the trial itself asks again is its id's to say, so only then the refusal is sure to hold.
    world.until(seconds(1800), "the next refusal", |world| world.cloud.calls(Verb::Launch) > calls);
    let mut east = world.request("east");
    east.offer_key = Some(world.cloud.keys()[0].to_string());
    east.yaml = east.yaml.replace("gpuNum: 1", "gpuNum: 8");
    let before = world.cloud.calls(Verb::Launch);
    let east = world.submit_as(east);
    world.pass(seconds(5));
    assert_eq!(world.cloud.calls(Verb::Launch), before);
    let mut west = world.request("west");
    west.offer_key = Some(world.cloud.keys()[2].to_string());
    world.cloud.heal();
    let west = world.submit_as(west);
    world.pass(seconds(5));
    assert_eq!(world.cloud.calls(Verb::Launch), before + 1);
    // And a stop ends the wait.
    let trials = [trial, east, west];
    for trial in &trials {
        world.stop(trial);
        world.clean(trial);
        assert_eq!(world.state(trial), TrialState::Cancelled);
    }
    world.assert_clean(&trials[0]);
}

#[test]
fn fault_12_throttled_launches_wait_and_releases_do_not() {
    let mut world = World::new(SimProfile::token());
    let first = world.submit();
    let agent = world.running(&first);
    world.cloud.script(Verb::Launch, Outcome::Throttle(Some(seconds(300))));
    let second = world.submit();
    world.pass(seconds(10));
    let third = world.submit();
    let throttled = *world.truth().launched_at.last().unwrap();
    let terminates = world.cloud.calls(Verb::Terminate);
    world.finish(&agent, 0);
    world.pass(seconds(60));
    assert!(world.cloud.calls(Verb::Terminate) > terminates, "the release goes on");
    assert_eq!(*world.truth().launched_at.last().unwrap(), throttled);
    let agents = [world.running(&second), world.running(&third)];
    let next = world.truth().launched_at.into_iter().find(|at| *at > throttled).unwrap();
    assert!(next.duration_since(throttled).as_secs() >= 300, "Retry-After is honoured by all");
    for agent in &agents {
        world.finish(agent, 0);
    }
    for trial in [&first, &second, &third] {
        world.clean(trial);
    }
    world.assert_clean(&first);
}

#[test]
fn fault_13_refused_credentials_fail_at_once_and_do_not_cascade() {
    let mut world = World::new(SimProfile::token());
    world.cloud.script_until(Some(Verb::Launch), None, Outcome::Auth);
    let mut trials = Vec::new();
    for _ in 0..25 {
        trials.push(world.submit());
        world.pass(seconds(1));
    }
    for trial in &trials {
        let EndReason::LaunchRefused { detail } = world.end_reason(trial) else {
            panic!("{:?}", world.end_reason(trial));
        };
        assert!(detail.starts_with("auth"), "{detail}");
        world.assert_clean(trial);
    }
    assert_eq!(world.cloud.calls(Verb::Launch), 1);
    // Once they are accepted again, so are launches, without a restart.
    world.cloud.heal();
    world.pass(seconds(120));
    let trial = world.submit();
    let agent = world.running(&trial);
    world.finish(&agent, 0);
    world.clean(&trial);
    world.assert_clean(&trial);
}

#[test]
fn fault_14_an_accepted_launch_dies_for_want_of_capacity() {
    for profile in [SimProfile::unique_name(), SimProfile::token(), SimProfile::token_billed_stop()]
    {
        let mut world = World::new(profile);
        // More often than a node may fail: stock is no fault of a node.
        for _ in 0..5 {
            world.cloud.script(Verb::Launch, Outcome::CapacityLater);
        }
        let trial = world.submit();
        world.until(seconds(7200), "five tries", |world| world.truth().nodes.len() == 5);
        world.until(seconds(600), "their end", |world| {
            world.lease_state(&trial).is_some_and(LeaseState::is_terminal)
        });
        assert_eq!((world.metered(), world.charged(&trial)), (0, 0));
        let row = world.trial(&trial);
        assert_eq!(row.state, TrialState::Queued, "{row:#?}");
        assert_eq!(row.refusals[0].kind, ErrorKind::Capacity);
        let agent = world.running(&trial);
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.charged(&trial), world.metered());
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_17_the_price_rises_before_the_launch() {
    let mut world = World::new(SimProfile::token());
    let offer = world.offer();
    world.cloud.set_stock(&offer, 0);
    let trial = world.submit();
    world.until(seconds(60), "the wait", |world| world.trial(&trial).waiting_for.is_some());
    let calls = world.cloud.calls(Verb::Launch);
    world.cloud.set_stock(&offer, 8);
    world.cloud.set_price(&offer, Some(usd(311)));
    world.prices.set_price(&offer, usd(311));
    world.clean(&trial);
    assert_eq!(world.end_reason(&trial), EndReason::PriceChanged);
    assert_eq!(world.cloud.calls(Verb::Launch), calls);
    assert!(world.truth().nodes.is_empty());
    world.assert_clean(&trial);
}
