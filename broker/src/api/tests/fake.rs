use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use axum::routing::get;
use jiff::Timestamp;
use runwhere_agent::protocol::{
    AgentState, Assignment, CollectLimits, Desired, Digest, EventsReply, EventsRequest, Exec, Gpus,
    PollReply, PollRequest, RedeemReply, RedeemRequest, SyncFile,
};
use runwhere_engine::{Permission, SweepCounts, TrialState};
use runwhere_model::{Currency, JobId, Money, OfferSheet, ProviderId, Secret};
use runwhere_pricing::{PriceOptions, PriceService, Refresher};
use runwhere_providers::{Clock, SystemClock};
use rust_decimal::Decimal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::accounts::{Accounts, Caller, NewKey};
use crate::api::agent::{AgentCaller, AgentRefusal, AgentService};
use crate::api::runwhere::{
    CnyRates, Cost, Deleted, InCny, JobPage, JobReport, JobService, ListQuery, Refusal,
    ResumeRequest, SubmitRequest, Submitted,
};
use crate::api::text::Words;
use crate::api::{ApiParts, router};
use crate::blobs::Blobs;
use crate::driver::{SweepError, SweepReport};
use crate::logs::Logs;
use crate::ports::SystemIds;
use crate::server::App;
use crate::store::sample;
use crate::store::{JobView, MemoryStore, Row, Store, Transition};

/// A whole server without a driver.
pub(in super::super) struct Site {
    pub(in super::super) app: App,
    pub(in super::super) store: Arc<MemoryStore>,
    pub(in super::super) blobs: Blobs,
    pub(in super::super) logs: Logs,
    pub(in super::super) accounts: Accounts,
    pub(in super::super) jobs: Arc<FakeJobs>,
    pub(in super::super) agents: Arc<FakeAgents>,
    pub(in super::super) admin: Arc<FakeAdmin>,
    pub(in super::super) token: String,
    pub(in super::super) closing: watch::Sender<bool>,
    pub(in super::super) clock: Arc<SetClock>,
    _folder: TempDir,
}

/// A reply, read.
#[derive(Debug)]
pub(in super::super) struct Answer {
    pub(in super::super) status: u16,
    pub(in super::super) headers: HeaderMap,
    pub(in super::super) bytes: Vec<u8>,
}

impl Answer {
    pub(in super::super) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    #[track_caller]
    pub(in super::super) fn json(&self) -> Value {
        let value: Value = serde_json::from_slice(&self.bytes).unwrap();
        assert!(value.is_object(), "{value}");
        value
    }

    /// The body, after checking the status and, for errors, the envelope.
    #[track_caller]
    pub(in super::super) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        let value = self.json();
        if status >= 400 {
            assert!(value["code"].is_i64() && value["detail"].is_object(), "{value}");
            let said = format!("{} {}", value["message"], value["detail"]["suggestion"]);
            assert!(!said.contains(['[', ']']), "{said}");
        }
        value
    }
}

/// Prices of one machine that offers nothing.
fn price_sources(clock: Arc<SetClock>) -> Arc<Refresher> {
    let now = clock.now();
    let options = PriceOptions { bundled: false, ..PriceOptions::default() };
    let service = PriceService::new(clock, options);
    let id = ProviderId::new("local").unwrap();
    service.replace_sheet(id, OfferSheet::complete(Vec::new(), Vec::new(), now));
    Arc::new(Refresher::new(Arc::new(service), []))
}

