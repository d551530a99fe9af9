//! The simulated cloud against the suite, and its faults.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_model::{
    Bootstrap, DeploymentId, Effect, ErrorKind, GpuCount, LaunchRequest, LeaseId, NodePhase,
    ProjectId, Secret, Terminated, TrialId,
};

use super::conformance::{Subject, check};
use super::{ManualClock, Outcome, SimCloud, SimProfile, Verb};
use crate::clock::Clock;
use crate::provider::Provider;

struct Simulated {
    cloud: SimCloud,
    clock: Arc<ManualClock>,
}

fn simulated(profile: SimProfile) -> Simulated {
    let clock = Arc::new(ManualClock::default());
    let deployment = DeploymentId::new("ours").unwrap();
    let shared: Arc<dyn Clock> = clock.clone();
    Simulated { cloud: SimCloud::new(profile, deployment, shared), clock }
}

#[async_trait]
impl Subject for Simulated {
    fn provider(&self) -> &dyn Provider {
        &self.cloud
    }

    fn request(&self, number: u32) -> LaunchRequest {
        LaunchRequest {
            deployment: DeploymentId::new("ours").unwrap(),
            lease: LeaseId::new(format!("lease-{number}")).unwrap(),
            project: ProjectId::new("project").unwrap(),
            trial: TrialId::new("trial").unwrap(),
            token: format!("token-{number}"),
            offer: self.cloud.keys()[1].clone(),
            gpus: GpuCount::whole(1).unwrap(),
            gpu_model: None,
            ceiling: "4 USD".parse::<runwhere_model::Money>().unwrap().into(),
            end_by: None,
            labels: Default::default(),
            bootstrap: Bootstrap {
                broker_url: "https://broker.invalid".to_owned(),
                lease_token: Secret::new("secret"),
                agent_sha256: None,
                ca_pem: None,
                agent_ttl_seconds: 3600,
            },
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span).await;
    }

    fn time_is_free(&self) -> bool {
        true
    }

    fn clock_error(&self) -> Duration {
        self.cloud.profile().clock_ahead.unsigned_abs()
    }

    async fn launch_foreign(&self, number: u32) -> bool {
        let theirs = DeploymentId::new("theirs").unwrap();
        let request = LaunchRequest { deployment: theirs.clone(), ..self.request(number) };
        self.cloud.as_installation(theirs).launch(&request).await.is_ok()
    }
}

/// What a profile promises and does not keep: the suite must find exactly that.
fn unkept(profile: &SimProfile) -> Vec<&'static str> {
    match profile.name {
        "forgotten-end" => vec!["a_server_side_end_is_kept"],
        "ignored-token" => {
            vec!["a_token_launches_once", "a_token_with_other_parameters_is_refused"]
        }
        _ => Vec::new(),
    }
}

/// What a profile may break: a look early enough finds nobody's name on its new nodes.
fn may_break(profile: &SimProfile) -> Option<&'static str> {
    (!profile.label_lag.is_zero()).then_some("nodes_are_ours_and_others_are_counted")
}

#[tokio::test]
async fn every_profile_conforms_where_it_keeps_its_promises() {
    for profile in SimProfile::all() {
        let (name, unkept, may_break) = (profile.name, unkept(&profile), may_break(&profile));
        let subject = simulated(profile);
        let report = check(&subject).await;
        let mut failed: Vec<_> = report.failures();
        let all = failed.len();
        failed.retain(|failure| may_break.is_none_or(|case| !failure.starts_with(case)));
        let broken = failed.len() < all;
        assert_eq!(failed.len(), unkept.len(), "{name}: {failed:#?}");
        for (failure, case) in failed.iter().zip(&unkept) {
            assert!(failure.starts_with(case), "{name}: {failure}");
        }
        assert!(report.skipped().len() < report.cases.len() / 2);
        // A case that fails cannot clean up behind itself.
        if broken || !unkept.is_empty() {
            continue;
        }
        let truth = subject.cloud.truth();
        assert!(truth.touched_foreign.is_empty());
        assert!(truth.live().all(|node| node.deployment.as_str() == "theirs"));
    }
}

