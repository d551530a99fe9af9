//! `runwhere token`: works on the data folder, beside a running server.

use std::path::PathBuf;

use serde_json::json;

use super::dispatch::block_on;
use crate::args::{TokenCreateArgs, TokenListArgs, TokenRevokeArgs};
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::seams::tokens::{TokenRow, Tokens};
use crate::settings::Settings;
use crate::table;
use crate::texts;

fn open(named: Option<&PathBuf>, settings: &Settings) -> Outcome<Tokens> {
    Tokens::open(&named.cloned().unwrap_or_else(|| settings.home.join("server")))
}

/// Creates a token and shows it once.
pub(super) fn create(args: &TokenCreateArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let tokens = open(args.data_dir.as_ref(), settings)?;
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
    let rows = block_on(open(args.data_dir.as_ref(), settings)?.list())?;
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
    block_on(open(args.data_dir.as_ref(), settings)?.revoke(&args.id))?;
    printer.out(&texts::token_revoked(&args.id));
    printer.json(&json!({"status": "ok", "id": args.id}));
    Ok(())
}
