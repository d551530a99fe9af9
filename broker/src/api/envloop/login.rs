//! Browser login: a command line asks, a person approves on a page with a token and the code that
//! the command line shows.
//!
//! The new key itself is made by the client and never passes here before it is used: only its hash
//! does. Requests live ten minutes, in memory: a restart makes people ask again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use runwhere_model::{Lang, ProjectId, WorkspaceId};
use serde_json::{Value, json};

use super::answer::{Answer, Error, ok};
use super::page::Parameters;
use super::state::El;
use crate::api::body;
use crate::api::text::{language_of, words};
use crate::driver::sha256_hex;
use crate::runners::Code;

const BODY: usize = 8 << 10;
const LIFE_SECONDS: i64 = 600;
const INTERVAL_SECONDS: u64 = 2;
/// Requests that may be open at a time.
const MOST_OPEN: usize = 256;
const MOST_TRIES: u32 = 5;
/// How long the new key is valid.
const KEY_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Grants(Mutex<HashMap<String, Grant>>);

#[derive(Clone, Debug)]
struct Grant {
    key_hash: String,
    poll_hash: String,
    code_hash: String,
    until: Timestamp,
    tries: u32,
    state: GrantState,
}

#[derive(Clone, Debug)]
enum GrantState {
    Pending,
    Approved(WorkspaceId, ProjectId),
    Denied,
    Cancelled,
}

