//! The languages of user-facing sentences.

use serde::{Deserialize, Serialize};

/// A language in which sentences are made, at the edge only: what is stored is a code with parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lang {
    /// Chinese, the default (also for an unset or `C` locale).
    #[default]
    Zh,
    /// English.
    En,
}

impl Lang {
    /// Reads a language tag or POSIX locale such as `en`, `en-US` or `zh_CN.UTF-8`.
    ///
    /// `None` for a language in which there are no sentences; the caller decides what to fall back to.
    pub fn from_tag(tag: &str) -> Option<Self> {
        let primary = tag.trim().split(['-', '_', '.', '@']).next()?;
        if primary.eq_ignore_ascii_case("zh") {
            Some(Self::Zh)
        } else if primary.eq_ignore_ascii_case("en") {
            Some(Self::En)
        } else {
            None
        }
    }

    /// The primary language tag: `zh` or `en`.
    pub fn tag(self) -> &'static str {
        match self {
            Self::Zh => "zh",
            Self::En => "en",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lang;

    #[test]
    fn tags_and_locales_are_read() {
        for (tag, lang) in [
            ("en", Some(Lang::En)),
            ("en_US.UTF-8", Some(Lang::En)),
            ("EN-gb", Some(Lang::En)),
            ("zh-Hans", Some(Lang::Zh)),
            (" zh_CN ", Some(Lang::Zh)),
            ("C", None),
            ("english", None),
            ("", None),
        ] {
            assert_eq!(Lang::from_tag(tag), lang, "{tag}");
        }
    }
}
