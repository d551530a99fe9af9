//! `runwhere admin`: what is owned, unknown or releasing, and the sweeper.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::get::elapsed;
use crate::api::{Client, Repeat, View};
use crate::args::{AdminLeasesArgs, AdminSweepArgs};
use crate::failure::{Exit, Failure, Outcome};
use crate::printer::Printer;
use crate::settings::Settings;
use crate::texts::{self, Lang};
use crate::{table, terminal};

/// How long `--apply` watches before it leaves the rest to the server.
const WATCH: Duration = Duration::from_secs(150);

/// Lists leases, nodes without an owner, and the state of the sweepers.
pub(super) async fn leases(
    args: &AdminLeasesArgs,
    settings: &Settings,
    printer: &Printer,
) -> Outcome {
    let client = Client::logged_in(settings, printer)?;
    let query = if args.all { "?all=true" } else { "" };
    let answer = client.get(&format!("/api/v1/admin/leases{query}")).await?;
    let view = View(&answer);
    let lang = printer.lang();
    if let Some(restored) = view.at("restored") {
        warn_restored(restored, printer);
    }
    let rows: Vec<_> = view.list("data").iter().map(|one| lease_row(View(one), lang)).collect();
    if rows.is_empty() {
        printer.out(&texts::no_leases());
    } else {
        let header = [
            texts::column_lease(),
            texts::column_job(),
            texts::column_state(),
            texts::column_since(),
            texts::column_provider(),
            texts::column_node(),
            texts::column_per_hour(),
            texts::column_remark(),
        ];
        let header = header.map(|text| text.get(lang).to_owned());
        printer.plain(&table::draw(&header, &rows));
        let cost = view.get("price_per_hour").map(sums).filter(|sums| !sums.is_empty());
        let cost = cost.unwrap_or_else(|| "0".to_owned());
        printer.out(&texts::leases_cost(view.text("open").unwrap_or_default(), cost));
        if view.flag("has_more") == Some(true) {
            printer.note(&texts::more_leases());
        }
    }
    let strays = view.list("strays");
    if !strays.is_empty() {
        printer.out(&texts::strays_title(strays.len()));
        let rows: Vec<_> = strays.iter().map(|one| stray_row(View(one), lang)).collect();
        let header = [
            texts::column_node(),
            texts::column_provider(),
            texts::column_state(),
            texts::column_cause(),
            texts::column_since(),
            texts::column_per_hour(),
            texts::column_job(),
            texts::column_remark(),
        ];
        let header = header.map(|text| text.get(lang).to_owned());
        printer.plain(&table::draw(&header, &rows));
    }
    for provider in view.list("providers") {
        let provider = View(provider);
        let name = provider.text("provider").unwrap_or_default();
        if provider.flag("connected") == Some(false) {
            printer.warn(&texts::provider_unconnected(&name));
            continue;
        }
        if let Some(sweep) = provider.at("last_sweep") {
            let text = |key| sweep.text(key).unwrap_or_else(|| "-".to_owned());
            let (owned, suspected) = (text("owned"), unowned(sweep).to_string());
            let (at, ending, foreign) = (text("at"), text("ending"), text("foreign"));
            printer.out(&texts::last_sweep(&name, at, owned, suspected, ending, foreign));
            if sweep.flag("complete") == Some(false) {
                printer.warn(&texts::sweep_incomplete(&name));
            }
        }
        let failures = provider.integer("failures").unwrap_or(0);
        if failures > 0 {
            let error = provider.text("last_error").unwrap_or_default();
            printer.warn(&texts::sweep_failing(&name, failures, error));
        }
    }
    printer.json(&answer);
    Ok(())
}

fn unowned(sweep: View<'_>) -> i64 {
    ["suspected", "waiting"].iter().filter_map(|key| sweep.integer(key)).sum()
}

fn warn_restored(restored: View<'_>, printer: &Printer) {
    let text = |key| restored.text(key).unwrap_or_else(|| "?".to_owned());
    printer.warn(&texts::restored(text("found"), text("expected")));
    printer.note(&texts::restored_hint());
}

