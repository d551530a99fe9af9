//! Jobs and trials as JSON.

use jiff::Timestamp;
use runwhere_engine::{EndReason, Job, Lease, OutputState, Trial, TrialSpec, TrialState};
use serde_json::{Map, Value, json};

use crate::jobs::cost_of;
use crate::runners::request_id_of;
use crate::store::JobView;

/// A trial's word. One whose program succeeded but whose outputs could not all be collected is no
/// success.
pub(super) fn trial_status(trial: &Trial) -> &'static str {
    match (trial.state, &trial.outputs) {
        (TrialState::Queued | TrialState::Provisioning | TrialState::Preparing, _) => "pending",
        (TrialState::Running | TrialState::Collecting, _) => "running",
        (TrialState::Succeeded, OutputState::Failed { .. }) => "failed",
        (TrialState::Succeeded, _) => "succeeded",
        (TrialState::Failed | TrialState::Lost | TrialState::TimedOut, _) => "failed",
        (TrialState::Cancelled, _) => "cancelled",
    }
}

/// A job's word, out of its trials'.
pub(super) fn job_status(view: &JobView) -> &'static str {
    let words: Vec<_> = view.trials.iter().map(|(trial, _)| trial_status(trial)).collect();
    let has = |word: &str| words.contains(&word);
    if has("pending") || has("running") {
        let begun = words.iter().any(|word| *word != "pending");
        return if begun { "running" } else { "pending" };
    }
    match (has("failed"), has("cancelled")) {
        (true, _) => "failed",
        (false, true) => "cancelled",
        (false, false) => "completed",
    }
}

fn time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, |at| at.to_string().into())
}

fn end_reason(trial: &Trial) -> Value {
    match (&trial.end_reason, trial_status(trial)) {
        (Some(EndReason::Succeeded), "failed") => "outputs_failed".into(),
        (Some(reason), _) => reason.code().into(),
        (None, _) => Value::Null,
    }
}

fn outputs(trial: &Trial) -> Value {
    match &trial.outputs {
        OutputState::None => json!({ "state": "none" }),
        OutputState::Pending => json!({ "state": "pending" }),
        OutputState::Uploaded { files, bytes } => {
            json!({ "state": "uploaded", "files": files, "bytes": bytes })
        }
        OutputState::Failed { reason } => json!({ "state": "failed", "reason": reason }),
    }
}

fn resources(spec: &TrialSpec) -> Value {
    let limits = spec.run.limits;
    json!({
        "gpu_type": spec.gpu_model.map(|model| model.as_str()),
        "gpus": spec.gpu_count.as_whole(),
        "cpus": limits.cpus,
        "memory_mb": limits.memory_mib,
        "storage_mb": limits.storage_mib,
        "shm_mb": limits.shm_mib,
        "gpu_pretended": spec.gpu_pretended,
    })
}

/// A trial.
pub(super) fn trial(job: &Job, trial: &Trial, lease: Option<&Lease>) -> Value {
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| {
        map.insert(key.to_owned(), value);
    };
    put("trial_id", trial.id.as_str().into());
    put("job_id", job.id.as_str().into());
    put("type", "train".into());
    put("status", trial_status(trial).into());
    put("state", trial.state.as_str().into());
    put("index", trial.index.into());
    put("created_at", time(Some(trial.created_at)));
    put("started_at", time(trial.started_at));
    put("finished_at", time(trial.ended_at));
    put("exit_code", trial.exit.and_then(|exit| exit.code).into());
    put("signal", trial.exit.and_then(|exit| exit.signal).into());
    put("end_reason", end_reason(trial));
    put("end_detail", trial.end_reason.as_ref().and_then(EndReason::detail).into());
    put("output_status", outputs(trial)["state"].clone());
    put("outputs", outputs(trial));
    put("log_complete", trial.log.is_some().into());
    put("cleanup_confirmed", trial.cleanup_confirmed.into());
    put("waiting_for", trial.waiting_for.clone().into());
    put("attempts", trial.attempts.into());
    put("lease_state", lease.map(|lease| lease.state.as_str()).into());
    if let Some(spec) = job.trial_spec(trial.index) {
        let run = &spec.run;
        put("name", spec.name.clone().into());
        put("runner", format!("{}@{}", run.runner, run.revision).into());
        put("runner_manifest_sha256", run.manifest_sha256.clone().into());
        put("entrypoint", run.entrypoint.clone().into());
        put("command", run.command.clone().into());
        put("image", run.image.requested.clone().into());
        put("image_digest", run.image.digest.clone().into());
        put("resources", resources(spec));
        put("timeout_seconds", spec.max_duration_seconds.into());
        put("offer_key", spec.offer.to_string().into());
        put("tags", json!(run.tags));
        put("profile", run.profile.clone().unwrap_or(Value::Null));
    }
    Value::Object(map)
}

