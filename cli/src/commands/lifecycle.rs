//! `runwhere stop`, `resume`, `delete`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{describe, ids};
use crate::api::{Client, Repeat, View};
use crate::args::{DeleteJobArgs, ResumeArgs};
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::texts;

/// How long `stop` waits for the confirmed release before it says that it is under way.
const RELEASE: Duration = Duration::from_secs(90);
/// How long it waits for a release that the cloud refuses.
const HELD: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(300);

/// Stops a job and waits for the confirmed release.
pub(super) async fn stop(name: &str, settings: &Settings, printer: &Printer) -> Outcome {
    let name = ids::job_name(name)?;
    let client = Client::logged_in(settings, printer)?;
    // Stopping twice is stopping once.
    let answer = client.post(&format!("/api/v1/jobs/{name}/stop"), None, Repeat::Safe).await?;
    let id = id_in(&answer, name);
    let begun = Instant::now();
    let mut job = describe::fetch(&client, &id).await?;
    // A server that says nothing about clean-up has said all it will.
    while View(&job).flag("cleanup_confirmed") == Some(false)
        && begun.elapsed() < if describe::held(View(&job)).is_some() { HELD } else { RELEASE }
    {
        sleep(LOOK).await;
        job = describe::fetch(&client, &id).await?;
    }
    let confirmed = View(&job).flag("cleanup_confirmed") != Some(false);
    let status = View(&job).text("status").unwrap_or_default();
    printer.out(&match (confirmed, status.as_str()) {
        (true, "succeeded" | "failed") => texts::ended_already(&id, status),
        (true, _) => texts::stopped(&id),
        (false, _) => texts::stopping(&id),
    });
    if let Some(why) = describe::held(View(&job)).filter(|_| !confirmed) {
        printer.warn(&texts::stop_held(why.get(printer.lang())));
    }
    let mut report = answer;
    report["cleanup_confirmed"] = json!(View(&job).flag("cleanup_confirmed"));
    printer.json(&report);
    Ok(())
}

/// Resumes a stopped job.
pub(super) async fn resume(args: &ResumeArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let name = ids::job_name(&args.name)?;
    let client = Client::logged_in(settings, printer)?;
    let mut body = args.from_step.map_or_else(|| json!({}), |step| json!({"from_step": step}));
    if let Some(limit) = args.max_price.as_deref().map(ids::Ceiling::parse).transpose()? {
        body["max_price_per_hour"] = json!(limit.to_string());
    }
    let key = uuid::Uuid::new_v4().to_string();
    let answer = client.post_once(&format!("/api/v1/jobs/{name}/resume"), &body, &key).await?;
    let id = View(&answer).first_text(&["new_job_id", "job_id"]).unwrap_or_default();
    printer.out(&texts::resumed(name, id));
    if let Some(step) = args.from_step {
        printer.out(&texts::resumed_from(step));
    }
    printer.json(&answer);
    Ok(())
}

/// Deletes a job's record.
pub(super) async fn delete(
    args: &DeleteJobArgs,
    settings: &Settings,
    printer: &Printer,
) -> Outcome {
    let name = ids::job_name(&args.name)?;
    let client = Client::logged_in(settings, printer)?;
    let force = if args.force { "?force=true" } else { "" };
    let answer = client.delete(&format!("/api/v1/jobs/{name}{force}")).await?;
    let view = View(&answer);
    let count = view.list("deleted").len();
    printer.out(&texts::deleted(id_in(&answer, name)));
    if view.flag("stopping") == Some(true) {
        printer.out(&texts::deleting());
    }
    if count > 1 {
        printer.out(&texts::deleted_many(name, count));
    }
    printer.json(&if answer.is_null() { json!({"status": "ok", "name": name}) } else { answer });
    Ok(())
}

/// The job's id as the server tells it, else what was typed.
fn id_in(answer: &Value, typed: &str) -> String {
    View(answer)
        .first_text(&["job_id", "id"])
        .filter(|id| ids::job_name(id).is_ok())
        .unwrap_or_else(|| typed.to_owned())
}
