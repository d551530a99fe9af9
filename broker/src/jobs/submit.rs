//! Accepting a job.

use runwhere_engine::{
    Decided, Job, JobKind, JobSpec, OutputState, Resumed, Trial, TrialState, sabotage,
};
use runwhere_failpoint::failpoint;
use runwhere_model::{HourlyPrice, JobId, SyncId, TrialId};

use super::offer::{Chosen, Terms, choose};
use super::service::Jobs;
use crate::accounts::Caller;
use crate::api::runwhere::{QuotaState, Refusal, ResumeRequest, SubmitRequest, Submitted};
use crate::api::text::Words;
use crate::store::{JobView, Row, StoreError, Transition};
use crate::task::{MaxDuration, TaskFile};

/// Seconds a node of the local machine is expected to take; a cloud's takes longer.
const START_SECONDS_DIRECT: u32 = 5;
const START_SECONDS_CLOUD: u32 = 180;

/// A submit's key and what it was sent with.
struct Idempotency {
    key: Option<String>,
    sha256: String,
}

/// A choice that everything allows.
struct Admitted {
    chosen: Chosen,
    quota_warning: Option<Words>,
}

impl Jobs {
    pub(super) fn parse(yaml: &str) -> Result<TaskFile, Refusal> {
        let task = TaskFile::parse(yaml).map_err(|errors| Refusal::Invalid {
            message: Words::from_fn(|lang| errors.message(lang)),
            suggestion: Some(Words::from_fn(|lang| errors.remedy(lang))),
        })?;
        match task.not_served().first() {
            None => Ok(task),
            Some(missing) => Err(Refusal::NotServed {
                message: Words::from_fn(|lang| missing.message(lang)),
                suggestion: Some(Words::from_fn(|lang| missing.remedy(lang))),
            }),
        }
    }

    pub(super) async fn accept(
        &self,
        caller: &Caller,
        request: SubmitRequest,
    ) -> Result<Submitted, Refusal> {
        let key = Idempotency { key: request.idempotency_key, sha256: request.request_sha256 };
        let task = Self::parse(&request.yaml)?;
        task.require_gpu().map_err(|error| Refusal::Invalid {
            message: Words::from_fn(|lang| error.message(lang)),
            suggestion: Some(Words::from_fn(|lang| error.remedy(lang))),
        })?;
        let _admitting = self.core.admitting.lock().await;
        // In its turn: of two at once with one key the second finds the first one's job.
        if let Some(repeated) = self.repeated(caller, &key).await? {
            return Ok(repeated);
        }
        self.name_free(caller, &task.job.name).await?;
        let (offer_key, code) = (request.offer_key.as_deref(), request.offer_code.as_deref());
        let admitted = self
            .admit(caller, request.max_price, request.overage_confirmed, |terms| {
                choose(terms, &task, offer_key, code)
            })
            .await?;
        let sync = self.pinned_sync(caller, &task.job.name, request.sync.as_ref()).await?;
        let mut spec = spec_of(&task, request.yaml, &admitted.chosen, sync);
        spec.max_price = request.max_price;
        self.insert(caller, task.job.name, spec, None, key, admitted).await
    }

    pub(super) async fn accept_resume(
        &self,
        caller: &Caller,
        request: ResumeRequest,
    ) -> Result<Submitted, Refusal> {
        let key = Idempotency { key: request.idempotency_key, sha256: request.request_sha256 };
        let _admitting = self.core.admitting.lock().await;
        if let Some(repeated) = self.repeated(caller, &key).await? {
            return Ok(repeated);
        }
        let view = self.visible(caller, &request.target).await?;
        let resumed = resumed(&view);
        let earlier = view.job;
        if earlier.active {
            return Err(Refusal::Conflict {
                message: Words::new(
                    format!("作业 {} 尚未结束，不能恢复", earlier.id),
                    format!("job {} has not ended, so it cannot be resumed", earlier.id),
                ),
                suggestion: Some(Words::new(
                    format!("先执行 runwhere stop job {}", earlier.name),
                    format!("run `runwhere stop job {}` first", earlier.name),
                )),
            });
        }
        self.name_free(caller, &earlier.name).await?;
        let task = Self::parse(&earlier.spec.yaml)?;
        let offer = earlier.spec.offer.to_string();
        let max_price = request.max_price.or(earlier.spec.max_price);
        let admitted = self
            .admit(caller, max_price, request.overage_confirmed, |terms| {
                // The same offer where it can still be had, else what the YAML finds now.
                choose(terms, &task, Some(&offer), None)
                    .or_else(|_| choose(terms, &task, None, None))
            })
            .await?;
        let yaml = earlier.spec.yaml.clone();
        let mut spec = spec_of(&task, yaml, &admitted.chosen, earlier.spec.sync.clone());
        spec.from_step = request.from_step;
        spec.max_price = max_price;
        let name = earlier.name.clone();
        self.insert(caller, name, spec, Some((earlier, resumed)), key, admitted).await
    }

