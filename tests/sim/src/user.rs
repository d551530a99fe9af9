//! Users: they submit, stop, delete and resume through the code behind the HTTP routes, and repeat
//! what was not answered at whichever broker process there is then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runwhere_broker::accounts::Caller;
use runwhere_broker::api::runwhere::{
    JobService, Refusal, ResumeRequest, SubmitRequest, Submitted,
};
use runwhere_broker::jobs::Jobs;
use runwhere_broker::store::{Row, Store, StoreError, Transition};
use runwhere_engine::{
    Budget, Job, JobKind, JobSpec, Principal, Project, Quota, Trial, TrialState, Workspace,
};
use runwhere_model::{Currency, JobId, KeyId, Offer, PrincipalId, ProjectId, TrialId, WorkspaceId};
use runwhere_providers::Clock;
use rust_decimal::Decimal;

use crate::coverage::UserAction;
use crate::invariant::{Invariant, Violation};
use crate::plan::{PlannedJob, What};
use crate::replica::Replica;
use crate::store::Shelf;
use crate::world::World;

/// What all users and agents were told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The job of each idempotency key.
    accepted: BTreeMap<String, JobId>,
    pub(crate) wrong: Vec<Violation>,
}

impl Told {
    fn accept(&mut self, key: &str, job: &JobId) {
        let known = self.accepted.entry(key.to_owned()).or_insert_with(|| job.clone());
        if known != job {
            let broken = format_args!("{key} made {known} and {job}");
            self.wrong.push(Invariant::OneJob.broken(broken));
        }
    }
}

/// Something a user wants done.
#[derive(Clone, Debug)]
pub(crate) struct Errand {
    wish: Wish,
    done: Arc<Mutex<bool>>,
}

#[derive(Clone, Debug)]
enum Wish {
    Submit { number: usize, job: PlannedJob, offer: Box<Offer> },
    Stop(usize),
    Delete(usize, bool),
    Resume(usize, String),
}

/// What an errand needs of the process it goes to.
#[derive(Clone)]
struct Counter {
    jobs: Arc<Jobs>,
    store: Arc<dyn Store>,
    core: Arc<runwhere_broker::driver::Core>,
    clock: Arc<dyn Clock>,
    shelf: Arc<Shelf>,
    told: Arc<Mutex<Told>>,
}

impl Errand {
    /// The errand of an act, if it is a user's.
    pub(crate) fn of(what: &What, world: &World) -> Option<Self> {
        let wish = match what {
            What::Submit(number) => {
                let job = world.plan.jobs[*number].clone();
                let offer = Box::new(world.offers[job.offer].clone());
                Wish::Submit { number: *number, job, offer }
            }
            What::Stop(number) => Wish::Stop(*number),
            What::Delete(number, force) => Wish::Delete(*number, *force),
            What::Resume(number) => {
                Wish::Resume(*number, format!("resume-{number}-{}", world.rng.next()))
            }
            _ => return None,
        };
        let newest = newest_state(&world.shelf, wish.number());
        if let (Some(state), Some(action)) = (newest, wish.action()) {
            world.sky.log().coverage.action(state, action);
        }
        Some(Self { wish, done: Arc::default() })
    }

    pub(crate) fn is_done(&self) -> bool {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs it at a process until it is answered; broken off with the process.
    pub(crate) fn run(&self, replica: &Replica, world: &World) -> tokio::task::JoinHandle<()> {
        let counter = Counter {
            jobs: Arc::clone(&replica.jobs),
            store: Arc::clone(&replica.door.store),
            core: Arc::clone(&replica.core),
            clock: world.clock(),
            shelf: Arc::clone(&world.shelf),
            told: Arc::clone(&world.told),
        };
        let errand = self.clone();
        replica.spawn(async move {
            while !counter.serve(&errand.wish).await {
                counter.clock.sleep(Duration::from_secs(2)).await;
            }
            *errand.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        })
    }
}

impl UserAction {
    /// The act of doing it to a job.
    pub(crate) fn on(self, job: usize) -> What {
        match self {
            Self::SubmitAgain => What::Submit(job),
            Self::Stop => What::Stop(job),
            Self::Delete => What::Delete(job, false),
            Self::DeleteByForce => What::Delete(job, true),
            Self::Resume => What::Resume(job),
        }
    }
}

impl Wish {
    fn number(&self) -> usize {
        match self {
            Self::Submit { number, .. }
            | Self::Stop(number)
            | Self::Delete(number, _)
            | Self::Resume(number, _) => *number,
        }
    }

    fn action(&self) -> Option<UserAction> {
        Some(match self {
            Self::Submit { .. } => UserAction::SubmitAgain,
            Self::Stop(_) => UserAction::Stop,
            Self::Delete(_, false) => UserAction::Delete,
            Self::Delete(_, true) => UserAction::DeleteByForce,
            Self::Resume(..) => UserAction::Resume,
        })
    }
}

impl Counter {
    /// True once it is answered for good.
    async fn serve(&self, wish: &Wish) -> bool {
        let caller = caller();
        match wish {
            Wish::Submit { number, job, offer } if job.trials > 1 => {
                self.submit_many(*number, job, offer).await
            }
            Wish::Submit { number, job, offer } => {
                let key = format!("submit-{number}");
                let request = SubmitRequest {
                    yaml: yaml(*number, job),
                    offer_key: Some(offer.key.to_string()),
                    offer_code: None,
                    overage_confirmed: false,
                    idempotency_key: Some(key.clone()),
                    sync: None,
                    max_price: None,
                    request_sha256: key.clone(),
                };
                let answer = self.jobs.submit(&caller, request).await;
                self.submitted(&key, answer)
            }
            Wish::Resume(number, key) => {
                let request = ResumeRequest {
                    target: name(*number),
                    from_step: None,
                    max_price: None,
                    overage_confirmed: false,
                    idempotency_key: Some(key.clone()),
                    request_sha256: key.clone(),
                };
                let answer = self.jobs.resume(&caller, request).await;
                self.submitted(key, answer)
            }
            Wish::Stop(number) => is_final(self.jobs.stop(&caller, &name(*number)).await),
            Wish::Delete(number, force) => {
                is_final(self.jobs.delete(&caller, &name(*number), *force).await)
            }
        }
    }

