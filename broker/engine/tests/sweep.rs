//! What a sweep may and must decide, for any list, rows and order of looks.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use runwhere_engine::{
    AgentSession, CallKind, Claim, Evidence, Lease, LeaseState, Look, Meter, Policy, PriceSnapshot,
    Stray, StrayCause, StrayState, Surplus, Sweep, SweepCounts, SweepRefused, SweeperState,
    Verdict, sweep,
};
use runwhere_model::{
    Bootstrapping, Capabilities, Currency, Deadman, DeploymentId, GpuCount, HourlyPrice, Identity,
    JobId, LeaseId, Metering, NodeId, NodeList, NodePhase, NodeState, ProjectId, ProviderError,
    ProviderId, SeenNode, StopEffect, TrialId, WorkspaceId,
};
use rust_decimal::Decimal;

const START: i64 = 1_767_225_600;
const SETTLE: u64 = 30;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).unwrap()
}

fn capabilities() -> Capabilities {
    Capabilities {
        identity: Identity::Token,
        settle: Duration::from_secs(SETTLE),
        absent_reads: 2,
        tags: true,
        spot: false,
        reclaim_notice: None,
        states_stock: false,
        states_times: true,
        states_usage: false,
        stop: StopEffect::None,
        minimum_reservation: None,
        deadman: Deadman::None,
        bootstrapping: Bootstrapping::UserData,
        needs_public_url: false,
        metering: Metering::PER_SECOND,
        boot_timeout: Duration::from_secs(600),
    }
}

fn price() -> HourlyPrice {
    HourlyPrice { amount: Decimal::new(360, 2), currency: Currency::USD }
}

fn node_id(number: u8) -> NodeId {
    NodeId::new(format!("n{number}")).unwrap()
}

fn lease_id(number: u8) -> LeaseId {
    LeaseId::new(format!("lease-{number}")).unwrap()
}

fn lease(number: u8, state: LeaseState, since: i64) -> Lease {
    Lease {
        id: lease_id(number),
        version: 1,
        epoch: 1,
        workspace: WorkspaceId::new("w").unwrap(),
        project: ProjectId::new("p").unwrap(),
        job: JobId::new("job-1").unwrap(),
        trial: TrialId::new("job-1.0").unwrap(),
        offer: "sim/r/z/on_demand/t".parse().unwrap(),
        gpu_count: GpuCount::whole(1).unwrap(),
        gpu_model: None,
        state,
        since: at(since),
        token: String::new(),
        ceiling: price(),
        price: PriceSnapshot {
            price: price(),
            source: String::new(),
            observed_at: None,
            snapshot: String::new(),
        },
        capabilities: capabilities(),
        intended_at: at(0),
        launched_at: Some(at(0)),
        node: None,
        surplus: Vec::new(),
        surplus_ended: BTreeMap::new(),
        alone_since: None,
        recheck_at: None,
        seen_at: None,
        release_wanted: false,
        release_acked: false,
        absent_reads: Vec::new(),
        release_failures: 0,
        alerts: 0,
        hold: None,
        unreachable_since: None,
        reclaim_at: None,
        end_cause: None,
        last_error: None,
        in_flight: None,
        agent: AgentSession::default(),
        meter: Meter::default(),
        evidence: None,
        settled_at: None,
        settle_tries: 0,
        next_at: None,
    }
}

fn seen(node: u8, label: Option<u8>, created: Option<i64>) -> SeenNode {
    SeenNode {
        state: NodeState {
            node: node_id(node),
            phase: NodePhase::Running,
            started_at: Some(at(0)),
            stopped_at: None,
            reason: None,
            cause: None,
            billed_price: None,
            region: None,
            zone: None,
        },
        deployment: Some(DeploymentId::new("ours").unwrap()),
        lease: label.map(lease_id),
        created_at: created.map(at),
    }
}

fn list(nodes: Vec<SeenNode>) -> NodeList {
    NodeList { nodes, foreign: 0, complete: true }
}

/// Rows that look after look changes.
#[derive(Default)]
struct Rows {
    leases: BTreeMap<LeaseId, Lease>,
    strays: BTreeMap<NodeId, Stray>,
}

impl Rows {
    fn with(leases: Vec<Lease>) -> Self {
        Self {
            leases: leases.into_iter().map(|lease| (lease.id.clone(), lease)).collect(),
            ..Self::default()
        }
    }

    fn look(&mut self, list: &NodeList, now: i64) -> Sweep {
        let swept = self.judge(list, now, true).unwrap();
        for step in &swept.strays {
            self.strays.insert(step.stray.node().clone(), step.stray.clone());
        }
        swept
    }

