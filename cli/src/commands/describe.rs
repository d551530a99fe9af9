//! `runwhere describe`.

use rust_decimal::{Decimal, RoundingStrategy};
use serde_json::Value;

use super::get::{elapsed, gpu};
use super::ids;
use crate::api::{Client, View};
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::texts::{self, Text};

/// Reads a job by name or id.
pub(super) async fn fetch(client: &Client, name: &str) -> Result<Value, crate::api::ApiError> {
    client.get(&format!("/api/v1/jobs/{name}")).await
}

/// Shows a job.
pub(super) async fn job(name: &str, settings: &Settings, printer: &Printer) -> Outcome {
    let name = ids::job_name(name)?;
    let client = Client::logged_in(settings, printer)?;
    let answer = fetch(&client, name).await?;
    show(View(&answer), name, &client, printer);
    printer.json(&answer);
    Ok(())
}

fn show(job: View<'_>, typed: &str, client: &Client, printer: &Printer) {
    let text = |keys: &[&str]| job.first_text(keys);
    let line = |value: Option<String>, make: fn(String) -> Text| {
        if let Some(value) = value {
            printer.out(&make(value));
        }
    };
    let name = text(&["name"]).unwrap_or_else(|| typed.to_owned());
    printer.out(&match text(&["status"]).as_deref() {
        Some("failed") => texts::describe_name_failed(name),
        _ => texts::describe_name(name),
    });
    line(text(&["job_id", "id"]), texts::describe_id);
    line(text(&["job_type", "kind"]), texts::describe_kind);
    line(text(&["status"]), texts::describe_status);
    line(text(&["waiting_for"]), texts::describe_waiting);
    line(text(&["description"]), texts::describe_description);
    line(
        job.integer("elapsed_seconds").filter(|seconds| *seconds > 0).map(elapsed),
        texts::describe_elapsed,
    );
    if job.get("gpu_count").is_some() {
        printer.out(&texts::describe_gpu(gpu(job)));
    }
    line(text(&["offer_key"]), texts::describe_offer);
    line(text(&["node_id"]), texts::describe_node);
    line(price(job), texts::describe_price);
    if let Some(cost) = cost(job) {
        let seconds = text(&["billed_seconds"]).unwrap_or_else(|| "0".to_owned());
        printer.out(&match job.flag("gpu_pretended") {
            Some(true) => texts::describe_cost_pretended(cost, seconds),
            _ => texts::describe_cost(cost, seconds),
        });
    }
    if let Some(limit) = job.0.get("max_duration_seconds") {
        let limit = match limit.as_i64().filter(|seconds| *seconds > 0) {
            Some(seconds) => Text::same(elapsed(seconds)),
            None => texts::unlimited(),
        };
        printer.out(&texts::describe_limit(limit.get(printer.lang())));
    }
    line(text(&["created_at"]), texts::describe_created);
    if let Some(reason) = text(&["end_reason"]) {
        printer.out(&texts::describe_reason(end_reason(&reason).get(printer.lang())));
    }
    line(text(&["exit_code"]), texts::describe_exit_code);
    line(text(&["signal"]), texts::describe_signal);
    line(text(&["end_message"]), texts::describe_message);
    if let Some(outputs) = job.at("outputs") {
        let size = outputs.text("files").zip(outputs.text("bytes"));
        let state = outputs.text("state").unwrap_or_default();
        match (state.as_str(), size, outputs.text("reason")) {
            ("none", ..) => {}
            ("failed", _, Some(reason)) => printer.out(&texts::describe_outputs_failed(reason)),
            (_, Some((files, bytes)), _) => {
                printer.out(&texts::describe_outputs(files, bytes, typed))
            }
            _ => printer.out(&texts::describe_outputs_state(state)),
        }
    }
    if let Some(text) = cleanup(job) {
        printer.out(&texts::describe_cleanup(text.get(printer.lang())));
    }
    line(text(&["url"]), texts::describe_url);
    // A resume needs a server that stays.
    if job.flag("resumable") == Some(true) && !client.is_embedded() {
        printer.out(&texts::describe_resumable(typed));
    }
    if let Some(metrics) = job.at("gpu_metrics") {
        if let (Some(average), Some(peak)) =
            (metrics.text("gpu_util_avg"), metrics.text("gpu_util_max"))
        {
            printer.out(&texts::describe_util(average, peak));
        }
        line(metrics.text("gpu_mem_used_max_gb"), texts::describe_memory);
        line(metrics.text("gpu_temp_max"), texts::describe_temperature);
    }
}