impl Site {
    pub(in super::super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::new());
        let clock = Arc::new(SetClock(Mutex::new(SystemClock.now())));
        let blobs = Blobs::open(folder.path().join("blobs")).unwrap();
        let logs = Logs::open(folder.path().join("logs"), 1 << 30, clock.clone()).unwrap();
        let accounts = Accounts::new(store.clone(), clock.clone(), Arc::new(SystemIds));
        let token = accounts.first_start(|_| Ok(())).await.unwrap().unwrap();
        let jobs = Arc::new(FakeJobs::default());
        let agents = Arc::new(FakeAgents::default());
        let admin = Arc::new(FakeAdmin::default());
        let closing = watch::Sender::new(false);
        let parts = ApiParts {
            room: Arc::new(crate::ports::Unbounded),
            store: store.clone(),
            jobs: jobs.clone(),
            admin: admin.clone(),
            agents: agents.clone(),
            blobs: blobs.clone(),
            logs: logs.clone(),
            rates: Arc::new(SevenYuan),
            price_sources: price_sources(clock.clone()),
            clock: clock.clone(),
            ids: Arc::new(SystemIds),
            key: Secret::new("server key"),
            uploads_valid_for: std::time::Duration::from_secs(24 * 3600),
            public_url: None,
            secure: false,
            closing: closing.subscribe(),
        };
        let prices = Router::new().route("/panic", get(panics)).route("/decides", get(decides));
        let app = App::new(router(parts, prices), closing.subscribe());
        Self {
            app,
            store,
            blobs,
            logs,
            accounts,
            jobs,
            agents,
            admin,
            token: token.expose().to_owned(),
            closing,
            clock,
            _folder: folder,
        }
    }

    /// A token in another project, with one permission.
    pub(in super::super) async fn stranger(&self, permission: Permission) -> String {
        let project = sample::project("other");
        let rows = vec![Row::Workspace(sample::workspace()), Row::Project(project.clone())];
        // The second stranger finds them there.
        let _ = self.store.commit(Transition { rows, events: Vec::new() }).await;
        let new = NewKey { name: "other".into(), permissions: vec![permission], expires_in: None };
        let principal = sample::principal("eve").id;
        let made = self.accounts.create_for(new, project.workspace, project.id, principal);
        made.await.unwrap().1.expose().to_owned()
    }

    pub(in super::super) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", "site:1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.app.call(request.body(body.into()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec();
        Answer { status: parts.status.as_u16(), headers: parts.headers, bytes }
    }

    pub(in super::super) async fn get(&self, path: &str) -> Answer {
        let token = format!("Bearer {}", self.token);
        self.call("GET", path, &[("authorization", &token)], Body::empty()).await
    }

    pub(in super::super) async fn post(&self, path: &str, body: &Value) -> Answer {
        let token = format!("Bearer {}", self.token);
        self.call("POST", path, &[("authorization", &token)], body.to_string()).await
    }
}

/// Whether the price service would let the caller decide about prices.
async fn decides(operator: Option<axum::Extension<runwhere_pricing::Operator>>) -> String {
    operator.is_some().to_string()
}

async fn panics() {
    panic!("on purpose");
}

/// A clock that stands until it is set; waiting is real.
#[derive(Debug)]
pub(in super::super) struct SetClock(pub(in super::super) Mutex<Timestamp>);

#[async_trait]
impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    async fn sleep_until(&self, deadline: Timestamp) {
        SystemClock.sleep_until(deadline).await;
    }
}

#[derive(Debug)]
struct SevenYuan;

impl CnyRates for SevenYuan {
    fn to_cny(&self, money: Money) -> Option<InCny> {
        let (amount, rate) = match money.currency {
            Currency::CNY => (money.amount, Decimal::ONE),
            Currency::USD => (money.amount * Decimal::from(7), Decimal::from(7)),
            _ => return None,
        };
        Some(InCny { amount, rate, date: "2026-11-20".into(), source: "test".into() })
    }
}

/// Jobs that are what a test says.
#[derive(Debug)]
pub(in super::super) struct FakeJobs {
    pub(in super::super) reports: Mutex<Vec<JobReport>>,
    pub(in super::super) refusal: Mutex<Option<Refusal>>,
    pub(in super::super) asked: Mutex<Vec<String>>,
    pub(in super::super) changed: watch::Sender<u64>,
}