/// `36.44 CNY + 3.1 USD`.
fn sums(value: &Value) -> String {
    let sums = value.as_object().into_iter().flatten();
    let sums = sums.filter_map(|(code, sum)| Some(format!("{} {code}", sum.as_str()?)));
    sums.collect::<Vec<_>>().join(" + ")
}

fn price(row: View<'_>) -> String {
    match (row.text("price_per_hour"), row.text("currency")) {
        (Some(price), Some(currency)) => format!("{price} {currency}"),
        _ => "?".to_owned(),
    }
}

fn lease_row(row: View<'_>, lang: Lang) -> Vec<String> {
    let text = |key| row.text(key).unwrap_or_else(|| "-".to_owned());
    let mut remarks = Vec::new();
    remarks.extend(blocked(row, lang));
    let surplus = row.list("surplus").len();
    if surplus > 0 {
        remarks.push(texts::surplus_nodes(surplus).get(lang).to_owned());
    }
    remarks.extend(evidence(row, lang));
    // Why the clean-up is blocked is said already.
    let said = row.text("cleanup_blocked").is_some_and(|why| why == "provider_not_connected");
    if row.at("evidence").is_none() && !said {
        remarks.extend(row.text("last_error"));
    }
    vec![
        text("lease_id"),
        text("job_id"),
        text("state"),
        elapsed(row.integer("seconds").unwrap_or(0)),
        text("provider"),
        text("node_id"),
        price(row),
        if remarks.is_empty() { "-".to_owned() } else { remarks.join("; ") },
    ]
}

fn stray_row(row: View<'_>, lang: Lang) -> Vec<String> {
    let text = |key| row.text(key).unwrap_or_else(|| "-".to_owned());
    let job = row.text("job_id").unwrap_or_else(|| texts::unattributed().get(lang).to_owned());
    let mut remarks: Vec<String> = evidence(row, lang).into_iter().collect();
    remarks.extend(blocked(row, lang));
    remarks.extend(row.text("last_error"));
    vec![
        text("node_id"),
        text("provider"),
        text("state"),
        text("cause"),
        elapsed(row.integer("seconds").unwrap_or(0)),
        price(row),
        job,
        if remarks.is_empty() { "-".to_owned() } else { remarks.join("; ") },
    ]
}

/// What keeps a node from being ended now.
fn blocked(row: View<'_>, lang: Lang) -> Option<String> {
    let provider = || row.text("provider").unwrap_or_else(|| "?".to_owned());
    let told = match (row.text("cleanup_blocked")?.as_str(), row.text("blocked_until")) {
        ("provider_not_connected", _) => texts::cleanup_unconnected(provider()),
        (kind, Some(until)) => texts::cleanup_blocked_until(provider(), kind, until),
        (kind, None) => texts::cleanup_blocked(provider(), kind),
    };
    Some(told.get(lang).to_owned())
}

/// What was read, and when.
fn evidence(row: View<'_>, lang: Lang) -> Option<String> {
    let evidence = row.at("evidence")?;
    let text = |key| evidence.text(key).unwrap_or_else(|| "?".to_owned());
    let reads = evidence.list("reads");
    let last = || reads.last().and_then(Value::as_str).unwrap_or("?").to_owned();
    let told = match evidence.text("kind")?.as_str() {
        "terminal_read" => texts::evidence_terminal(text("call"), text("at")),
        "absent_reads" | "found_nothing" => texts::evidence_absent(reads.len(), last()),
        "refused" => texts::evidence_refused(text("error"), text("at")),
        "nothing_launched" => texts::evidence_nothing(text("at")),
        other => return Some(other.to_owned()),
    };
    Some(told.get(lang).to_owned())
}

