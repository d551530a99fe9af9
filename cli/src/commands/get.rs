//! `runwhere get`.

use serde_json::{Value, json};

use super::{describe, ids};
use crate::api::{Client, View, query_value};
use crate::args::{GetJobsArgs, GetUsageArgs};
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::settings::Settings;
use crate::table;
use crate::texts::{self, Text};

/// Jobs asked for in one page.
const PAGE: u32 = 200;

/// Lists jobs.
pub(super) async fn jobs(args: &GetJobsArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let client = Client::logged_in(settings, printer)?;
    let mut jobs: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut query = Vec::new();
        let mut add = |key: &str, value: &str| query.push(format!("{key}={}", query_value(value)));
        if let Some(status) = &args.status {
            add("status", status);
        }
        if let Some(kind) = &args.kind {
            add("job_type", kind);
        }
        let wanted = args
            .limit
            .map(|limit| limit.saturating_sub(u32::try_from(jobs.len()).unwrap_or(u32::MAX)));
        if let Some(wanted) = wanted.or(args.all.then_some(PAGE)) {
            add("limit", &wanted.min(PAGE).to_string());
        }
        if let Some(cursor) = &cursor {
            add("cursor", cursor);
        }
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let answer = client.get(&format!("/api/v1/jobs{query}")).await?;
        let view = View(&answer);
        let page = view.list("data");
        jobs.extend_from_slice(page);
        let before = cursor;
        cursor = view.text("next_cursor");
        let enough = args.limit.is_some_and(|limit| jobs.len() >= limit as usize);
        let paging = args.all || args.limit.is_some();
        // A server that repeats a cursor or answers nothing would keep this going for ever.
        if !paging || enough || cursor.is_none() || page.is_empty() || cursor == before {
            break;
        }
    }
    if let Some(limit) = args.limit {
        jobs.truncate(limit as usize);
    }
    if jobs.is_empty() {
        printer.out(&texts::no_jobs());
    } else {
        let wide = args.wide;
        let header: Vec<_> =
            header(wide).iter().map(|text| text.get(printer.lang()).to_owned()).collect();
        let rows: Vec<_> = jobs.iter().map(|job| row(View(job), wide)).collect();
        printer.plain(&table::draw(&header, &rows));
        if cursor.is_some() && !args.all {
            printer.note(&texts::more_jobs());
        }
    }
    printer.json(&json!({"data": jobs, "next_cursor": cursor}));
    Ok(())
}

/// The documents' columns; `wide` adds what tells jobs of one name apart and what they cost.
fn header(wide: bool) -> Vec<Text> {
    let mut header = vec![
        texts::column_name(),
        texts::column_kind(),
        texts::column_status(),
        texts::column_gpu(),
        texts::column_elapsed(),
        texts::column_url(),
    ];
    if wide {
        header.extend([texts::column_id(), texts::column_created(), texts::column_cost()]);
    }
    header
}

fn row(job: View<'_>, wide: bool) -> Vec<String> {
    let text = |keys: &[&str]| job.first_text(keys).unwrap_or_else(|| "-".to_owned());
    let mut row = vec![
        text(&["name", "gpuctl_job_id", "job_id", "id"]),
        text(&["job_type", "kind"]).to_lowercase(),
        text(&["status"]),
        gpu(job),
        job.integer("elapsed_seconds")
            .filter(|seconds| *seconds > 0)
            .map_or_else(|| "-".to_owned(), elapsed),
        text(&["url"]),
    ];
    if wide {
        let cost = describe::cost(job).unwrap_or_else(|| "-".to_owned());
        row.extend([text(&["job_id", "id"]), text(&["created_at"]), cost]);
    }
    row
}

/// `1×a100-80g`, or `1×?` when the type is not known.
pub(super) fn gpu(job: View<'_>) -> String {
    let count = job.text("gpu_count").unwrap_or_else(|| "?".to_owned());
    let model = job.text("gpu_type").unwrap_or_else(|| "?".to_owned());
    format!("{count}×{model}")
}

