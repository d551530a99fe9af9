//! The bundled prices: compiled in, read once, launching nothing.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use runwhere_model::offer::{RejectedRow, Stock};
use runwhere_model::{
    Currency, GpuCount, GpuModel, GpuModelId, HourlyPrice, Mark, Marks, Offer, OfferDetails,
    OfferKey, Price, PriceKind, PriceState, ProviderId, parse_decimal,
};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use sha2::{Digest, Sha256};

use crate::resold;

const PRICES: &str = include_str!("../data/prices.csv");
const SOURCES: &str = include_str!("../data/sources.csv");

/// All bundled offers, in the order of their keys.
#[derive(Debug)]
pub struct Bundled {
    /// The offers.
    pub offers: Vec<Arc<Offer>>,
    /// Rows that could not be read: none, as a test makes sure.
    pub rejected: Vec<RejectedRow>,
    /// The newest date any figure carries.
    pub newest: Option<Timestamp>,
    digest: OnceLock<[u8; 32]>,
}

impl Bundled {
    /// The snapshot of this build. The first call reads it (about a millisecond).
    pub fn get() -> &'static Bundled {
        static BUNDLED: LazyLock<Bundled> = LazyLock::new(|| read(PRICES, SOURCES));
        &BUNDLED
    }

    /// SHA-256 of the data: two builds with the same prices have the same.
    pub fn digest(&self) -> [u8; 32] {
        *self.digest.get_or_init(|| {
            let mut hasher = Sha256::new();
            hasher.update(PRICES.as_bytes());
            hasher.update([0]);
            hasher.update(SOURCES.as_bytes());
            hasher.finalize().into()
        })
    }
}

/// The model of a provider's GPU name, where the name alone may not tell the memory (`A100`).
///
/// `None` when no model has this name and this memory; never a near guess.
pub fn gpu_of(name: &str, memory_gib: u32) -> Option<GpuModelId> {
    let with_memory = GpuModel::resolve(&format!("{name}-{memory_gib}GB"));
    with_memory
        .or_else(|| GpuModel::resolve(name))
        .filter(|model| model.memory_gib == memory_gib)
        .map(|model| model.id)
}

struct Source<'a> {
    text: Cow<'a, str>,
    marks: Marks,
}

fn read(prices: &str, sources: &str) -> Bundled {
    let sources = read_sources(sources);
    let mut gpus: HashMap<(String, u32), Option<GpuModelId>> = HashMap::new();
    let mut offers = Vec::with_capacity(2048);
    let mut rejected = Vec::new();
    for line in prices.lines().skip(1) {
        match read_offer(line, &sources, &mut gpus) {
            Ok(offer) => offers.push(offer),
            Err(reason) => rejected.push(RejectedRow { row: line.to_owned(), reason }),
        }
    }
    offers.sort_by(|a: &Arc<Offer>, b| a.key.cmp(&b.key));
    let newest = offers.iter().filter_map(|offer| offer.price.observed_at).max();
    Bundled { offers, rejected, newest, digest: OnceLock::new() }
}

fn read_sources(text: &str) -> HashMap<String, Source<'_>> {
    let mut sources = HashMap::new();
    for line in text.lines().skip(1) {
        let mut fields = fields(line).into_iter();
        let (Some(id), Some(note), Some(text)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let marks = match note.as_ref() {
            "currency_assumed" => Marks::of(Mark::CurrencyAssumed),
            "count_corrected" => Marks::of(Mark::CountCorrected),
            "from_price" => Marks::of(Mark::FromPrice),
            _ => Marks::NONE,
        };
        sources.insert(id.into_owned(), Source { text, marks });
    }
    sources
}

fn read_offer(
    line: &str,
    sources: &HashMap<String, Source<'_>>,
    gpus: &mut HashMap<(String, u32), Option<GpuModelId>>,
) -> Result<Arc<Offer>, String> {
    let fields = fields(line);
    let [
        provider,
        region,
        zone,
        billing_model,
        instance_type,
        gpu_name,
        gpu_count,
        gpu_memory,
        vcpus,
        memory,
        currency,
        price,
        observed_at,
        source,
    ] = fields.as_slice()
    else {
        return Err(format!("{} fields", fields.len()));
    };
    let bad = |field: &'static str| move || format!("{field} cannot be read");
    let key = OfferKey {
        provider: ProviderId::new(provider.as_ref()).map_err(|error| error.to_string())?,
        region: filled(region),
        zone: filled(zone),
        billing_model: billing_model.parse().map_err(|_| bad("billing_model")())?,
        instance_type: filled(instance_type).ok_or_else(bad("instance_type"))?,
    };
    let gpu_memory: u32 = gpu_memory.parse().map_err(|_| bad("gpu_memory_gib")())?;
    let gpu = *gpus
        .entry((gpu_name.to_string(), gpu_memory))
        .or_insert_with(|| gpu_of(gpu_name, gpu_memory));
    let amount = parse_decimal(price).map_err(|error| format!("price_per_hour: {error}"))?;
    if amount <= Decimal::ZERO {
        return Err("price_per_hour is not positive".to_owned());
    }
    let currency: Currency = currency.parse().map_err(|_| bad("currency")())?;
    let source = sources.get(source.as_ref()).ok_or_else(bad("source"))?;
    let upstream = resold::upstream(key.provider.as_str(), &key.instance_type);
    let offer = Offer {
        marks: resold::marks(key.provider.as_str(), source.marks),
        key,
        gpu,
        gpu_raw: gpu_name.to_string(),
        gpu_count: gpu_count.parse::<GpuCount>().map_err(|_| bad("gpu_count")())?,
        vcpus: optional(vcpus, |text| text.parse().ok()).map_err(|()| bad("vcpus")())?,
        memory_mib: optional(memory, mebibytes).map_err(|()| bad("memory_gib")())?,
        price: Price {
            state: PriceState::Known { price: HourlyPrice { amount, currency } },
            kind: PriceKind::Bundled,
            source: source.text.to_string(),
            observed_at: optional(observed_at, midnight).map_err(|()| bad("observed_at")())?,
            effective_at: None,
        },
        stock: Stock::Unstated,
        launchable: false,
        pretended: false,
        gpu_memory_mib: None,
        details: upstream.map(|upstream| {
            Box::new(OfferDetails { upstream: Some(upstream), ..OfferDetails::default() })
        }),
    };
    Ok(Arc::new(offer))
}

