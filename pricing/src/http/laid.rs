//! Quotes as bytes, their offers written beforehand.
//!
//! An offer's row has forty fields, of which only the price's age changes with the second. So a row is written
//! once for a state of the prices and a day, with a gap where the age stands, and each quote that recommends the
//! offer copies it. What comes out is, byte for byte, what [`QuoteReply`](crate::QuoteReply) is written as.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Bytes;
use jiff::Timestamp;
use runwhere_model::Lang;
use serde::{Serialize, Serializer};
use tokio::runtime::Handle;

use super::buffers::written;
use crate::canonical::{expires_at, instant, write_quote_id};
use crate::catalogue::{Catalogue, NotLaunchable};
use crate::digits::Digits;
use crate::fx::day_of;
use crate::quote::{Chosen, Query, Rejection, reasons, run_of};
use crate::reason::{Tag, join, separator};
use crate::rows::OfferRow;

/// Bytes of rows that are held at most.
const MOST: usize = 64 << 20;
/// Most rows take less.
const USUAL_ROW: usize = 2 * 1024;
/// Bytes that come from the memory at once.
const LINE: usize = 64;
/// A larger row is not held.
const LARGEST_ROW: usize = 16 * 1024;

/// The rows that quotes of a state and a day were answered with.
#[derive(Debug)]
pub(super) struct LaidRows {
    held: RwLock<Held>,
    /// Bytes of them at most.
    most: usize,
    tags: Tags,
}

impl Default for LaidRows {
    fn default() -> Self {
        Self { held: RwLock::default(), most: MOST, tags: Tags::default() }
    }
}

type Rows = HashMap<Place, LaidRow, foldhash::fast::RandomState>;

#[derive(Debug, Default)]
struct Held {
    state_id: String,
    /// Ages of exchange rates, which rows show, count days.
    day: i64,
    rows: Rows,
    bytes: usize,
}

/// A question, in which language and for which instant.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    query: &'a Query,
    lang: Lang,
    as_of: Timestamp,
}

/// Which row, and what decides how it is written besides state and day.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Place {
    lang: Lang,
    stale: bool,
    shard: usize,
    at: u32,
}

/// A row as it is written: the offer up to its age, the rest of it, and what is said of it.
#[derive(Clone, Debug)]
struct LaidRow {
    json: Arc<[u8]>,
    /// Where the age belongs.
    age: usize,
    /// Where the offer ends and the text of its reasons begins.
    reason: usize,
    /// Where that ends and the reasons themselves begin.
    reasons: usize,
    observed_at: Option<Timestamp>,
}

impl LaidRows {
    /// The answer to a question about models that there are.
    pub(super) fn reply(
        &self,
        catalogue: &Catalogue,
        query: &Query,
        lang: Lang,
        as_of: Timestamp,
    ) -> Bytes {
        let answer = catalogue.answer(query, as_of);
        let asked = Asked { query, lang, as_of };
        written(|out| {
            out.extend_from_slice(b"{\"quote_id\":\"");
            let at = instant(as_of);
            write_quote_id(out, catalogue, query, &at);
            out.extend_from_slice(b"\",\"snapshot_id\":");
            unescaped(out, catalogue.snapshot_id());
            out.extend_from_slice(b",\"as_of\":");
            unescaped(out, &at);
            out.extend_from_slice(b",\"expires_at\":");
            unescaped(out, &instant(expires_at(as_of)));
            out.extend_from_slice(b",\"recommendations\":[");
            self.recommendations(out, catalogue, &answer.chosen, asked);
            out.push(b']');
            field(out, "matching", &answer.matching);
            field(out, "rejected", &Counts(&answer.rejected));
            out.extend_from_slice(b",\"suggestions\":[]}");
        })
    }

