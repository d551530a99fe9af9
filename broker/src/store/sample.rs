//! Rows for tests.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runwhere_engine::{
    AgentSession, ApiKey, Budget, EventRecord, Job, JobKind, JobSpec, KeyKind, Lease, LeaseState,
    LedgerEntry, Meter, Output, Permission, PriceSnapshot, Principal, Project, Publication,
    PublicationKind, Quota, Stray, StrayCause, StrayState, Subject, Surplus, SyncManifest,
    SyncedFile, Trial, UsageSegment, Visibility, Workspace,
};
use runwhere_model::{
    Bootstrapping, Capabilities, Currency, Deadman, GpuCount, HourlyPrice, Identity, JobId, KeyId,
    LeaseId, Metering, Money, NodeId, PrincipalId, ProjectId, ProviderId, StopEffect, SyncId,
    TrialId, WorkspaceId,
};
use rust_decimal::Decimal;

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).unwrap()
}

pub(crate) fn project_id(name: &str) -> ProjectId {
    ProjectId::new(name).unwrap()
}

pub(crate) fn job_id(number: u32) -> JobId {
    JobId::new(format!("job-{number:08x}")).unwrap()
}

pub(crate) fn cny() -> Currency {
    "CNY".parse().unwrap()
}

fn price() -> HourlyPrice {
    HourlyPrice { amount: Decimal::new(3644, 2), currency: cny() }
}

pub(crate) fn workspace_id() -> WorkspaceId {
    WorkspaceId::new("acme").unwrap()
}

pub(crate) fn workspace() -> Workspace {
    Workspace { id: workspace_id(), name: "Acme".to_owned(), created_at: at(0) }
}

pub(crate) fn project(name: &str) -> Project {
    Project {
        id: project_id(name),
        version: 0,
        workspace: workspace_id(),
        name: name.to_owned(),
        quota: Quota::default(),
        consents_no_deadman: false,
        approved_plugins: std::collections::BTreeSet::new(),
        created_at: at(0),
    }
}

pub(crate) fn principal(name: &str) -> Principal {
    Principal {
        id: PrincipalId::new(name).unwrap(),
        workspace: workspace_id(),
        name: name.to_owned(),
        created_at: at(0),
    }
}

pub(crate) fn key(project: &str, id: &str, secret: &str) -> ApiKey {
    ApiKey {
        id: KeyId::new(id).unwrap(),
        version: 0,
        kind: KeyKind::Runwhere,
        name: "laptop".to_owned(),
        secret_sha256: secret.to_owned(),
        principal: PrincipalId::new("ann").unwrap(),
        workspace: workspace_id(),
        project: project_id(project),
        permissions: vec![Permission::Admin],
        created_at: at(0),
        expires_at: None,
        revoked_at: None,
    }
}

pub(crate) fn budget(project: &str) -> Budget {
    Budget::unlimited(workspace_id(), project_id(project), cny())
}

pub(crate) fn job(project: &str, number: u32, name: &str) -> Job {
    let id = job_id(number);
    Job {
        id: id.clone(),
        version: 0,
        workspace: workspace_id(),
        project: project_id(project),
        principal: PrincipalId::new("ann").unwrap(),
        name: name.to_owned(),
        kind: JobKind::Training,
        trial_specs: Vec::new(),
        spec: JobSpec {
            yaml: "name: llama-finetune\ntype: Training\n".to_owned(),
            description: None,
            image: Some("pytorch/pytorch:2.7".to_owned()),
            argv: vec!["python".to_owned(), "main.py".to_owned()],
            env: BTreeMap::from([("LR".to_owned(), "0.001".to_owned())]),
            gpu_count: GpuCount::whole(8).unwrap(),
            gpu_model: None,
            gpu_pretended: false,
            offer: "local/-/-/on_demand/host".parse().unwrap(),
            ceiling: price(),
            max_duration_seconds: Some(3600),
            sync: None,
            checkpoint: None,
            from_step: None,
            max_price: None,
            decided: None,
        },
        trials: vec![trial_id(&id, 0)],
        created_at: at(i64::from(number)),
        resumed: None,
        lineage: id,
        active: true,
        deleted_at: None,
        idempotency_key: None,
        request_sha256: "00".repeat(32),
    }
}

pub(crate) fn trial_id(job: &JobId, index: u32) -> TrialId {
    TrialId::new(format!("{job}.{index}")).unwrap()
}

pub(crate) fn trial(job: &Job, index: u32) -> Trial {
    Trial { next_at: None, ..Trial::queued(trial_id(&job.id, index), job, index) }
}

pub(crate) fn lease_id(text: &str) -> LeaseId {
    LeaseId::new(text).unwrap()
}

