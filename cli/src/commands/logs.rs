//! `runwhere logs`.

use serde_json::json;

use super::{describe, ids, submit};
use crate::api::{Client, View};
use crate::args::LogsArgs;
use crate::failure::Outcome;
use crate::follow::{Follower, line_text};
use crate::printer::Printer;
use crate::settings::Settings;
use crate::texts;

const TAIL: u32 = 200;

/// Prints or follows a log.
pub(super) async fn logs(args: &LogsArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let name = ids::job_name(&args.name)?;
    let client = Client::logged_in(settings, printer)?;
    if args.follow {
        let mut follower = Follower::new(&client, name, printer);
        // Only a server that was there can be waited for when it is gone: a wrong address or name is told at once.
        match args.tail {
            Some(tail) => follower.start_with_tail(tail).await?,
            None => drop(describe::fetch(&client, name).await?),
        }
        let ended = submit::watched(&mut follower, name, printer).await?;
        return submit::conclude(View(&ended.job), name, printer);
    }
    let tail = args.tail.unwrap_or(TAIL);
    let answer = client.get(&format!("/api/v1/jobs/{name}/logs?tail={tail}")).await?;
    let lines = View(&answer).list("lines");
    for line in lines {
        let line = line_text(line);
        if !printer.is_json() {
            printer.log_line(&line);
        }
    }
    if lines.is_empty() {
        printer.note(&texts::no_logs());
        printer.note(&texts::no_logs_hint(name));
    } else if args.tail.is_none() && View(&answer).flag("truncated").unwrap_or(false) {
        printer.note(&texts::logs_cut(TAIL));
    }
    printer.json(&json!({"lines": lines}));
    Ok(())
}