/// Shows what a sweep would come to, or ends what nobody owns.
pub(super) async fn sweep(
    args: &AdminSweepArgs,
    settings: &Settings,
    printer: &Printer,
) -> Outcome {
    let client = Client::logged_in(settings, printer)?;
    if args.confirm_restore {
        let path = "/api/v1/admin/restore/confirm";
        let answer = client.post(path, None, Repeat::Safe).await?;
        let confirmed = View(&answer).flag("confirmed") == Some(true);
        printer.out(&match confirmed {
            true => texts::restore_confirmed(),
            false => texts::restore_not_needed(),
        });
        printer.json(&answer);
        return Ok(());
    }
    let look = ask(&client, args, false).await?;
    let restored = View(&look).at("restored");
    if let Some(restored) = restored {
        warn_restored(restored, printer);
    }
    show(&look, printer);
    let found = open(&look);
    if !args.apply {
        if found > 0 {
            let held = restored.is_some();
            printer.note(&if held { texts::sweep_held() } else { texts::sweep_dry() });
        }
        printer.json(&look);
        return Ok(());
    }
    if found == 0 {
        printer.json(&look);
        return failed(&look);
    }
    if !args.yes {
        let asked = terminal::stdin_is_terminal() && !printer.is_json();
        let question = texts::sweep_question(found);
        if !asked || !terminal::confirm(question.get(printer.lang())) {
            return Err(Failure::usage("confirmation_needed", texts::sweep_refused())
                .hint(texts::sweep_refused_hint()));
        }
    }
    let until = Instant::now() + WATCH;
    let mut answer = ask(&client, args, true).await?;
    let mut left = due(&answer);
    while left > 0 && Instant::now() < until {
        let pause = pause(&answer).min(until.saturating_duration_since(Instant::now()));
        sleep(pause).await;
        answer = ask(&client, args, true).await?;
        left = due(&answer);
    }
    let still = open(&answer);
    if found > still {
        printer.out(&texts::sweep_ended(found - still));
    }
    if still > 0 {
        printer.out(&texts::sweep_going_on(still));
    }
    printer.json(&answer);
    failed(&answer)
}

async fn ask(client: &Client, args: &AdminSweepArgs, apply: bool) -> Outcome<Value> {
    let mut body = json!({ "apply": apply });
    if let Some(provider) = &args.provider {
        body["provider"] = provider.as_str().into();
    }
    // Sweeping twice is sweeping once.
    Ok(client.post("/api/v1/admin/sweep", Some(&body), Repeat::Safe).await?)
}

/// Verdicts of nodes that nobody owns.
const UNOWNED: [&str; 4] = ["young", "suspected", "end", "ending"];

fn verdicts(answer: &Value) -> impl Iterator<Item = View<'_>> {
    View(answer).list("data").iter().flat_map(|one| View(one).list("findings")).map(View)
}

/// Nodes without an owner.
fn open(answer: &Value) -> usize {
    let is = |one: &View<'_>| {
        one.text("verdict").is_some_and(|verdict| UNOWNED.contains(&verdict.as_str()))
    };
    verdicts(answer).filter(is).count()
}

/// Those of them that another call within the time of this command may bring further.
fn due(answer: &Value) -> usize {
    let soon = |one: &View<'_>| match one.text("verdict").as_deref() {
        Some("end" | "ending") => true,
        Some("suspected" | "young") => {
            one.integer("again_in_seconds").is_none_or(|seconds| seconds <= 90)
        }
        _ => false,
    };
    verdicts(answer).filter(soon).count()
}

fn pause(answer: &Value) -> Duration {
    let waits = verdicts(answer)
        .filter(|one| one.text("verdict").is_some_and(|v| v == "suspected" || v == "young"));
    let seconds = waits.filter_map(|one| one.integer("again_in_seconds")).min().unwrap_or(1);
    let ending = verdicts(answer)
        .any(|one| one.text("verdict").is_some_and(|v| v == "ending" || v == "end"));
    let seconds = if ending { 1 } else { u64::try_from(seconds).unwrap_or(1).clamp(1, 60) };
    Duration::from_secs(seconds)
}

