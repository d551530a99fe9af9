//! From what a person wrote (a key or a code) to one offer.

use std::sync::Arc;

use runwhere_model::{Lang, OfferCode, OfferKey};

use crate::catalogue::{Catalogue, Entry};
use crate::shard::Shard;

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
    pub fn resolve(&self, text: &str) -> Result<Arc<Entry>, ResolveError> {
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
        let mut alike = self.alike(&key);
        match alike.len() {
            0 => Err(ResolveError::Unknown(key.to_string())),
            1 => Ok(alike.remove(0)),
            _ => Err(ResolveError::Ambiguous {
                text: key.to_string(),
                keys: alike.iter().map(|entry| entry.offer.key.clone()).collect(),
            }),
        }
    }

    /// The offers whose keys differ from a key in letter case only.
    fn alike(&self, key: &OfferKey) -> Vec<Arc<Entry>> {
        let same = |a: Option<&str>, b: Option<&str>| match (a, b) {
            (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
            (a, b) => a == b,
        };
        let of_provider = self
            .shards()
            .iter()
            .filter(|shard| shard.provider().as_str().eq_ignore_ascii_case(key.provider.as_str()));
        let in_shard = |shard: &Arc<Shard>| {
            let shard = Arc::clone(shard);
            let places: Vec<u32> = (0..)
                .zip(shard.rows())
                .filter(|(_, row)| {
                    let (region, zone, billing, instance_type) = shard.parts(row);
                    billing == key.billing_model
                        && instance_type.eq_ignore_ascii_case(&key.instance_type)
                        && same(region, key.region.as_deref())
                        && same(zone, key.zone.as_deref())
                })
                .map(|(at, _)| at)
                .collect();
            places.into_iter().map(move |at| shard.entry(at))
        };
        of_provider.flat_map(in_shard).collect()
    }
}
