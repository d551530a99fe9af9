//! Why an offer was recommended or passed over: codes with parameters, sentences at the edge.

use runwhere_model::{Lang, ProviderId};
use serde::{Deserialize, Serialize};

use crate::catalogue::NotLaunchable;

/// One thing that speaks for, against or about a recommended offer.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "params", rename_all = "snake_case")]
pub enum Reason {
    /// The lowest price of all that can be launched.
    CheapestLaunchable {
        /// Of how many.
        of: usize,
    },
    /// The lowest price of all that match; nothing can be launched.
    CheapestListed {
        /// Of how many.
        of: usize,
    },
    /// It can be launched at once.
    Launchable {
        /// By which connected provider.
        provider: ProviderId,
    },
    /// It cannot be launched now.
    NotLaunchable(NotLaunchable),
    /// The machine pretends to have these GPUs.
    Pretended,
    /// Spot: cheaper than on demand, may be taken back.
    SpotSaves {
        /// Whole percent.
        percent: u32,
    },
    /// Spot without a known on-demand price; may be taken back.
    Spot,
    /// Spot at the on-demand price.
    SpotNoSaving,
    /// Spot dearer than on demand.
    SpotAboveOnDemand,
    /// No price is known.
    PriceUnknown,
    /// The price is in a currency without a rate.
    NoRate {
        /// Which currency.
        currency: String,
    },
    /// Converted with an old rate.
    OldRate {
        /// Its day.
        date: String,
        /// Its age.
        age_days: i64,
    },
    /// Nobody knows how old the price is.
    AgeUnknown,
    /// The price is of that day.
    PriceOf {
        /// The day.
        date: String,
    },
    /// The source names no currency.
    CurrencyAssumed {
        /// The one taken.
        currency: String,
    },
    /// A "from" price.
    FromPrice,
    /// A median of several offers.
    Statistical,
    /// The least bid.
    Floor,
    /// Raised for comparison by the share of machines that are taken back.
    ReclaimRisk {
        /// Percent, as text.
        percent: String,
    },
    /// These sources could not be read (whole): a lower price may exist there.
    SourcesIncomplete {
        /// Which.
        providers: String,
    },
}

impl Reason {
    /// The sentence, without a full stop and without square brackets.
    pub fn text(&self, lang: Lang) -> String {
        match lang {
            Lang::Zh => self.zh(),
            Lang::En => self.en(),
        }
    }

    fn zh(&self) -> String {
        match self {
            Self::CheapestLaunchable { of } => format!("{of} 个可直接启动的 Offer 中价格最低"),
            Self::CheapestListed { of } => format!("{of} 个匹配的参考价中最低"),
            Self::Launchable { provider } => format!("{provider} 可直接启动"),
            Self::NotLaunchable(why) => why.text(Lang::Zh),
            Self::Pretended => "本机模拟的 GPU，仅用于试跑".to_owned(),
            Self::SpotSaves { percent } => format!("竞价实例，比按需低 {percent}%，可能被回收"),
            Self::Spot => "竞价实例，可能被回收".to_owned(),
            Self::SpotNoSaving => "竞价价格与按需相同，不省钱".to_owned(),
            Self::SpotAboveOnDemand => "竞价价格高于按需".to_owned(),
            Self::PriceUnknown => "价格未知".to_owned(),
            Self::NoRate { currency } => format!("没有 {currency} 的汇率，无法折算"),
            Self::OldRate { date, age_days } => {
                format!("按 {date} 的汇率折算，已 {age_days} 天，仅供参考")
            }
            Self::AgeUnknown => "价格日期未知".to_owned(),
            Self::PriceOf { date } => format!("{date} 的价格"),
            Self::CurrencyAssumed { currency } => format!("来源未注明币种，按 {currency} 计"),
            Self::FromPrice => "来源为起价".to_owned(),
            Self::Statistical => "多个报价的中位数，非实际报价".to_owned(),
            Self::Floor => "最低出价，实际费用可能更高".to_owned(),
            Self::ReclaimRisk { percent } => format!("比较时按 {percent}% 回收风险上浮"),
            Self::SourcesIncomplete { providers } => {
                format!("未能完整读取 {providers}，那里可能有更低价")
            }
        }
    }

