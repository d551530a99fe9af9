//! The routes' view of the broker's jobs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runwhere_engine::{JobState, Project, TrialState};
use runwhere_failpoint::failpoint;
use runwhere_model::JobId;
use tokio::sync::watch;

use super::cost::cost_of;
use crate::accounts::Caller;
use crate::api::runwhere::{
    Deleted, JobPage, JobReport, JobService, ListQuery, Refusal, ResumeRequest, SubmitRequest,
    Submitted,
};
use crate::api::text::Words;
use crate::driver::{Core, DriveError};
use crate::ports::{Room, Unbounded};
use crate::store::{JobQuery, JobView, Row, StoreError, Transition};

/// How long a stop or delete waits for the confirmed release before it answers how far it is.
const STOP_WAIT: Duration = Duration::from_secs(20);

/// Jobs over a driver.
#[derive(Debug)]
pub struct Jobs {
    pub(super) core: Arc<Core>,
    /// Agents on other machines can reach us.
    pub(super) reachable: bool,
    pub(super) room: Arc<dyn Room>,
}

impl Jobs {
    /// Jobs of a driver; `reachable` says whether agents on other machines can reach the server.
    pub fn new(core: Arc<Core>, reachable: bool) -> Self {
        Self { core, reachable, room: Arc::new(Unbounded) }
    }

    /// The same jobs, none of them new while there is no room.
    #[must_use]
    pub fn within(self, room: Arc<dyn Room>) -> Self {
        Self { room, ..self }
    }

    pub(super) fn report(&self, view: JobView) -> Result<JobReport, Refusal> {
        let at = self.core.parts.clock.now();
        let cost = cost_of(&view, at).map_err(|error| Refusal::Internal(error.to_string()))?;
        Ok(JobReport { view, cost, at })
    }

    /// The job of a name or id, unless deleted. An id has the form of one; a name never has.
    pub(super) async fn visible(&self, caller: &Caller, target: &str) -> Result<JobView, Refusal> {
        let view = match job_id(target) {
            Some(id) => self.core.parts.store.job(&caller.project, &id).await?,
            None => self.core.parts.store.job_by_name(&caller.project, target).await?,
        };
        view.filter(|view| view.job.deleted_at.is_none()).ok_or(Refusal::NotFound)
    }

    pub(super) async fn project(&self, caller: &Caller) -> Result<Project, Refusal> {
        let project = self.core.parts.store.project(&caller.project).await?;
        project.ok_or_else(|| Refusal::Internal("the caller's project is missing".into()))
    }

    async fn ask_stop(&self, view: &JobView) -> Result<(), Refusal> {
        for (trial, _) in &view.trials {
            if trial.state.is_terminal() {
                continue;
            }
            let step =
                self.core.step_to_end(trial.id.clone(), false, |unit, context| unit.stop(context));
            match step.await {
                Ok(_) => {}
                Err(DriveError::NotFound) => return Err(Refusal::NotFound),
                Err(DriveError::Store(error)) => return Err(error.into()),
                Err(error @ (DriveError::Step(_) | DriveError::Broken)) => {
                    return Err(Refusal::Internal(error.to_string()));
                }
            }
        }
        failpoint!("stop.asked");
        self.core.signals.ring();
        Ok(())
    }

    /// Waits until a job's trials have ended and their leases are proven gone, or the deadline;
    /// how far it is then. `None` where there is no such job.
    async fn released(
        &self,
        caller: &Caller,
        id: &JobId,
        deadline: jiff::Timestamp,
    ) -> Result<Option<JobView>, Refusal> {
        let clock = &self.core.parts.clock;
        let mut changes = self.core.signals.watch(id.as_str());
        loop {
            changes.mark_unchanged();
            let view = self.core.parts.store.job(&caller.project, id).await?;
            if view.as_ref().is_none_or(ended_and_clean) || clock.now() >= deadline {
                return Ok(view);
            }
            tokio::select! {
                biased;
                changed = changes.changed() => if changed.is_err() { return Ok(view) },
                () = clock.sleep_until(deadline) => {}
            }
        }
    }

    fn stop_deadline(&self) -> jiff::Timestamp {
        self.core.parts.clock.now().checked_add(STOP_WAIT).unwrap_or(jiff::Timestamp::MAX)
    }

