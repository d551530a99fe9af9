//! Accepting jobs that run published runners.

use std::collections::BTreeMap;
use std::sync::Arc;

use runwhere_engine::{
    Job, JobKind, JobSpec, Permission, Project, Publication, RunLimits, RunnerRun, SyncedFile,
    Trial, TrialSpec, TrialState,
};
use runwhere_model::{
    Bootstrapping, Deadman, GpuCount, GpuModel, HourlyPrice, JobId, Offer, TrialId,
};
use rust_decimal::Decimal;

use super::content::{FrozenProfile, Profile, freeze};
use super::definition::Definition;
use super::image::{ImageProblem, Images, resolve_all};
use super::refusal::{Code, Refused};
use super::registry::Registry;
use super::request::{Request, Resources, TrialRequest};
use crate::accounts::Caller;
use crate::api::text::{Words, words};
use crate::driver::Core;
use crate::jobs::{launchable_counts, similar_models};
use crate::ports::Room;
use crate::store::{JobQuery, JobView, Row, StoreError, Transition};

/// Time-out where neither job nor runner says one.
const DEFAULT_SECONDS: u64 = 24 * 3600;
/// Trials of a project that may wait or run at a time.
const MOST_WAITING: usize = 4096;
/// What the keys of these jobs begin with, apart from those of other doors.
const KEY_PREFIX: &str = "el:";

/// An accepted request.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The job.
    pub view: JobView,
    /// What repeats are known by.
    pub request_id: String,
    /// It had been accepted before.
    pub repeated: bool,
}

/// Jobs of published runners over a driver.
#[derive(Debug)]
pub struct Training {
    core: Arc<Core>,
    registry: Registry,
    images: Arc<dyn Images>,
    room: Arc<dyn Room>,
    reachable: bool,
}

/// What a trial is to run, all of it held against what there is.
struct Planned<'a> {
    request: &'a TrialRequest,
    publication: Publication,
    definition: Definition,
    profile: Option<FrozenProfile>,
}

/// An offer for a trial.
struct Chosen {
    offer: Offer,
    price: HourlyPrice,
    gpus: GpuCount,
}

/// The request id behind a job's key.
pub(crate) fn request_id_of(job: &Job) -> Option<&str> {
    job.idempotency_key.as_deref().and_then(|key| key.strip_prefix(KEY_PREFIX))
}

impl Training {
    /// Jobs of a driver; `reachable` says whether agents on other machines can reach the server.
    pub fn new(
        core: Arc<Core>,
        registry: Registry,
        images: Arc<dyn Images>,
        room: Arc<dyn Room>,
        reachable: bool,
    ) -> Self {
        Self { core, registry, images, room, reachable }
    }

    /// The registry of runners.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What the data folder's disk has left.
    pub(crate) fn room(&self) -> &dyn Room {
        self.room.as_ref()
    }

    /// The driver.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Accepts a request body, or finds the job of an earlier identical one. Checks come in the
    /// order permission, form, runner, image, hardware, budget; nothing is frozen or taken before
    /// all of them have passed.
    ///
    /// # Errors
    /// The first check that fails.
    pub async fn submit(&self, caller: &Caller, body: &[u8]) -> Result<Accepted, Refused> {
        if !caller.allows(Permission::TrainingRun) {
            return Err(Refused::lacking(Permission::TrainingRun));
        }
        let request = Request::read(body)?;
        let fingerprint = request.fingerprint();
        let request_id =
            request.request_id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let key = format!("{KEY_PREFIX}{request_id}");
        let project = self.core.parts.store.project(&caller.project).await?;
        let project =
            project.ok_or_else(|| Refused::internal("the caller's project is missing"))?;
        // Also a repeat needs the permission for runner and content: a revocation stays effective.
        let planned = self.planned(caller, &project, &request).await?;
        if let Some(repeated) = self.repeated(caller, &key, &fingerprint, &request_id).await? {
            return Ok(repeated);
        }
        if !self.room.fits(0) {
            return Err(Refused::from(StoreError::Full));
        }
        for plan in &planned {
            plan.check()?;
        }
        let references: Vec<String> =
            planned.iter().filter_map(|plan| plan.image().map(str::to_owned)).collect();
        let images = resolve_all(&self.images, references).await.map_err(image_refused)?;
        let mut chosen = Vec::new();
        for plan in &planned {
            chosen.push(self.choose(plan, &project)?);
        }
        let _admitting = self.core.admitting.lock().await;
        // In its turn: of two at once with one id the second finds the first one's job.
        if let Some(repeated) = self.repeated(caller, &key, &fingerprint, &request_id).await? {
            return Ok(repeated);
        }
        self.capacity(caller, &project, &chosen).await?;
        self.budget(caller, &chosen).await?;
        let mut specs = Vec::new();
        for (plan, chosen) in planned.iter().zip(&chosen) {
            let files = self.registry.share(&plan.publication, &caller.project).await?;
            let image = plan.image().and_then(|text| images.get(text));
            let image = image.ok_or_else(|| Refused::internal("an image was not resolved"))?;
            let inputs = match &plan.profile {
                Some(profile) => profile.share(&self.registry, &caller.project).await?,
                None => Vec::new(),
            };
            specs.push(plan.spec(chosen, files, inputs, image.frozen.clone()));
        }
        self.insert(caller, specs, key, fingerprint, request_id).await
    }

