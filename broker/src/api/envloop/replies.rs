//! Replies that are asked for again and again: waiting clients ask ten times a second and more.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use runwhere_model::ProjectId;
use serde_json::Value;

use super::answer::Answer;
use super::state::El;
use crate::accounts::Caller;
use crate::runners::Refused;

/// What has cost so far goes on while nothing is written.
const LASTS: SignedDuration = SignedDuration::from_secs(1);
/// Bytes of all kept replies together, and of one.
const ALL_BYTES: usize = 32 << 20;
const BYTES: usize = 1 << 20;

/// Of whom a reply is.
type Key = (ProjectId, String);

/// Bodies of replies, each good for one version of the store.
#[derive(Debug, Default)]
pub(super) struct Replies(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    kept: HashMap<Key, Kept>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Kept {
    version: u64,
    at: Timestamp,
    body: Bytes,
}

/// Where a reply belongs that is about to be made. Taken before anything is read for it, so that
/// what is kept is never older than its version.
#[derive(Debug)]
pub(super) struct Place {
    key: Key,
    version: Option<u64>,
    at: Timestamp,
}

impl Replies {
    fn find(&self, place: &Place) -> Option<Bytes> {
        let version = place.version?;
        let shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = shelf.kept.get(&place.key).filter(|kept| kept.version == version)?;
        // A clock that was set back keeps nothing.
        let fresh = found.at <= place.at && place.at.duration_since(found.at) < LASTS;
        fresh.then(|| found.body.clone())
    }

    fn keep(&self, place: Place, body: Bytes) {
        let Place { key, version: Some(version), at } = place else { return };
        // Keys and headers count, too.
        let size = body.len() + 256;
        if size > BYTES {
            return;
        }
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shelf.bytes + size > ALL_BYTES {
            *shelf = Shelf::default();
        }
        shelf.bytes += size;
        shelf.kept.insert(key, Kept { version, at, body });
    }
}

impl El {
    /// The place of a reply of the caller's project, and the reply where it is known.
    pub(super) fn known(&self, caller: &Caller, name: String) -> (Place, Option<Response>) {
        let key = (caller.project.clone(), name);
        let place = Place { key, version: caller.seen_in, at: self.parts.clock.now() };
        let found = self.replies.find(&place).map(sent);
        (place, found)
    }

    /// Sends a reply and keeps it.
    pub(super) fn keep(&self, place: Place, body: &Value) -> Answer {
        let body = serde_json::to_vec(body).map(Bytes::from).map_err(Refused::internal)?;
        self.replies.keep(place, body.clone());
        Ok(sent(body))
    }
}

fn sent(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_good_for_its_version_and_a_second() {
        let replies = Replies::default();
        let start = Timestamp::UNIX_EPOCH;
        let place = |name: &str, version, millis| Place {
            key: (ProjectId::new("p").unwrap(), name.to_owned()),
            version,
            at: start + SignedDuration::from_millis(millis),
        };
        let body = Bytes::from_static(b"{}");
        replies.keep(place("a", Some(1), 0), body.clone());
        assert_eq!(replies.find(&place("a", Some(1), 0)), Some(body.clone()));
        assert_eq!(replies.find(&place("a", Some(1), 999)), Some(body.clone()));
        for other in [
            place("a", Some(1), 1000),
            place("a", Some(1), -1),
            place("a", Some(2), 0),
            place("a", None, 0),
            place("b", Some(1), 0),
        ] {
            assert_eq!(replies.find(&other), None, "{other:?}");
        }
        replies.keep(place("a", None, 0), Bytes::new());
        assert_eq!(replies.find(&place("a", Some(1), 0)), Some(body));
        let large = Bytes::from(vec![b' '; BYTES]);
        replies.keep(place("large", Some(1), 0), large);
        assert_eq!(replies.find(&place("large", Some(1), 0)), None);
        // Many do not fill the memory.
        for number in 0..100 {
            let name = number.to_string();
            replies.keep(place(&name, Some(1), 0), Bytes::from(vec![b' '; BYTES / 2]));
        }
        assert!(replies.0.lock().unwrap().kept.len() < 65);
        assert!(replies.find(&place("99", Some(1), 0)).is_some());
    }
}
