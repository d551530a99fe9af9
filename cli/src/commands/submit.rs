//! `runwhere submit`, and the parts of it that `run` and `logs -f` share.

use std::path::Path;

use serde_json::{Value, json};

use super::describe::{end_reason, original};
use super::ids::Ceiling;
use super::{price, price_ceiling};
use crate::api::{ApiError, Client, ServerError, View};
use crate::args::SubmitArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::follow::{Ended, Follower};
use crate::printer::Printer;
use crate::seams::task::{Task, Wanted};
use crate::settings::Settings;
use crate::sync::local;
use crate::terminal;
use crate::texts::{self, Text};

const JOBS: &str = "/api/v1/jobs/submit";
/// What the published client assumes when the server makes no estimate.
const USUAL_START: i64 = 180;

/// Submits a task and follows it.
pub(super) async fn submit(args: &SubmitArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let task = Task::read(&args.file)?;
    task.require_gpu()?;
    let ceiling = args.max_price.as_deref().map(Ceiling::parse).transpose()?;
    let client = Client::logged_in(settings, printer)?;
    explain(&task, settings, printer);
    let (sync_id, never_synced) = warn_about_changes(&task, &client, settings, printer)?;
    let key = args.idempotency_key.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let order = Order {
        task: &task,
        ceiling,
        key: &key,
        sync_id: sync_id.as_deref(),
        accept_overage: args.accept_overage,
    };
    let submitted = order.place(&client, settings, printer).await?;
    announce(View(&submitted), printer);
    // A server that found no sync either has just said so itself.
    let told =
        View(&submitted).get("sync_id").is_none() && !View(&submitted).list("warnings").is_empty();
    if never_synced && !told {
        changed(&texts::local_never_synced(), &task, printer);
    }
    printer.json(&report(&submitted, &task));
    if args.no_follow || printer.is_json() || !terminal::stdin_is_terminal() {
        return Ok(());
    }
    let id = job_id(&submitted)?;
    let mut follower = Follower::new(&client, &id, printer);
    let ended = watched(&mut follower, task.name(), printer).await?;
    conclude(View(&ended.job), task.name(), printer)
}

/// What is about to be submitted.
#[derive(Debug)]
pub(super) struct Order<'a> {
    /// The task.
    pub(super) task: &'a Task,
    /// Highest price per hour.
    pub(super) ceiling: Option<Ceiling>,
    /// Idempotency key.
    pub(super) key: &'a str,
    /// The sync to run; the server's newest of this name without.
    pub(super) sync_id: Option<&'a str>,
    /// The price beyond the quota is accepted.
    pub(super) accept_overage: bool,
}

impl Order<'_> {
    /// Chooses the offer and submits; safe to repeat with the same key.
    pub(super) async fn place(
        &self,
        client: &Client,
        settings: &Settings,
        printer: &Printer,
    ) -> Outcome<Value> {
        let mut body = self.body(client, settings, printer).await?;
        if self.accept_overage {
            body["overage_confirmed"] = json!(true);
        }
        match client.post_once(JOBS, &body, self.key).await {
            Ok(submitted) => return Ok(submitted),
            Err(ApiError::Server(error)) if error.wants_confirmation() && !self.accept_overage => {
                confirm_overage(&error, printer)?;
            }
            Err(error) => return Err(self.refused(error)),
        }
        body["overage_confirmed"] = json!(true);
        client.post_once(JOBS, &body, self.key).await.map_err(|error| self.refused(error))
    }

    async fn body(
        &self,
        client: &Client,
        settings: &Settings,
        printer: &Printer,
    ) -> Outcome<Value> {
        let mut body = json!({"yaml_content": self.task.yaml});
        if let Some(sync) = self.sync_id {
            body["sync_id"] = json!(sync);
        }
        if let Some(ceiling) = self.ceiling {
            body["max_price_per_hour"] = json!(ceiling.to_string());
        }
        match self.task.wanted() {
            Wanted::Key(key) => body["offer_key"] = json!(key),
            Wanted::Code(code) => body["gpu_offer"] = json!(code),
            Wanted::GpuType(gpu) => {
                let ceiling = price_ceiling::by_server(client, self.ceiling).await?;
                let quote = price::question(self.task, &ceiling, 1, true);
                let chosen =
                    price::ask(client, &quote).await.map_err(|failure| match failure.exit {
                        Exit::Network => failure,
                        _ => unresolvable(gpu),
                    })?;
                let best = View(&chosen).list("recommendations").first().map(View);
                let offer = best.and_then(|best| best.at("offer"));
                let Some(key) = offer.and_then(|offer| offer.text("offer_key")) else {
                    return Err(match self.ceiling {
                        Some(ceiling) => price::none_within(ceiling),
                        None => unresolvable(gpu),
                    });
                };
                if settings.explain
                    && let Some(best) = best
                {
                    let reason = best.first_text(&["reason", "tag"]).unwrap_or_default();
                    printer.out(&texts::explain_choice(&key, reason));
                }
                body["offer_key"] = json!(key);
            }
            Wanted::Anything => {}
        }
        Ok(body)
    }

    fn refused(&self, error: ApiError) -> Failure {
        let lost = matches!(error, ApiError::Network { sent: true, .. });
        let failure = Failure::from(error);
        if lost {
            return failure.hint(texts::submit_lost(self.key)).detail("idempotency_key", self.key);
        }
        failure
    }
}