    fn submitted(&self, key: &str, answer: Result<Submitted, Refusal>) -> bool {
        if let Ok(submitted) = &answer {
            self.told().accept(key, &submitted.report.view.job.id);
        }
        is_final(answer)
    }

    /// Jobs of several trials have no route yet: their rows are written as a submit writes them.
    async fn submit_many(&self, number: usize, planned: &PlannedJob, offer: &Offer) -> bool {
        let key = format!("submit-{number}");
        let id = JobId::new(format!("job-{:08x}", 0xaaaa_0000 + number)).expect("digits are valid");
        let caller = caller();
        let trial_id = |index| TrialId::new(format!("{id}.{index}")).expect("made of a valid id");
        let job = Job {
            id: id.clone(),
            version: 0,
            workspace: caller.workspace,
            project: caller.project,
            principal: caller.principal,
            name: name(number),
            kind: JobKind::Training,
            spec: JobSpec {
                yaml: yaml(number, planned),
                description: None,
                image: None,
                argv: vec!["true".into()],
                env: BTreeMap::new(),
                gpu_count: offer.gpu_count,
                gpu_model: offer.gpu,
                gpu_pretended: false,
                offer: offer.key.clone(),
                ceiling: self.shelf.listed(&offer.key).expect("the sample has a price"),
                max_duration_seconds: planned.limit_seconds,
                sync: None,
                checkpoint: None,
                from_step: None,
                max_price: None,
                decided: None,
            },
            trials: (0..planned.trials).map(trial_id).collect(),
            trial_specs: Vec::new(),
            created_at: self.clock.now(),
            resumed: None,
            lineage: id.clone(),
            active: true,
            deleted_at: None,
            idempotency_key: Some(key.clone()),
            request_sha256: key.clone(),
        };
        let mut rows = vec![Row::Job(job.clone())];
        for index in 0..planned.trials {
            rows.push(Row::Trial(Trial::queued(trial_id(index), &job, index)));
        }
        match self.store.commit(Transition { rows, events: Vec::new() }).await {
            Ok(()) => {
                self.told().accept(&key, &id);
                self.core.signals().ring();
                true
            }
            Err(StoreError::KeyUsed { existing }) => {
                self.told().accept(&key, &existing);
                true
            }
            Err(StoreError::NameTaken { .. } | StoreError::Stale { .. }) => true,
            Err(_) => false,
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_final<T>(answer: Result<T, Refusal>) -> bool {
    !matches!(
        answer,
        Err(Refusal::Internal(_) | Refusal::StorageFull | Refusal::Unavailable { .. })
    )
}

pub(crate) fn newest_state(shelf: &Shelf, number: usize) -> Option<TrialState> {
    let (written, name) = (shelf.written(), name(number));
    let named = written.jobs.values().filter(|job| job.name == name && job.deleted_at.is_none());
    let newest = named.max_by_key(|job| job.created_at)?;
    Some(written.trials.get(newest.trials.first()?)?.state)
}

/// The job's name, from which its number can be read again.
fn name(number: usize) -> String {
    format!("train-{number}")
}

/// The number in a job's name.
pub(crate) fn number_of(name: &str) -> usize {
    name.trim_start_matches("train-").parse().unwrap_or(0)
}

fn yaml(number: usize, job: &PlannedJob) -> String {
    let limit = job.limit_seconds.map_or_else(String::new, |s| format!("  maxDuration: {s}\n"));
    let gpus = if job.offer == 0 { 8 } else { 1 };
    format!(
        "job:\n  name: {}\n{limit}resources:\n  gpuType: a100-80g\n  gpuNum: {gpus}\nenvironment:\n  command: [\"true\"]\n",
        name(number)
    )
}

pub(crate) fn caller() -> Caller {
    Caller {
        workspace: WorkspaceId::new("workspace").expect("a valid constant"),
        project: project(),
        principal: PrincipalId::new("user").expect("a valid constant"),
        key: KeyId::new("key").expect("a valid constant"),
        permissions: Vec::new(),
        seen_in: None,
    }
}

pub(crate) fn project() -> ProjectId {
    ProjectId::new("project").expect("a valid constant")
}

/// The rows that are there before anybody submits.
pub(crate) fn tenants(limit: Option<Decimal>, clock: &dyn Clock) -> Transition {
    let caller = caller();
    let created_at = clock.now();
    let mut budget =
        Budget::unlimited(caller.workspace.clone(), caller.project.clone(), Currency::USD);
    budget.limit = limit;
    let rows = vec![
        Row::Workspace(Workspace { id: caller.workspace.clone(), name: "sim".into(), created_at }),
        Row::Project(Project {
            id: caller.project,
            version: 0,
            workspace: caller.workspace.clone(),
            name: "sim".into(),
            quota: Quota::default(),
            consents_no_deadman: true,
            approved_plugins: std::collections::BTreeSet::new(),
            created_at,
        }),
        Row::Principal(Principal {
            id: caller.principal,
            workspace: caller.workspace,
            name: "sim".into(),
            created_at,
        }),
        Row::Budget(budget),
    ];
    Transition { rows, events: Vec::new() }
}
