//! The pages of a job's log.
//!
//! A page merges the trials' logs by time. Its cursor holds a position in each of them, so nothing
//! that arrives late is left out, and stays valid as long as the logs do.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use runwhere_agent::protocol::LogStream;
use runwhere_engine::Trial;
use runwhere_model::{Lang, TrialId};
use serde_json::{Value, json};

use super::answer::{Answer, Error, ok};
use super::jobs;
use super::page::{self, Parameters, given};
use super::state::{El, Signed};
use crate::api::text::{Words, language_of, words};
use crate::logs::{Cursor, Line, Source, TailLimits};
use crate::runners::Code;
use crate::store::JobView;

const DEFAULT: usize = 200;
const MOST: usize = 1000;
/// Bytes of text in one page: the client takes no more than 16 MiB.
const PAGE_BYTES: usize = 4 << 20;
/// Bytes of lines that are not wanted, after which a page ends.
const PASSED_BYTES: usize = 32 << 20;
const PREFIX: &str = "[runwhere] ";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wanted {
    All,
    System,
    Runtime,
}

impl Wanted {
    fn read(text: Option<&str>) -> Result<Self, Error> {
        match text {
            None | Some("all") => Ok(Self::All),
            Some("system") => Ok(Self::System),
            Some("runtime") => Ok(Self::Runtime),
            Some(_) => {
                let why =
                    words!("source 是 all、system 或 runtime", "source is all, system or runtime");
                Err(Error::new(Code::InvalidLogSource, why))
            }
        }
    }

    fn letter(self) -> char {
        match self {
            Self::All => 'a',
            Self::System => 's',
            Self::Runtime => 'r',
        }
    }

    fn takes(self, source: Source) -> bool {
        let system = matches!(source, Source::Platform | Source::Stream(LogStream::System));
        match self {
            Self::All => true,
            Self::System => system,
            Self::Runtime => !system,
        }
    }
}

/// A position in the logs of a job's trials.
#[derive(Clone, Debug)]
struct Place(Vec<Cursor>);

impl Place {
    fn begin(view: &JobView) -> Self {
        Self(vec![Cursor::default(); view.trials.len()])
    }

    fn text(&self, view: &JobView, wanted: Wanted) -> String {
        let cursors: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        let text = format!("1{}~{}~{}", wanted.letter(), view.job.id, cursors.join("~"));
        URL_SAFE_NO_PAD.encode(text)
    }