    fn en(&self) -> String {
        match self {
            Self::CheapestLaunchable { of } => {
                format!("the lowest price of {of} that can be launched")
            }
            Self::CheapestListed { of } => format!("the lowest of {of} matching reference prices"),
            Self::Launchable { provider } => format!("{provider} can launch it now"),
            Self::NotLaunchable(why) => why.text(Lang::En),
            Self::Pretended => "this machine pretends to have the GPUs, for trying only".to_owned(),
            Self::SpotSaves { percent } => {
                format!("spot, {percent}% below on demand, may be taken back")
            }
            Self::Spot => "spot, may be taken back".to_owned(),
            Self::SpotNoSaving => "spot at the on-demand price, saves nothing".to_owned(),
            Self::SpotAboveOnDemand => "spot dearer than on demand".to_owned(),
            Self::PriceUnknown => "price unknown".to_owned(),
            Self::NoRate { currency } => format!("no exchange rate for {currency}"),
            Self::OldRate { date, age_days } => {
                format!("converted at a rate of {date}, {age_days} days old, for reference only")
            }
            Self::AgeUnknown => "price of unknown age".to_owned(),
            Self::PriceOf { date } => format!("price of {date}"),
            Self::CurrencyAssumed { currency } => {
                format!("the source names no currency, {currency} assumed")
            }
            Self::FromPrice => "a \"from\" price".to_owned(),
            Self::Statistical => "a median of several offers, not a quote".to_owned(),
            Self::Floor => "the least bid, the cost may be higher".to_owned(),
            Self::ReclaimRisk { percent } => {
                format!("raised by {percent}% reclaim risk for the comparison")
            }
            Self::SourcesIncomplete { providers } => {
                format!("{providers} could not be read whole and may be cheaper")
            }
        }
    }
}

impl NotLaunchable {
    /// The sentence, with the remedy where there is one.
    pub fn text(&self, lang: Lang) -> String {
        match (self, lang) {
            (Self::ConnectAccount { provider }, Lang::Zh) => {
                format!("参考价，连接 {provider} 账号后才能启动")
            }
            (Self::ConnectAccount { provider }, Lang::En) => {
                format!("reference price, connect an account of {provider} to launch it")
            }
            (Self::NotInAccount { provider }, Lang::Zh) => {
                format!("参考价，已连接的 {provider} 账号未提供此 Offer")
            }
            (Self::NotInAccount { provider }, Lang::En) => {
                format!("reference price, the connected account of {provider} does not offer it")
            }
            (Self::StalePrice { provider, age_seconds }, Lang::Zh) => {
                format!("{provider} 的价格已 {} 小时未更新，刷新后才能启动", age_seconds / 3600)
            }
            (Self::StalePrice { provider, age_seconds }, Lang::En) => format!(
                "the prices of {provider} are {} hours old, refresh them to launch",
                age_seconds / 3600
            ),
            (Self::SoldOut, Lang::Zh) => "当前已占满，提交后排队等待".to_owned(),
            (Self::SoldOut, Lang::En) => "all taken now, a job waits for its turn".to_owned(),
            (Self::NotNow { provider }, Lang::Zh) => format!("{provider} 当前无法启动此 Offer"),
            (Self::NotNow { provider }, Lang::En) => {
                format!("{provider} cannot launch it at present")
            }
        }
    }
}

/// What stands between two sentences.
pub(crate) fn separator(lang: Lang) -> &'static str {
    match lang {
        Lang::Zh => "；",
        Lang::En => "; ",
    }
}

/// Reasons as one text.
pub fn join(reasons: &[Reason], lang: Lang) -> String {
    let separator = separator(lang);
    // Most fit: memory that is taken once.
    let mut text = String::with_capacity(128);
    for reason in reasons {
        if !text.is_empty() {
            text.push_str(separator);
        }
        text.push_str(&reason.text(lang));
    }
    text
}

/// What a recommendation is, in a word.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tag {
    /// The first choice among those that can be launched.
    Recommended,
    /// Can be launched, not the first choice.
    Alternative,
    /// All taken now: a job would wait.
    Waits,
    /// Cannot be launched: for comparison.
    Reference,
}

impl Tag {
    /// The word.
    pub fn text(self, lang: Lang) -> &'static str {
        match (self, lang) {
            (Self::Recommended, Lang::Zh) => "推荐",
            (Self::Recommended, Lang::En) => "recommended",
            (Self::Alternative, Lang::Zh) => "备选",
            (Self::Alternative, Lang::En) => "alternative",
            (Self::Waits, Lang::Zh) => "排队",
            (Self::Waits, Lang::En) => "waits",
            (Self::Reference, Lang::Zh) => "参考价",
            (Self::Reference, Lang::En) => "reference",
        }
    }
}