pub(crate) fn lease(trial: &Trial, id: &str) -> Lease {
    Lease {
        id: lease_id(id),
        version: 0,
        epoch: 1,
        workspace: trial.workspace.clone(),
        project: trial.project.clone(),
        job: trial.job.clone(),
        trial: trial.id.clone(),
        offer: "local/-/-/on_demand/host".parse().unwrap(),
        gpu_count: GpuCount::whole(8).unwrap(),
        gpu_model: None,
        state: LeaseState::Intended,
        since: at(0),
        token: id.to_owned(),
        ceiling: price(),
        price: PriceSnapshot {
            price: price(),
            source: "config".to_owned(),
            observed_at: Some(at(0)),
            snapshot: "test".to_owned(),
        },
        capabilities: Capabilities {
            identity: Identity::Token,
            settle: Duration::ZERO,
            absent_reads: 1,
            tags: true,
            spot: false,
            reclaim_notice: None,
            states_stock: true,
            states_times: true,
            states_usage: true,
            stop: StopEffect::KeepsBilling,
            minimum_reservation: None,
            deadman: Deadman::None,
            bootstrapping: Bootstrapping::Direct,
            needs_public_url: false,
            metering: Metering::PER_SECOND,
            boot_timeout: Duration::from_secs(60),
        },
        intended_at: at(0),
        launched_at: None,
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

/// A suspect, and a sweeper that was never at work.
pub(crate) fn stray(provider: &str, node: &str) -> Stray {
    let lease = lease(&trial(&job("p", 1, "x"), 0), "l");
    let node = NodeId::new(node).unwrap();
    Stray {
        provider: ProviderId::new(provider).unwrap(),
        version: 0,
        lease: None,
        owner: None,
        cause: StrayCause::NoLease,
        state: StrayState::Suspected,
        since: at(0),
        first_seen: at(0),
        last_seen: at(0),
        looks: 1,
        alerts: 0,
        last_error: None,
        metering: lease.capabilities.metering,
        target: Surplus::new(node, &lease.capabilities, at(0), at(0)),
        evidence: None,
    }
}

/// The segment with this number of a lease, an hour each from the start of time.
pub(crate) fn segment(lease: &Lease, number: u32) -> UsageSegment {
    let hour = SignedDuration::from_hours(1);
    let hours = i64::from(number);
    let micros = 3_600_000_000 * u64::from(number);
    UsageSegment {
        id: format!("{}.{number}", lease.id),
        workspace: lease.workspace.clone(),
        project: lease.project.clone(),
        job: lease.job.clone(),
        trial: lease.trial.clone(),
        lease: lease.id.clone(),
        node: None,
        offer: lease.offer.clone(),
        start: at(3600 * hours),
        end: at(3600 * hours) + hour,
        billed_from_micros: micros,
        billed_to_micros: micros + 3_600_000_000,
        price: price(),
        price_snapshot: "test".to_owned(),
        amount: Money::new(Decimal::new(3644, 2), cny()),
        estimated: false,
        corrects: None,
        usage_record: None,
    }
}

pub(crate) fn entry(segment: &UsageSegment) -> LedgerEntry {
    LedgerEntry::of_segment(segment, segment.end)
}

pub(crate) fn sync(project: &str, id: &str, job_name: &str) -> SyncManifest {
    SyncManifest {
        id: SyncId::new(id).unwrap(),
        workspace: workspace_id(),
        project: project_id(project),
        job_name: job_name.to_owned(),
        created_at: at(0),
        files: vec![SyncedFile { path: "main.py".to_owned(), sha256: "ab".repeat(32), size: 12 }],
        yaml: None,
    }
}

pub(crate) fn output(path: &str, size: u64) -> Output {
    Output { path: path.to_owned(), sha256: "cd".repeat(32), size, checkpoint: false }
}

pub(crate) fn publication(name: &str, revision: &str) -> Publication {
    Publication {
        kind: PublicationKind::Runner,
        name: name.to_owned(),
        revision: revision.to_owned(),
        workspace: workspace_id(),
        project: project_id("p"),
        principal: PrincipalId::new("ann").unwrap(),
        visibility: Visibility::Public,
        manifest_sha256: "ab".repeat(32),
        source_ref: "HEAD".to_owned(),
        document: serde_json::json!({ "entrypoint": "main.sh" }),
        files: vec![SyncedFile { path: "main.sh".into(), sha256: "ab".repeat(32), size: 12 }],
        published_at: at(0),
    }
}

pub(crate) fn event(job: &Job, kind: &str) -> EventRecord {
    EventRecord {
        version: 1,
        at: job.created_at,
        workspace: job.workspace.clone(),
        project: job.project.clone(),
        subject: Subject { job: Some(job.id.clone()), trial: None, lease: None },
        kind: kind.to_owned(),
        payload: serde_json::json!({ "by": "ann" }),
    }
}
