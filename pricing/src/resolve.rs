//! From what a person wrote (a key or a code) to one offer.

use std::sync::Arc;

use runwhere_model::{Lang, OfferCode, OfferKey};

use crate::catalogue::{Catalogue, Entry};

/// Why a text names no offer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ResolveError {
    /// Neither a key nor a code.
    #[error("not an offer: {0}")]
    Malformed(String),
    /// No offer has this key or code.
    #[error("no offer is named {0}")]
    Unknown(String),
    /// The offer of this code is gone; the code is given to no other.
    #[error("the offer of code {code} ({key}) is no longer there")]
    Withdrawn {
        /// The code.
        code: OfferCode,
        /// What it named.
        key: OfferKey,
    },
    /// Several offers differ from the text in letter case only.
    #[error("{text} may mean any of {} offers", keys.len())]
    Ambiguous {
        /// What was written.
        text: String,
        /// What it may mean.
        keys: Vec<OfferKey>,
    },
}

impl ResolveError {
    /// The sentence for people, with the remedy.
    pub fn text(&self, lang: Lang) -> String {
        match (self, lang) {
            (Self::Malformed(why), Lang::Zh) => format!(
                "不是有效的 Offer：{why}。请从 runwhere price list 复制 SKU KEY 或 8 位大写字母的 CODE"
            ),
            (Self::Malformed(why), Lang::En) => format!(
                "Not an offer: {why}. Copy a SKU KEY or an eight-letter CODE from runwhere price list"
            ),
            (Self::Unknown(text), Lang::Zh) => {
                format!("没有名为 {text} 的 Offer，请用 runwhere price list 查看可用 SKU KEY")
            }
            (Self::Unknown(text), Lang::En) => {
                format!("No offer is named {text}; runwhere price list shows those there are")
            }
            (Self::Withdrawn { code, key }, Lang::Zh) => {
                format!("代码 {code} 对应的 Offer（{key}）已下架，请重新选择")
            }
            (Self::Withdrawn { code, key }, Lang::En) => {
                format!("The offer of code {code} ({key}) is no longer there; choose another")
            }
            (Self::Ambiguous { text, keys }, Lang::Zh) => {
                format!("{text} 可能指多个 Offer：{}。请写完整的 SKU KEY", join(keys))
            }
            (Self::Ambiguous { text, keys }, Lang::En) => {
                format!("{text} may mean several offers: {}. Write the exact key", join(keys))
            }
        }
    }
}

fn join(keys: &[OfferKey]) -> String {
    keys.iter().take(3).map(OfferKey::to_string).collect::<Vec<_>>().join(", ")
}

/// Texts longer than any key are not echoed.
const LONGEST: usize = 1024;

impl Catalogue {
    /// The one offer that a key or a code names; refused when there is none or more than one.
    ///
    /// Some clouds write their types in any letter case: a key that differs from exactly one offer
    /// in case only is that offer.
    pub fn resolve(&self, text: &str) -> Result<&Arc<Entry>, ResolveError> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(ResolveError::Malformed("the text is too long".to_owned()));
        }
        if let Ok(code) = text.parse::<OfferCode>() {
            return self.by_code(code).ok_or_else(|| match self.withdrawn(code) {
                Some(key) => ResolveError::Withdrawn { code, key: key.clone() },
                None => ResolveError::Unknown(code.to_string()),
            });
        }
        let key: OfferKey = text.parse().map_err(|error: runwhere_model::KeyError| {
            ResolveError::Malformed(error.to_string())
        })?;
        if let Some(entry) = self.get(&key) {
            return Ok(entry);
        }
        let printed = key.to_string();
        let mut alike = self
            .entries()
            .iter()
            .filter(|entry| entry.offer.key.to_string().eq_ignore_ascii_case(&printed));
        let Some(entry) = alike.next() else { return Err(ResolveError::Unknown(printed)) };
        let others: Vec<OfferKey> = alike.map(|other| other.offer.key.clone()).collect();
        if others.is_empty() {
            return Ok(entry);
        }
        let keys = std::iter::once(entry.offer.key.clone()).chain(others).collect();
        Err(ResolveError::Ambiguous { text: printed, keys })
    }
}
