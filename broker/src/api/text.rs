//! Sentences in both languages, made at the edge.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_LANGUAGE;
use runwhere_model::Lang;

/// A sentence in both languages.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Words {
    /// Chinese.
    pub zh: String,
    /// English.
    pub en: String,
}

impl Words {
    /// A sentence.
    pub fn new(zh: impl Into<String>, en: impl Into<String>) -> Self {
        Self { zh: zh.into(), en: en.into() }
    }

    /// The sentence with the thing before it that it is about.
    #[must_use]
    pub fn about(&self, thing: impl std::fmt::Display) -> Self {
        let Self { zh, en } = self;
        Self { zh: format!("{thing}：{zh}"), en: format!("{thing}: {en}") }
    }

    /// The sentence that goes on with another one.
    #[must_use]
    pub fn then(&self, rest: &Self) -> Self {
        Self { zh: format!("{}{}", self.zh, rest.zh), en: format!("{}{}", self.en, rest.en) }
    }

    /// The same sentence in every language, from something that makes one for each.
    pub fn from_fn(make: impl Fn(Lang) -> String) -> Self {
        Self { zh: make(Lang::Zh), en: make(Lang::En) }
    }

    /// The sentence in one language.
    pub fn say(&self, lang: Lang) -> &str {
        match lang {
            Lang::Zh => &self.zh,
            Lang::En => &self.en,
        }
    }
}

/// A sentence written in both languages, with the values that a format string names; does not
/// compile unless one text is Chinese, the other is not, and both name as many values.
macro_rules! words {
    ($zh:literal, $en:literal $(, $name:ident = $value:expr)* $(,)?) => {{
        const {
            use $crate::api::text::{holes, is_chinese};
            assert!(is_chinese($zh) && !is_chinese($en), "first Chinese, then English");
            assert!(holes($zh) == holes($en), "both languages name the same values");
        }
        $crate::api::text::Words::new(
            format!($zh $(, $name = $value)*),
            format!($en $(, $name = $value)*),
        )
    }};
}
pub(crate) use words;

/// Whether a text holds Chinese characters.
pub(crate) const fn is_chinese(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        // What the unified ideographs begin with, and nothing else does.
        if matches!(bytes[at], 0xe4..=0xe9) {
            return true;
        }
        at += 1;
    }
    false
}

/// How many values a format string names.
pub(crate) const fn holes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut found) = (0, 0);
    while at < bytes.len() {
        if bytes[at] == b'{' {
            found += 1;
        }
        at += 1;
    }
    found
}

/// The language a caller asks for; Chinese where it names none that we speak.
pub fn language_of(headers: &HeaderMap) -> Lang {
    let Some(wanted) = headers.get(ACCEPT_LANGUAGE).and_then(|v| v.to_str().ok()) else {
        return Lang::default();
    };
    // Tags in falling order of weight; equal weights keep the order they were written in.
    let mut best: Option<(u16, Lang)> = None;
    for part in wanted.split(',').take(32) {
        let mut pieces = part.split(';');
        let Some(lang) = pieces.next().and_then(Lang::from_tag) else { continue };
        let weight = pieces.find_map(|p| p.trim().strip_prefix("q=")).map_or(1000, permille);
        if weight > 0 && best.is_none_or(|(heaviest, _)| weight > heaviest) {
            best = Some((weight, lang));
        }
    }
    best.map_or(Lang::default(), |(_, lang)| lang)
}

/// A weight such as `0.8` in thousandths; 0 where it is none.
fn permille(text: &str) -> u16 {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
    let value = whole.parse::<u16>().ok().zip(fraction.parse::<u16>().ok());
    value
        .map_or(0, |(whole, fraction)| whole.saturating_mul(1000).saturating_add(fraction))
        .min(1000)
}

/// A text for a client that renders square brackets as markup and control characters as they are:
/// brackets become parentheses, control characters are dropped.
pub fn plain(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || *c == '\n')
        .map(|c| match c {
            '[' => '(',
            ']' => ')',
            other => other,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_known_language_wins_and_chinese_is_the_default() {
        for (header, lang) in [
            (None, Lang::Zh),
            (Some("en"), Lang::En),
            (Some("fr, en;q=0.3, zh;q=0.9"), Lang::Zh),
            (Some("fr-FR, en-GB;q=0.7, *;q=0.1"), Lang::En),
            (Some("zh;q=0, en;q=0.001"), Lang::En),
            (Some("en;q=zero"), Lang::Zh),
            (Some(""), Lang::Zh),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(text) = header {
                headers.insert(ACCEPT_LANGUAGE, text.parse().unwrap());
            }
            assert_eq!(language_of(&headers), lang, "{header:?}");
        }
    }

    #[test]
    fn a_sentence_is_written_once_with_its_values() {
        let count = 3;
        let words = words!("{count} 个 {what}", "{count} of {what}", what = "x");
        assert_eq!((words.zh.as_str(), words.en.as_str()), ("3 个 x", "3 of x"));
        let about = words.about("spec.gpus");
        assert_eq!(
            (about.say(Lang::Zh), about.say(Lang::En)),
            ("spec.gpus：3 个 x", "spec.gpus: 3 of x")
        );
        assert!(is_chinese("必须") && is_chinese("a 龥") && !is_chinese("é — “x” 😀：，"));
    }

    #[test]
    fn markup_and_terminal_codes_do_not_pass() {
        assert_eq!(plain("a [/x] \u{1b}[31mred\u{7}"), "a (/x) (31mred");
    }
}