    fn recommendations(
        &self,
        out: &mut Vec<u8>,
        catalogue: &Catalogue,
        chosen: &[Chosen<'_>],
        asked: Asked<'_>,
    ) {
        let (state_id, day) = (catalogue.state_id(), day_of(asked.as_of));
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let holds = held.state_id == state_id && held.day == day;
        // Rows lie scattered over the memory. Looked up in one go, the waits for it are one wait.
        let found = chosen
            .iter()
            .map(|chosen| held.rows.get(&Place::of(chosen, asked.lang)).filter(|_| holds));
        let found: Vec<_> = found.collect();
        if found.iter().all(Option::is_some) {
            let read = found.iter().flatten().map(|row| row.fetch());
            black_box(read.fold(0, u8::wrapping_add));
            for (chosen, row) in chosen.iter().zip(found.into_iter().flatten()) {
                row.recommend(out, chosen, asked, &self.tags);
            }
            return;
        }
        let found: Vec<_> = found.into_iter().map(|row| row.cloned()).collect();
        // Rows are made while nobody waits for the others.
        drop(held);
        let mut new = Vec::new();
        for (chosen, row) in chosen.iter().zip(found) {
            let row = row.unwrap_or_else(|| {
                let (row, lasts) = LaidRow::new(catalogue, chosen, asked);
                if lasts {
                    new.push((Place::of(chosen, asked.lang), row.clone()));
                }
                row
            });
            row.recommend(out, chosen, asked, &self.tags);
        }
        self.hold(state_id, day, new);
    }

    /// Holds rows, and forgets those of other states and days; all of them where they become too many.
    fn hold(&self, state_id: &str, day: i64, new: Vec<(Place, LaidRow)>) {
        let mut forgotten = Vec::new();
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if held.state_id != state_id || held.day != day {
            forgotten.push(held.forget());
            held.day = day;
            state_id.clone_into(&mut held.state_id);
        }
        for (place, row) in new {
            let bytes = row.bytes();
            if bytes > LARGEST_ROW {
                continue;
            }
            if held.bytes + bytes > self.most {
                forgotten.push(held.forget());
            }
            held.bytes += bytes;
            // Two may have made the same row.
            if let Some(same) = held.rows.insert(place, row) {
                held.bytes -= same.bytes();
            }
        }
        drop(held);
        // Many rows take a while to forget: not while others wait, and not where others are answered.
        if let (true, Ok(runtime)) =
            (forgotten.iter().any(|rows| !rows.is_empty()), Handle::try_current())
        {
            runtime.spawn_blocking(move || drop(forgotten));
        }
    }
}

impl Held {
    fn forget(&mut self) -> Rows {
        self.bytes = 0;
        std::mem::take(&mut self.rows)
    }
}

impl Place {
    fn of(chosen: &Chosen<'_>, lang: Lang) -> Self {
        let rank = chosen.picked.rank;
        Self { lang, stale: rank.stale, shard: rank.shard, at: rank.at }
    }
}

impl LaidRow {
    /// The row of an offer, and whether it stays the same for the day.
    fn new(catalogue: &Catalogue, chosen: &Chosen<'_>, asked: Asked<'_>) -> (Self, bool) {
        let Asked { lang, as_of, .. } = asked;
        let (shard, rank) = (chosen.picked.shard, chosen.picked.rank);
        let assessed = catalogue.assess_of(Some(shard), shard.entry(rank.at), as_of);
        debug_assert_eq!((assessed.standing(), assessed.stale), (rank.standing, rank.stale));
        let mut json = Vec::with_capacity(USUAL_ROW);
        // Before the age there are no fields with fields of their own, and in a text no quotation mark stands alone.
        write(&mut json, &OfferRow { age: None, ..OfferRow::new(&assessed, as_of, lang) });
        let (name, none) = ("\"age\":", "null");
        let found = json.windows(name.len()).position(|window| window == name.as_bytes());
        let age = found.map_or(json.len(), |at| at + name.len());
        json.drain(age..json.len().min(age + none.len()));
        let reason = json.len();
        let said = reasons(&assessed);
        write(&mut json, &join(&said, lang));
        let reasons = json.len();
        write(&mut json, &said);
        let observed_at = assessed.entry.offer.price.observed_at;
        let lasts = !matches!(assessed.not_launchable, Some(NotLaunchable::StalePrice { .. }));
        (Self { json: json.into(), age, reason, reasons, observed_at }, lasts)
    }

    /// What it takes of the memory.
    fn bytes(&self) -> usize {
        self.json.len() + size_of::<(Place, Self)>()
    }

    /// Reads a byte of each line: the waits for the rows of an answer, which are copied one after the other, are
    /// then one wait.
    fn fetch(&self) -> u8 {
        self.json.iter().step_by(LINE).copied().fold(0, u8::wrapping_add)
    }