fn show(answer: &Value, printer: &Printer) {
    let lang = printer.lang();
    if View(answer).list("data").is_empty() {
        printer.out(&texts::sweep_nobody());
    }
    for one in View(answer).list("data") {
        let one = View(one);
        let name = one.text("provider").unwrap_or_default();
        if let Some(error) = one.text("error") {
            printer.warn(&texts::sweep_failed(&name, error));
            continue;
        }
        let text = |key| one.text(key).unwrap_or_else(|| "0".to_owned());
        if one.flag("complete") == Some(false) {
            printer.warn(&texts::sweep_incomplete(&name));
        }
        let unowned: Vec<_> = one
            .list("findings")
            .iter()
            .map(View)
            .filter(|one| one.text("verdict").is_some_and(|v| UNOWNED.contains(&v.as_str())))
            .collect();
        if unowned.is_empty() {
            printer.out(&texts::sweep_clean(&name, text("nodes"), text("foreign")));
            continue;
        }
        printer.out(&texts::sweep_found(&name, unowned.len(), text("foreign")));
        let header = [
            texts::column_node(),
            texts::column_lease(),
            texts::column_verdict(),
            texts::column_cause(),
            texts::column_per_hour(),
        ];
        let header = header.map(|text| text.get(lang).to_owned());
        let rows: Vec<_> = unowned
            .iter()
            .map(|one| {
                let text = |key| one.text(key).unwrap_or_else(|| "-".to_owned());
                vec![text("node_id"), text("lease_id"), text("verdict"), text("cause"), price(*one)]
            })
            .collect();
        printer.plain(&table::draw(&header, &rows));
    }
}

/// A provider that did not answer makes the command fail, after everything else was done.
fn failed(answer: &Value) -> Outcome {
    let failed = View(answer)
        .list("data")
        .iter()
        .map(View)
        .find_map(|one| Some((one.text("provider").unwrap_or_default(), one.text("error")?)));
    match failed {
        Some((provider, error)) => {
            Err(Failure::new(Exit::Server, "sweep_failed", texts::sweep_failed(provider, error)))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_what_is_known_and_what_is_wrong() {
        let row = json!({
            "lease_id": "lease-1", "job_id": "job-1", "state": "releasing", "seconds": 61,
            "provider": "aws", "node_id": "i-1", "price_per_hour": "3.1", "currency": "USD",
            "cleanup_blocked": "provider_not_connected", "surplus": [{"node_id": "i-2"}],
            "last_error": "aws terminate: auth", "evidence": null,
        });
        let cells = lease_row(View(&row), Lang::En);
        assert_eq!(cells[..3], ["lease-1", "job-1", "releasing"]);
        assert_eq!(cells[3..7], ["1m 1s", "aws", "i-1", "3.1 USD"]);
        for part in ["aws is not connected", "1 surplus"] {
            assert!(cells[7].contains(part), "{}", cells[7]);
        }
        assert!(!cells[7].contains("auth"), "said once: {}", cells[7]);
        let row = json!({"cleanup_blocked": "auth", "provider": "aws", "last_error": "no key"});
        assert!(lease_row(View(&row), Lang::En)[7].contains("no key"));
        let row = json!({"evidence": {"kind": "absent_reads", "reads": ["a", "b"]}});
        assert_eq!(lease_row(View(&row), Lang::En)[7], "absent in 2 reads (last b)");
        let row = json!({"node_id": "n", "cause": "unknown_lease", "price_per_hour": null});
        let cells = stray_row(View(&row), Lang::En);
        assert_eq!((cells[5].as_str(), cells[6].as_str()), ("?", "unattributed"));
    }

    #[test]
    fn only_what_can_come_further_soon_is_waited_for() {
        let of = |findings: Value| json!({"data": [{"provider": "x", "findings": findings}]});
        let answer = of(json!([
            {"verdict": "owned"},
            {"verdict": "young", "again_in_seconds": 280},
            {"verdict": "suspected", "again_in_seconds": 7},
        ]));
        assert_eq!((open(&answer), due(&answer)), (2, 1));
        assert_eq!(pause(&answer), Duration::from_secs(7));
        let answer = of(json!([{"verdict": "ending"}]));
        assert_eq!((due(&answer), pause(&answer)), (1, Duration::from_secs(1)));
        assert_eq!(sums(&json!({"CNY": "36.44", "USD": "3"})), "36.44 CNY + 3 USD");
    }
}
