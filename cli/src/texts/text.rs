//! One sentence in both languages.

use super::Lang;

/// One sentence in both languages; the printer picks one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    zh: String,
    en: String,
}

impl Text {
    /// A sentence from its two translations.
    pub fn new(zh: impl Into<String>, en: impl Into<String>) -> Self {
        Self { zh: zh.into(), en: en.into() }
    }

    /// A text that is the same in both languages, such as a server's own message.
    pub fn same(text: impl Into<String>) -> Self {
        let zh = text.into();
        Self { en: zh.clone(), zh }
    }

    /// The sentence in `lang`.
    #[must_use]
    pub fn get(&self, lang: Lang) -> &str {
        match lang {
            Lang::Zh => &self.zh,
            Lang::En => &self.en,
        }
    }
}