/// The sentence for an end reason; unknown ones are shown as they are.
pub(super) fn end_reason(code: &str) -> Text {
    match code {
        "succeeded" => texts::reason_succeeded(),
        "failed" => texts::reason_failed(),
        "stopped" => texts::reason_stopped(),
        "max_duration_exceeded" => texts::reason_max_duration(),
        "lost" => texts::reason_lost(),
        "reclaimed" => texts::reason_reclaimed(),
        "limit_exceeded" => texts::reason_limit(),
        "start_failed" => texts::reason_start_failed(),
        "no_capacity" => texts::reason_no_capacity(),
        "price_changed" => texts::reason_price_changed(),
        "budget_exceeded" => texts::reason_budget(),
        "launch_refused" => texts::reason_launch_refused(),
        "node_failed" => texts::reason_node_failed(),
        "prepare_failed" => texts::reason_prepare_failed(),
        other => Text::same(other),
    }
}

/// Price per hour, with the cloud's own beside it where that is in another currency.
pub(super) fn price(job: View<'_>) -> Option<String> {
    let cny = yuan(job.decimal("price_per_hour")?);
    Some(match original(job) {
        Some(original) => format!("{cny} ({original})"),
        None => cny,
    })
}

/// The cloud's own price, where it is not in CNY.
pub(super) fn original(offer: View<'_>) -> Option<String> {
    stated(offer).filter(|_| offer.text("currency").is_some_and(|currency| currency != "CNY"))
}

/// The cloud's own price.
pub(super) fn stated(offer: View<'_>) -> Option<String> {
    Some(format!("{} {}", offer.text("price")?, offer.text("currency")?))
}

/// Cost so far, or in the end.
pub(super) fn cost(job: View<'_>) -> Option<String> {
    // The exact total first: rounding what was rounded already may end elsewhere.
    let known = ["cost_exact", "final_cost", "estimated_cost"];
    known.iter().find_map(|key| job.decimal(key)).map(yuan)
}

/// Whether the machine is confirmed gone, with the evidence.
pub(super) fn cleanup(job: View<'_>) -> Option<Text> {
    Some(match job.flag("cleanup_confirmed")? {
        true => {
            let evidence = evidence(job).unwrap_or_else(|| "-".to_owned());
            texts::cleanup_done(evidence)
        }
        false => held(job).unwrap_or_else(texts::cleanup_open),
    })
}

/// Why the machine cannot be released now.
pub(super) fn held(job: View<'_>) -> Option<Text> {
    let blocked = job.at("cleanup_blocked")?;
    let why = blocked.first_text(&["message", "code"]).unwrap_or_else(|| "?".to_owned());
    Some(match blocked.text("until") {
        Some(until) => texts::cleanup_held_until(why, until),
        None => texts::cleanup_held(why),
    })
}

fn evidence(job: View<'_>) -> Option<String> {
    fn words(value: &Value) -> String {
        match value {
            Value::String(text) => text.clone(),
            Value::Array(list) => list.iter().map(words).collect::<Vec<_>>().join("; "),
            Value::Object(fields) => {
                let fields = fields.values().filter(|value| !value.is_null());
                fields.map(words).collect::<Vec<_>>().join(" ")
            }
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }
    let value = job.get("cleanup_evidence").or_else(|| job.get("evidence"))?;
    Some(words(value)).filter(|words| !words.is_empty())
}

/// An amount in CNY as shown on screen: two decimals, half up; small amounts show enough digits to be no zero.
pub(super) fn yuan(amount: Decimal) -> String {
    let rounded =
        |digits| amount.round_dp_with_strategy(digits, RoundingStrategy::MidpointAwayFromZero);
    let shown = match rounded(2) {
        zero if zero.is_zero() && !amount.is_zero() => rounded(4),
        shown => shown,
    };
    format!("¥{shown:.prec$}", prec = (shown.scale() as usize).max(2))
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_rounded_half_up_once() {
        for (amount, shown) in [
            ("36.4400", "¥36.44"),
            ("1.892855555556", "¥1.89"),
            ("0.005", "¥0.01"),
            ("0.0031", "¥0.0031"),
            ("0", "¥0.00"),
        ] {
            assert_eq!(yuan(Decimal::from_str(amount).unwrap()), shown);
        }
    }

    #[test]
    fn evidence_of_any_shape_is_shown() {
        let job = json!({"cleanup_confirmed": true, "cleanup_evidence": [{"kind": "terminal_read", "at": "T"}]});
        let shown = cleanup(View(&job)).unwrap();
        assert!(shown.get(texts::Lang::En).contains("terminal_read"));
        assert!(cleanup(View(&json!({}))).is_none());
        let said = |job: Value| cleanup(View(&job)).unwrap().get(texts::Lang::En).to_owned();
        assert_eq!(said(json!({"cleanup_confirmed": false})), "not confirmed yet");
        let held = said(json!({
            "cleanup_confirmed": false,
            "cleanup_blocked": {"code": "auth", "message": "no key", "until": null},
        }));
        assert!(held.contains("blocked (no key)"), "{held}");
    }
}