    async fn planned<'a>(
        &self,
        caller: &Caller,
        project: &Project,
        request: &'a Request,
    ) -> Result<Vec<Planned<'a>>, Refused> {
        let mut known: BTreeMap<_, (Publication, Definition)> = BTreeMap::new();
        // Trials of a job are often the same but for a parameter.
        let mut frozen: Vec<(&Profile, &super::registry::RunnerRef, FrozenProfile)> = Vec::new();
        let mut planned = Vec::new();
        for trial in &request.trials {
            if !known.contains_key(&trial.runner) {
                let row = self.registry.readable(caller, &trial.runner).await?;
                let definition = Registry::definition(&row)?;
                known.insert(trial.runner.clone(), (row, definition));
            }
            let Some((publication, definition)) = known.get(&trial.runner).cloned() else {
                continue;
            };
            let mut profile = None;
            if let Some(wanted) = &trial.profile {
                let same = frozen
                    .iter()
                    .find(|(one, runner, _)| *one == wanted && **runner == trial.runner);
                profile = same.map(|(.., frozen)| frozen.clone());
                if profile.is_none() {
                    let runner = (trial.runner.name.as_str(), &definition);
                    let fresh = freeze(&self.registry, caller, project, wanted, runner).await?;
                    frozen.push((wanted, &trial.runner, fresh.clone()));
                    profile = Some(fresh);
                }
            }
            planned.push(Planned { request: trial, publication, definition, profile });
        }
        Ok(planned)
    }

    async fn repeated(
        &self,
        caller: &Caller,
        key: &str,
        fingerprint: &str,
        request_id: &str,
    ) -> Result<Option<Accepted>, Refused> {
        let Some(view) = self.core.parts.store.job_by_key(&caller.project, key).await? else {
            return Ok(None);
        };
        if view.job.request_sha256 != fingerprint {
            let id = &view.job.id;
            return Err(Refused::new(
                Code::RequestConflict,
                words!(
                    "此 request id 已用于输入不同的 {id}；请使用新的 request id",
                    "the request id was used for {id} with other input; use a new request id"
                ),
            )
            .at("request_id"));
        }
        Ok(Some(Accepted { view, request_id: request_id.to_owned(), repeated: true }))
    }

    /// The best offer that can be launched; busy ones too, for the trial waits its turn.
    fn choose(&self, plan: &Planned<'_>, project: &Project) -> Result<Chosen, Refused> {
        let name = &plan.request.name;
        let refused = |why: Words| {
            Refused::new(Code::UnsupportedHardware, why.about(format_args!("trial {name}")))
                .at("spec.resources")
        };
        if !plan.definition.gpu {
            let runner = &plan.request.runner.name;
            let why = words!(
                "Runner {runner} 不能在 GPU 上运行",
                "the runner {runner} does not run on GPUs"
            );
            return Err(Refused::new(Code::RunnerGpuUnavailable, why).at("spec.runner"));
        }
        let wanted = plan.resources();
        let text = wanted.gpu_type.as_deref().ok_or_else(|| {
            refused(words!(
                "没有指明 GPU 型号；请设置 resources.gpu_type，例如 H100",
                "no GPU model is named; set resources.gpu_type, for example H100"
            ))
        })?;
        let shown: String =
            text.chars().filter(|c| !c.is_control() && !"[]".contains(*c)).take(64).collect();
        let prices = &*self.core.parts.prices;
        let model = GpuModel::resolve(text).ok_or_else(|| {
            let why = words!("未知的 GPU 型号 {shown}", "{shown} is not a known GPU model");
            refused(why.then(&similar_models(prices, text)))
        })?;
        let number = wanted.gpus.unwrap_or(1);
        let gpus = GpuCount::whole(number).ok_or_else(|| {
            refused(words!("gpus 必须是正整数", "gpus must be a positive number"))
        })?;
        if project.quota.hard_limit.is_some_and(|limit| number > limit) {
            return Err(refused(words!(
                "{number} 张 GPU 超过项目的上限，永远无法满足",
                "{number} GPUs are more than the project may ever use"
            )));
        }
        let offers = prices.best(model.id, gpus);
        let with_launchable = |why: Words| {
            let registry = &self.core.parts.registry;
            let known = |offer: &Offer| registry.get(&offer.key.provider).is_some();
            why.then(&launchable_counts(prices, model.id, known))
        };
        if offers.is_empty() {
            let why = words!(
                "没有在单个节点上提供 {number} x {shown} 的报价",
                "nothing offers {number} x {shown} on one node"
            );
            return Err(refused(with_launchable(why)));
        }
        let mut reason = None;
        for offer in offers {
            let Some(provider) = self.core.parts.registry.get(&offer.key.provider) else {
                continue;
            };
            if !offer.launchable {
                continue;
            }
            let capabilities = provider.capabilities();
            let own_machine = capabilities.bootstrapping == Bootstrapping::Direct;
            if capabilities.deadman == Deadman::None && !own_machine && !project.consents_no_deadman
            {
                reason = Some(refused(words!(
                    "本服务器离线时 {provider} 不会结束节点；须先由项目同意",
                    "{provider} ends no node while this server is gone; the project must consent first",
                    provider = offer.key.provider
                )));
                continue;
            }
            if capabilities.needs_public_url && !self.reachable {
                reason = Some(refused(words!(
                    "节点无法连接本服务器；请用 --public-url 启动服务器",
                    "nodes could not reach this server; start it with --public-url"
                )));
                continue;
            }
            match offer.price.state.known() {
                Some(price) => return Ok(Chosen { offer, price, gpus }),
                None => {
                    let key = &offer.key;
                    let why = words!("{key} 的价格未知", "the price of {key} is unknown");
                    reason = Some(Refused::new(Code::PriceMissing, why).at("spec.resources"));
                }
            }
        }
        Err(reason.unwrap_or_else(|| {
            let why = words!(
                "没有已连接的账号能在单个节点上启动 {number} x {shown}；请连接账号或选择其他硬件",
                "no connected account can launch {number} x {shown} on one node; connect one or \
                 choose other hardware"
            );
            refused(with_launchable(why))
        }))
    }

    async fn capacity(
        &self,
        caller: &Caller,
        project: &Project,
        chosen: &[Chosen],
    ) -> Result<(), Refused> {
        let query = JobQuery {
            states: TrialState::ALL.into_iter().filter(|state| !state.is_terminal()).collect(),
            limit: Some(10_000),
            ..JobQuery::default()
        };
        let views = self.core.parts.store.jobs(&caller.project, &query).await?;
        let (mut trials, mut gpus) = (chosen.len(), 0_u32);
        for view in &views {
            for (trial, _) in view.trials.iter().filter(|(trial, _)| !trial.state.is_terminal()) {
                trials += 1;
                gpus = gpus.saturating_add(whole(view.job.terms(trial.index).gpu_count));
            }
        }
        for chosen in chosen {
            gpus = gpus.saturating_add(whole(chosen.gpus));
        }
        let full = |why: Words| Refused::new(Code::CapacityExceeded, why).retry(30);
        if trials > MOST_WAITING {
            return Err(full(words!(
                "等待或运行中的 Trial 超过 {MOST_WAITING} 个，请稍后再试",
                "more than {MOST_WAITING} trials wait or run; try again later"
            )));
        }
        match project.quota.hard_limit.filter(|limit| gpus > *limit) {
            Some(limit) => Err(full(words!(
                "加上本次共有 {gpus} 张 GPU 在使用或等待，超过项目的上限 {limit}",
                "with this {gpus} GPUs are in use or waited for, above the project's limit of {limit}"
            ))),
            None => Ok(()),
        }
    }

    async fn budget(&self, caller: &Caller, chosen: &[Chosen]) -> Result<(), Refused> {
        let Some(budget) = self.core.parts.store.budget(&caller.project).await? else {
            return Ok(());
        };
        let Some(limit) = budget.limit else { return Ok(()) };
        let mut hour = Decimal::ZERO;
        for chosen in chosen {
            let price = chosen.price;
            let rate = match price.currency == budget.currency {
                true => Some(Decimal::ONE),
                false => {
                    self.core.parts.prices.rate(price.currency, budget.currency).map(|r| r.rate)
                }
            };
            let rate = rate.ok_or_else(|| {
                let (from, to) = (price.currency, budget.currency);
                let why = words!(
                    "没有从 {from} 到 {to} 的可用汇率，无法核对预算",
                    "no usable rate from {from} to {to}, so the budget cannot be checked"
                );
                Refused::new(Code::PriceMissing, why)
            })?;
            hour = hour.saturating_add(price.amount.saturating_mul(rate));
        }
        let committed = budget.committed();
        if committed.saturating_add(hour) <= limit {
            return Ok(());
        }
        let currency = budget.currency;
        Err(Refused::new(
            Code::InsufficientBalance,
            words!(
                "预算 {limit} {currency} 不足：已花费或预留 {committed} {currency}，此任务的第一小时需要 \
                 {hour} {currency}",
                "the budget of {limit} {currency} is not enough: {committed} {currency} are spent or \
                 reserved, and the first hour of this job needs {hour} {currency}"
            ),
        ))
    }

    async fn insert(
        &self,
        caller: &Caller,
        specs: Vec<TrialSpec>,
        key: String,
        fingerprint: String,
        request_id: String,
    ) -> Result<Accepted, Refused> {
        let parts = &self.core.parts;
        let digits = parts.ids.hex(4);
        let id = JobId::new(format!("job-{digits}")).map_err(Refused::internal)?;
        let first = specs.first().ok_or_else(|| Refused::internal("no trial"))?;
        let trials = (0..specs.len())
            .map(|index| TrialId::new(format!("{id}.{index}")))
            .collect::<Result<Vec<_>, _>>()
            .map_err(Refused::internal)?;
        let job = Job {
            lineage: id.clone(),
            id,
            version: 0,
            workspace: caller.workspace.clone(),
            project: caller.project.clone(),
            principal: caller.principal.clone(),
            name: format!("el-{digits}"),
            kind: JobKind::Training,
            spec: job_spec(first),
            trials: trials.clone(),
            trial_specs: specs,
            created_at: parts.clock.now(),
            resumed: None,
            active: true,
            deleted_at: None,
            idempotency_key: Some(key.clone()),
            request_sha256: fingerprint.clone(),
        };
        let mut rows = vec![Row::Job(job.clone())];
        let mut events = Vec::new();
        for (index, id) in trials.into_iter().enumerate() {
            let trial = Trial::queued(id, &job, u32::try_from(index).unwrap_or(u32::MAX));
            events.push(self.core.created_event(&job, &trial));
            rows.push(Row::Trial(trial));
        }
        match parts.store.commit(Transition { rows, events }).await {
            Ok(()) => {}
            Err(StoreError::KeyUsed { .. }) => {
                // Two at once with one id: the other one won.
                let repeated = self.repeated(caller, &key, &fingerprint, &request_id).await?;
                return repeated.ok_or_else(|| Refused::internal("request id"));
            }
            Err(error) => return Err(error.into()),
        }
        self.core.signals.ring();
        let view = parts.store.job(&job.project, &job.id).await?;
        let view = view.ok_or_else(|| Refused::internal("the job vanished"))?;
        Ok(Accepted { view, request_id, repeated: false })
    }
}