impl Grants {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<String, Grant>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn expired() -> Error {
    let why = words!("登录请求已过期，请重新开始", "the login request is over; begin again");
    Error::new(Code::LoginExpired, why)
}

async fn small(sent: Body) -> Result<Bytes, Error> {
    body::read(sent, BODY).await.map_err(|_| {
        Error::new(Code::RequestTooLarge, words!("请求过大", "the request is too large"))
    })
}

async fn fields(sent: Body) -> Result<Value, Error> {
    let sent = small(sent).await?;
    let value = serde_json::from_slice(&sent).ok().filter(Value::is_object);
    value.ok_or_else(|| {
        let why = words!("请求必须是 JSON 对象", "the request must be a JSON object");
        Error::new(Code::BadRequest, why)
    })
}

fn hash_in(fields: &Value, name: &str) -> Result<String, Error> {
    let good = |text: &&str| {
        text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    fields[name].as_str().filter(good).map(str::to_owned).ok_or_else(|| {
        let why =
            words!("{name} 必须是十六进制的 SHA-256", "{name} must be a SHA-256 in hexadecimal");
        Error::new(Code::BadRequest, why).at(name)
    })
}

pub(super) async fn start(State(el): State<Arc<El>>, headers: HeaderMap, sent: Body) -> Answer {
    let fields = fields(sent).await?;
    let grant = Grant {
        key_hash: hash_in(&fields, "key_hash")?,
        poll_hash: hash_in(&fields, "poll_hash")?,
        code_hash: hash_in(&fields, "code_hash")?,
        until: el.parts.clock.now() + SignedDuration::from_secs(LIFE_SECONDS),
        tries: 0,
        state: GrantState::Pending,
    };
    let id = uuid::Uuid::new_v4().to_string();
    let now = el.parts.clock.now();
    let full = el.grants.with(|grants| {
        grants.retain(|_, grant| grant.until > now);
        if grants.len() >= MOST_OPEN {
            return true;
        }
        grants.insert(id.clone(), grant);
        false
    });
    if full {
        let why =
            words!("未完成的登录过多，请稍后再试", "too many logins are open; try again later");
        return Err(Error::new(Code::LoginBusy, why));
    }
    let base = el.base_url(&headers);
    ok(json!({
        "grant_id": id,
        "verification_uri": format!("{base}/sign-in?cli_login={id}"),
        "interval": INTERVAL_SECONDS,
        "expires_in": LIFE_SECONDS,
    }))
}

/// The grant that a client polls, if the poll token is its own.
fn polled(el: &El, fields: &Value) -> Option<(String, Grant)> {
    let (id, token) = (fields["grant_id"].as_str()?, fields["poll_token"].as_str()?);
    let hash = sha256_hex(token.as_bytes());
    let now = el.parts.clock.now();
    el.grants.with(|grants| {
        let grant = grants.get(id).filter(|grant| grant.until > now && grant.poll_hash == hash)?;
        Some((id.to_owned(), grant.clone()))
    })
}

pub(super) async fn poll(State(el): State<Arc<El>>, sent: Body) -> Answer {
    let fields = fields(sent).await?;
    let Some((_, grant)) = polled(&el, &fields) else { return Err(expired()) };
    ok(match grant.state {
        GrantState::Pending => json!({ "status": "pending" }),
        GrantState::Denied => json!({ "status": "denied" }),
        GrantState::Cancelled => json!({ "status": "cancelled" }),
        GrantState::Approved(workspace, project) => json!({
            "status": "approved",
            "workspace_id": workspace.as_str(),
            "project_id": project.as_str(),
        }),
    })
}

pub(super) async fn cancel(State(el): State<Arc<El>>, sent: Body) -> Answer {
    let fields = fields(sent).await?;
    let Some((id, _)) = polled(&el, &fields) else { return Err(expired()) };
    el.grants.with(|grants| {
        if let Some(grant) = grants.get_mut(&id)
            && matches!(grant.state, GrantState::Pending)
        {
            grant.state = GrantState::Cancelled;
        }
    });
    ok(json!({ "status": "cancelled" }))
}

/// The page on which a person approves.
pub(super) async fn show(
    State(el): State<Arc<El>>,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
) -> Response {
    let lang = language_of(&headers);
    let id = parameters.get("cli_login").cloned().unwrap_or_default();
    let now = el.parts.clock.now();
    let open = el.grants.with(|grants| {
        grants
            .get(&id)
            .is_some_and(|grant| grant.until > now && matches!(grant.state, GrantState::Pending))
    });
    match open {
        true => page(lang, &form(lang, &id, None)),
        false => page(
            lang,
            &told(
                lang,
                "登录请求已过期，请重新执行 el auth login",
                "This login request is over. Run `el auth login` again.",
            ),
        ),
    }
}

/// What the page sends.
pub(super) async fn approve(
    State(el): State<Arc<El>>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Error> {
    let lang = language_of(&headers);
    let sent = small(sent).await?;
    let fields = decoded(&sent);
    let field = |name: &str| fields.get(name).map(|text| text.trim()).unwrap_or_default();
    let (id, code, token) = (field("cli_login"), field("code"), field("token"));
    let now = el.parts.clock.now();
    let over = || {
        page(
            lang,
            &told(
                lang,
                "登录请求已过期，请重新执行 el auth login",
                "This login request is over. Run `el auth login` again.",
            ),
        )
    };
    let hash = sha256_hex(code.to_uppercase().as_bytes());
    let grant = el.grants.with(|grants| {
        let grant = grants.get_mut(id).filter(|grant| grant.until > now)?;
        if !matches!(grant.state, GrantState::Pending) {
            return None;
        }
        grant.tries += 1;
        if grant.tries > MOST_TRIES {
            grant.state = GrantState::Denied;
            return None;
        }
        Some(grant.clone())
    });
    let Some(grant) = grant else { return Ok(over()) };
    if field("action") == "deny" {
        el.grants.with(|grants| grants.get_mut(id).map(|grant| grant.state = GrantState::Denied));
        return Ok(page(lang, &told(lang, "已拒绝", "Denied.")));
    }
    if grant.code_hash != hash {
        let why =
            ("确认码不正确", "The confirmation code is not the one that the command line shows.");
        return Ok(page(lang, &form(lang, id, Some(why))));
    }
    let caller = match el.parts.accounts.authenticate(token).await {
        Ok(caller) => Ok(caller),
        Err(_) => el.parts.accounts.authenticate_envloop(token).await,
    };
    let Ok(caller) = caller else {
        let why = ("token 无效", "The token is not valid.");
        return Ok(page(lang, &form(lang, id, Some(why))));
    };
    el.parts.accounts.adopt(&caller, "el auth login", &grant.key_hash, Some(KEY_LIFE)).await?;
    el.grants.with(|grants| {
        if let Some(grant) = grants.get_mut(id) {
            grant.state = GrantState::Approved(caller.workspace.clone(), caller.project.clone());
        }
    });
    Ok(page(lang, &told(lang, "已授权，可以关闭此页面", "Approved. You can close this page.")))
}

fn decoded(form: &[u8]) -> HashMap<String, String> {
    let text = String::from_utf8_lossy(form);
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (unescaped(name), unescaped(value)))
        .collect()
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let pair: Vec<u8> = rest.by_ref().take(2).collect();
                bytes.extend(hex::decode(pair).unwrap_or_default());
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn told(lang: Lang, zh: &str, en: &str) -> String {
    let text = if lang == Lang::Zh { zh } else { en };
    format!("<p>{}</p>", escaped(text))
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

fn form(lang: Lang, id: &str, wrong: Option<(&str, &str)>) -> String {
    let say = |zh: &'static str, en: &'static str| if lang == Lang::Zh { zh } else { en };
    let wrong = wrong.map_or_else(String::new, |(zh, en)| told(lang, zh, en));
    format!(
        "{wrong}<form method=\"post\" action=\"/sign-in\">\
         <input type=\"hidden\" name=\"cli_login\" value=\"{id}\">\
         <label>{code}<br><input name=\"code\" autocomplete=\"off\" autofocus required></label>\
         <label>{token}<br><input name=\"token\" type=\"password\" autocomplete=\"off\"></label>\
         <p><button name=\"action\" value=\"approve\">{approve}</button> \
         <button name=\"action\" value=\"deny\" formnovalidate>{deny}</button></p></form>",
        id = escaped(id),
        code = say("命令行显示的确认码", "Confirmation code that the command line shows"),
        token = say("您的 token 或 API key", "Your token or API key"),
        approve = say("授权", "Approve"),
        deny = say("拒绝", "Deny"),
    )
}

fn page(lang: Lang, content: &str) -> Response {
    let (tag, title) = match lang {
        Lang::Zh => ("zh", "授权命令行登录"),
        Lang::En => ("en", "Approve a command line login"),
    };
    let html = format!(
        "<!doctype html><html lang=\"{tag}\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>body{{font:16px \
         system-ui,sans-serif;max-width:32rem;margin:3rem auto;padding:0 1rem}}label{{display:block;\
         margin:1rem 0}}input{{font:inherit;width:100%;padding:.4rem}}button{{font:inherit;\
         padding:.4rem 1rem}}</style><h1>{title}</h1>{content}</html>"
    );
    let mut response = html.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; \
             frame-ancestors 'none'",
        ),
    );
    response
}