    async fn hide(&self, caller: &Caller, id: &JobId) -> Result<bool, Refusal> {
        loop {
            let Some(mut view) = self.core.parts.store.job(&caller.project, id).await? else {
                return Ok(false);
            };
            if view.job.deleted_at.is_some() {
                return Ok(false);
            }
            view.job.deleted_at = Some(self.core.parts.clock.now());
            let event = self.core.job_event(&view.job, "job.deleted");
            let transition = Transition { rows: vec![Row::Job(view.job)], events: vec![event] };
            match self.core.parts.store.commit(transition).await {
                Ok(()) => {
                    failpoint!("delete.hidden");
                    self.core.signals.changed(id.as_str());
                    return Ok(true);
                }
                Err(StoreError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A text that has the form of a job id.
fn job_id(text: &str) -> Option<JobId> {
    let digits = text.strip_prefix("job-")?;
    let good = digits.len() == 8 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    good.then(|| JobId::new(text).ok()).flatten()
}

fn ended_and_clean(view: &JobView) -> bool {
    view.trials.iter().all(|(trial, _)| trial.state.is_terminal() && trial.cleanup_confirmed)
}

#[async_trait]
impl JobService for Jobs {
    async fn check_task(&self, _caller: &Caller, yaml: &str) -> Result<(), Refusal> {
        Self::parse(yaml).map(|_| ())
    }

    async fn submit(&self, caller: &Caller, request: SubmitRequest) -> Result<Submitted, Refusal> {
        self.accept(caller, request).await
    }

    async fn jobs(&self, caller: &Caller, query: &ListQuery) -> Result<JobPage, Refusal> {
        let limit = query.limit.map(|limit| limit.clamp(1, 500));
        let store_query = JobQuery {
            states: query.state.map(states_of).unwrap_or_default(),
            kind: query.kind,
            // One more than wanted tells whether there is a next page.
            limit: limit.map(|limit| limit + 1),
            after: query.after.clone(),
        };
        let store = &self.core.parts.store;
        // Deleted jobs still have their place; behind one that never was the list would look ended.
        if let Some(after) = &query.after
            && store.job(&caller.project, after).await?.is_none()
        {
            return Err(Refusal::Invalid {
                message: Words::new("cursor 无效", "the cursor is not valid"),
                suggestion: Some(Words::new(
                    "使用上一页的 next_cursor，或从第一页开始",
                    "use next_cursor of the page before, or begin with the first page",
                )),
            });
        }
        let mut views = store.jobs(&caller.project, &store_query).await?;
        let mut next = None;
        if let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok())
            && views.len() > limit
        {
            views.truncate(limit);
            next = views.last().map(|view| view.job.id.clone());
        }
        let jobs = views.into_iter().map(|view| self.report(view)).collect::<Result<_, _>>()?;
        Ok(JobPage { jobs, next })
    }

    async fn job(&self, caller: &Caller, target: &str) -> Result<JobReport, Refusal> {
        let view = self.visible(caller, target).await?;
        self.report(view)
    }

    async fn stop(&self, caller: &Caller, target: &str) -> Result<JobReport, Refusal> {
        let view = self.visible(caller, target).await?;
        self.ask_stop(&view).await?;
        let fresh = self.released(caller, &view.job.id, self.stop_deadline()).await?;
        self.report(fresh.unwrap_or(view))
    }

    async fn resume(&self, caller: &Caller, request: ResumeRequest) -> Result<Submitted, Refusal> {
        self.accept_resume(caller, request).await
    }

    async fn delete(&self, caller: &Caller, target: &str, force: bool) -> Result<Deleted, Refusal> {
        let store = &self.core.parts.store;
        let by_id = job_id(target);
        let begun = self.core.parts.clock.now();
        let deadline = self.stop_deadline();
        let mut deleted = Deleted::default();
        let mut views = match &by_id {
            Some(id) => store.job(&caller.project, id).await?.into_iter().collect::<Vec<_>>(),
            None => match store.job_by_name(&caller.project, target).await? {
                Some(newest) => store.lineage(&caller.project, &newest.job.lineage).await?,
                None => Vec::new(),
            },
        };
        if views.is_empty() {
            return Err(Refusal::NotFound);
        }
        if let Some(id) = &by_id
            && views.iter().all(|view| view.job.deleted_at.is_some())
        {
            // A repeated delete by id, its first answer lost: it is done.
            deleted.jobs.push(id.clone());
            return Ok(deleted);
        }
        loop {
            for view in views.iter().filter(|view| view.job.deleted_at.is_none()) {
                let running = !view.trials.iter().all(|(trial, _)| trial.state.is_terminal());
                if running && !force {
                    return Err(Refusal::Conflict {
                        message: Words::new(
                            format!("作业 {} 仍在运行，不能删除", view.job.id),
                            format!(
                                "job {} is still running, so it cannot be deleted",
                                view.job.id
                            ),
                        ),
                        suggestion: Some(Words::new(
                            format!(
                                "先执行 runwhere stop job {0}，或加 --force 强制删除",
                                view.job.name
                            ),
                            format!(
                                "run `runwhere stop job {0}` first, or add --force",
                                view.job.name
                            ),
                        )),
                    });
                }
            }
            for view in &views {
                self.ask_stop(view).await?;
            }
            // Seen by everyone while it is being released: nobody looks for what is hidden.
            for view in views.iter().filter(|view| view.job.deleted_at.is_none()) {
                let view = self.released(caller, &view.job.id, deadline).await?;
                deleted.stopping |= view.is_some_and(|view| !ended_and_clean(&view));
            }
            for view in &views {
                if self.hide(caller, &view.job.id).await? {
                    deleted.jobs.push(view.job.id.clone());
                }
            }
            // By name nothing of that name stays visible: earlier runs would otherwise come back
            // as the newest of their name.
            if by_id.is_some() {
                return Ok(deleted);
            }
            views = match store.job_by_name(&caller.project, target).await? {
                // A run that was accepted meanwhile is not what was to be deleted.
                Some(newest) if newest.job.created_at > begun => return Ok(deleted),
                Some(newest) => store.lineage(&caller.project, &newest.job.lineage).await?,
                None => return Ok(deleted),
            };
        }
    }

    fn watch(&self, job: &JobId) -> watch::Receiver<u64> {
        self.core.signals.watch(job.as_str())
    }

    async fn gpus_in_use(&self, caller: &Caller) -> Result<u32, Refusal> {
        self.in_use(caller).await
    }
}

/// The trial states that make up a job state.
fn states_of(state: JobState) -> Vec<TrialState> {
    use TrialState as T;
    match state {
        JobState::Pending => vec![T::Queued, T::Provisioning, T::Preparing],
        JobState::Running => vec![T::Running, T::Collecting],
        JobState::Completed => vec![T::Succeeded],
        JobState::Failed => vec![T::Failed, T::Lost, T::TimedOut],
        JobState::Cancelled => vec![T::Cancelled],
    }
}