#[tokio::test]
async fn a_lost_answer_hides_a_node_until_reads_catch_up() {
    let subject = simulated(SimProfile::token());
    let request = subject.request(1);
    subject.cloud.script(Verb::Launch, Outcome::DoneReplyLost);
    let error = subject.cloud.launch(&request).await.unwrap_err();
    assert_eq!((error.kind, error.effect), (ErrorKind::Transient, Effect::Possible));
    assert_eq!(subject.cloud.truth().live_nodes(&request.lease).len(), 1);
    assert!(subject.cloud.find(&request.lease).await.unwrap().nodes.is_empty());
    subject.pass(Duration::from_secs(5)).await;
    assert_eq!(subject.cloud.find(&request.lease).await.unwrap().nodes.len(), 1);
    // The token's replay brings the same node, and no second one.
    subject.cloud.launch(&request).await.unwrap();
    let truth = subject.cloud.truth();
    assert_eq!((truth.nodes.len(), truth.launches_of(&request.token)), (1, 2));
}

#[tokio::test]
async fn failures_say_what_they_did() {
    let subject = simulated(SimProfile::label_only());
    let cloud = &subject.cloud;
    let request = subject.request(1);
    for (outcome, kind, effect, made) in [
        (Outcome::NotDoneReplyLost, ErrorKind::Transient, Effect::Possible, 0),
        (Outcome::FailedNotDone(ErrorKind::Quota), ErrorKind::Quota, Effect::None, 0),
        (Outcome::Throttle(Some(Duration::from_secs(3))), ErrorKind::Throttle, Effect::None, 0),
        (Outcome::Auth, ErrorKind::Auth, Effect::None, 0),
        (Outcome::FailedButDone(ErrorKind::Balance), ErrorKind::Balance, Effect::Possible, 1),
    ] {
        let before = cloud.truth().nodes.len();
        cloud.script(Verb::Launch, outcome.clone());
        let error = cloud.launch(&request).await.unwrap_err();
        assert_eq!((error.kind, error.effect), (kind, effect), "{outcome:?}");
        assert_eq!(cloud.truth().nodes.len() - before, made, "{outcome:?}");
        assert_eq!(error.nodes.len(), made, "{outcome:?}");
    }
    cloud.script(Verb::Launch, Outcome::Surplus(2));
    assert_eq!(cloud.launch(&request).await.unwrap().surplus.len(), 2);
    cloud.script(Verb::Nodes, Outcome::Incomplete);
    subject.pass(Duration::from_secs(60)).await;
    let list = cloud.nodes().await.unwrap();
    assert!(!list.complete && list.nodes.len() < 4);
    assert_eq!((cloud.scripted_left(), cloud.calls(Verb::Launch)), (0, 6));
}

#[tokio::test]
async fn an_acknowledged_end_may_not_be_one() {
    let subject = simulated(SimProfile::token());
    let request = subject.request(1);
    let node = subject.cloud.launch(&request).await.unwrap().node;
    subject.pass(Duration::from_secs(60)).await;
    subject.cloud.script(Verb::Terminate, Outcome::AckButLives);
    assert_eq!(subject.cloud.terminate(&node).await.unwrap(), Terminated::Requested);
    subject.pass(Duration::from_secs(600)).await;
    assert_eq!(subject.cloud.describe(&node).await.unwrap().phase, NodePhase::Running);
}

#[tokio::test]
async fn a_late_answer_comes_after_the_deed() {
    let subject = simulated(SimProfile::token());
    let request = subject.request(1);
    let later = Outcome::Delay(Duration::from_secs(9), Box::new(Outcome::Ok));
    subject.cloud.script(Verb::Launch, later);
    let (cloud, again) = (subject.cloud.clone(), request.clone());
    let call = tokio::spawn(async move { cloud.launch(&again).await });
    subject.pass(Duration::from_secs(8)).await;
    assert!(!call.is_finished());
    assert_eq!(subject.cloud.truth().live_nodes(&request.lease).len(), 1);
    subject.pass(Duration::from_secs(1)).await;
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test]
async fn the_meter_follows_each_profiles_rule() {
    // Ran 20.5 s, 70.5 s or 200.5 s after the launch was accepted, ended by us.
    for (profile, seconds) in [
        // Runs from 20 s on: 50.5 s are a minute at least; 180.5 s count as 181.
        (SimProfile::token(), [60, 60, 181]),
        // Healthy from 120 s on, billed until gone (45 s later), in whole minutes.
        (SimProfile::label_only(), [0, 0, 180]),
    ] {
        let name = profile.name;
        let spans = [20_500u64, 70_500, 200_500];
        for (span, billed) in spans.into_iter().zip(seconds) {
            let subject = simulated(profile.clone());
            let node = subject.cloud.launch(&subject.request(1)).await.unwrap().node;
            subject.pass(Duration::from_millis(span)).await;
            subject.cloud.terminate(&node).await.unwrap();
            subject.pass(Duration::from_secs(3600)).await;
            let micros = subject.cloud.truth().meter_micros(&node);
            assert_eq!(micros, billed * 1_000_000, "{name} after {span} ms");
        }
    }
}