fn whole(count: GpuCount) -> u32 {
    let (numerator, denominator) = count.parts();
    numerator.div_ceil(denominator)
}

fn image_refused(problem: ImageProblem) -> Refused {
    let text = problem.words();
    let refused = match problem {
        ImageProblem::Malformed(_) => Refused::new(Code::InvalidSpec, text),
        ImageProblem::NotPublic(_) | ImageProblem::Platform(_) | ImageProblem::NoGpus(_) => {
            Refused::new(Code::RunnerEnvironment, text)
        }
        ImageProblem::Registry { retry_after, .. } => {
            Refused::new(Code::ProviderUnavailable, text).retry(retry_after.unwrap_or(30))
        }
    };
    refused.at("spec.image")
}

/// The job's own request, for doors that know no trials: the first trial's.
fn job_spec(first: &TrialSpec) -> JobSpec {
    JobSpec {
        yaml: String::new(),
        description: Some(format!("{}@{}", first.run.runner, first.run.revision)),
        image: None,
        argv: vec![first.run.entrypoint.clone()],
        env: BTreeMap::new(),
        gpu_count: first.gpu_count,
        gpu_model: first.gpu_model,
        gpu_pretended: first.gpu_pretended,
        offer: first.offer.clone(),
        ceiling: first.ceiling,
        max_duration_seconds: first.max_duration_seconds,
        sync: None,
        checkpoint: None,
        from_step: None,
        max_price: None,
        decided: None,
    }
}

