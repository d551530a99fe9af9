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
    fn markup_and_terminal_codes_do_not_pass() {
        assert_eq!(plain("a [/x] \u{1b}[31mred\u{7}"), "a (/x) (31mred");
    }
}