#[tokio::test]
async fn capacity_fails_at_once_or_later_and_is_never_billed() {
    for profile in SimProfile::all() {
        let (later, node_left) = (profile.capacity_shows_later, profile.refusal_makes_node);
        let subject = simulated(profile);
        let request = subject.request(1);
        subject.cloud.set_stock(&request.offer, 0);
        match subject.cloud.launch(&request).await {
            Err(error) => {
                assert!(!later);
                assert_eq!(error.kind, ErrorKind::Capacity);
                assert_eq!(error.effect == Effect::Possible, node_left);
                assert_eq!(error.nodes.len(), usize::from(node_left));
            }
            Ok(launched) => {
                assert!(later);
                subject.pass(Duration::from_secs(300)).await;
                let truth = subject.cloud.truth();
                assert_eq!(truth.node(&launched.node).unwrap().phase, NodePhase::Gone);
                assert_eq!(truth.meter_micros(&launched.node), 0);
            }
        }
    }
}

#[tokio::test]
async fn a_cloud_side_end_time_is_kept() {
    let subject = simulated(SimProfile::unique_name());
    let mut request = subject.request(1);
    request.end_by = Some(subject.now().checked_add(Duration::from_secs(1000)).unwrap());
    let node = subject.cloud.launch(&request).await.unwrap().node;
    subject.pass(Duration::from_secs(999)).await;
    assert_eq!(subject.cloud.truth().live().count(), 1);
    subject.pass(Duration::from_secs(31)).await;
    let truth = subject.cloud.truth();
    assert_eq!(truth.live().count(), 0);
    assert_eq!(truth.meter_micros(&node), 980 * 1_000_000);
}

#[tokio::test]
async fn reclaimed_halted_and_lost_nodes_show_it() {
    let subject = simulated(SimProfile::token());
    let mut nodes = Vec::new();
    for number in 0..3 {
        nodes.push(subject.cloud.launch(&subject.request(number)).await.unwrap().node);
    }
    subject.pass(Duration::from_secs(30)).await;
    subject.cloud.reclaim(&nodes[0]);
    subject.cloud.halt(&nodes[1]);
    subject.cloud.lose(&nodes[2]);
    // Reads still show what was.
    for node in &nodes {
        assert_eq!(subject.cloud.describe(node).await.unwrap().phase, NodePhase::Running);
    }
    subject.pass(Duration::from_secs(5)).await;
    let mut seen = Vec::new();
    for node in &nodes {
        let state = subject.cloud.describe(node).await.unwrap();
        seen.push((state.phase, state.reason.unwrap()));
    }
    let expected = [
        (NodePhase::Stopping, "reclaimed"),
        (NodePhase::Stopped, "powered off"),
        (NodePhase::Gone, "host failed"),
    ];
    assert_eq!(seen, expected.map(|(phase, reason)| (phase, reason.to_owned())));
}

#[tokio::test]
async fn a_refusal_can_leave_a_node_that_nobody_asked_for() {
    let subject = simulated(SimProfile::error_with_node());
    let request = subject.request(1);
    subject.cloud.set_stock(&request.offer, 0);
    let error = subject.cloud.launch(&request).await.unwrap_err();
    assert_eq!((error.kind, error.effect), (ErrorKind::Capacity, Effect::Possible));
    subject.pass(Duration::from_secs(600)).await;
    let truth = subject.cloud.truth();
    let node = truth.node(&error.nodes[0]).unwrap();
    assert_eq!((node.phase, node.live, node.meter_micros), (NodePhase::Stopped, true, 0));
}

#[tokio::test]
async fn stated_times_are_by_the_clouds_own_clock() {
    for profile in [SimProfile::fast_clock(), SimProfile::slow_clock()] {
        let ahead = profile.clock_ahead;
        let subject = simulated(profile);
        let launched = subject.now();
        let node = subject.cloud.launch(&subject.request(1)).await.unwrap().node;
        subject.pass(Duration::from_secs(120)).await;
        subject.cloud.terminate(&node).await.unwrap();
        subject.pass(Duration::from_secs(60)).await;
        let state = subject.cloud.describe(&node).await.unwrap();
        let (started, stopped) = (state.started_at.unwrap(), state.stopped_at.unwrap());
        assert_eq!((started - ahead).duration_since(launched).as_secs(), 20);
        // The span is right all the same.
        assert_eq!(stopped.duration_since(started).as_secs(), 100);
        assert_eq!(subject.cloud.truth().meter_micros(&node), 100_000_000);
    }
}

