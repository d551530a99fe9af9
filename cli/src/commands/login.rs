//! `runwhere login`, `whoami`, `logout`.

use serde_json::json;

use crate::api::{Client, View};
use crate::args::LoginArgs;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::settings::{ConfigFile, Settings, Token};
use crate::terminal;
use crate::texts;

const ME: &str = "/api/v1/auth/me";

/// Checks a token against the server and stores both.
pub(super) async fn login(args: &LoginArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let endpoint = settings.endpoint().ok_or_else(|| {
        Failure::usage("endpoint_missing", texts::endpoint_missing())
            .hint(texts::not_logged_in_hint())
    })?;
    if endpoint.is_plain_text_over_network() {
        printer.warn(&texts::plain_http());
    }
    let unreadable =
        |error| Failure::other("token_unreadable", texts::file_unreadable("stdin", error));
    let typed = if terminal::stdin_is_terminal() && !args.token_stdin {
        terminal::hidden_line(texts::token_prompt().get(printer.lang())).map_err(unreadable)?
    } else {
        terminal::whole_stdin().map_err(unreadable)?
    };
    let token =
        Token::new(&typed).ok_or_else(|| Failure::usage("token_empty", texts::token_empty()))?;
    if !token.is_printable() {
        return Err(Failure::usage("token_invalid", texts::token_invalid()));
    }
    let client = Client::new(settings, printer, endpoint.clone(), Some(token.clone()));
    let me = client.get(ME).await.map_err(|error| match error.status() {
        Some(401 | 403) => Failure::usage("token_refused", texts::token_refused()),
        _ => error.into(),
    })?;
    ConfigFile::read(&settings.home)?.save_login(&endpoint.to_string(), &token)?;
    printer.out(&texts::logged_in(user(View(&me)), endpoint));
    printer
        .json(&json!({"status": "ok", "endpoint": endpoint.to_string(), "user": user(View(&me))}));
    Ok(())
}

/// Shows who the token is.
pub(super) async fn whoami(settings: &Settings, printer: &Printer) -> Outcome {
    let client = Client::logged_in(settings, printer)?;
    let me = client.get(ME).await?;
    let view = View(&me);
    printer.out(&texts::whoami_user(user(view)));
    if let Some(org) = view.text("current_org_id") {
        printer.out(&texts::whoami_org(org));
    }
    if let Some(project) = view.first_text(&["project", "project_id"]) {
        printer.out(&texts::whoami_project(project));
    }
    printer.out(&texts::whoami_endpoint(client.endpoint()));
    printer.json(&json!({
        "user": user(view),
        "org_id": view.get("current_org_id"),
        "workspace": client.endpoint().to_string(),
    }));
    Ok(())
}

fn user(me: View<'_>) -> String {
    me.first_text(&["username", "phone"])
        .unwrap_or_else(|| format!("user#{}", me.text("id").unwrap_or_default()))
}

/// Forgets the stored address and token.
pub(super) fn logout(settings: &Settings, printer: &Printer) -> Outcome {
    let mut file = ConfigFile::read(&settings.home)?;
    let stored = file.token();
    let had = file.forget_login()?;
    printer.out(&if had { texts::logged_out() } else { texts::was_not_logged_in() });
    if settings.token().is_some_and(|token| Some(token) != stored.as_ref()) {
        printer.warn(&texts::token_in_env());
    }
    printer.json(&json!({"status": "ok", "was_logged_in": had}));
    Ok(())
}