fn filled(field: &str) -> Option<String> {
    (!field.is_empty()).then(|| field.to_owned())
}

fn optional<T>(field: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, ()> {
    if field.is_empty() { Ok(None) } else { read(field).map(Some).ok_or(()) }
}

fn mebibytes(gibibytes: &str) -> Option<u64> {
    parse_decimal(gibibytes).ok()?.checked_mul(Decimal::from(1024))?.to_u64()
}

pub(crate) fn midnight(date: &str) -> Option<Timestamp> {
    let date: Date = date.parse().ok()?;
    Some(date.to_zoned_datetime(TimeZone::UTC).ok()?.timestamp())
}

/// The fields of one line; double quotes group, two of them stand for one. No line breaks inside.
pub(crate) fn fields(line: &str) -> Vec<Cow<'_, str>> {
    let mut fields = Vec::with_capacity(14);
    let mut rest = line;
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            match rest.split_once(',') {
                Some((field, tail)) => {
                    fields.push(Cow::Borrowed(field));
                    rest = tail;
                    continue;
                }
                None => {
                    fields.push(Cow::Borrowed(rest));
                    return fields;
                }
            }
        };
        let mut field = String::new();
        let mut tail = quoted;
        loop {
            let Some((part, after)) = tail.split_once('"') else {
                field.push_str(tail);
                tail = "";
                break;
            };
            field.push_str(part);
            match after.strip_prefix('"') {
                Some(after) => {
                    field.push('"');
                    tail = after;
                }
                None => {
                    tail = after;
                    break;
                }
            }
        }
        fields.push(Cow::Owned(field));
        match tail.strip_prefix(',') {
            Some(after) => rest = after,
            None => return fields,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_every_gpu_is_known() {
        let bundled = Bundled::get();
        assert_eq!(bundled.rejected, []);
        assert_eq!(bundled.offers.len(), 1496);
        for row in &bundled.offers {
            let model = row.gpu.map(GpuModelId::model);
            assert!(model.is_some(), "{} has no model", row.gpu_raw);
            assert!(!row.launchable);
            assert_eq!(row.price.kind, PriceKind::Bundled);
        }
        let keys: std::collections::BTreeSet<_> =
            bundled.offers.iter().map(|row| row.key.to_string()).collect();
        assert_eq!(keys.len(), bundled.offers.len(), "a key stands twice");
        for key in keys {
            assert_eq!(key.parse::<OfferKey>().map(|parsed| parsed.to_string()), Ok(key));
        }
    }

    #[test]
    fn every_price_keeps_its_digits() {
        for line in PRICES.lines().skip(1) {
            let fields = fields(line);
            let text = fields[11].as_ref();
            let amount = parse_decimal(text).unwrap().to_string();
            let same = match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.') == amount,
                false => text == amount,
            };
            assert!(same, "{text} became {amount}");
            assert_eq!(parse_decimal(&amount).map(|again| again.to_string()), Ok(amount));
        }
    }

    #[test]
    fn known_defects_are_respected() {
        let find = |key: &str| {
            let key: OfferKey = key.parse().unwrap();
            let rows = &Bundled::get().offers;
            &rows[rows.binary_search_by(|row| row.key.cmp(&key)).expect("a bundled key")]
        };
        let sixth = find("azure/eastus/-/on_demand/Standard_NV6ads_A10_v5");
        assert_eq!(sixth.gpu_count.to_string(), "1/6");
        assert!(sixth.marks.has(Mark::CountCorrected));
        let digits = find("aws/us-east-1/-/on_demand/p4d.24xlarge");
        assert_eq!(digits.price.state.known().unwrap().to_string(), "21.957642 USD/h");
        assert!(digits.price.observed_at.is_some());
        let seeweb = Bundled::get().offers.iter().filter(|r| r.key.provider.as_str() == "seeweb");
        for row in seeweb {
            assert_eq!(row.price.state.known().map(|p| p.currency), Some(Currency::EUR));
            assert!(row.marks.has(Mark::CurrencyAssumed));
        }
        assert_eq!(
            Bundled::get().newest.map(|t| t.to_string()).as_deref(),
            Some("2026-11-09T00:00:00Z")
        );
    }

    #[test]
    fn a_name_without_memory_is_told_apart_by_memory_only() {
        assert_eq!(gpu_of("A100", 80).map(GpuModelId::as_str), Some("a100-80g"));
        assert_eq!(gpu_of("A100", 40).map(GpuModelId::as_str), Some("a100-40g"));
        assert_eq!(gpu_of("A100", 48), None);
        assert_eq!(gpu_of("H100", 94).map(GpuModelId::as_str), Some("h100-nvl-94g"));
        assert_eq!(gpu_of("B3000", 268), None);
    }

    #[test]
    fn quotes_group_fields() {
        assert_eq!(fields(r#"a,"b, ""c""",,d"#), ["a", r#"b, "c""#, "", "d"]);
        assert_eq!(fields("a,"), ["a", ""]);
        assert_eq!(fields(r#""unclosed"#), ["unclosed"]);
    }
}
