//! The code book: which eight letters name which offer, for ever.

use std::collections::BTreeMap;

use runwhere_model::{OfferCode, OfferKey};

/// Assigned codes. A code is assigned once and never given to another key, also when its offer is
/// gone: an old code must not launch something else.
#[derive(Clone, Debug, Default)]
pub struct CodeBook {
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
            if !book.by_key.contains_key(&key) && !book.by_code.contains_key(&code) {
                book.enter(key, code);
            }
        }
        book
    }

    /// All assignments, by key, for keeping.
    pub fn entries(&self) -> impl Iterator<Item = (&OfferKey, OfferCode)> {
        self.by_key.iter().map(|(key, code)| (key, *code))
    }

    /// The code of a key: the one it has, or the first of its candidates that nobody has.
    pub fn assign(&mut self, key: &OfferKey) -> OfferCode {
        self.assign_with(key, OfferCode::candidate)
    }

    fn assign_with(
        &mut self,
        key: &OfferKey,
        candidate: impl Fn(&OfferKey, u32) -> OfferCode,
    ) -> OfferCode {
        if let Some(code) = self.by_key.get(key) {
            return *code;
        }
        let code = (0..=u32::MAX)
            .map(|round| candidate(key, round))
            .find(|code| !self.by_code.contains_key(code))
            .expect("there are far more codes than offers");
        self.enter(key.clone(), code);
        code
    }

    /// The key that has a code, be its offer gone or not.
    pub fn key_of(&self, code: OfferCode) -> Option<&OfferKey> {
        self.by_code.get(&code)
    }

    fn enter(&mut self, key: OfferKey, code: OfferCode) {
        self.by_code.insert(code, key.clone());
        self.by_key.insert(key, code);
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
        let same_first = |key: &OfferKey, round: u32| match round {
            0 => "AAAAAAAA".parse().unwrap(),
            _ => OfferCode::candidate(key, round),
        };
        let first = book.assign_with(&key("a"), same_first);
        let second = book.assign_with(&key("b"), same_first);
        assert_eq!(first.as_str(), "AAAAAAAA");
        assert_eq!(second, OfferCode::candidate(&key("b"), 1));
        // The other order of questions changes nothing any more, nor does keeping the book.
        let mut kept = CodeBook::restore(book.entries().map(|(key, code)| (key.clone(), code)));
        assert_eq!(kept.assign_with(&key("b"), same_first), second);
        assert_eq!(kept.assign_with(&key("a"), same_first), first);
        assert_eq!(kept.key_of(first), Some(&key("a")));
    }
}