    fn judge(&self, list: &NodeList, now: i64, may_end: bool) -> Result<Sweep, SweepRefused> {
        sweep(&Look {
            provider: &ProviderId::new("sim").unwrap(),
            deployment: &DeploymentId::new("ours").unwrap(),
            capabilities: &capabilities(),
            policy: &Policy::default(),
            list,
            listed_at: at(now),
            answered_at: at(now),
            leases_read_at: at(now),
            leases: &self.leases,
            strays: &self.strays,
            may_end,
            now: at(now),
        })
    }

    fn state(&self, node: u8) -> Option<StrayState> {
        self.strays.get(&node_id(node)).map(|stray| stray.state)
    }
}

#[test]
fn leases_that_were_read_before_the_list_was_there_are_refused() {
    let rows = Rows::default();
    let list = list(vec![]);
    let provider = ProviderId::new("sim").unwrap();
    let deployment = DeploymentId::new("ours").unwrap();
    let (capabilities, policy) = (capabilities(), Policy::default());
    let look = Look {
        provider: &provider,
        deployment: &deployment,
        capabilities: &capabilities,
        policy: &policy,
        list: &list,
        listed_at: at(10),
        answered_at: at(20),
        leases_read_at: at(19),
        leases: &rows.leases,
        strays: &rows.strays,
        may_end: true,
        now: at(20),
    };
    assert_eq!(sweep(&look).unwrap_err(), SweepRefused::LeasesFirst);
    assert!(sweep(&Look { leases_read_at: at(20), ..look }).is_ok());
}

#[test]
fn two_looks_apart_and_an_age_are_needed() {
    // Old by the cloud's word: the second look decides.
    let mut rows = Rows::default();
    let old = list(vec![seen(1, Some(9), Some(-4000))]);
    assert_eq!(rows.look(&old, 0).findings[0].verdict, Verdict::Suspected);
    let swept = rows.look(&old, i64::try_from(SETTLE).unwrap() - 1);
    assert_eq!(swept.findings[0].verdict, Verdict::Suspected, "too soon after the first look");
    assert_eq!(swept.again_at, Some(at(30)));
    let swept = rows.look(&old, 30);
    assert_eq!(swept.findings[0].verdict, Verdict::End);
    assert_eq!(rows.state(1), Some(StrayState::Ending));
    assert_eq!(rows.look(&old, 31).findings[0].verdict, Verdict::Ending);
    // Without the cloud's word its age counts from the first look.
    let mut rows = Rows::default();
    let unstated = list(vec![seen(1, Some(9), None)]);
    for now in [0, 100, 299] {
        assert_eq!(rows.look(&unstated, now).findings[0].verdict, Verdict::Young);
    }
    assert_eq!(rows.look(&unstated, 300).findings[0].verdict, Verdict::End);
    // A cloud whose clock runs ahead does not make it young for ever.
    let mut rows = Rows::default();
    let ahead = list(vec![seen(1, Some(9), Some(1_000_000))]);
    rows.look(&ahead, 0);
    assert_eq!(rows.look(&ahead, 300).findings[0].verdict, Verdict::End);
}

#[test]
fn a_row_shown_twice_is_one_look() {
    let mut rows = Rows::default();
    let twice = list(vec![seen(1, None, Some(-4000)), seen(1, None, Some(-4000))]);
    let swept = rows.look(&twice, 0);
    assert_eq!((swept.findings.len(), swept.counts.live), (1, 1));
    assert_eq!(rows.strays[&node_id(1)].looks, 1);
    assert_eq!(rows.strays[&node_id(1)].cause, StrayCause::NoLease);
}

#[test]
fn a_suspect_that_is_no_longer_shown_is_proven_gone_by_complete_lists_only() {
    let mut rows = Rows::with(vec![lease(9, LeaseState::Void, -9000)]);
    let shown = list(vec![seen(1, Some(9), Some(-10))]);
    rows.look(&shown, 0);
    let cut = NodeList { complete: false, ..list(vec![]) };
    for now in [60, 120, 180] {
        rows.look(&cut, now);
        assert_eq!(rows.state(1), Some(StrayState::Suspected));
    }
    rows.look(&list(vec![]), 200);
    assert_eq!(rows.state(1), Some(StrayState::Suspected), "one list is no proof");
    let swept = rows.look(&list(vec![]), 231);
    assert_eq!(rows.state(1), Some(StrayState::Cleared));
    let stray = &rows.strays[&node_id(1)];
    assert!(
        matches!(&stray.evidence, Some(Evidence::AbsentReads { reads, .. }) if reads.len() == 2)
    );
    // Its time is its project's: until the first list without it.
    let billed: u64 = swept.strays[0].segments.iter().map(|s| s.billed_to_micros).sum();
    assert_eq!(billed, 200_000_000);
}