    /// Writes the offer as one of an answer's.
    fn recommend(&self, out: &mut Vec<u8>, chosen: &Chosen<'_>, asked: Asked<'_>, tags: &Tags) {
        let Asked { query, lang, as_of } = asked;
        if chosen.rank > 1 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"rank\":");
        write(out, &chosen.rank);
        out.extend_from_slice(b",\"offer\":");
        out.extend_from_slice(&self.json[..self.age]);
        write(out, &crate::rows::age(self.observed_at, as_of));
        out.extend_from_slice(&self.json[self.age..self.reason]);
        out.extend_from_slice(b",\"score\":");
        match chosen.score {
            Some(score) => unescaped(out, &Digits::from(score)),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(tags.of(chosen.tag, lang));
        out.extend_from_slice(b",\"reason\":");
        let (reason, reasons) = (&self.json[self.reason..self.reasons], &self.json[self.reasons..]);
        if chosen.claims.is_empty() {
            out.extend_from_slice(reason);
            out.extend_from_slice(b",\"reasons\":");
            out.extend_from_slice(reasons);
        } else {
            // One text and one list of both: the end of the first and the beginning of the second fall away. There
            // is always something to say of an offer, so neither of the second is empty.
            write(out, &join(&chosen.claims, lang));
            out.pop();
            out.extend_from_slice(separator(lang).as_bytes());
            out.extend_from_slice(&reason[1..]);
            out.extend_from_slice(b",\"reasons\":");
            write(out, &chosen.claims);
            out.pop();
            out.push(b',');
            out.extend_from_slice(&reasons[1..]);
        }
        if query.hours.is_some() {
            let shard = chosen.picked.shard;
            if let Some(cost) = run_of(query, &shard.offer(shard.row(chosen.picked.rank.at))) {
                field(out, "run_cost", &cost);
            }
        }
        out.push(b'}');
    }
}

/// What an offer is in an answer, as its fields are written.
#[derive(Debug)]
struct Tags([[Vec<u8>; 2]; 4]);

impl Default for Tags {
    fn default() -> Self {
        let tags = [Tag::Recommended, Tag::Alternative, Tag::Waits, Tag::Reference];
        Self(tags.map(|tag| {
            [Lang::Zh, Lang::En].map(|lang| {
                let mut fields = Vec::new();
                field(&mut fields, "tag", tag.text(lang));
                field(&mut fields, "tag_code", &tag);
                fields
            })
        }))
    }
}

impl Tags {
    fn of(&self, tag: Tag, lang: Lang) -> &[u8] {
        &self.0[tag as usize][usize::from(lang == Lang::En)]
    }
}

/// Pairs as the fields of an object.
struct Counts<'a>(&'a [(Rejection, usize)]);

impl Serialize for Counts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// A text of which every letter stands for itself.
fn unescaped(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

fn field<T: Serialize + ?Sized>(out: &mut Vec<u8>, name: &str, value: &T) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    write(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Parts;
    use crate::codes::CodeBook;
    use crate::rows::QuoteReply;

    #[test]
    fn where_too_much_is_held_all_is_forgotten_and_answers_stay_the_same() {
        let catalogue = Catalogue::build(&Parts::default(), &mut CodeBook::new());
        let as_of: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let laid = LaidRows { most: 20_000, ..LaidRows::default() };
        let mut forgot = 0;
        for gpu in catalogue.gpus().chain(catalogue.gpus()) {
            let query = Query::new(Some(gpu), 1);
            let before = laid.held.read().unwrap().bytes;
            let reply = laid.reply(&catalogue, &query, Lang::Zh, as_of);
            let wanted = catalogue.quote(&query, as_of);
            assert_eq!(reply, serde_json::to_vec(&QuoteReply::new(&wanted, Lang::Zh)).unwrap());
            let held = laid.held.read().unwrap();
            assert_eq!(held.bytes, held.rows.values().map(|row| row.bytes()).sum::<usize>());
            assert!(held.bytes <= laid.most);
            forgot += usize::from(held.bytes < before);
        }
        assert!(forgot > 2, "{forgot}");
    }

    #[test]
    fn several_threads_that_push_out_each_others_rows_get_their_own_answers() {
        let catalogue = Catalogue::build(&Parts::default(), &mut CodeBook::new());
        // At midnight the bundled rates become too old to decide, which rows say.
        let first: Timestamp = "2027-01-22T23:59:58Z".parse().unwrap();
        let laid = LaidRows { most: 20_000, ..LaidRows::default() };
        let ask = |lang| {
            for (gpu, later) in catalogue.gpus().flat_map(|gpu| [(gpu, 0), (gpu, 3), (gpu, 4)]) {
                let as_of = Timestamp::from_second(first.as_second() + later).unwrap();
                let query = Query::new(Some(gpu), 1);
                let wanted = catalogue.quote(&query, as_of);
                let wanted = serde_json::to_vec(&QuoteReply::new(&wanted, lang)).unwrap();
                assert_eq!(laid.reply(&catalogue, &query, lang, as_of), wanted);
            }
        };
        std::thread::scope(|scope| {
            for lang in [Lang::Zh, Lang::En, Lang::Zh, Lang::En] {
                scope.spawn(move || (0..5).for_each(|_| ask(lang)));
            }
        });
    }
}
