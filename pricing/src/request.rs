//! What is asked for, as it arrives, and what is wrong with it.

use std::borrow::Cow;

use runwhere_model::{BillingModel, GpuCount, Lang, Stock};
use rust_decimal::Decimal;

use crate::rows::plain;

/// Characters of an unknown name that are shown.
const MOST_SHOWN: usize = 60;

/// Rows per page when nothing is said; the published client asks for these.
pub const DEFAULT_LIMIT: usize = 20;
/// Rows per page at most.
pub const MAX_LIMIT: usize = 500;
/// Recommendations at most.
pub const MAX_TOP_N: usize = 100;

/// Hours of a run whose cost is asked for, at most: ten years.
pub const MOST_HOURS: u32 = 87_600;

/// Which offers to list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListRequest {
    /// A model's id, name or alias, or a provider's own name of a model unknown here.
    pub gpu_model: Option<String>,
    /// Only this provider.
    pub provider: Option<String>,
    /// Only this billing model.
    pub billing_model: Option<BillingModel>,
    /// Only this region.
    pub region: Option<String>,
    /// Only this zone.
    pub zone: Option<String>,
    /// Only offers whose source states this two-letter country.
    pub country: Option<String>,
    /// Only this number of GPUs (`8`, `1/6`).
    pub gpu_count: Option<GpuCount>,
    /// At least this much main memory, in MiB.
    pub min_memory_mib: Option<u64>,
    /// At most this price per hour in CNY, exact; unknown prices do not pass.
    pub max_price: Option<Decimal>,
    /// Only what has this stock.
    pub stock: Option<Stock>,
    /// Only prices read within this many seconds; prices without a date do not pass.
    pub max_age_seconds: Option<i64>,
    /// Only prices that are not older than prices of their kind may be.
    pub fresh_only: bool,
    /// Other forms than on demand and spot too (blocks, hosts, Windows).
    pub all_forms: bool,
    /// Those that can be had (true), or those that are sold out or not offered (false).
    pub active: bool,
    /// Only what can be launched now.
    pub launchable_only: bool,
    /// Rows per page, 1 to 500.
    pub limit: usize,
    /// Rows to skip.
    pub offset: usize,
}

impl Default for ListRequest {
    fn default() -> Self {
        Self {
            gpu_model: None,
            provider: None,
            billing_model: None,
            region: None,
            zone: None,
            country: None,
            gpu_count: None,
            min_memory_mib: None,
            max_price: None,
            stock: None,
            max_age_seconds: None,
            fresh_only: false,
            all_forms: false,
            active: true,
            launchable_only: false,
            limit: DEFAULT_LIMIT,
            offset: 0,
        }
    }
}

/// What is wrong with a request.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {}", problem.text(Lang::En))]
pub struct RequestError {
    /// The field or parameter; where it is unknown, its name as far as it can be shown.
    pub field: Cow<'static, str>,
    /// What is wrong with it.
    pub problem: Problem,
}

/// A kind of mistake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Problem {
    /// Not a JSON object.
    NotAnObject,
    /// A field stands twice.
    Twice,
    /// No whole number of this range.
    Whole {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// No text, or an empty one.
    Text,
    /// Neither true nor false.
    TrueOrFalse,
    /// No positive exact decimal.
    PositiveDecimal,
    /// None of these words.
    OneOf(&'static str),
    /// Too large a body.
    TooLarge,
    /// No field or parameter here: ignored, a ceiling with a typing error in its name would be no ceiling.
    Unknown(&'static [&'static str]),
}

impl Problem {
    /// The sentence after the field's name, with the remedy.
    pub fn text(self, lang: Lang) -> String {
        match (self, lang) {
            (Self::NotAnObject, Lang::Zh) => "请求体必须是 JSON 对象".to_owned(),
            (Self::NotAnObject, Lang::En) => "must be a JSON object".to_owned(),
            (Self::Twice, Lang::Zh) => "字段重复".to_owned(),
            (Self::Twice, Lang::En) => "a field stands twice".to_owned(),
            (Self::Whole { min, max }, Lang::Zh) => format!("必须是 {min} 到 {max} 的整数"),
            (Self::Whole { min, max }, Lang::En) => {
                format!("must be a whole number from {min} to {max}")
            }
            (Self::Text, Lang::Zh) => "必须是非空字符串".to_owned(),
            (Self::Text, Lang::En) => "must be text that is not empty".to_owned(),
            (Self::TrueOrFalse, Lang::Zh) => "必须是 true 或 false".to_owned(),
            (Self::TrueOrFalse, Lang::En) => "must be true or false".to_owned(),
            (Self::PositiveDecimal, Lang::Zh) => "必须是正的十进制数，例如 36.44".to_owned(),
            (Self::PositiveDecimal, Lang::En) => {
                "must be a positive decimal number such as 36.44".to_owned()
            }
            (Self::OneOf(words), Lang::Zh) => format!("必须是 {words} 之一"),
            (Self::OneOf(words), Lang::En) => format!("must be one of {words}"),
            (Self::TooLarge, Lang::Zh) => "请求体过大".to_owned(),
            (Self::TooLarge, Lang::En) => "is too large".to_owned(),
            (Self::Unknown([]), Lang::Zh) => "未知参数，此地址不接受参数".to_owned(),
            (Self::Unknown([]), Lang::En) => {
                "is not known here; there are no parameters".to_owned()
            }
            (Self::Unknown(known), Lang::Zh) => format!("未知，可用：{}", known.join("、")),
            (Self::Unknown(known), Lang::En) => {
                format!("is not known here; known are {}", known.join(", "))
            }
        }
    }
}

impl RequestError {
    /// A mistake in a field.
    pub fn new(field: &'static str, problem: Problem) -> Self {
        Self { field: Cow::Borrowed(field), problem }
    }

    /// A name that none of the known ones is.
    pub(crate) fn unknown(name: &str, known: &'static [&'static str]) -> Self {
        let shown: String = plain(name).chars().take(MOST_SHOWN).collect();
        Self { field: Cow::Owned(shown), problem: Problem::Unknown(known) }
    }

    /// The sentence.
    pub fn text(&self, lang: Lang) -> String {
        match lang {
            Lang::Zh => format!("{}：{}", self.field, self.problem.text(lang)),
            Lang::En => format!("{}: {}", self.field, self.problem.text(lang)),
        }
    }
}

/// Refuses parameters that are none of the known ones, or that stand twice: ignored, a limit would be none.
pub(crate) fn known_once(
    parameters: &[(String, String)],
    known: &'static [&'static str],
) -> Result<(), RequestError> {
    for (at, (name, _)) in parameters.iter().enumerate() {
        let Some(known) = known.iter().find(|known| *known == name) else {
            return Err(RequestError::unknown(name, known));
        };
        if parameters[..at].iter().any(|(before, _)| before == name) {
            return Err(RequestError::new(known, Problem::Twice));
        }
    }
    Ok(())
}
