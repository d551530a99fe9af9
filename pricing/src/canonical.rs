//! The identity of an answer: the state of the prices and the question, in one text that can be
//! answered again.
//!
//! `<32 hexadecimal digits of the state>.<base64url of the canonical question>`. The question says for
//! which instant it was asked, so that the ages in the answer are the same ones.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use runwhere_model::{GpuModelId, parse_decimal};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::catalogue::{Audience, Catalogue};
use crate::digits::Digits;
use crate::quote::{Policy, Query, TaskType};

/// Few questions are longer.
const USUAL_QUESTION: usize = 256;

/// How long a quote may be acted on.
pub const QUOTE_VALID_SECONDS: i64 = 900;

/// A question with everything that the answer depends on, in a fixed order and without what is usual.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Canonical<'a> {
    #[serde(rename = "t")]
    as_of: Cow<'a, str>,
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    gpu: Option<GpuModelId>,
    #[serde(rename = "n")]
    gpu_count: u32,
    #[serde(rename = "k")]
    task_type: TaskType,
    #[serde(rename = "s")]
    spot_allowed: bool,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    max_hourly_price: Option<Cow<'a, str>>,
    #[serde(rename = "c")]
    top_n: usize,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    provider: Option<Cow<'a, str>>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    region: Option<Cow<'a, str>>,
    #[serde(rename = "z", default, skip_serializing_if = "Option::is_none")]
    zone: Option<Cow<'a, str>>,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    country: Option<Cow<'a, str>>,
    #[serde(rename = "mm", default, skip_serializing_if = "Option::is_none")]
    min_memory_mib: Option<u64>,
    #[serde(rename = "mc", default, skip_serializing_if = "Option::is_none")]
    min_vcpus: Option<u32>,
    #[serde(rename = "f", default, skip_serializing_if = "std::ops::Not::not")]
    fresh_only: bool,
    #[serde(rename = "y", default)]
    policy: Policy,
    #[serde(rename = "pr", default, skip_serializing_if = "none")]
    prefer_regions: Cow<'a, [String]>,
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    hours: Option<Cow<'a, str>>,
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    disk_gib: Option<u32>,
    #[serde(rename = "a")]
    audience: Audience,
}

fn none(regions: &[String]) -> bool {
    regions.is_empty()
}

/// The id of a quote: letters and digits, points, hyphens and underscores.
pub(crate) fn quote_id(catalogue: &Catalogue, query: &Query, as_of: Timestamp) -> String {
    let mut id = Vec::with_capacity(34 + USUAL_QUESTION * 4 / 3);
    write_quote_id(&mut id, catalogue, query, &instant(as_of));
    String::from_utf8(id).unwrap_or_default()
}

/// An instant, as answers and ids say it.
pub(crate) fn instant(at: Timestamp) -> String {
    let mut text = String::with_capacity(32);
    // Writing to memory does not fail.
    let _ = DateTimePrinter::new().print_timestamp(&at, &mut text);
    text
}

/// Writes the id of a quote as of an [`instant`].
pub(crate) fn write_quote_id(out: &mut Vec<u8>, catalogue: &Catalogue, query: &Query, as_of: &str) {
    let digits = |number: Option<Decimal>| number.map(|number| Digits::from(number.normalize()));
    let (max_hourly_price, hours) = (digits(query.max_hourly_price), digits(query.hours));
    let canonical = Canonical {
        as_of: Cow::Borrowed(as_of),
        gpu: query.gpu,
        gpu_count: query.gpu_count,
        task_type: query.task_type,
        spot_allowed: query.spot_allowed,
        max_hourly_price: max_hourly_price.as_deref().map(Cow::Borrowed),
        top_n: query.top_n,
        provider: query.provider.as_deref().map(Cow::Borrowed),
        region: query.region.as_deref().map(Cow::Borrowed),
        zone: query.zone.as_deref().map(Cow::Borrowed),
        country: query.country.as_deref().map(Cow::Borrowed),
        min_memory_mib: query.min_memory_mib,
        min_vcpus: query.min_vcpus,
        fresh_only: query.fresh_only,
        policy: query.policy,
        prefer_regions: Cow::Borrowed(&query.prefer_regions),
        hours: hours.as_deref().map(Cow::Borrowed),
        disk_gib: query.disk_gib,
        audience: query.audience,
    };
    let mut json = Vec::with_capacity(USUAL_QUESTION);
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(&mut json, &canonical);
    out.extend_from_slice(catalogue.state_id().as_bytes());
    out.push(b'.');
    let start = out.len();
    out.resize(start + json.len() * 4 / 3 + 4, 0);
    // There is room for it.
    let length = URL_SAFE_NO_PAD.encode_slice(json, &mut out[start..]).unwrap_or_default();
    out.truncate(start + length);
}

/// A quote id taken apart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuoteRef {
    /// The state of the prices.
    pub state_id: String,
    /// The question.
    pub query: Query,
    /// For which instant.
    pub as_of: Timestamp,
}

impl QuoteRef {
    /// Reads an id; `None` when it is none.
    pub fn parse(id: &str) -> Option<Self> {
        let (state, question) = id.split_once('.')?;
        let hexadecimal = state.len() == 32 && state.bytes().all(|b| b.is_ascii_hexdigit());
        if !hexadecimal || question.len() > 8192 {
            return None;
        }
        let json = URL_SAFE_NO_PAD.decode(question).ok()?;
        let canonical: Canonical<'_> = serde_json::from_slice(&json).ok()?;
        let exact = |text: &Option<Cow<'_, str>>| match text {
            None => Some(None),
            Some(text) => parse_decimal(text).ok().map(Some),
        };
        let max_hourly_price = exact(&canonical.max_hourly_price)?;
        let hours = exact(&canonical.hours)?;
        Some(Self {
            state_id: state.to_owned(),
            as_of: canonical.as_of.parse().ok()?,
            query: Query {
                gpu: canonical.gpu,
                gpu_count: canonical.gpu_count,
                task_type: canonical.task_type,
                spot_allowed: canonical.spot_allowed,
                max_hourly_price,
                top_n: canonical.top_n.min(crate::request::MAX_TOP_N),
                provider: canonical.provider.map(Cow::into_owned),
                region: canonical.region.map(Cow::into_owned),
                zone: canonical.zone.map(Cow::into_owned),
                country: canonical.country.map(Cow::into_owned),
                min_memory_mib: canonical.min_memory_mib,
                min_vcpus: canonical.min_vcpus,
                fresh_only: canonical.fresh_only,
                policy: canonical.policy,
                prefer_regions: canonical.prefer_regions.into_owned(),
                hours,
                disk_gib: canonical.disk_gib,
                audience: canonical.audience,
            },
        })
    }

    /// Until when it may be acted on.
    pub fn expires_at(&self) -> Timestamp {
        expires_at(self.as_of)
    }
}

/// Until when a quote of an instant may be acted on.
pub fn expires_at(as_of: Timestamp) -> Timestamp {
    as_of
        .checked_add(jiff::SignedDuration::from_secs(QUOTE_VALID_SECONDS))
        .unwrap_or(Timestamp::MAX)
}
