//! The code book: which eight letters name which offer, for ever.

use std::collections::BTreeMap;

use runwhere_model::{OfferCode, OfferKey};

/// Codes that are not free although no present offer has them, and codes that are not the first
/// choice of their key. A code is assigned once and never given to another key, also when its offer
/// is gone: an old code must not launch something else.
///
/// The usual case needs no entry: a present offer with the first candidate of its key.
#[derive(Clone, Debug, Default)]
pub struct CodeBook {
    /// Keys with a code of their own, be they present or not.
    by_key: BTreeMap<OfferKey, OfferCode>,
    by_code: BTreeMap<OfferCode, OfferKey>,
}

impl CodeBook {
    /// An empty book.
    pub fn new() -> Self {
        Self::default()
    }

    /// A book that was kept. Entries whose key or code stands twice keep the first.
    pub fn restore(entries: impl IntoIterator<Item = (OfferKey, OfferCode)>) -> Self {
        let mut book = Self::new();
        for (key, code) in entries {
            book.keep(key, code);
        }
        book
    }

    /// All entries, by key, for keeping.
    pub fn entries(&self) -> impl Iterator<Item = (&OfferKey, OfferCode)> {
        self.by_key.iter().map(|(key, code)| (key, *code))
    }

    /// Remembers what a key's code is, for when its offer is gone. Returns whether that is news.
    pub fn keep(&mut self, key: OfferKey, code: OfferCode) -> bool {
        if self.by_key.contains_key(&key) || self.by_code.contains_key(&code) {
            return false;
        }
        self.by_code.insert(code, key.clone());
        self.by_key.insert(key, code);
        true
    }

    /// A first candidate that the book has nothing to say about.
    pub(crate) fn quick(&self, first: OfferCode) -> Option<OfferCode> {
        (!self.by_code.contains_key(&first)).then_some(first)
    }

    /// The code of a key: the one it has, or the first of its candidates that is free for `free`
    /// (present offers) and for this book.
    pub fn assign(&mut self, key: &OfferKey, free: &dyn Fn(OfferCode) -> bool) -> OfferCode {
        self.assign_with(key, free, OfferCode::candidate)
    }

    fn assign_with(
        &mut self,
        key: &OfferKey,
        free: &dyn Fn(OfferCode) -> bool,
        candidate: impl Fn(&OfferKey, u32) -> OfferCode,
    ) -> OfferCode {
        if let Some(code) = self.by_key.get(key) {
            return *code;
        }
        let code = (0..=u32::MAX)
            .map(|round| candidate(key, round))
            .find(|code| free(*code) && !self.by_code.contains_key(code))
            .expect("there are far more codes than offers");
        if code != candidate(key, 0) {
            self.keep(key.clone(), code);
        }
        code
    }

    /// The key that a code was or is kept for.
    pub fn key_of(&self, code: OfferCode) -> Option<&OfferKey> {
        self.by_code.get(&code)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.by_code.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_code.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(instance_type: &str) -> OfferKey {
        format!("vast/-/-/spot/{instance_type}").parse().unwrap()
    }

    #[test]
    fn a_collision_takes_the_next_round_and_both_keep_their_codes() {
        let mut book = CodeBook::new();
        let same: OfferCode = "AAAAAAAA".parse().unwrap();
        let same_first = |key: &OfferKey, round: u32| match round {
            0 => same,
            _ => OfferCode::candidate(key, round),
        };
        let first = book.assign_with(&key("a"), &|_| true, same_first);
        assert_eq!(first, same);
        let second = book.assign_with(&key("b"), &|code| code != first, same_first);
        assert_eq!(second, OfferCode::candidate(&key("b"), 1));
        // The offer goes: its code stays its own, and keeping the book changes nothing.
        book.keep(key("a"), first);
        let mut kept = CodeBook::restore(book.entries().map(|(key, code)| (key.clone(), code)));
        assert_eq!(kept.assign_with(&key("b"), &|_| true, same_first), second);
        assert_eq!(kept.assign_with(&key("a"), &|_| true, same_first), first);
        assert_ne!(kept.assign_with(&key("c"), &|_| true, same_first), first);
        assert_eq!(kept.key_of(first), Some(&key("a")));
    }
}
