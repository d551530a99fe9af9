//! Faults 61 to 69: the broker's own trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use runwhere_broker::driver::{Core, Others, Sweeper};
use runwhere_broker::ports::Prices;
use runwhere_broker::store::{MemoryStore, Row, Store, Transition};
use runwhere_engine::{EndReason, FxRate, LeaseState, TrialState};
use runwhere_model::{Currency, GpuCount, GpuModelId, Offer, OfferCode, OfferKey, ProviderId};
use runwhere_providers::testing::{Outcome, SimProfile, Verb};
use runwhere_providers::{Clock as _, Registry};
use rust_decimal::Decimal;

use super::catalogue::Catalogue;
use super::ledge::{Fate, Ledge, of_leases};
use super::spy::Hang;
use super::world::{Broker, World, project_row, seconds, workspace_row};

fn world_on(store: &Arc<Ledge>, profile: SimProfile) -> World {
    World::over(profile, store.clone())
}

#[test]
fn fault_61_the_database_is_down_at_each_write() {
    // Down from the submit on: there is no launch without a durable intent.
    let store = Ledge::new();
    let mut world = world_on(&store, SimProfile::label_only());
    store.rule_is(Fate::Fails, of_leases);
    let trial = world.submit();
    world.pass(seconds(600));
    assert!(store.met() > 0);
    assert_eq!(world.cloud.calls(Verb::Launch), 0);
    store.heal();
    let agent = world.running(&trial);
    assert_eq!(world.cloud.calls(Verb::Launch), 1);
    // Down while an answer is on its way: it is held, and nothing is asked for again.
    world.finish(&agent, 0);
    world.clean(&trial);
    let trial = world.submit();
    world.cloud.script(Verb::Launch, Outcome::Delay(seconds(20), Box::new(Outcome::Ok)));
    world.pass(seconds(10));
    assert_eq!(world.lease_state(&trial), Some(LeaseState::Launching));
    store.rule_is(Fate::Fails, |_| true);
    world.pass(seconds(60));
    assert!(store.heal() > 10);
    world.pass(seconds(2));
    assert!(world.lease(&trial).node.is_some(), "the answer was not lost");
    let agent = world.running(&trial);
    assert_eq!(world.cloud.calls(Verb::Launch), 2);
    // Down in the release.
    store.rule_is(Fate::Fails, of_leases);
    let service = world.broker().agents.clone();
    agent.note(world.clock.now(), super::agent::exited(0));
    assert!(world.run(agent.send(service.as_ref())).is_ok(), "the trial's row is written");
    world.pass(seconds(300));
    store.heal();
    for kind in super::agent::ending(None) {
        world.say(&agent, kind).unwrap();
    }
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.assert_clean(&trial);
}