fn unresolvable(gpu: &str) -> Failure {
    Failure::usage("gpu_unresolvable", texts::gpu_unresolvable(gpu))
        .hint(texts::gpu_unresolvable_hint())
        .detail("gpu_type", gpu)
}

fn confirm_overage(error: &ServerError, printer: &Printer) -> Outcome {
    let detail = View(&error.detail);
    let field = |key: &str| detail.text(key).unwrap_or_else(|| "-".to_owned());
    printer.note(&texts::quota_title(field("message")));
    printer.note(&texts::quota_usage(field("current_usage"), field("quota_limit")));
    printer.note(&texts::quota_price(field("overage_unit_price")));
    if printer.is_json() || !terminal::stdin_is_terminal() {
        return Err(Failure::new(Exit::Server, "requires_confirmation", texts::quota_refused())
            .hint(texts::quota_refused_hint())
            .detail("quota", error.detail.clone())
            .detail("action", "requires_confirmation"));
    }
    if terminal::confirm(texts::quota_question().get(printer.lang())) {
        return Ok(());
    }
    printer.note(&texts::not_submitted());
    Err(Failure::silent(Exit::Ok))
}

/// Tells when the local code is not what was synced last. Returns the last sync, which is the one that will run, and
/// whether there is local code that was never synced from here.
fn warn_about_changes(
    task: &Task,
    client: &Client,
    settings: &Settings,
    printer: &Printer,
) -> Outcome<(Option<String>, bool)> {
    let local = local(Path::new("."), &settings.home, &task.sync_task(), true, printer)?;
    local.remember_hashes(printer);
    let last = local.last(&client.server_name(), task.name());
    if let Some(last) = &last {
        let changes = local.manifest.since(&last.manifest);
        if changes.any() {
            let (added, edited, removed) = (changes.added, changes.changed, changes.removed);
            changed(&texts::local_changes(added, edited, removed), task, printer);
        }
    }
    let never_synced = last.is_none() && !local.manifest.files.is_empty();
    Ok((last.and_then(|last| last.sync_id), never_synced))
}

fn changed(text: &Text, task: &Task, printer: &Printer) {
    printer.warn(text);
    let hint = texts::never_synced_hint(task.path.display());
    printer.note(&texts::arrow(hint.get(printer.lang())));
}

/// The document's lines after a submit.
pub(super) fn announce(submitted: View<'_>, printer: &Printer) {
    let id = submitted.first_text(&["job_id", "id"]).unwrap_or_default();
    let byoa = submitted.text("account_type").is_some_and(|kind| kind.eq_ignore_ascii_case("byoa"));
    printer.out(&if byoa { texts::submitted_byoa(&id) } else { texts::submitted(&id) });
    if submitted.flag("repeated") == Some(true) {
        printer.note(&texts::submitted_before());
    }
    if let Some(price) = submitted.decimal("price_per_hour") {
        let shown = super::describe::yuan(price);
        let shown = shown.trim_start_matches('¥').to_owned();
        printer.out(&match original(submitted) {
            Some(original) => texts::submitted_price_original(shown, original),
            None => texts::submitted_price(shown),
        });
    }
    let seconds = submitted.integer("estimated_start_seconds").unwrap_or(USUAL_START);
    printer.out(&texts::submitted_estimate(minutes(seconds)));
    for warning in submitted.list("warnings") {
        let warning = View(warning).text("message").or_else(|| warning.as_str().map(str::to_owned));
        if let Some(warning) = warning {
            printer.warn(&Text::same(warning));
        }
    }
}

/// Whole minutes, rounded up: a start is never promised "in 0 minutes".
fn minutes(seconds: i64) -> i64 {
    (seconds.max(0).saturating_add(59) / 60).max(1)
}

/// What a submit made, for programs.
pub(super) fn report(submitted: &Value, task: &Task) -> Value {
    let view = View(submitted);
    json!({
        "status": "ok",
        "job": {
            "id": view.first_text(&["job_id", "id"]),
            "name": view.text("name").unwrap_or_else(|| task.name().to_owned()),
            "kind": task.kind(),
            "status": view.get("status"),
            "logs_url": view.get("logs_url"),
        },
        "pricing": {
            "offer_key": view.get("offer_key"),
            "price_per_hour": view.get("price_per_hour"),
            "price": view.get("price"),
            "currency": view.get("currency"),
            "estimated_start_seconds": view.get("estimated_start_seconds"),
        },
        "sync_id": view.get("sync_id"),
        "warnings": view.list("warnings"),
    })
}