#[test]
fn a_terminal_row_in_the_list_settles_a_suspect_at_once() {
    let mut rows = Rows::with(vec![lease(9, LeaseState::Released, -9000)]);
    rows.look(&list(vec![seen(1, Some(9), Some(-10))]), 0);
    let mut gone = seen(1, Some(9), Some(-10));
    gone.state.phase = NodePhase::Gone;
    gone.state.stopped_at = Some(at(42));
    let swept = rows.look(&list(vec![gone]), 60);
    assert_eq!((rows.state(1), swept.counts.live), (Some(StrayState::Cleared), 0));
    assert_eq!(swept.strays[0].segments[0].billed_to_micros, 42_000_000);
    assert_eq!(swept.strays[0].segments[0].project.as_str(), "p");
}

/// A node beyond the one wanted is paid for by its lease from when that has it: not by its stray as well.
#[test]
fn a_node_that_its_lease_took_over_is_on_one_bill() {
    let with_own = || {
        let own = Lease { node: Some(node_id(1)), ..lease(9, LeaseState::Booting, 0) };
        Rows::with(vec![own])
    };
    let extra = list(vec![seen(2, Some(9), Some(-4000))]);
    let mut ended = seen(2, Some(9), Some(-4000));
    ended.state.phase = NodePhase::Gone;
    ended.state.stopped_at = Some(at(70));
    let ended = list(vec![ended]);
    let billed = |swept: &Sweep| -> Vec<u64> {
        let segments = swept.strays.iter().flat_map(|step| &step.segments);
        segments.map(|segment| segment.billed_to_micros).collect()
    };

    // Handed over at the second look, and again where its lease did not hear of it.
    let mut rows = with_own();
    let handed = [0, 60, 120].map(|now| rows.look(&extra, now).extra.len());
    assert_eq!(handed, [0, 1, 1]);
    assert_eq!(rows.strays[&node_id(2)].cause, StrayCause::Extra);

    // Its lease ended it: after it was handed over, or because it had found it by itself.
    for (looks, shown) in [(1, &ended), (2, &ended), (1, &list(vec![])), (2, &list(vec![]))] {
        let mut rows = with_own();
        for look in 0..looks {
            rows.look(&extra, 60 * look);
        }
        let own = rows.leases.get_mut(&lease_id(9)).unwrap();
        own.surplus_ended.insert(node_id(2), at(70));
        let swept = [80, 120, 160].map(|now| rows.look(shown, now));
        assert_eq!(rows.state(2), Some(StrayState::Cleared));
        assert_eq!(swept.iter().flat_map(billed).count(), 0);
    }
    // Nobody else bills it; and when it comes back, its lease takes it over from there on.
    let mut rows = with_own();
    rows.look(&extra, 0);
    assert_eq!(billed(&rows.look(&ended, 80)), [70_000_000]);
    assert!(rows.look(&extra, 200).extra.is_empty());
    for now in [260, 320] {
        assert_eq!(rows.look(&extra, now).extra[0].2, Some(at(70)));
    }
}

/// Whether a node whose end was proven really is there again, only a read tells that was begun after the proof.
#[test]
fn a_node_that_is_made_sure_of_is_billed_where_a_new_read_shows_it() {
    let policy = Policy::default();
    // One that states times is read for these anyway.
    let cloud = Capabilities { states_times: false, ..capabilities() };
    let running = Ok(seen(1, Some(9), Some(0)).state);
    for (read_at, begun) in [(None, None), (Some(at(100)), None), (Some(at(101)), Some(at(100)))] {
        let mut one = Surplus::new(node_id(1), &cloud, at(0), at(200));
        one.billed_from = Some(at(100));
        assert_eq!(one.next_call(&cloud), CallKind::Describe);
        assert!(one.described(&running, read_at, &cloud, &policy, at(210)).is_none());
        assert_eq!(one.meter.started_at, begun, "{read_at:?}");
        assert_eq!(one.next_call(&cloud), CallKind::Terminate, "it is ended at once");
    }
}