#[tokio::test]
async fn pages_that_are_read_while_nodes_come_and_go_repeat_and_miss() {
    let subject = simulated(SimProfile::unique_name());
    let mut nodes = Vec::new();
    for number in 0..4 {
        nodes.push(subject.cloud.launch(&subject.request(number)).await.unwrap().node);
    }
    subject.pass(Duration::from_secs(60)).await;
    let walk = |cloud: SimCloud| async move {
        let list = cloud.nodes().await.unwrap();
        assert!(list.complete);
        list.nodes.into_iter().map(|seen| seen.state.node).collect::<Vec<_>>()
    };
    let newest_first: Vec<_> = nodes.iter().rev().cloned().collect();
    let quiet = tokio::spawn(walk(subject.cloud.clone()));
    subject.pass(Duration::from_secs(1)).await;
    assert_eq!(quiet.await.unwrap(), newest_first);
    // One more becomes visible between the pages: the second page begins with a row of the first.
    subject.cloud.launch(&subject.request(4)).await.unwrap();
    subject.pass(Duration::from_millis(1_500)).await;
    let moved = tokio::spawn(walk(subject.cloud.clone()));
    subject.pass(Duration::from_secs(2)).await;
    let expected = [&nodes[3], &nodes[2], &nodes[2], &nodes[1], &nodes[0]].map(Clone::clone);
    assert_eq!(moved.await.unwrap(), expected);
    // One of the first page vanishes between the pages: a row is never shown.
    subject.cloud.lose(&nodes[3]);
    subject.pass(Duration::from_millis(1_500)).await;
    let moved = tokio::spawn(walk(subject.cloud.clone()));
    subject.pass(Duration::from_secs(3)).await;
    assert!(!moved.await.unwrap().contains(&nodes[2]));
}

#[tokio::test]
async fn revoked_credentials_and_hidden_nodes_last_as_long_as_said() {
    let subject = simulated(SimProfile::token());
    let node = subject.cloud.launch(&subject.request(1)).await.unwrap().node;
    subject.pass(Duration::from_secs(60)).await;
    let until = subject.now().checked_add(Duration::from_secs(600)).unwrap();
    subject.cloud.script_until(None, Some(until), Outcome::Auth);
    assert_eq!(subject.cloud.describe(&node).await.unwrap_err().kind, ErrorKind::Auth);
    assert_eq!(subject.cloud.nodes().await.unwrap_err().kind, ErrorKind::Auth);
    subject.pass(Duration::from_secs(600)).await;
    assert_eq!(subject.cloud.describe(&node).await.unwrap().phase, NodePhase::Running);
    subject.cloud.hide(&node, Duration::from_secs(30));
    assert_eq!(subject.cloud.describe(&node).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(subject.cloud.truth().live().count(), 1);
    subject.pass(Duration::from_secs(30)).await;
    assert!(subject.cloud.describe(&node).await.is_ok());
}

#[tokio::test]
async fn a_node_that_runs_again_is_billed_again() {
    let subject = simulated(SimProfile::token());
    let node = subject.cloud.launch(&subject.request(1)).await.unwrap().node;
    subject.pass(Duration::from_secs(120)).await;
    // Seems to end for a while: the bill goes on.
    subject.cloud.script(Verb::Terminate, Outcome::Resurrects(Duration::from_secs(40)));
    subject.cloud.terminate(&node).await.unwrap();
    assert_eq!(subject.cloud.truth().node(&node).unwrap().phase, NodePhase::Stopping);
    subject.pass(Duration::from_secs(80)).await;
    assert_eq!(subject.cloud.truth().meter_micros(&node), 180_000_000);
    subject.cloud.lose(&node);
    subject.pass(Duration::from_secs(500)).await;
    assert_eq!(subject.cloud.truth().meter_micros(&node), 180_000_000);
    // Gone, and back: another start, another minute at least.
    subject.cloud.resume(&node);
    subject.pass(Duration::from_secs(10)).await;
    subject.cloud.lose(&node);
    let truth = subject.cloud.truth();
    assert_eq!((truth.live().count(), truth.meter_micros(&node)), (0, 240_000_000));
}