/// The id of the job that was just made.
pub(super) fn job_id(submitted: &Value) -> Outcome<String> {
    View(submitted)
        .first_text(&["job_id", "id"])
        .filter(|id| super::ids::job_name(id).is_ok())
        .ok_or_else(|| ApiError::Unreadable { status: 200 }.into())
}

/// Follows until the end; Ctrl-C leaves, and the job goes on.
pub(super) async fn watched(
    follower: &mut Follower<'_>,
    name: &str,
    printer: &Printer,
) -> Outcome<Ended> {
    tokio::select! {
        ended = follower.run_to_end() => ended,
        _ = tokio::signal::ctrl_c() => {
            printer.note(&texts::live_left(name));
            Err(Failure::silent(Exit::Interrupted))
        }
    }
}

/// Says how a followed job ended, and ends with exit code 10 unless it succeeded.
pub(super) fn conclude(job: View<'_>, name: &str, printer: &Printer) -> Outcome {
    let status = job.text("status").unwrap_or_default();
    if printer.is_json() {
        printer.json(&json!({
            "end": true,
            "status": status,
            "end_reason": job.get("end_reason"),
            "exit_code": job.get("exit_code"),
            "cleanup_confirmed": job.get("cleanup_confirmed"),
        }));
    }
    match status.as_str() {
        "succeeded" | "completed" => {
            printer.out(&texts::ended_succeeded(name));
            Ok(())
        }
        "stopped" | "cancelled" => {
            Err(Failure::new(Exit::JobFailed, "job_stopped", texts::ended_stopped(name))
                .detail("status", status))
        }
        _ => Err(job_failed(job, name)),
    }
}

fn job_failed(job: View<'_>, name: &str) -> Failure {
    let reason = job.text("end_reason").unwrap_or_else(|| "failed".to_owned());
    // Where something else than the program decided, its code or signal is only a consequence.
    let own = match (job.text("exit_code"), job.first_text(&["signal", "exit_signal"])) {
        _ if reason != "failed" => end_reason(&reason),
        (Some(code), _) => texts::ended_exit_code(code),
        (None, Some(signal)) => texts::ended_signal(signal),
        (None, None) => end_reason(&reason),
    };
    let said = job.first_text(&["end_message", "error"]);
    let make = |lang| {
        let own = own.get(lang);
        let reason = said.as_ref().map_or_else(|| own.to_owned(), |said| format!("{own} ({said})"));
        texts::ended_failed(name, reason).get(lang).to_owned()
    };
    let mut failure = Failure::new(
        Exit::JobFailed,
        "job_failed",
        Text::new(make(texts::Lang::Zh), make(texts::Lang::En)),
    )
    .hint(texts::ended_failed_hint(name));
    for (field, key) in
        [("exit_code", "program_exit_code"), ("end_reason", "end_reason"), ("status", "status")]
    {
        if let Some(value) = job.get(field) {
            failure = failure.detail(key, value.clone());
        }
    }
    failure
}

/// `--explain`: what counts and who decided it.
pub(super) fn explain(task: &Task, settings: &Settings, printer: &Printer) {
    if !settings.explain {
        return;
    }
    let fields = task.explained(printer.lang());
    printer.out(&texts::explain_title());
    for field in &fields {
        printer.out(&texts::explain_field(
            field.name,
            &field.value,
            field.source.as_str(),
            &field.reason,
        ));
    }
    let envs = platform_envs(task);
    printer.out(&texts::explain_envs());
    for (name, reason) in &envs {
        printer.out(&texts::explain_env(name, reason.get(printer.lang())));
    }
    let envs: Vec<_> = envs
        .iter()
        .map(|(name, reason)| json!({"name": name, "reason": reason.get(printer.lang())}))
        .collect();
    printer.json(&json!({"explain": {"fields": fields, "platform_envs": envs}}));
}

fn platform_envs(task: &Task) -> Vec<(&'static str, Text)> {
    let mut envs = vec![
        ("RUNWHERE_JOB_ID", texts::env_job_id()),
        ("RUNWHERE_JOB_NAME", texts::env_job_name()),
        ("RUNWHERE_ORG_ID", texts::env_org()),
        ("RUNWHERE_USER_ID", texts::env_user()),
    ];
    if task.kind() == "training" {
        envs.push(("RUNWHERE_NPROC_PER_NODE", texts::env_nproc(task.gpu_count())));
        envs.push(("NCCL_TIMEOUT", texts::env_nccl()));
        envs.push(("TORCH_NCCL_ASYNC_ERROR_HANDLING", texts::env_nccl()));
        envs.push(("NCCL_DEBUG", texts::env_nccl()));
    }
    envs
}