/// A node that came back twice is billed from its last proven end, whichever bill the time before is on.
#[test]
fn a_node_that_comes_back_again_is_billed_from_its_last_end() {
    let mut own = Lease { node: Some(node_id(1)), ..lease(9, LeaseState::Released, 0) };
    own.meter.start(Some(at(0)), at(0));
    own.meter.stop(Some(at(100)), at(100));
    own.surplus_ended.insert(node_id(1), at(210));
    let mut rows = Rows::with(vec![own]);
    rows.look(&list(vec![seen(1, Some(9), Some(0))]), 300);
    assert_eq!(rows.strays[&node_id(1)].target.meter.started_at, Some(at(210)));

    // It ended once more between two looks.
    let own = rows.leases.get_mut(&lease_id(9)).unwrap();
    own.surplus_ended.insert(node_id(1), at(400));
    let swept = rows.look(&list(vec![seen(1, Some(9), Some(0))]), 500);
    assert_eq!(swept.findings[0].verdict, Verdict::Suspected, "looked at twice anew");
    assert_eq!(rows.strays[&node_id(1)].target.meter.started_at, Some(at(400)));
}

#[test]
fn one_process_has_the_turn_until_its_time_is_over() {
    let row = SweeperState::new(ProviderId::new("sim").unwrap(), at(0));
    let Claim::Mine(mine) = row.claim("a", at(0), Duration::from_secs(60)) else { panic!() };
    assert_eq!(mine.epoch, 1);
    assert!(
        matches!(mine.claim("b", at(59), Duration::from_secs(60)), Claim::Held(t) if t == at(60))
    );
    assert!(matches!(mine.claim("a", at(59), Duration::from_secs(60)), Claim::Mine(_)));
    let Claim::Mine(other) = mine.claim("b", at(60), Duration::from_secs(60)) else { panic!() };
    assert_eq!((other.epoch, other.owner.as_deref()), (2, Some("b")));
    assert!(matches!(other.released().claim("c", at(61), Duration::ZERO), Claim::Mine(_)));
}

#[test]
fn failed_lists_are_asked_for_ever_more_rarely_and_a_good_one_resets_it() {
    let policy = Policy::default();
    let mut row = SweeperState::new(ProviderId::new("sim").unwrap(), at(0));
    let mut pauses = Vec::new();
    for _ in 0..9 {
        row.failed("auth", Duration::ZERO, &policy, at(0));
        pauses.push(row.next_at.duration_since(at(0)).as_secs());
    }
    assert!(pauses.is_sorted() && pauses[0] == 10 && pauses[8] == 480, "{pauses:?}");
    row.failed("throttle", Duration::from_secs(3000), &policy, at(0));
    assert_eq!(row.next_at, at(3000));
    let counts = SweepCounts {
        listed_at: at(9),
        complete: false,
        live: 0,
        owned: 0,
        waiting: 0,
        suspected: 0,
        ending: 0,
        foreign: 0,
    };
    row.swept(counts.clone(), Some(at(39)), &policy);
    assert_eq!((row.failures, row.next_at, row.complete_at), (0, at(39), None));
    row.swept(SweepCounts { complete: true, ..counts }, None, &policy);
    assert_eq!((row.next_at, row.complete_at), (at(129), Some(at(9))));
}

#[test]
fn the_end_of_a_stray_is_proven_like_a_leases() {
    let mut rows = Rows::default();
    let old = list(vec![seen(1, None, Some(-4000))]);
    rows.look(&old, 0);
    rows.look(&old, 60);
    let (capabilities, policy) = (capabilities(), Policy::default());
    let mut stray = rows.strays[&node_id(1)].clone();
    let missing = || {
        Err(ProviderError::new(
            ProviderId::new("sim").unwrap(),
            "describe",
            runwhere_model::ErrorKind::NotFound,
        ))
    };
    // "Not found" answers: two reads over the settle window, not the first one.
    let step = stray.described(&missing(), at(61), &capabilities, &policy, at(61)).unwrap();
    assert_eq!(step.stray.state, StrayState::Ending);
    let step = step.stray.described(&missing(), at(70), &capabilities, &policy, at(70)).unwrap();
    assert_eq!(step.stray.state, StrayState::Ending);
    // It shows up again: what was read before proves nothing any more.
    let there = Ok(seen(1, None, None).state);
    let step = step.stray.described(&there, at(80), &capabilities, &policy, at(80)).unwrap();
    assert!(step.stray.target.absent_reads.is_empty());
    let step = step.stray.described(&missing(), at(90), &capabilities, &policy, at(90)).unwrap();
    stray =
        step.stray.described(&missing(), at(121), &capabilities, &policy, at(121)).unwrap().stray;
    assert_eq!(stray.state, StrayState::Ended);
    assert!(matches!(stray.evidence, Some(Evidence::AbsentReads { .. })));
}

type CaseLease = (u8, usize, i64, Option<u8>, Option<u8>, bool);

#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<(u8, Option<u8>, Option<i64>, bool)>,
    leases: Vec<CaseLease>,
    looks: Vec<(i64, u8, bool)>,
}

