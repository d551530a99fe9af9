//! Which processes know that an agent lives.

use std::sync::Arc;
use std::time::Duration;

use runwhere_agent::protocol::{
    AgentState, Desired, Digest, Event, EventKind, EventsRequest, PROTOCOL_VERSION, PollRequest,
    RedeemRequest,
};
use runwhere_engine::LeaseState;
use runwhere_model::{LeaseId, TrialId};
use runwhere_providers::Clock;
use runwhere_providers::testing::SimProfile;

use super::site::Site;
use crate::agents::{Agents, DurableFrames};
use crate::api::agent::{AgentCaller, AgentService};
use crate::driver::Others;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct NoFrames;

impl DurableFrames for NoFrames {
    fn durable_seq(&self, _trial: &TrialId, _lease: &LeaseId) -> u64 {
        0
    }
}

#[tokio::test]
async fn who_hears_an_agent_says_so_however_seldom_it_looks_itself() {
    let site = Site::new(SimProfile::token()).await;
    let trial = site.submit(1, &site.keys[1]).await;
    let (core, _) = site.server();
    core.recover(Others::Ended).await.unwrap();
    let looking = tokio::spawn(core.clone().run());
    site.until(10 * MINUTE, || async {
        site.unit(&trial).await.1.is_some_and(|lease| lease.state == LeaseState::Booting)
    })
    .await;
    let (row, lease) = site.unit(&trial).await;
    let lease = lease.unwrap();
    let agents = Agents::new(Arc::clone(&core), Arc::new(NoFrames));
    let token = core.lease_token(&lease.id);
    let joined = agents
        .redeem(RedeemRequest {
            protocol: PROTOCOL_VERSION,
            lease_id: lease.id.to_string(),
            lease_token: token.expose().to_owned(),
            session_key_sha256: Digest::of(b"a key"),
            agent_version: "test".into(),
            node_id: None,
        })
        .await
        .unwrap();
    let caller = AgentCaller {
        lease: lease.id.clone(),
        epoch: u32::try_from(joined.epoch).unwrap(),
        workspace: row.workspace.clone(),
        project: row.project.clone(),
        job: row.job.clone(),
        trial: trial.clone(),
    };
    let kinds = [
        EventKind::Booted { agent_version: "test".into(), boot_id: "b".into() },
        EventKind::GpusReady { gpus: Vec::new(), pretended: false },
    ];
    let events = (1..).zip(kinds).map(|(seq, kind)| Event { seq, at: site.clock.now(), kind });
    agents.events(&caller, EventsRequest { events: events.collect() }).await.unwrap();
    let seen = async || site.unit(&trial).await.1.unwrap().agent.seen_at.unwrap();
    assert_eq!(site.unit(&trial).await.1.unwrap().state, LeaseState::Ready);

    // From here on this process never comes to look by itself; the agent goes on to talk to it.
    looking.abort();
    let before = seen().await;
    let poll = async || {
        let request = PollRequest {
            state: AgentState::Running,
            last_event_seq: 2,
            last_log_seq: 0,
            wait_ms: 0,
            seen: Some(Desired::Run),
        };
        agents.poll(&caller, request).await.unwrap();
    };
    site.clock.advance(MINUTE).await;
    poll().await;
    assert_eq!(seen().await, before, "not with every poll");
    site.clock.advance(5 * MINUTE).await;
    poll().await;
    assert_eq!(seen().await, site.clock.now());
}