#[test]
fn fault_62_a_commit_that_succeeded_and_did_not_say_so() {
    for profile in [SimProfile::label_only(), SimProfile::unique_name()] {
        let store = Ledge::new();
        let mut world = world_on(&store, profile);
        let trial = world.submit();
        // One of three of all commits.
        let number = std::sync::Mutex::new(0_u32);
        store.rule_is(Fate::Unsaid, move |_| {
            let mut number = number.lock().unwrap();
            *number += 1;
            number.is_multiple_of(3)
        });
        let agent = loop {
            // An agent whose event was not acknowledged sends it again.
            let node = world.node(&trial);
            let agent = world.agent(&trial, &node);
            if world.join(&agent).is_ok() {
                break agent;
            }
        };
        let say = |kinds: Vec<_>| {
            for kind in kinds {
                agent.note(world.clock.now(), kind);
            }
            let service = world.broker().agents.clone();
            while world.run(agent.send(service.as_ref())).is_err() {
                world.pass(seconds(1));
            }
        };
        say(vec![super::agent::booted(), super::agent::gpus_ready(), super::agent::started()]);
        say(vec![super::agent::exited(0)]);
        say(super::agent::ending(None).to_vec());
        world.clean(&trial);
        assert!(store.heal() > 3);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        assert_eq!(world.cloud.calls(Verb::Launch), 1);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_62_an_end_that_was_stored_without_saying_so_is_told() {
    let store = Ledge::new();
    let mut world = world_on(&store, SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    // Nothing else is due soon.
    world.until(seconds(600), "a quiet moment", |world| {
        world.lease(&trial).next_at.is_some_and(|at| at > world.at(20))
    });
    world.cut(&agent);
    let [sealed, collecting, collected, done] = super::agent::ending(None);
    for kind in [super::agent::exited(0), sealed, collecting, collected] {
        world.say(&agent, kind).unwrap();
    }
    world.pass(seconds(1));
    store.rule_is(Fate::Unsaid, |_| true);
    assert!(world.say(&agent, done).is_err());
    store.heal();
    assert_eq!(world.state(&trial), TrialState::Succeeded, "it is stored");
    // Who follows the job, and its log, hear of it as of any other end.
    world.pass(seconds(2));
    assert_eq!(world.told(&trial), Some(TrialState::Succeeded));
    world.clean(&trial);
    world.assert_clean(&trial);
}

#[test]
fn fault_63_two_processes_and_a_call_that_outlives_its_lock() {
    for profile in SimProfile::all() {
        let mut world = World::new(profile);
        // The second one works beside the first, in the same time.
        let Broker { core, .. } = world.process();
        world.spawn(Arc::clone(&core).run());
        // Slower than anybody waits for: taken for lost, its outcome is found, then it comes.
        let late = Outcome::Delay(seconds(400), Box::new(Outcome::Ok));
        world.cloud.script(Verb::Launch, late.clone());
        world.cloud.script(Verb::Terminate, late);
        let trials = [world.submit(), world.submit()];
        for trial in &trials {
            let agent = world.running(trial);
            world.finish(&agent, 0);
        }
        for trial in &trials {
            world.clean(trial);
            assert_eq!(world.state(trial), TrialState::Succeeded);
        }
        world.pass(seconds(1000));
        assert_eq!(world.cloud.calls(Verb::Launch), 2);
        world.assert_clean(&trials[0]);
    }
}

#[test]
fn fault_63_of_two_processes_one_makes_the_call() {
    // All of them read each row at the same instant.
    let mut world = World::over(SimProfile::label_only(), Ledge::slow());
    let others: Vec<Broker> = (0..2).map(|_| world.process()).collect();
    for other in &others {
        world.spawn(Arc::clone(&other.core).run());
    }
    let trials: Vec<_> = (0..8).map(|_| world.submit()).collect();
    for other in &others {
        other.core.signals().ring();
    }
    world.pass(seconds(300));
    assert_eq!(world.cloud.calls(Verb::Launch), 8);
    for trial in &trials {
        world.stop(trial);
        world.clean(trial);
    }
    world.assert_clean(&trials[0]);
}

fn of_launches(transition: &Transition) -> bool {
    let launching = |row: &Row| matches!(row, Row::Lease(l) if l.state == LeaseState::Launching);
    transition.rows.iter().any(launching)
}

#[test]
fn fault_63_a_process_that_slept_before_its_call_does_not_make_it() {
    for profile in SimProfile::all() {
        let store = Ledge::new();
        let mut world = world_on(&store, profile);
        store.hold_answer(of_launches);
        let trial = world.submit();
        world.pass(seconds(1));
        assert_eq!(world.lease_state(&trial), Some(LeaseState::Launching));
        let asleep = world.freeze();
        // Another one takes it over: nothing was made, so it launches anew.
        world.start();
        let agent = world.running(&trial);
        assert_eq!(world.cloud.calls(Verb::Launch), 1);
        store.let_go();
        world.thaw(&asleep);
        world.pass(seconds(600));
        assert_eq!(world.cloud.calls(Verb::Launch), 1);
        assert_eq!(world.live(), vec![agent.node()]);
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_63_a_process_that_slept_in_its_call() {
    for profile in SimProfile::all() {
        let reservation = profile.capabilities.minimum_reservation.unwrap_or_default();
        // Its call arrives after all, when another one has launched anew: what it made is ended.
        let mut world = World::new(profile.clone());
        world.spy.hang(Verb::Launch, Hang::Gate);
        let trial = world.submit();
        world.until(seconds(60), "the launch", |world| world.spy.hangs());
        let asleep = world.freeze();
        world.start();
        let agent = world.running(&trial);
        world.spy.let_go();
        world.thaw(&asleep);
        assert_eq!((world.cloud.calls(Verb::Launch), world.live().len()), (2, 2));
        let (clock, waits) = (Arc::clone(&world.clock), reservation + seconds(600));
        if !reservation.is_zero() {
            // What cannot be ended at once is left to the sweeper.
            world.spawn(Sweeper::new(world.broker().core.clone()).run());
        }
        let deadline = clock.now().checked_add(waits).unwrap();
        while clock.now() < deadline && world.live().len() > 1 {
            world.pass(seconds(10));
            world.thaw(&asleep);
        }
        assert_eq!(world.live(), vec![agent.node()]);
        assert_eq!(world.state(&trial), TrialState::Running);
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        world.assert_clean(&trial);

        // It had worked, and its answer is heard late: the other one has found what it made.
        let mut world = World::new(profile);
        world.cloud.script(Verb::Launch, Outcome::Delay(seconds(20), Box::new(Outcome::Ok)));
        let trial = world.submit();
        world.pass(seconds(1));
        let asleep = world.freeze();
        world.start();
        let agent = world.running(&trial);
        world.thaw(&asleep);
        world.pass(seconds(60));
        assert_eq!((world.cloud.calls(Verb::Launch), world.live()), (1, vec![agent.node()]));
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_63_a_late_answer_still_counts() {
    // Nobody else can find out what became of the call; then its answer is heard after all.
    let mut world = World::new(SimProfile::label_only());
    world.cloud.script(Verb::Launch, Outcome::Delay(seconds(20), Box::new(Outcome::Ok)));
    let trial = world.submit();
    world.pass(seconds(1));
    let asleep = world.freeze();
    let until = world.at(7200);
    let fails = Outcome::FailedNotDone(runwhere_model::ErrorKind::Transient);
    world.cloud.script_until(Some(Verb::Find), Some(until), fails);
    world.start();
    world.pass(seconds(300));
    assert_eq!(world.lease_state(&trial), Some(LeaseState::Unknown));
    world.thaw(&asleep);
    assert_eq!(world.lease_state(&trial), Some(LeaseState::Booting));
    drop(asleep);
    let agent = world.running(&trial);
    assert!(world.clock.now() < until);
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.cloud.calls(Verb::Launch), 1);
    world.assert_clean(&trial);
}

#[test]
fn fault_64_recovery_that_is_cut_off_and_repeated() {
    for profile in SimProfile::all() {
        let mut world = World::new(profile);
        world.spy.hang(Verb::Launch, Hang::After);
        let trial = world.submit();
        world.until(seconds(60), "the launch", |world| world.spy.hangs());
        // The recovery dies in its first look, then in its second.
        for hang in [Hang::Before, Hang::After] {
            world.spy.hang(Verb::Find, hang);
            world.restart();
            // At once: what the other process had under way is not waited for.
            world.until(seconds(10), "the look", |world| world.spy.hangs());
        }
        world.cloud.script(Verb::Find, Outcome::Delay(seconds(20), Box::new(Outcome::Ok)));
        world.restart();
        // And once more, while it already works: its own look is not taken for lost.
        let (core, looks) = (Arc::clone(&world.broker().core), world.cloud.calls(Verb::Find));
        assert!(world.lease(&trial).in_flight.is_some());
        world.run(async { core.recover(Others::Ended).await }).unwrap();
        world.pass(seconds(10));
        assert_eq!(world.cloud.calls(Verb::Find), looks);
        let agent = world.running(&trial);
        assert_eq!(world.cloud.calls(Verb::Launch), 1);
        world.finish(&agent, 0);
        world.clean(&trial);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_65_an_old_database_is_put_back() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    // What was saved before the job knows nothing of it.
    world.kill();
    world.store = Arc::new(MemoryStore::new());
    world.start();
    let sweeper = |core: &Arc<Core>| Sweeper::new(Arc::clone(core));
    let rows = vec![
        Row::Workspace(workspace_row(world.clock.now())),
        Row::Project(project_row(world.clock.now())),
    ];
    world.run(world.store.commit(Transition { rows, events: Vec::new() })).unwrap();
    world.broker().core.hold(true);
    world.spawn(sweeper(&world.broker().core).run());
    let launches = world.cloud.calls(Verb::Launch);
    let waiting = world.submit_as(world.request("waits"));
    world.pass(seconds(4 * 3600));
    assert_eq!(world.live(), vec![agent.node()], "only reported");
    assert_eq!(world.cloud.calls(Verb::Terminate), 0);
    // Nothing is launched either: what it would be beside is not known. The user is told.
    assert_eq!(world.cloud.calls(Verb::Launch), launches);
    let row = world.trial(&waiting);
    assert_eq!(row.state, TrialState::Queued);
    assert!(row.waiting_for.is_some_and(|why| why.contains("restored")));
    let provider = ProviderId::new("sim").unwrap();
    let report =
        world.run(async { sweeper(&world.broker().core).dry_run(&provider).await.unwrap() });
    assert!(report.held && report.strays.len() == 1, "{report:#?}");
    // Until an operator says that this is the truth.
    world.broker().core.hold(false);
    world.until(seconds(3600), "its end", |world| !world.live().contains(&agent.node()));
    let agent = world.running(&waiting);
    world.finish(&agent, 0);
    world.clean(&waiting);
    assert_eq!(world.state(&waiting), TrialState::Succeeded);
}

#[test]
fn fault_67_a_budget_that_is_used_up() {
    let mut world = World::new(SimProfile::token());
    // Three hours' worth: one is bound for each launch, at 3.10 USD.
    world.set_budget(Decimal::new(930, 2));
    let trials: Vec<_> = (0..5).map(|_| world.submit()).collect();
    world.pass(seconds(60));
    let refused: Vec<_> =
        trials.iter().filter(|trial| world.state(trial) == TrialState::Failed).collect();
    assert_eq!(refused.len(), 2);
    for trial in refused {
        assert_eq!(world.end_reason(trial), EndReason::BudgetExceeded);
    }
    assert_eq!(world.truth().nodes.len(), 3);
    let running: Vec<_> =
        trials.iter().filter(|trial| !world.state(trial).is_terminal()).cloned().collect();
    for trial in &running {
        world.running(trial);
    }
    // A release that cannot be confirmed stays bound.
    let fails = Outcome::FailedNotDone(runwhere_model::ErrorKind::Transient);
    world.cloud.script_until(Some(Verb::Terminate), None, fails);
    let first = &running[0];
    world.stop(first);
    world.pass(seconds(1500));
    assert!(world.state(first).is_terminal());
    let next = world.try_submit(world.request("next"));
    let told = format!("{:?}", next.expect_err("what may still be owed is not spent twice"));
    assert!(told.to_lowercase().contains("budget"), "{told}");
    world.cloud.heal();
    world.clean(first);
    let budget = world.budget();
    assert!(budget.spent > Decimal::ZERO && budget.committed() <= Decimal::new(930, 2));
    assert_eq!(budget.reserved.len(), 2);
}

/// A catalogue that panics over one offer.
#[derive(Debug)]
struct Poison(Arc<Catalogue>, OfferKey, Arc<AtomicBool>, Arc<AtomicU32>);

impl Prices for Poison {
    fn offer(&self, key: &OfferKey) -> Option<Offer> {
        if *key == self.1 && self.2.load(Ordering::Relaxed) {
            self.3.fetch_add(1, Ordering::Relaxed);
            panic!("poison");
        }
        self.0.offer(key)
    }
    fn by_code(&self, code: OfferCode) -> Option<OfferKey> {
        self.0.by_code(code)
    }
    fn best(&self, model: GpuModelId, count: GpuCount) -> Vec<Offer> {
        self.0.best(model, count)
    }
    fn suggest(&self, text: &str) -> Vec<GpuModelId> {
        self.0.suggest(text)
    }
    fn rate(&self, from: Currency, to: Currency) -> Option<FxRate> {
        self.0.rate(from, to)
    }
    fn snapshot(&self) -> String {
        self.0.snapshot()
    }
}

#[test]
fn fault_68_a_job_that_breaks_every_step() {
    let mut world = World::new(SimProfile::token());
    let bad = world.cloud.keys()[2].clone();
    let poisoned = Arc::new(AtomicBool::new(false));
    let mut registry = Registry::new();
    registry.add(world.spy.clone());
    world.kill();
    let tries = Arc::new(AtomicU32::new(0));
    let prices = Poison(world.prices.clone(), bad.clone(), poisoned.clone(), tries.clone());
    let broker = world.process_with(registry, Arc::new(prices));
    world.start_as(broker);
    let mut request = world.request("bad");
    request.offer_key = Some(bad.to_string());
    world.cloud.set_stock(&bad, 0);
    let poison = world.submit_as(request);
    poisoned.store(true, Ordering::Relaxed);
    let good: Vec<_> = (0..3).map(|_| world.submit()).collect();
    for trial in &good {
        let agent = world.running(trial);
        world.finish(&agent, 0);
        world.clean(trial);
    }
    world.pass(seconds(3600));
    assert!(!world.state(&poison).is_terminal());
    assert_eq!(world.broker().core.quarantined(), 1);
    // An hour and more: 2, 4, 8, … seconds, then every ten minutes.
    let tries = tries.load(Ordering::Relaxed);
    assert!((8..=20).contains(&tries), "left alone for longer and longer: {tries}");
    // Once the cause is gone it goes on by itself.
    poisoned.store(false, Ordering::Relaxed);
    world.cloud.set_stock(&bad, 8);
    let agent = world.running(&poison);
    world.finish(&agent, 0);
    world.clean(&poison);
    assert_eq!(world.state(&poison), TrialState::Succeeded);
}

#[test]
fn fault_69_listings_that_change_while_they_are_read() {
    let mut world = World::new(SimProfile::unique_name());
    world.policy.sweep_age = seconds(60);
    world.policy.sweep_every = seconds(20);
    world.restart();
    world.spawn(Sweeper::new(world.broker().core.clone()).run());
    // Nodes come and go all the time while some of them work.
    let keep: Vec<_> = (0..2).map(|_| world.submit()).collect();
    let agents: Vec<_> = keep.iter().map(|trial| world.running(trial)).collect();
    let mut stray = world.spy.requests()[0].clone();
    for number in 0..40 {
        let trial = world.submit();
        if number == 5 {
            stray.lease = "lease-of-nobody".parse().unwrap();
            let launched =
                world.run(runwhere_providers::Provider::launch(&world.cloud, &stray)).unwrap();
            assert!(launched.surplus.is_empty());
        }
        let outcome = if number % 2 == 0 { Outcome::Gap } else { Outcome::Duplicates };
        world.cloud.script(Verb::Nodes, outcome.clone());
        world.cloud.script(Verb::Find, outcome);
        world.pass(seconds(17));
        world.stop(&trial);
        world.pass(seconds(6));
    }
    for (trial, agent) in keep.iter().zip(&agents) {
        assert_eq!(world.state(trial), TrialState::Running, "never taken for absent or unowned");
        world.finish(agent, 0);
        world.clean(trial);
    }
    world.cloud.heal();
    // Lists that show everything twice all the time: that is one look each.
    world.cloud.script_until(Some(Verb::Nodes), None, Outcome::Duplicates);
    stray.lease = "lease-of-nobody-too".parse().unwrap();
    world.run(runwhere_providers::Provider::launch(&world.cloud, &stray)).unwrap();
    world.until(seconds(7200), "the end of what nobody owns", |world| world.live().is_empty());
    world.cloud.heal();
    // A launch whose answer was lost, and lists that miss what it made: absence takes several.
    let launches = world.cloud.calls(Verb::Launch);
    world.cloud.script(Verb::Launch, Outcome::DoneReplyLost);
    for outcome in [Outcome::Gap, Outcome::Duplicates, Outcome::Gap] {
        world.cloud.script(Verb::Find, outcome);
    }
    let trial = world.submit();
    let agent = world.running(&trial);
    assert_eq!(world.cloud.calls(Verb::Launch), launches + 1);
    assert!(world.lease(&trial).surplus.is_empty(), "a row that is shown twice is one node");
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
}

#[test]
fn a_store_that_fails_changes_no_rows() {
    let store = Ledge::new();
    store.rule_is(Fate::Fails, |_| true);
    let world = World::new(SimProfile::token());
    let rows = vec![Row::Budget(world.budget())];
    let fails = world.run(store.commit(Transition { rows, events: Vec::new() }));
    assert!(fails.is_err() && store.met() == 1);
}