fn cases() -> impl Strategy<Value = Case> {
    let nodes = prop::collection::vec(
        (0..6u8, prop::option::of(0..4u8), prop::option::of(-9000..9000i64), any::<bool>()),
        0..8,
    );
    let leases = prop::collection::vec(
        (
            0..4u8,
            0..LeaseState::ALL.len(),
            -9000..2000i64,
            prop::option::of(0..6u8),
            prop::option::of(0..6u8),
            any::<bool>(),
        ),
        0..4,
    );
    let looks = prop::collection::vec((0..400i64, any::<u8>(), any::<bool>()), 1..8);
    (nodes, leases, looks).prop_map(|(nodes, leases, looks)| Case { nodes, leases, looks })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_ended_but_what_nobody_owns_at_two_looks(case in cases()) {
        let mut rows = Rows::default();
        for (number, state, since, node, surplus, proven) in &case.leases {
            let mut row = lease(*number, LeaseState::ALL[*state], *since);
            row.node = node.map(node_id);
            if let Some(surplus) = surplus {
                row.surplus.push(Surplus::new(node_id(*surplus), &capabilities(), at(0), at(0)));
            }
            if *proven {
                row.evidence = Some(Evidence::NothingLaunched { at: at(0) });
            }
            rows.leases.insert(row.id.clone(), row);
        }
        let mut now = 0;
        for (pause, shown, complete) in &case.looks {
            now += pause;
            let mut nodes = Vec::new();
            for (index, (node, label, created, ours)) in case.nodes.iter().enumerate() {
                if shown >> (index % 8) & 1 == 0 {
                    continue;
                }
                let mut one = seen(*node, *label, *created);
                if !ours {
                    one.deployment = Some(DeploymentId::new("theirs").unwrap());
                }
                nodes.push(one);
            }
            let list = NodeList { nodes, foreign: 2, complete: *complete };
            let before = rows.strays.clone();
            // A dry run, or one after a restore, decides the same and ends nothing.
            let dry = rows.judge(&list, now, false).unwrap();
            prop_assert!(dry.extra.is_empty());
            let ending = |s: &Sweep| {
                s.strays.iter().filter(|one| one.stray.state == StrayState::Ending).count()
            };
            prop_assert_eq!(ending(&dry), 0);
            let swept = rows.look(&list, now);
            prop_assert_eq!(&dry.findings, &swept.findings);
            let foreign = list.nodes.iter().filter(|n| n.deployment.as_ref().unwrap().as_str() == "theirs");
            prop_assert_eq!(swept.counts.foreign, 2 + foreign.count() as u64);
            let counts = &swept.counts;
            prop_assert_eq!(counts.live, counts.owned + counts.waiting + counts.suspected + counts.ending);
            for step in &swept.strays {
                let stray = &step.stray;
                let old = before.get(stray.node());
                let newly = stray.state == StrayState::Ending
                    && old.is_none_or(|old| old.state != StrayState::Ending);
                if stray.state != StrayState::Cleared {
                    // Foreign nodes are never written down, let alone touched.
                    let ours = list.nodes.iter().any(|n| n.state.node == *stray.node()
                        && n.deployment.as_ref().unwrap().as_str() == "ours");
                    prop_assert!(ours || old.is_some());
                }
                if !newly {
                    continue;
                }
                let old = old.expect("a first look ends nothing");
                prop_assert_eq!(old.state, StrayState::Suspected);
                prop_assert!(at(now) >= old.first_seen.checked_add(Duration::from_secs(SETTLE)).unwrap());
                let one = list.nodes.iter().find(|n| n.state.node == *stray.node()
                    && n.deployment.as_ref().unwrap().as_str() == "ours").expect("it is shown");
                let born = one.created_at.filter(|t| *t <= at(now)).unwrap_or(old.first_seen);
                prop_assert!(at(now) >= born.checked_add(Duration::from_secs(300)).unwrap());
                if let Some(lease) = one.lease.as_ref().and_then(|id| rows.leases.get(id)) {
                    prop_assert!(lease.state.is_terminal(), "the lease has not ended");
                    prop_assert!(at(now) >= lease.since.checked_add(Duration::from_secs(SETTLE)).unwrap());
                    prop_assert!(stray.owner.is_some());
                }
            }
            for (id, state, _) in &swept.extra {
                let lease = &rows.leases[id];
                prop_assert!(!lease.state.is_terminal() && lease.node.is_some());
                let own = lease.node.as_ref() == Some(&state.node) && lease.evidence.is_none();
                prop_assert!(!own && lease.surplus.iter().all(|one| one.node != state.node));
            }
        }
    }
}
