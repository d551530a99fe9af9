//! Every sentence that a person reads, in Chinese and in English.
//!
//! A text is a function of the module that has its topic; the macro that makes them refuses to compile with one language missing.
//! The texts of help pages are in [`HELP`]. Chinese texts are the product documents' own where those have one.

mod admin;
mod common;
pub mod el;
mod help;
mod jobs;
mod login;
mod macros;
mod price;
mod serving;
mod synced;
mod text;

pub use admin::*;
pub use common::*;
#[cfg(test)]
pub(crate) use help::checks;
pub use help::{HELP, HelpEntry, Table, translate, translate_with};
pub(crate) use help::{row, with};
pub use jobs::*;
pub use login::*;
pub use price::*;
pub use runwhere_model::Lang;
pub use serving::*;
pub use synced::*;
pub use text::Text;

/// What a process's locale means: English for `en_*`, Chinese for everything else, `C` and nothing included.
#[must_use]
pub fn lang_of_locale(locale: Option<&str>) -> Lang {
    match locale.and_then(Lang::from_tag) {
        Some(Lang::En) => Lang::En,
        _ => Lang::Zh,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> Vec<(&'static str, &'static str, &'static str)> {
        [
            admin::ALL,
            common::ALL,
            el::ALL,
            jobs::ALL,
            login::ALL,
            price::ALL,
            serving::ALL,
            synced::ALL,
        ]
        .concat()
    }

    fn placeholders(text: &str) -> BTreeSet<&str> {
        text.split('{').skip(1).filter_map(|rest| rest.split(['}', ':']).next()).collect()
    }

    #[test]
    fn both_languages_say_the_same_things() {
        for (name, zh, en) in all() {
            assert_eq!(placeholders(zh), placeholders(en), "{name}");
            assert!(!zh.trim().is_empty() && !en.trim().is_empty(), "{name}");
        }
    }

    #[test]
    fn english_is_english_and_chinese_is_chinese() {
        let is_cjk = |c: char| matches!(c, '\u{4e00}'..='\u{9fff}' | '\u{ff00}'..='\u{ffef}');
        for (name, zh, en) in all() {
            assert!(!en.chars().any(is_cjk), "{name}");
            let words =
                zh.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
            let words = words.collect::<String>();
            let words = words.chars().any(|c| c.is_ascii_alphabetic());
            assert!(zh.chars().any(is_cjk) || !words || zh == en, "{name}");
        }
    }

    #[test]
    fn a_locale_other_than_english_means_chinese() {
        for (locale, lang) in [
            (Some("en_US.UTF-8"), Lang::En),
            (Some("en"), Lang::En),
            (Some("C"), Lang::Zh),
            (Some("C.UTF-8"), Lang::Zh),
            (Some("POSIX"), Lang::Zh),
            (Some("de_DE.UTF-8"), Lang::Zh),
            (Some("zh_CN.UTF-8"), Lang::Zh),
            (Some(""), Lang::Zh),
            (None, Lang::Zh),
        ] {
            assert_eq!(lang_of_locale(locale), lang, "{locale:?}");
        }
    }
}