    fn read(text: &str, view: &JobView, wanted: Wanted) -> Result<Self, Error> {
        let bad = || {
            let why = words!(
                "请原样使用此任务和 source 的上一页给出的 cursor",
                "use a cursor of this job and source as an earlier page gave it"
            );
            Error::new(Code::LogCursorInvalid, why)
        };
        if text.len() > 4096 {
            return Err(bad());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
        let text = String::from_utf8(bytes).map_err(|_| bad())?;
        let mut parts = text.split('~');
        let head = format!("1{}", wanted.letter());
        if parts.next() != Some(head.as_str()) || parts.next() != Some(view.job.id.as_str()) {
            return Err(bad());
        }
        let cursors =
            parts.map(str::parse).collect::<Result<Vec<Cursor>, _>>().map_err(|_| bad())?;
        if cursors.len() != view.trials.len() {
            return Err(bad());
        }
        Ok(Self(cursors))
    }
}

/// What one trial has for a page.
struct Part {
    lines: Vec<Line>,
    /// Where the log stands after all that was read, also what is not wanted.
    end: Cursor,
    /// Everything that is there was read.
    whole: bool,
    /// Nothing will follow.
    sealed: bool,
}

pub(super) async fn read(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let wanted = Wanted::read(given(&parameters, "source"))?;
    let no_number = |name: &str| {
        let why = words!("{name} 是 1 到 {MOST} 的数", "{name} is a number from 1 to {MOST}");
        Error::new(Code::InvalidLogQuery, why)
    };
    let limit = page::limit_to(&parameters, DEFAULT, MOST).map_err(|_| no_number("limit"))?;
    let tail = match given(&parameters, "tail") {
        None => None,
        Some(text) => {
            let tail = text.parse::<usize>().ok().filter(|tail| (1..=MOST).contains(tail));
            Some(tail.ok_or_else(|| no_number("tail"))?)
        }
    };
    let cursor = given(&parameters, "cursor");
    if tail.is_some() && cursor.is_some() {
        let why = words!("tail 和 cursor 只能给出其中之一", "give either tail or cursor");
        return Err(Error::new(Code::InvalidLogQuery, why));
    }
    let view = jobs::visible(&el, &caller, &id).await?;
    let lang = language_of(&headers);
    let place = match (tail, cursor) {
        (Some(tail), _) => at_tail(&el, &view, wanted, tail, lang).await?,
        (None, Some(text)) => Place::read(text, &view, wanted)?,
        (None, None) => Place::begin(&view),
    };
    answer(&el, &view, wanted, place, limit, lang).await
}

/// Where the last lines of the whole job begin.
async fn at_tail(
    el: &El,
    view: &JobView,
    wanted: Wanted,
    tail: usize,
    lang: Lang,
) -> Result<Place, Error> {
    let mut place = Place::begin(view);
    // Each trial's last lines, the position before each, oldest first.
    let mut all: Vec<(jiff::Timestamp, usize, Cursor)> = Vec::new();
    for (index, (trial, _)) in view.trials.iter().enumerate() {
        let mut lines = tail + 1;
        let found = loop {
            let limits = TailLimits { lines, bytes: 64 << 20, ended: false };
            let found = el.parts.logs.tail(&trial.id, limits, lang).await?;
            let fitting = found.lines.iter().filter(|line| wanted.takes(line.source)).count();
            if fitting > tail || !found.truncated || lines > 64 * MOST {
                break found;
            }
            lines *= 4;
        };
        let mut before = if found.truncated { None } else { Some(Cursor::default()) };
        for line in &found.lines {
            if wanted.takes(line.source)
                && let Some(before) = before
            {
                all.push((line.at, index, before));
            }
            before = Some(line.cursor);
        }
        place.0[index] = before.unwrap_or(found.cursor);
    }
    all.sort_by_key(|(at, ..)| *at);
    // Of each trial the earliest of those that are kept.
    for (_, index, before) in all.iter().rev().take(tail) {
        place.0[*index] = *before;
    }
    Ok(place)
}

/// Lines of one trial after a position, somewhat more than a page needs.
async fn part(
    el: &El,
    trial: &TrialId,
    wanted: Wanted,
    from: Cursor,
    limit: usize,
    lang: Lang,
) -> Result<Part, Error> {
    let sealed = el.parts.logs.state(trial).await?.sealed;
    let mut follower = el.parts.logs.follow(trial, from, lang).await?;
    let (mut lines, mut bytes, mut passed) = (Vec::new(), 0, 0);
    let mut whole = false;
    while lines.len() <= limit && bytes <= PAGE_BYTES && passed <= PASSED_BYTES {
        let Some(read) = follower.next().await? else {
            whole = true;
            break;
        };
        for line in read {
            if wanted.takes(line.source) {
                bytes += line.text.len();
                lines.push(line);
            } else {
                passed += line.text.len();
            }
        }
    }
    if whole && sealed {
        lines.extend(follower.flush().into_iter().filter(|line| wanted.takes(line.source)));
    }
    Ok(Part { lines, end: follower.cursor(), whole, sealed })
}

async fn answer(
    el: &El,
    view: &JobView,
    wanted: Wanted,
    mut place: Place,
    limit: usize,
    lang: Lang,
) -> Answer {
    let mut parts = Vec::new();
    for ((trial, _), from) in view.trials.iter().zip(&place.0) {
        parts.push(part(el, &trial.id, wanted, *from, limit, lang).await?);
    }
    let mut next: Vec<usize> = vec![0; parts.len()];
    let (mut items, mut bytes) = (Vec::new(), 0);
    while items.len() < limit && bytes <= PAGE_BYTES {
        // The earliest of the trials' next lines; their own order is never turned round.
        let earliest = parts
            .iter()
            .enumerate()
            .filter_map(|(index, part)| Some((part.lines.get(next[index])?.at, index)))
            .min();
        let Some((_, index)) = earliest else { break };
        let line = &parts[index].lines[next[index]];
        next[index] += 1;
        bytes += line.text.len();
        place.0[index] = line.cursor;
        items.push(item(view, index, line));
    }
    let mut has_more = false;
    let mut eof = true;
    for (index, part) in parts.iter().enumerate() {
        let taken = next[index] == part.lines.len();
        if taken {
            // Past what is not wanted, too.
            place.0[index] = part.end;
        }
        has_more |= !taken || !part.whole;
        eof &= part.sealed;
    }
    let eof = eof && !has_more;
    let (status, missing) = collection(view, eof);
    let missing = missing.as_ref().map(|why| why.say(lang));
    let dropped: u64 = view
        .trials
        .iter()
        .filter_map(|(trial, _)| trial.log.as_ref())
        .map(|log| log.dropped_bytes)
        .sum();
    ok(json!({
        "items": items,
        "next_cursor": place.text(view, wanted),
        "has_more": has_more,
        "eof": eof,
        "collection_status": status,
        // Known once a trial's log is sealed; until then a line in it says so.
        "truncated": dropped > 0,
        "dropped_bytes": dropped,
        "missing_reason": missing,
        "sources": sources(wanted, missing),
    }))
}

fn item(view: &JobView, index: usize, line: &Line) -> Value {
    let (trial, _) = &view.trials[index];
    let name = view.job.trial_spec(trial.index).map(|spec| spec.name.as_str());
    let (source, stream) = match line.source {
        Source::Platform | Source::Stream(LogStream::System) => ("system", None),
        Source::Stream(LogStream::Stdout) => ("runtime", Some("stdout")),
        Source::Stream(LogStream::Stderr) => ("runtime", Some("stderr")),
    };
    let text = match source {
        "system" => line.text.strip_prefix(PREFIX).unwrap_or(&line.text),
        _ => &line.text,
    };
    json!({
        "id": format!("{}:{}", trial.id, line.id()),
        "content": text,
        "at": line.at.to_string(),
        "source": source,
        "stream": stream,
        // Only these fields are printed, and none of the client's names the trial.
        "phase": name.filter(|_| view.trials.len() > 1),
        "trial_id": trial.id.as_str(),
        "trial_name": name,
        "continues": line.continues,
    })
}

/// How complete the collection is.
fn collection(view: &JobView, eof: bool) -> (&'static str, Option<Words>) {
    let lost = |trial: &Trial| {
        trial.state.is_terminal() && trial.started_at.is_some() && trial.log.is_none()
    };
    match (eof, view.trials.iter().any(|(trial, _)| lost(trial))) {
        (_, true) => {
            let why = words!(
                "有 Trial 的日志末尾随节点丢失",
                "the end of a trial's log was lost with its node"
            );
            ("partial", Some(why))
        }
        (true, false) => ("complete", None),
        (false, false) => ("collecting", None),
    }
}

/// What a node takes with it is its program's output; the platform's lines are the server's.
fn sources(wanted: Wanted, missing: Option<&str>) -> Vec<Value> {
    [("system", Wanted::System), ("runtime", Wanted::Runtime)]
        .into_iter()
        .filter(|(_, own)| wanted == Wanted::All || wanted == *own)
        .map(|(name, source)| {
            let missing = missing.filter(|_| source == Wanted::Runtime);
            json!({ "name": name, "missing_reason": missing })
        })
        .collect()
}