    /// Holds a choice against the disk and the project's consent, quota and budget.
    async fn admit(
        &self,
        caller: &Caller,
        max_price: Option<HourlyPrice>,
        overage_confirmed: bool,
        choice: impl FnOnce(&Terms<'_>) -> Result<Chosen, Refusal>,
    ) -> Result<Admitted, Refusal> {
        if !self.room.fits(0) {
            return Err(Refusal::StorageFull);
        }
        let project = self.project(caller).await?;
        let chosen = choice(&Terms {
            prices: self.core.parts.prices.as_ref(),
            registry: &self.core.parts.registry,
            consents_no_deadman: project.consents_no_deadman,
            reachable: self.reachable,
            max_price,
        })?;
        let quota_warning = self.quota(caller, &project, &chosen, overage_confirmed).await?;
        self.budget(caller, &chosen).await?;
        Ok(Admitted { chosen, quota_warning })
    }

    async fn insert(
        &self,
        caller: &Caller,
        name: String,
        spec: JobSpec,
        earlier: Option<(Job, Option<Resumed>)>,
        key: Idempotency,
        admitted: Admitted,
    ) -> Result<Submitted, Refusal> {
        let chosen = &admitted.chosen;
        let id = JobId::new(format!("job-{}", self.core.parts.ids.hex(4)))
            .map_err(|error| Refusal::Internal(error.to_string()))?;
        let trial_id = TrialId::new(format!("{id}.0"))
            .map_err(|error| Refusal::Internal(error.to_string()))?;
        let (earlier, resumed) = earlier.unzip();
        let job = Job {
            lineage: earlier.as_ref().map_or_else(|| id.clone(), |job| job.lineage.clone()),
            id,
            version: 0,
            workspace: caller.workspace.clone(),
            project: caller.project.clone(),
            principal: caller.principal.clone(),
            name,
            kind: earlier.map_or(JobKind::Training, |job| job.kind),
            spec,
            trials: vec![trial_id.clone()],
            trial_specs: Vec::new(),
            created_at: self.core.parts.clock.now(),
            resumed: resumed.flatten(),
            active: true,
            deleted_at: None,
            idempotency_key: key.key.clone().filter(|_| !sabotage!(KeyNotKept)),
            request_sha256: key.sha256.clone(),
        };
        let trial = Trial::queued(trial_id, &job, 0);
        let created = self.core.created_event(&job, &trial);
        let transition = Transition {
            rows: vec![Row::Job(job.clone()), Row::Trial(trial)],
            events: vec![created],
        };
        failpoint!("submit.before_commit");
        match self.core.parts.store.commit(transition).await {
            Ok(()) => failpoint!("state.trial.queued"),
            Err(StoreError::KeyUsed { .. }) => {
                // Two at once with one key: the other one won.
                let repeated = self.repeated(caller, &key).await?;
                return repeated.ok_or_else(|| Refusal::Internal("idempotency key".into()));
            }
            Err(error) => return Err(error.into()),
        }
        self.core.signals.ring();
        let view = self.core.parts.store.job(&job.project, &job.id).await?;
        let view = view.ok_or_else(|| Refusal::Internal("the job vanished".into()))?;
        let direct = self.core.parts.registry.get(&chosen.offer.key.provider).is_some_and(|p| {
            p.capabilities().bootstrapping == runwhere_model::Bootstrapping::Direct
        });
        let mut warnings = Vec::new();
        if chosen.offer.pretended {
            warnings.push(Words::new(
                format!("本机假装有 {} 张 {}：仅供试跑，不产生真实费用", chosen.gpus, gpu_name(chosen)),
                format!("this machine pretends to have {} x {}: for trying only, nothing is really charged", chosen.gpus, gpu_name(chosen)),
            ));
        }
        if job.spec.sync.is_none() {
            warnings.push(Words::new(
                "该任务名没有同步过代码，工作目录将为空；先执行 runwhere sync -f <yaml>",
                "nothing was ever synced for this name, so the work folder will be empty; run `runwhere sync -f <yaml>` first",
            ));
        }
        Ok(Submitted {
            report: self.report(view)?,
            byoa: true,
            estimated_start_seconds: if direct {
                START_SECONDS_DIRECT
            } else {
                START_SECONDS_CLOUD
            },
            warnings,
            quota_warning: admitted.quota_warning,
            repeated: false,
        })
    }

    /// The job that an idempotency key made; a changed request under the key is refused.
    async fn repeated(
        &self,
        caller: &Caller,
        request: &Idempotency,
    ) -> Result<Option<Submitted>, Refusal> {
        let Some(key) = &request.key else { return Ok(None) };
        let Some(view) = self.core.parts.store.job_by_key(&caller.project, key).await? else {
            return Ok(None);
        };
        if view.job.request_sha256 != request.sha256 {
            return Err(Refusal::KeyReused { existing: view.job.id });
        }
        Ok(Some(Submitted {
            report: self.report(view)?,
            byoa: true,
            estimated_start_seconds: 0,
            warnings: Vec::new(),
            quota_warning: None,
            repeated: true,
        }))
    }

    async fn name_free(&self, caller: &Caller, name: &str) -> Result<(), Refusal> {
        match self.core.parts.store.active_job(&caller.project, name).await? {
            None => Ok(()),
            Some(existing) => Err(Refusal::NameTaken { existing }),
        }
    }

    async fn quota(
        &self,
        caller: &Caller,
        project: &runwhere_engine::Project,
        chosen: &Chosen,
        confirmed: bool,
    ) -> Result<Option<Words>, Refusal> {
        let current = self.in_use(caller).await?;
        let wanted = whole(chosen);
        let quota = &project.quota;
        let total = current.saturating_add(wanted);
        let state = |limit| QuotaState {
            current,
            wanted,
            limit,
            overage_unit_price: quota.overage_unit_price.clone(),
        };
        if let Some(limit) = quota.hard_limit.filter(|limit| total > *limit) {
            return Err(Refusal::QuotaExceeded(state(limit)));
        }
        match quota.confirm_above.filter(|limit| total > *limit) {
            Some(limit) if !confirmed => Err(Refusal::QuotaConfirmation(state(limit))),
            Some(limit) => Ok(Some(Words::new(
                format!("已超出配额：使用 {} / {limit} 张 GPU", total),
                format!("over the quota: {} of {limit} GPUs in use", total),
            ))),
            None => Ok(None),
        }
    }

    /// GPUs that jobs of the project use or wait for.
    pub(super) async fn in_use(&self, caller: &Caller) -> Result<u32, Refusal> {
        let query = crate::store::JobQuery {
            states: TrialState::ALL.into_iter().filter(|state| !state.is_terminal()).collect(),
            limit: Some(10_000),
            ..crate::store::JobQuery::default()
        };
        let views = self.core.parts.store.jobs(&caller.project, &query).await?;
        Ok(views.iter().fold(0u32, |sum, view| {
            view.trials.iter().filter(|(trial, _)| !trial.state.is_terminal()).fold(
                sum,
                |sum, (trial, _)| {
                    let count = view.job.terms(trial.index).gpu_count.parts();
                    sum.saturating_add(count.0.div_ceil(count.1))
                },
            )
        }))
    }

    async fn budget(&self, caller: &Caller, chosen: &Chosen) -> Result<(), Refusal> {
        let Some(budget) = self.core.parts.store.budget(&caller.project).await? else {
            return Ok(());
        };
        let Some(limit) = budget.limit else { return Ok(()) };
        let rate = match chosen.price.currency == budget.currency {
            true => Some(rust_decimal::Decimal::ONE),
            false => self
                .core
                .parts
                .prices
                .rate(chosen.price.currency, budget.currency)
                .map(|rate| rate.rate),
        };
        let Some(rate) = rate else {
            return Err(Refusal::BudgetExceeded {
                message: Words::new(
                    format!(
                        "没有 {} 到 {} 的可用汇率，无法核对预算",
                        chosen.price.currency, budget.currency
                    ),
                    format!(
                        "no usable rate from {} to {}, so the budget cannot be checked",
                        chosen.price.currency, budget.currency
                    ),
                ),
            });
        };
        let hour = chosen.price.amount.saturating_mul(rate);
        let committed = budget.committed();
        if committed.saturating_add(hour) <= limit {
            return Ok(());
        }
        Err(Refusal::BudgetExceeded {
            message: Words::new(
                format!(
                    "预算不足：上限 {limit} {c}，已用和已预留 {committed} {c}，本次需预留 {hour} {c}",
                    c = budget.currency
                ),
                format!(
                    "the budget of {limit} {c} is not enough: {committed} {c} are spent or reserved, {hour} {c} more are needed",
                    c = budget.currency
                ),
            ),
        })
    }

    async fn pinned_sync(
        &self,
        caller: &Caller,
        name: &str,
        wanted: Option<&SyncId>,
    ) -> Result<Option<SyncId>, Refusal> {
        let store = &self.core.parts.store;
        match wanted {
            Some(id) => match store.sync(&caller.project, id).await? {
                Some(sync) => Ok(Some(sync.id)),
                None => Err(Refusal::Invalid {
                    message: Words::new("没有这个 sync_id", "there is no such sync_id"),
                    suggestion: Some(Words::new(
                        "先执行 runwhere sync -f <yaml>",
                        "run `runwhere sync -f <yaml>` first",
                    )),
                }),
            },
            None => Ok(store.newest_sync(&caller.project, Some(name)).await?.map(|sync| sync.id)),
        }
    }
}

fn whole(chosen: &Chosen) -> u32 {
    let (numerator, denominator) = chosen.gpus.parts();
    numerator.div_ceil(denominator)
}

fn gpu_name(chosen: &Chosen) -> String {
    match chosen.offer.gpu {
        Some(model) => model.model().name.to_owned(),
        None => chosen.offer.gpu_raw.clone(),
    }
}

/// What a job that resumes this one goes on from: its outputs, or where it has none (it was stopped before it began, or its
/// machine was lost) those that it went on from itself.
pub(super) fn resumed(view: &JobView) -> Option<Resumed> {
    let (trial, _) = view.trials.first()?;
    let trial = match (&trial.outputs, &view.job.resumed) {
        (OutputState::Uploaded { .. }, _) if trial.started_at.is_some() => trial.id.clone(),
        (_, Some(before)) => before.trial.clone(),
        (_, None) => trial.id.clone(),
    };
    Some(Resumed { job: view.job.id.clone(), trial })
}

fn spec_of(task: &TaskFile, yaml: String, chosen: &Chosen, sync: Option<SyncId>) -> JobSpec {
    JobSpec {
        yaml,
        description: task.job.description.clone(),
        image: task.environment.image.clone(),
        argv: task.argv().unwrap_or_default(),
        env: task.environment.env.clone(),
        gpu_count: chosen.gpus,
        gpu_model: chosen.offer.gpu,
        gpu_pretended: chosen.offer.pretended,
        offer: chosen.offer.key.clone(),
        ceiling: chosen.ceiling,
        max_duration_seconds: match task.job.max_duration.value {
            MaxDuration::Unlimited => None,
            MaxDuration::Seconds(seconds) => Some(seconds),
        },
        sync,
        checkpoint: task.storage.checkpoint.clone(),
        from_step: None,
        max_price: None,
        decided: Some(Decided { price: chosen.price, rates: chosen.rates.clone() }),
    }
}