/// What was frozen for a trial.
pub(super) fn snapshot(job: &Job, row: &Trial) -> Value {
    let Some(spec) = job.trial_spec(row.index) else { return json!({}) };
    let run = &spec.run;
    json!({
        "trial_id": row.id.as_str(),
        "job_id": job.id.as_str(),
        "name": spec.name,
        "status": trial_status(row),
        "runner": {
            "name": run.runner,
            "revision": run.revision,
            "manifest_sha256": run.manifest_sha256,
            "entrypoint": run.entrypoint,
            "files": run.files,
        },
        "image": {
            "requested": run.image.requested,
            "repository": run.image.repository,
            "digest": run.image.digest,
        },
        "command": run.command,
        "resources": resources(spec),
        "timeout_seconds": spec.max_duration_seconds,
        "outputs": run.outputs,
        "tags": run.tags,
        "profile": run.profile,
        "profile_files": run.inputs,
        "offer_key": spec.offer.to_string(),
        "price_ceiling": spec.ceiling.to_string(),
        "frozen_at": job.created_at.to_string(),
    })
}

fn trials(view: &JobView) -> Vec<Value> {
    view.trials.iter().map(|(row, lease)| trial(&view.job, row, lease.as_ref())).collect()
}

/// Leases that are all proven ended.
pub(super) fn cleanup_confirmed(view: &JobView) -> bool {
    view.trials.iter().all(|(trial, _)| trial.cleanup_confirmed)
}

/// A job. In lists its trials are only counted.
pub(super) fn job(view: &JobView, now: Timestamp, whole: bool) -> Value {
    let job = &view.job;
    let rows = || view.trials.iter().map(|(trial, _)| trial);
    let ended = rows().all(|trial| trial.state.is_terminal());
    let finished = rows().filter_map(|trial| trial.ended_at).max().filter(|_| ended);
    let first = job.trial_specs.first();
    let changed = rows().map(|trial| trial.since).max();
    let cost: Vec<Value> = cost_of(view, now).map_or_else(
        |_| Vec::new(),
        |cost| {
            let amount = |sum: &runwhere_model::Money| {
                json!({ "amount": sum.amount.normalize().to_string(), "currency": sum.currency.code() })
            };
            cost.amounts.iter().map(amount).collect()
        },
    );
    let mut training = Map::new();
    training.insert("trial_count".into(), view.trials.len().into());
    if whole {
        training.insert("trials".into(), trials(view).into());
    }
    json!({
        "job_id": job.id.as_str(),
        "type": "train",
        "name": job.name,
        "status": job_status(view),
        "request_id": request_id_of(job),
        "created_at": job.created_at.to_string(),
        "updated_at": time(changed),
        "started_at": time(rows().filter_map(|trial| trial.started_at).min()),
        "finished_at": time(finished),
        "runner": first.map(|spec| format!("{}@{}", spec.run.runner, spec.run.revision)),
        "tags": first.map(|spec| json!(spec.run.tags)),
        "total_tasks": view.trials.len(),
        "cleanup_confirmed": cleanup_confirmed(view),
        "cost": cost,
        "workspace_id": job.workspace.as_str(),
        "project_id": job.project.as_str(),
        "training": training,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sample;

    fn view(states: &[(TrialState, bool)]) -> JobView {
        let job = sample::job("p", 1, "x");
        let trials = states.iter().enumerate().map(|(index, (state, lost_outputs))| {
            let mut trial = sample::trial(&job, u32::try_from(index).unwrap());
            trial.state = *state;
            if *lost_outputs {
                trial.outputs = OutputState::Failed { reason: "over_max_bytes".into() };
            }
            (trial, None)
        });
        JobView { trials: trials.collect(), job: job.clone() }
    }

    #[test]
    fn every_internal_state_has_a_word_that_waiting_clients_know() {
        use TrialState as T;
        for state in T::ALL {
            let word = trial_status(&view(&[(state, false)]).trials[0].0);
            assert_eq!(state.is_terminal(), matches!(word, "succeeded" | "failed" | "cancelled"));
        }
        for (states, word) in [
            (&[(T::Queued, false), (T::Preparing, false)][..], "pending"),
            (&[(T::Queued, false), (T::Running, false)], "running"),
            (&[(T::Queued, false), (T::Succeeded, false)], "running"),
            (&[(T::Succeeded, false), (T::Succeeded, false)], "completed"),
            (&[(T::Succeeded, false), (T::Cancelled, false)], "cancelled"),
            (&[(T::Lost, false), (T::Cancelled, false)], "failed"),
            (&[(T::TimedOut, false)], "failed"),
            // Exit code 0 with outputs that could not all be collected is no success.
            (&[(T::Succeeded, true)], "failed"),
        ] {
            assert_eq!(job_status(&view(states)), word, "{states:?}");
        }
        let lost = view(&[(T::Succeeded, true)]).trials.remove(0).0;
        let lost = Trial { end_reason: Some(EndReason::Succeeded), ..lost };
        assert_eq!(end_reason(&lost), "outputs_failed");
    }
}
