//! `/ws/jobs`: the log and the states of one job, live.
//!
//! The handshake is never refused: clients crash at that. Every end is said by `completed` or
//! `failed`, for nothing else ends them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use runwhere_engine::{EndReason, JobState, Permission};
use runwhere_model::{JobId, Lang, TrialId};
use serde_json::{Map, Value, json};

use super::jobs::first_trial;
use super::service::{JobReport, Refusal};
use super::wire;
use crate::accounts::{AccountError, Caller};
use crate::api::state::{Api, bearer};
use crate::api::text::{language_of, plain};
use crate::logs::{Cursor, Follower, Line, LogError, Note, TailLimits};

/// A client that takes nothing for so long is cut off; it comes back where it was.
const SEND: Duration = Duration::from_secs(30);
const PING: Duration = Duration::from_secs(20);
/// A listener who is never idle is looked up again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long the end event waits for the exact cost, which the release decides.
const SETTLE: Duration = Duration::from_secs(10);
/// The most lines a client may ask to begin with.
const MAX_TAIL: usize = 5000;
const MAX_TAIL_BYTES: usize = 16 << 20;

pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/ws/jobs", get(connect))
}

async fn connect(
    State(api): State<Arc<Api>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let wanted = Wanted::read(query.as_deref().unwrap_or_default());
    let token = bearer(&headers).map(str::to_owned).or_else(|| wanted.token.clone());
    let lang = language_of(&headers);
    // Clients send nothing but control frames.
    upgrade.max_message_size(64 << 10).on_upgrade(move |socket| async move {
        let (sink, stream) = socket.split();
        let mut session = Session { api, sink, lang };
        let talk = session.run(token, wanted);
        tokio::pin!(talk);
        tokio::select! {
            _ = &mut talk => {}
            () = gone(stream) => {}
        }
    })
}

/// Returns once the client has left. Reading also answers its pings.
async fn gone(mut stream: SplitStream<WebSocket>) {
    while let Some(Ok(message)) = stream.next().await {
        if matches!(message, Message::Close(_)) {
            return;
        }
    }
}

#[derive(Default)]
struct Wanted {
    job: String,
    token: Option<String>,
    after: Option<String>,
    tail: Option<usize>,
    /// Phases and states as events of their own, besides the log lines that say the same.
    events: bool,
}

impl Wanted {
    fn read(query: &str) -> Self {
        let mut wanted = Self::default();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value);
            match key {
                "job_id" => wanted.job = value,
                "token" => wanted.token = Some(value),
                "after" => wanted.after = Some(value),
                "tail" => wanted.tail = value.parse().ok(),
                "events" => wanted.events = value == "1",
                _ => {}
            }
        }
        wanted
    }
}

