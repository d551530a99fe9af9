//! The end of a run: stop, confirmed release, or what is left behind.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::interrupts::{Interrupt, Interrupts};
use crate::api::{ApiError, Client, Repeat, View};
use crate::commands::describe;
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::texts;

const LOOK: Duration = Duration::from_millis(250);
const AGAIN: Duration = Duration::from_secs(2);

/// How the wait for the release ended.
pub(super) enum Release {
    /// The machine is confirmed gone; the job as it is then.
    Confirmed(Value),
    /// The user left.
    Left,
}

/// Whose server a run has used.
pub(super) enum Embedded<'a> {
    /// Another process'.
    No,
    /// Its own, in the usual data folder.
    InHome,
    /// Its own, in this data folder, at this address.
    At(&'a Path, &'a str),
}

/// Stops the job, again and again while the server cannot be reached.
pub(super) async fn stop(client: &Client, id: &str, printer: &Printer) -> Outcome {
    let path = format!("/api/v1/jobs/{id}/stop");
    loop {
        match client.post(&path, None, Repeat::Safe).await {
            Ok(_) => return Ok(()),
            // It ended by itself meanwhile.
            Err(ApiError::Server(error)) if matches!(error.status, 404 | 409 | 410) => {
                return Ok(());
            }
            Err(ApiError::Server(error)) if error.status < 500 && error.status != 429 => {
                return Err(ApiError::Server(error).into());
            }
            Err(error) => {
                let reason = crate::failure::Failure::from(error).message.clone();
                printer.note(&texts::stop_failed(reason.get(printer.lang())));
                sleep(AGAIN).await;
            }
        }
    }
}

/// Waits until the server has confirmed that the machine is gone.
pub(super) async fn wait_for_release(
    client: &Client,
    id: &str,
    printer: &Printer,
    interrupts: &mut Interrupts,
    asked: &mut bool,
) -> Outcome<Release> {
    let mut told = false;
    loop {
        match describe::fetch(client, id).await {
            // A server that says nothing about clean-up has said all it will.
            Ok(job) if View(&job).flag("cleanup_confirmed") != Some(false) => {
                return Ok(Release::Confirmed(job));
            }
            Ok(_) if told => {}
            Ok(_) => {
                told = true;
                printer.note(&texts::waiting_for_release());
            }
            Err(ApiError::Server(error)) if error.status < 500 && error.status != 429 => {
                return Err(ApiError::Server(error).into());
            }
            Err(error) => {
                let reason = crate::failure::Failure::from(error).message.clone();
                printer.diagnostic(&reason);
            }
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            signal = interrupts.next() => {
                if *asked && signal == Interrupt::Asked {
                    return Ok(Release::Left);
                }
                if !*asked {
                    printer.note(&texts::stopping_now());
                }
                *asked = true;
            }
        }
    }
}

/// Says what may still live and what it costs.
pub(super) fn left_behind(job: View<'_>, id: &str, embedded: Embedded<'_>, printer: &Printer) {
    if job.flag("cleanup_confirmed") == Some(true) {
        printer.note(&texts::nothing_left_behind());
        return;
    }
    let node = job.text("node_id").unwrap_or_else(|| "?".to_owned());
    let price =
        describe::price(job).unwrap_or_else(|| texts::unknown().get(printer.lang()).to_owned());
    printer.warn(&match job.flag("gpu_pretended") {
        Some(true) => texts::left_behind_pretended(id, node),
        _ => texts::left_behind(id, node, price),
    });
    let hint = match embedded {
        Embedded::No => texts::left_behind_hint(id),
        // Commands without a server find it.
        Embedded::InHome => texts::left_behind_embedded(id),
        Embedded::At(data_dir, listen) => texts::left_behind_elsewhere(data_dir.display(), listen),
    };
    printer.note(&texts::arrow(hint.get(printer.lang())));
}
