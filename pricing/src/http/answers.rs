//! Quotes of this second, as they were sent.
//!
//! A quote holds for an instant, a whole second, and one state of the prices. So whoever asks the same within it gets
//! the same bytes, and making them once is enough: a team that starts fifty tasks asks one question fifty times.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::body::Bytes;
use jiff::Timestamp;
use runwhere_model::Lang;

use crate::catalogue::Audience;

/// Bytes that are held at most.
const MOST: usize = 8 << 20;
/// Most answers take less.
const USUAL: usize = 8 << 10;

/// What was asked, word for word, and by whom.
pub(super) type Question = (Lang, Audience, Bytes);

#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    state_id: String,
    as_of: Timestamp,
    /// Who asks chooses what is hashed: with the standard library's hash nobody can make it slow for others.
    replies: HashMap<Question, Bytes>,
    bytes: usize,
}

/// What is held for a question.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Given {
    /// The answer, which was given before.
    Before(Bytes),
    /// Nothing, and the answer can be held.
    Not,
    /// Nothing, and there is no room for more.
    Full,
}

impl Answers {
    /// The answer to a question of a state and an instant, where it was given before.
    pub(super) fn get(&self, state_id: &str, as_of: Timestamp, question: &Question) -> Given {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_of != as_of || held.state_id != state_id {
            return Given::Not;
        }
        match held.replies.get(question) {
            Some(reply) => Given::Before(reply.clone()),
            None if held.bytes + USUAL > MOST => Given::Full,
            None => Given::Not,
        }
    }

    /// Holds an answer, and forgets those of other instants.
    pub(super) fn put(&self, state_id: &str, as_of: Timestamp, question: &Question, reply: &Bytes) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_of != as_of || held.state_id != state_id {
            held.replies.clear();
            held.bytes = 0;
            held.as_of = as_of;
            state_id.clone_into(&mut held.state_id);
        }
        let size = reply.len() + question.2.len();
        if held.bytes + size > MOST {
            return;
        }
        held.bytes += size;
        drop(held);
        // The text that came is a part of all that its connection read, and the answer lies in memory that others
        // wait for.
        let (lang, audience, text) = question;
        let question = (*lang, *audience, Bytes::copy_from_slice(text));
        let reply = Bytes::copy_from_slice(reply);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_of == as_of && held.state_id == state_id {
            held.replies.insert(question, reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_state_instant_language_and_caller() {
        let answers = Answers::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let asked = |lang, audience| (lang, audience, Bytes::from_static(b"{}"));
        let question = asked(Lang::En, Audience::Public);
        answers.put("a", at(1), &question, &Bytes::from_static(b"one"));
        let one = Given::Before(Bytes::from_static(b"one"));
        assert_eq!(answers.get("a", at(1), &question), one);
        assert_eq!(answers.get("b", at(1), &question), Given::Not);
        assert_eq!(answers.get("a", at(2), &question), Given::Not);
        assert_eq!(answers.get("a", at(1), &asked(Lang::Zh, Audience::Public)), Given::Not);
        assert_eq!(answers.get("a", at(1), &asked(Lang::En, Audience::Member)), Given::Not);
        answers.put("a", at(2), &asked(Lang::Zh, Audience::Public), &Bytes::from_static(b"two"));
        assert_eq!(answers.get("a", at(1), &question), Given::Not, "forgotten");
        let large = Bytes::from(vec![b' '; MOST]);
        answers.put("a", at(2), &question, &large);
        assert_eq!(answers.get("a", at(2), &question), Given::Not, "too large to hold");
        let nearly = Bytes::from(vec![b' '; MOST - USUAL]);
        answers.put("a", at(2), &question, &nearly);
        assert_eq!(answers.get("a", at(2), &question), Given::Before(nearly));
        let other = asked(Lang::En, Audience::Member);
        assert_eq!(answers.get("a", at(2), &other), Given::Full);
        assert_eq!(answers.get("a", at(3), &other), Given::Not, "the next second has room");
    }
}