/// Percent-decoding; what cannot be decoded stays as it is and is then no job's name.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let value = pair.and_then(|pair| hex::decode(pair).ok());
        match value {
            Some(value) => {
                out.extend(value);
                at += 3;
            }
            None => {
                out.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

struct Session {
    api: Arc<Api>,
    sink: SplitSink<WebSocket, Message>,
    lang: Lang,
}

/// The client is gone, or took nothing for too long.
struct Gone;

type Sent = Result<(), Gone>;

impl Session {
    async fn run(&mut self, token: Option<String>, wanted: Wanted) -> Sent {
        let zh = self.lang == Lang::Zh;
        let caller = match self.caller(token.as_deref()).await {
            Ok(Some(caller)) => caller,
            Ok(None) => return self.stranger().await,
            Err(error) => {
                // Nobody is called a stranger for that: the client connects again.
                tracing::error!(%error, "a caller of a log could not be looked up");
                return self.send(Message::Close(None)).await;
            }
        };
        let found = first_trial(&self.api, &caller, &wanted.job).await;
        let Ok((report, trial)) = found else {
            let text = if zh {
                "任务不存在或无权访问"
            } else {
                "there is no such job, or it is not yours"
            };
            return self.failed("not_found", text).await;
        };
        match self.follow(token.as_deref(), caller, report, &trial, &wanted).await {
            Ok(sent) => sent,
            Err(LogError::Damaged(0..)) if wanted.after.is_some() => {
                let text = if zh { "日志游标无效" } else { "not a log cursor" };
                self.failed("bad_cursor", text).await
            }
            Err(error) => {
                tracing::error!(%error, %trial, "a log could not be read");
                let text = if zh { "日志暂时不可读" } else { "the log cannot be read now" };
                self.failed("internal", text).await
            }
        }
    }

    /// Who listens; `None` is a stranger, an error says nothing about them.
    async fn caller(&self, token: Option<&str>) -> Result<Option<Caller>, AccountError> {
        let Some(token) = token else { return Ok(None) };
        match self.api.accounts.authenticate(token).await {
            Ok(caller) => Ok(caller.allows(Permission::JobRead).then_some(caller)),
            Err(AccountError::Unauthorized) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn stranger(&mut self) -> Sent {
        let text = match self.lang {
            Lang::Zh => "未登录或 token 无效",
            Lang::En => "not logged in",
        };
        self.failed("unauthorized", text).await
    }

    /// Sends everything until the job has ended, as one conversation. The outer error is ours.
    async fn follow(
        &mut self,
        token: Option<&str>,
        mut caller: Caller,
        mut report: JobReport,
        trial: &TrialId,
        wanted: &Wanted,
    ) -> Result<Sent, LogError> {
        let job = report.view.job.id.clone();
        let mut changes = self.api.parts.jobs.watch(&job);
        let logs = self.api.parts.logs.clone();
        let mut from = Cursor::default();
        if let Some(after) = &wanted.after {
            let Ok(cursor) = after.parse() else { return Err(LogError::Damaged(0)) };
            from = cursor;
        } else if let Some(tail) = wanted.tail {
            let lines = tail.clamp(1, MAX_TAIL);
            let limits = TailLimits { lines, bytes: MAX_TAIL_BYTES, ended: false };
            let tail = logs.tail(trial, limits, self.lang).await?;
            for line in &tail.lines {
                if self.line(line).await.is_err() {
                    return Ok(Err(Gone));
                }
            }
            from = tail.cursor;
        }
        let mut follower = logs.follow(trial, from, self.lang).await?;
        let mut closing = self.api.parts.closing.clone();
        let mut said = (wire::status(&report), phase(&report));
        let mut waiting = VecDeque::new();
        loop {
            changes.mark_unchanged();
            // A key may be revoked, or expire, while its holder listens.
            match self.caller(token).await {
                Ok(Some(now)) => caller = now,
                Ok(None) => return Ok(self.stranger().await),
                // The store failed for now: who was let in is still in.
                Err(_) => {}
            }
            match self.fresh(&caller, &job).await {
                Ok(fresh) => report = fresh,
                Err(Some(text)) => return Ok(self.failed("not_found", &text).await),
                // The store failed for now: what is known still holds.
                Err(None) => {}
            }
            let ended = wire::has_ended(&report);
            let all = match self.drain(&mut follower, &mut waiting).await? {
                Ok(all) => all,
                Err(gone) => return Ok(Err(gone)),
            };
            if wanted.events && self.progress(&report, &mut said).await.is_err() {
                return Ok(Err(Gone));
            }
            if !all {
                if *closing.borrow() {
                    return Ok(self.send(Message::Close(None)).await);
                }
                continue;
            }
            if ended {
                return Ok(self.end(&caller, &mut follower, report).await);
            }
            tokio::select! {
                () = follower.changed() => {}
                changed = changes.changed() => if changed.is_err() { return Ok(Err(Gone)) },
                () = tokio::time::sleep(PING) => {
                    if self.send(Message::Ping(bytes::Bytes::new())).await.is_err() {
                        return Ok(Err(Gone));
                    }
                }
                () = async { drop(closing.wait_for(|closing| *closing).await) } => {
                    // The client connects again, to the next server.
                    let _ = self.send(Message::Close(None)).await;
                    return Ok(Ok(()));
                }
            }
        }
    }

    /// The job as it is now; the error says whether it is gone for good.
    async fn fresh(&self, caller: &Caller, job: &JobId) -> Result<JobReport, Option<String>> {
        match self.api.parts.jobs.job(caller, job.as_str()).await {
            Ok(report) => Ok(report),
            Err(Refusal::NotFound) => Err(Some(match self.lang {
                Lang::Zh => "任务不存在或无权访问".to_owned(),
                Lang::En => "there is no such job, or it is not yours".to_owned(),
            })),
            Err(_) => Err(None),
        }
    }

    /// Sends what there is; `false` where time is up before all of it is sent, for a program may write faster than its
    /// listener reads, and who listens must be asked again.
    async fn drain(
        &mut self,
        follower: &mut Follower,
        waiting: &mut VecDeque<Line>,
    ) -> Result<Result<bool, Gone>, LogError> {
        let until = tokio::time::Instant::now() + ASK_AGAIN;
        loop {
            while let Some(line) = waiting.pop_front() {
                if self.line(&line).await.is_err() {
                    return Ok(Err(Gone));
                }
                if tokio::time::Instant::now() >= until {
                    return Ok(Ok(false));
                }
            }
            match follower.next().await? {
                Some(lines) => waiting.extend(lines),
                None => return Ok(Ok(true)),
            }
        }
    }

    async fn line(&mut self, line: &Line) -> Sent {
        let payload = json!({
            "line": line.text,
            "stream": line.source.as_str(),
            "time": line.at.to_string(),
            "continues": line.continues,
            "cursor": line.cursor.to_string(),
        });
        self.event("log", payload.to_string()).await
    }

    async fn progress(
        &mut self,
        report: &JobReport,
        said: &mut (&'static str, Option<&'static str>),
    ) -> Sent {
        let now = (wire::status(report), phase(report));
        if now.1 != said.1
            && let Some(phase) = now.1
        {
            self.event("provision_progress", json!({ "phase": phase }).to_string()).await?;
        }
        if now.0 != said.0 {
            self.event("status_changed", json!({ "status": now.0 }).to_string()).await?;
        }
        *said = now;
        Ok(())
    }

    /// The rest of the log and the end event, with the final cost where it comes soon.
    async fn end(
        &mut self,
        caller: &Caller,
        follower: &mut Follower,
        mut report: JobReport,
    ) -> Sent {
        for line in follower.flush() {
            self.line(&line).await?;
        }
        let job = report.view.job.id.clone();
        let mut changes = self.api.parts.jobs.watch(&job);
        let deadline = tokio::time::Instant::now() + SETTLE;
        while !report.cost.settled {
            changes.mark_unchanged();
            match self.fresh(caller, &job).await {
                Ok(fresh) => report = fresh,
                Err(_) => break,
            }
            if report.cost.settled {
                break;
            }
            match tokio::time::timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => break,
            }
        }
        let (kind, payload) = self.end_event(&report);
        self.event(kind, payload).await?;
        self.send(Message::Close(None)).await
    }

    fn end_event(&self, report: &JobReport) -> (&'static str, String) {
        let trial = report.view.trials.first().map(|(trial, _)| trial);
        let reason = trial.and_then(|trial| trial.end_reason.clone());
        let exit = trial.and_then(|trial| trial.exit);
        let total = wire::total_in_cny(&report.cost, self.api.parts.rates.as_ref());
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| {
            map.insert(key.to_owned(), value);
        };
        put("status", wire::status(report).into());
        put("end_reason", reason.as_ref().map(EndReason::code).into());
        put("duration", wire::elapsed(trial, report.at).into());
        put("billed_seconds", (report.cost.billed_micros / 1_000_000).into());
        put("exit_code", exit.and_then(|exit| exit.code).into());
        put("signal", exit.and_then(|exit| exit.signal).into());
        put("currency", "CNY".into());
        put("cost", total.map(wire::shown).into());
        put("cost_is_final", report.cost.settled.into());
        let failed = wire::state(report) == JobState::Failed;
        if failed {
            let note = Note::Ended {
                reason: reason.unwrap_or(EndReason::ProgramFailed),
                exit_code: exit.and_then(|exit| exit.code),
                signal: exit.and_then(|exit| exit.signal),
            };
            put("error", plain(&note.sentence(self.lang)).into());
        }
        let kind = if failed { "failed" } else { "completed" };
        (kind, wire::with_number(map, "total_cost", total.map(wire::shown)))
    }

    async fn failed(&mut self, code: &str, text: &str) -> Sent {
        self.event("failed", json!({ "error": plain(text), "code": code }).to_string()).await?;
        self.send(Message::Close(None)).await
    }

    async fn event(&mut self, kind: &str, payload: String) -> Sent {
        let text = format!("{{\"type\":\"{kind}\",\"payload\":{payload}}}");
        self.send(Message::Text(text.into())).await
    }

    async fn send(&mut self, message: Message) -> Sent {
        match tokio::time::timeout(SEND, self.sink.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }
}

fn phase(report: &JobReport) -> Option<&'static str> {
    let (trial, lease) = report.view.trials.first()?;
    let lease = lease.as_ref().map(|lease| lease.state);
    wire::phase(trial.platform_lines(lease).last().copied())
}
