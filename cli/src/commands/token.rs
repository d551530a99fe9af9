//! `runwhere token`: works on the data folder, beside a running server.

use std::path::PathBuf;

use serde_json::json;

use crate::args::{TokenCreateArgs, TokenListArgs, TokenRevokeArgs};
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::seams::broker;
use crate::settings::Settings;
use crate::table;
use crate::texts;

fn data_dir(named: Option<&PathBuf>, settings: &Settings) -> PathBuf {
    named.cloned().unwrap_or_else(|| settings.home.join("server"))
}

/// Creates a token and shows it once.
pub(super) fn create(args: &TokenCreateArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let dir = data_dir(args.data_dir.as_ref(), settings);
    let made =
        broker::create_token(&dir, args.name.as_deref(), &args.scope, args.expires_in.as_deref())?;
    // The token alone is the data: `TOKEN=$(runwhere token create)` works.
    printer.note(&texts::token_created(&made.id));
    printer.plain(made.token.reveal());
    printer.json(&json!({"token": made.token.reveal(), "id": made.id}));
    Ok(())
}

/// Lists tokens, without the secrets.
pub(super) fn list(args: &TokenListArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let rows = broker::list_tokens(&data_dir(args.data_dir.as_ref(), settings))?;
    if rows.is_empty() {
        printer.out(&texts::no_tokens());
    } else {
        let header = [
            texts::token_column_id(),
            texts::token_column_name(),
            texts::token_column_scopes(),
            texts::token_column_created(),
            texts::token_column_expires(),
            texts::token_column_revoked(),
        ];
        let header = header.map(|text| text.get(printer.lang()).to_owned());
        let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let cells = |row: &broker::TokenRow| {
            let created = row.created_at.clone();
            vec![
                row.id.clone(),
                dash(&row.name),
                row.scopes.join(","),
                created,
                dash(&row.expires_at),
                dash(&row.revoked_at),
            ]
        };
        printer.plain(&table::draw(&header, &rows.iter().map(cells).collect::<Vec<_>>()));
    }
    let json: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "id": row.id,
                "name": row.name,
                "scopes": row.scopes,
                "created_at": row.created_at,
                "expires_at": row.expires_at,
                "revoked_at": row.revoked_at,
            })
        })
        .collect();
    printer.json(&json!({"tokens": json}));
    Ok(())
}

/// Revokes a token.
pub(super) fn revoke(args: &TokenRevokeArgs, settings: &Settings, printer: &Printer) -> Outcome {
    broker::revoke_token(&data_dir(args.data_dir.as_ref(), settings), &args.id)?;
    printer.out(&texts::token_revoked(&args.id));
    printer.json(&json!({"status": "ok", "id": args.id}));
    Ok(())
}
