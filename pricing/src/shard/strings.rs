//! Texts, each kept once.

use std::collections::HashMap;

/// The number of a text; 0 is the empty text.
pub(crate) type Symbol = u32;

/// All texts of a shard in one piece.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Strings {
    text: String,
    ends: Vec<u32>,
}

impl Strings {
    /// The text of a symbol; empty for one that is none of these.
    pub(crate) fn get(&self, symbol: Symbol) -> &str {
        let at = symbol as usize;
        let Some(end) = self.ends.get(at) else { return "" };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start as usize..*end as usize).unwrap_or("")
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn parts(&self) -> (&str, &[u32]) {
        (&self.text, &self.ends)
    }

    /// Texts from a file; `None` when the ends do not cut the text between characters.
    pub(crate) fn restore(text: String, ends: Vec<u32>) -> Option<Self> {
        let sound = ends.is_sorted() && ends.iter().all(|end| text.is_char_boundary(*end as usize));
        let whole = ends.last().is_none_or(|end| *end as usize == text.len());
        (sound && whole && ends.first() == Some(&0)).then_some(Self { text, ends })
    }
}

/// Collects texts.
#[derive(Debug)]
pub(crate) struct Collector {
    strings: Strings,
    known: HashMap<Box<str>, Symbol>,
}

impl Collector {
    pub(crate) fn new() -> Self {
        let mut collector = Self { strings: Strings::default(), known: HashMap::new() };
        collector.add("");
        collector
    }

    /// The symbol of a text. Texts beyond 4 GiB in all are the empty text.
    pub(crate) fn add(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.known.get(text) {
            return *symbol;
        }
        let Ok(end) = u32::try_from(self.strings.text.len() + text.len()) else { return 0 };
        let symbol = u32::try_from(self.strings.ends.len()).unwrap_or(0);
        self.strings.text.push_str(text);
        self.strings.ends.push(end);
        self.known.insert(text.into(), symbol);
        symbol
    }

    pub(crate) fn finish(mut self) -> Strings {
        self.strings.text.shrink_to_fit();
        self.strings.ends.shrink_to_fit();
        self.strings
    }
}