impl Default for FakeJobs {
    fn default() -> Self {
        Self {
            reports: Mutex::default(),
            refusal: Mutex::default(),
            asked: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl FakeJobs {
    /// A job of the first project, without a lease.
    pub(in super::super) fn add(&self, number: u32, name: &str, state: TrialState) -> JobReport {
        let mut job = sample::job("default", number, name);
        job.workspace = runwhere_model::WorkspaceId::new("default").unwrap();
        let mut trial = sample::trial(&job, 0);
        trial.state = state;
        if state.is_terminal() {
            job.active = false;
            trial.cleanup_confirmed = true;
            trial.ended_at = Some(sample::at(200));
        }
        let cost = Cost { settled: state.is_terminal(), ..Cost::default() };
        let at = sample::at(300);
        let report = JobReport { view: JobView { job, trials: vec![(trial, None)] }, cost, at };
        self.reports.lock().unwrap().push(report.clone());
        report
    }

    pub(in super::super) fn change(&self, with: impl FnOnce(&mut JobReport)) {
        with(self.reports.lock().unwrap().last_mut().unwrap());
        self.changed.send_modify(|number| *number += 1);
    }

    fn ask(&self, what: String) -> Result<(), Refusal> {
        self.asked.lock().unwrap().push(what);
        self.refusal.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn submitted(&self) -> Submitted {
        let report = self.reports.lock().unwrap().last().unwrap().clone();
        Submitted {
            report,
            byoa: true,
            estimated_start_seconds: 180,
            warnings: vec![Words::new("注意 [x]", "note [x]")],
            quota_warning: Some(Words::new("配额将满", "quota nearly used")),
            repeated: false,
        }
    }
}

#[async_trait]
impl JobService for FakeJobs {
    async fn check_task(&self, _caller: &Caller, yaml: &str) -> Result<(), Refusal> {
        self.ask(format!("check {yaml}"))
    }

    async fn submit(&self, caller: &Caller, request: SubmitRequest) -> Result<Submitted, Refusal> {
        self.ask(format!("submit {} {request:?} {:?}", caller.project, request.idempotency_key))?;
        Ok(self.submitted())
    }

    async fn jobs(&self, caller: &Caller, query: &ListQuery) -> Result<JobPage, Refusal> {
        self.ask(format!("jobs {query:?}"))?;
        let all = self.reports.lock().unwrap();
        let jobs = all.iter().filter(|r| r.view.job.project == caller.project).cloned().collect();
        Ok(JobPage { jobs, next: Some(sample::job_id(7)) })
    }

    async fn job(&self, caller: &Caller, target: &str) -> Result<JobReport, Refusal> {
        let all = self.reports.lock().unwrap();
        let mut mine = all.iter().rev().filter(|r| r.view.job.project == caller.project);
        let named = |r: &&JobReport| r.view.job.name == target || r.view.job.id.as_str() == target;
        mine.find(named).cloned().ok_or(Refusal::NotFound)
    }

    async fn stop(&self, caller: &Caller, target: &str) -> Result<JobReport, Refusal> {
        self.ask(format!("stop {target}"))?;
        self.job(caller, target).await
    }

    async fn resume(&self, _caller: &Caller, request: ResumeRequest) -> Result<Submitted, Refusal> {
        self.ask(format!("resume {} {:?}", request.target, request.from_step))?;
        Ok(self.submitted())
    }

    async fn delete(&self, caller: &Caller, target: &str, force: bool) -> Result<Deleted, Refusal> {
        self.ask(format!("delete {target} {force}"))?;
        let job = self.job(caller, target).await?.view.job.id;
        Ok(Deleted { jobs: vec![job], stopping: force })
    }

    fn watch(&self, _job: &JobId) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    async fn gpus_in_use(&self, _caller: &Caller) -> Result<u32, Refusal> {
        Ok(3)
    }
}

/// Agents that may read what a test says.
#[derive(Debug, Default)]
pub(in super::super) struct FakeAgents {
    pub(in super::super) files: Mutex<HashMap<Digest, u64>>,
}

#[async_trait]
impl AgentService for FakeAgents {
    async fn redeem(&self, request: RedeemRequest) -> Result<RedeemReply, AgentRefusal> {
        match request.lease_token.as_str() {
            "good" => Ok(RedeemReply { epoch: 1, trial_id: "t".into() }),
            "used" => Err(AgentRefusal::Conflict("redeemed by another".into())),
            _ => Err(AgentRefusal::Unauthorized),
        }
    }

    async fn assignment(&self, caller: &AgentCaller) -> Result<Assignment, AgentRefusal> {
        let files = self.files.lock().unwrap();
        let sync = files.iter().map(|(sha256, size)| SyncFile {
            path: sha256.to_string(),
            sha256: *sha256,
            size: *size,
            mode: None,
        });
        Ok(Assignment {
            protocol: 1,
            job_id: caller.job.to_string(),
            trial_id: caller.trial.to_string(),
            job_name: "x".into(),
            command: Exec { argv: vec!["true".into()] },
            env: Default::default(),
            sync: sync.collect(),
            restore: Vec::new(),
            workdir: ".".into(),
            checkpoint: None,
            gpus: Gpus::default(),
            max_log_bytes: 1,
            stop_grace_seconds: 1,
            collect: CollectLimits { max_bytes: 100, max_seconds: 1 },
            runner: None,
            image: None,
        })
    }

    async fn events(
        &self,
        _caller: &AgentCaller,
        request: EventsRequest,
    ) -> Result<EventsReply, AgentRefusal> {
        Ok(EventsReply { acked_seq: request.events.last().map_or(0, |event| event.seq) })
    }

    async fn poll(
        &self,
        _caller: &AgentCaller,
        request: PollRequest,
    ) -> Result<PollReply, AgentRefusal> {
        if request.state == AgentState::Running {
            std::future::pending::<()>().await;
        }
        Ok(PollReply {
            desired: Desired::Run,
            reason: None,
            deadline_at: None,
            acked_event_seq: 0,
            durable_log_seq: 0,
        })
    }
}

/// One connected provider, `sim`; sweeps answer nothing found.
#[derive(Debug, Default)]
pub(in super::super) struct FakeAdmin {
    pub(in super::super) restored: Mutex<Option<crate::serve::Restored>>,
    /// Applied sweeps.
    pub(in super::super) applied: Mutex<u32>,
}

#[async_trait]
impl crate::admin::AdminService for FakeAdmin {
    fn is_connected(&self, provider: &ProviderId) -> bool {
        provider.as_str() == "sim"
    }

    fn providers(&self) -> Vec<ProviderId> {
        vec![ProviderId::new("sim").unwrap()]
    }

    fn restored(&self) -> Option<crate::serve::Restored> {
        self.restored.lock().unwrap().clone()
    }

    async fn confirm_restore(&self) -> Result<bool, crate::store::StoreError> {
        Ok(self.restored.lock().unwrap().take().is_some())
    }

    async fn sweep(&self, provider: &ProviderId, apply: bool) -> Result<SweepReport, SweepError> {
        if apply {
            *self.applied.lock().unwrap() += 1;
        }
        Ok(SweepReport {
            provider: provider.clone(),
            held: self.restored().is_some(),
            counts: SweepCounts {
                listed_at: sample::at(5),
                complete: true,
                live: 0,
                owned: 0,
                waiting: 0,
                suspected: 0,
                ending: 0,
                foreign: 3,
            },
            findings: Vec::new(),
            strays: Vec::new(),
        })
    }

    fn counted(&self) -> crate::driver::Counted {
        let call = (ProviderId::new("sim").unwrap(), "launch", "ok".to_owned());
        let calls = std::collections::BTreeMap::from([(call, 2)]);
        crate::driver::Counted { calls, ..Default::default() }
    }

    fn quarantined(&self) -> usize {
        1
    }
}
