//! `runwhere token`: works on the data folder, beside a running server.

use std::path::PathBuf;

use serde_json::json;

use super::dispatch::block_on;
use crate::args::{TokenCreateArgs, TokenListArgs, TokenRevokeArgs};
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::seams::tokens::{TokenRow, Tokens};
use crate::settings::Settings;
use crate::table;
use crate::texts;

/// The tokens of the named data folder, else of the usual one: which one is said, for a login may be with another server.
fn open(named: Option<&PathBuf>, settings: &Settings, printer: &Printer) -> Outcome<Tokens> {
    if let Some(endpoint) = &settings.endpoint_argument {
        let text = texts::token_needs_no_endpoint(endpoint);
        return Err(
            Failure::usage("endpoint_unused", text).hint(texts::token_needs_no_endpoint_hint())
        );
    }
    let folder = named.cloned().unwrap_or_else(|| settings.home.join("server"));
    let tokens = Tokens::open(&folder)?;
    if named.is_none() {
        printer.note(&texts::tokens_of(folder.display()));
    }
    Ok(tokens)
}

/// Creates a token and shows it once.
pub(super) fn create(args: &TokenCreateArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let tokens = open(args.data_dir.as_ref(), settings, printer)?;
    let (name, expires_in) = (args.name.as_deref(), args.expires_in.as_deref());
    let project = args.project.as_deref();
    let made = block_on(tokens.create(name, &args.scope, project, expires_in, args.envloop))?;
    // The token alone is the data: `TOKEN=$(runwhere token create)` works.
    printer.note(&texts::token_created(&made.id));
    printer.plain(made.token.reveal());
    printer.json(&json!({"token": made.token.reveal(), "id": made.id}));
    Ok(())
}

/// Lists tokens, without the secrets.
pub(super) fn list(args: &TokenListArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let rows = block_on(open(args.data_dir.as_ref(), settings, printer)?.list())?;
    if rows.is_empty() {
        printer.out(&texts::no_tokens());
    } else {
        let header = [
            texts::token_column_id(),
            texts::token_column_name(),
            texts::token_column_project(),
            texts::token_column_scopes(),
            texts::token_column_created(),
            texts::token_column_expires(),
            texts::token_column_revoked(),
        ];
        let header = header.map(|text| text.get(printer.lang()).to_owned());
        printer.plain(&table::draw(&header, &rows.iter().map(cells).collect::<Vec<_>>()));
    }
    printer.json(&json!({"tokens": rows}));
    Ok(())
}

fn cells(row: &TokenRow) -> Vec<String> {
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        row.id.clone(),
        row.name.clone(),
        row.project.clone(),
        row.scopes.join(","),
        row.created_at.clone(),
        dash(&row.expires_at),
        dash(&row.revoked_at),
    ]
}

/// Revokes a token.
pub(super) fn revoke(args: &TokenRevokeArgs, settings: &Settings, printer: &Printer) -> Outcome {
    block_on(open(args.data_dir.as_ref(), settings, printer)?.revoke(&args.id))?;
    printer.out(&texts::token_revoked(&args.id));
    printer.json(&json!({"status": "ok", "id": args.id}));
    Ok(())
}