/// `7s`, `3m 7s`, `2h 3m`.
pub(super) fn elapsed(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Shows usage and quota.
pub(super) async fn usage(args: &GetUsageArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let mut query = Vec::new();
    for (key, value) in [("from_date", &args.from), ("to_date", &args.to)] {
        if let Some(value) = value {
            query.push(format!("{key}={}", ids::date(value)?));
        }
    }
    if let (Some(from), Some(to)) = (&args.from, &args.to)
        && from > to
    {
        return Err(Failure::usage("period_invalid", texts::period_invalid(from, to)));
    }
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let client = Client::logged_in(settings, printer)?;
    let answer = client.get(&format!("/api/v1/usage{query}")).await?;
    let view = View(&answer);
    let field = |view: View<'_>, key: &str| view.text(key).unwrap_or_else(|| "-".to_owned());
    if let Some(period) = view.at("period") {
        printer.out(&texts::usage_period(field(period, "from_date"), field(period, "to_date")));
    }
    if let Some(plan) = view.text("plan") {
        printer.out(&texts::usage_plan(plan));
    }
    match view.at("summary").and_then(|summary| summary.text("total_gpu_hours")) {
        Some(hours) => printer.out(&texts::usage_total(hours)),
        None => printer.out(&texts::usage_none()),
    }
    for usage in view.list("gpu_usage").iter().map(View) {
        let (model, hours) = (field(usage, "gpu_type"), field(usage, "gpu_hours"));
        printer.out(&match usage.flag("pretended") {
            Some(true) => texts::usage_gpu_pretended(model, hours),
            _ => texts::usage_gpu(model, hours),
        });
    }
    for cost in view.list("cost").iter().map(View) {
        printer.out(&texts::usage_cost(field(cost, "amount"), field(cost, "currency")));
    }
    for cost in view.list("pretended_cost").iter().map(View) {
        printer.out(&texts::usage_cost_pretended(field(cost, "amount"), field(cost, "currency")));
    }
    for quota in view.list("quota") {
        let quota = View(quota);
        let limit = quota.text("limit").map_or_else(texts::unlimited, Text::same);
        let limit = limit.get(printer.lang()).to_owned();
        printer.out(&texts::usage_quota(
            field(quota, "resource_type"),
            field(quota, "current"),
            limit,
        ));
    }
    if let Some(bill) = view.at("platform_bill") {
        printer.out(&texts::usage_bill(
            field(bill, "subscription"),
            field(bill, "overage"),
            field(bill, "total"),
        ));
    }
    if let Some(note) = view.text("cloud_bill_note") {
        printer.out(&Text::same(format!("  {note}")));
    }
    printer.json(&answer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_show_what_is_known() {
        let job = json!({"name": "claude-cli-docs-verify", "job_type": "Training", "status": "running", "gpu_count": 1});
        assert_eq!(
            row(View(&job), false),
            ["claude-cli-docs-verify", "training", "running", "1×?", "-", "-"]
        );
        let job = json!({"name": null, "job_id": "job-1", "gpu_count": 8, "gpu_type": "a100-80g", "elapsed_seconds": "61"});
        assert_eq!(row(View(&job), false), ["job-1", "-", "-", "8×a100-80g", "1m 1s", "-"]);
        let job = json!({
            "name": "a", "job_id": "job-2", "created_at": "2026-11-05T08:00:00+00:00",
            "final_cost": "1.8929", "cost_exact": "1.892855555556",
        });
        let wide = row(View(&job), true);
        assert_eq!(wide.len(), header(true).len());
        assert_eq!(wide[6..], ["job-2", "2026-11-05T08:00:00+00:00", "¥1.89"]);
    }

    #[test]
    fn run_times_are_shown_in_two_units() {
        assert_eq!([5, 61, 3600, 7384].map(elapsed), ["5s", "1m 1s", "1h 0m", "2h 3m"]);
    }
}