impl Planned<'_> {
    /// What the definition allows.
    fn check(&self) -> Result<(), Refused> {
        let runner = &self.request.runner.name;
        if self.request.command.is_some() && !self.definition.takes_command() {
            return Err(Refused::new(
                Code::UnsupportedCommand,
                words!(
                    "Runner {runner} 没有声明 run_command 参数",
                    "the runner {runner} declares no run_command parameter"
                ),
            )
            .at("spec.command"));
        }
        if self.image().is_none() {
            return Err(Refused::new(
                Code::InvalidSpec,
                words!(
                    "Runner {runner} 没有声明镜像；请设置 spec.image",
                    "the runner {runner} declares no image; set spec.image"
                ),
            )
            .at("spec.image"));
        }
        Ok(())
    }

    fn image(&self) -> Option<&str> {
        self.request.image.as_deref().or(self.definition.image.as_deref())
    }

    /// The request's resources over the runner's.
    fn resources(&self) -> Resources {
        let (own, default) = (&self.request.resources, &self.definition.resources);
        Resources {
            gpu_type: own.gpu_type.clone().or_else(|| default.gpu_type.clone()),
            gpus: own.gpus.or(default.gpus),
            cpus: own.cpus.or(default.cpus),
            memory_mb: own.memory_mb.or(default.memory_mb),
            storage_mb: own.storage_mb.or(default.storage_mb),
            shm_mb: own.shm_mb.or(default.shm_mb),
        }
    }

    fn spec(
        &self,
        chosen: &Chosen,
        files: Vec<SyncedFile>,
        inputs: Vec<SyncedFile>,
        image: runwhere_engine::FrozenImage,
    ) -> TrialSpec {
        let resources = self.resources();
        let seconds = self.request.timeout_seconds.or(self.definition.timeout_seconds);
        TrialSpec {
            name: self.request.name.clone(),
            offer: chosen.offer.key.clone(),
            gpu_count: chosen.gpus,
            gpu_model: chosen.offer.gpu,
            gpu_pretended: chosen.offer.pretended,
            ceiling: chosen.price,
            max_duration_seconds: Some(seconds.unwrap_or(DEFAULT_SECONDS)),
            run: RunnerRun {
                runner: self.publication.name.clone(),
                revision: self.publication.revision.clone(),
                manifest_sha256: self.publication.manifest_sha256.clone(),
                entrypoint: self.definition.entrypoint.clone(),
                files,
                command: self.request.command.clone(),
                image,
                limits: RunLimits {
                    cpus: resources.cpus,
                    memory_mib: resources.memory_mb,
                    storage_mib: resources.storage_mb,
                    shm_mib: resources.shm_mb,
                },
                outputs: self.definition.outputs.clone(),
                tags: self.request.tags.clone(),
                profile: self.profile.as_ref().map(|profile| profile.document.clone()),
                inputs,
            },
        }
    }
}
