//! The file of a shard: rows of a fixed size and texts, with a checksum. Reading it needs no parsing
//! and no sorting.
//!
//! `RWPRICE1`, then the length and the CRC-32 of the rest; the head as JSON; texts; rows; order; codes;
//! details as JSON. Numbers are little-endian. A file of another version is refused and read again
//! from its source.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use runwhere_model::offer::{Gap, RejectedRow, Stock};
use runwhere_model::{
    BillingModel, Currency, GpuCount, GpuModel, OfferCode, OfferDetails, PriceKind, ProviderId,
};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::build::Limits;
use super::index::Index;
use super::row::{Body, Head, PriceStateTag, Row, Shard, SpotByte};
use super::strings::Strings;

const MAGIC: &[u8; 8] = b"RWPRICE1";
/// Bytes of a row.
const ROW: usize = 104;

/// Why a file is no shard.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ShardFileError {
    /// Another kind of file, or of another version.
    #[error("not a price file of this version")]
    Version,
    /// Cut off, or changed.
    #[error("the price file is damaged: {0}")]
    Damaged(&'static str),
}

#[derive(Deserialize, Serialize)]
struct Header {
    provider: ProviderId,
    observed_at: Option<Timestamp>,
    complete: bool,
    validator: Option<String>,
    max_age: SignedDuration,
    spot_max_age: SignedDuration,
    rejected: Vec<RejectedRow>,
    gaps: Vec<Gap>,
    doubles: usize,
    unmapped: BTreeMap<String, usize>,
    content: String,
    reads: String,
    currencies: Vec<Currency>,
    /// The models of this build, by name: a later build may have them in another order.
    models: Vec<String>,
}

impl Shard {
    /// The shard as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let body = &self.body;
        let mut currencies: Vec<Currency> = body.rows.iter().map(|row| row.currency).collect();
        currencies.sort();
        currencies.dedup();
        let header = Header {
            provider: body.provider.clone(),
            observed_at: self.head.observed_at,
            complete: self.head.complete,
            validator: self.head.validator.clone(),
            max_age: self.head.limits.max_age,
            spot_max_age: self.head.limits.spot_max_age,
            rejected: self.head.rejected.as_ref().clone(),
            gaps: self.head.gaps.clone(),
            doubles: self.head.doubles,
            unmapped: self.head.unmapped.clone(),
            content: hex::encode(body.content),
            reads: hex::encode(body.reads),
            currencies: currencies.clone(),
            models: GpuModel::all().iter().map(|model| model.id.to_string()).collect(),
        };
        let mut out = Vec::with_capacity(body.rows.len() * (ROW + 24) + 4096);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0; 12]);
        section(&mut out, &serde_json::to_vec(&header).unwrap_or_default());
        let (text, ends) = body.strings.parts();
        section(&mut out, text.as_bytes());
        numbers(&mut out, ends);
        put_u64(&mut out, body.rows.len() as u64);
        for row in &body.rows {
            put_row(&mut out, row, &currencies);
        }
        numbers(&mut out, &body.index.order);
        put_u64(&mut out, body.codes.len() as u64);
        for (code, at) in &body.codes {
            out.extend_from_slice(code.as_str().as_bytes());
            out.extend_from_slice(&at.to_le_bytes());
        }
        section(&mut out, &serde_json::to_vec(&body.details).unwrap_or_default());
        let rest = (out.len() - 20) as u64;
        let crc = crc32fast::hash(&out[20..]);
        out[8..16].copy_from_slice(&rest.to_le_bytes());
        out[16..20].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The shard of such bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, ShardFileError> {
        let rest = bytes.strip_prefix(MAGIC.as_slice()).ok_or(ShardFileError::Version)?;
        let (length, rest) = rest.split_first_chunk::<8>().ok_or(CUT)?;
        let (crc, rest) = rest.split_first_chunk::<4>().ok_or(CUT)?;
        if rest.len() as u64 != u64::from_le_bytes(*length) {
            return Err(CUT);
        }
        if crc32fast::hash(rest) != u32::from_le_bytes(*crc) {
            return Err(ShardFileError::Damaged("its checksum does not fit"));
        }
        let mut from = Reader(rest);
        let header: Header = serde_json::from_slice(from.section()?)
            .map_err(|_| ShardFileError::Damaged("its head"))?;
        let text = String::from_utf8(from.section()?.to_vec())
            .map_err(|_| ShardFileError::Damaged("its texts"))?;
        let ends = from.numbers()?;
        let strings = Strings::restore(text, ends).ok_or(ShardFileError::Damaged("its texts"))?;
        let models = model_places(&header.models);
        let count = from.count(ROW)?;
        let raw = from.take(count * ROW)?;
        let mut rows = Vec::with_capacity(count);
        let mut regions = Vec::new();
        let mut last = 0;
        for raw in raw.chunks_exact(ROW) {
            let row = get_row(raw, &header.currencies, &models, strings.len())
                .ok_or(ShardFileError::Damaged("a row"))?;
            if row.region != last {
                last = row.region;
                if last != 0 {
                    regions.push(last);
                }
            }
            rows.push(row);
        }
        let order = from.numbers()?;
        let sound = order.len() == count && order.iter().all(|at| (*at as usize) < count);
        if !sound {
            return Err(ShardFileError::Damaged("its order"));
        }
        let code_count = from.count(12)?;
        let mut codes = Vec::with_capacity(code_count);
        for raw in from.take(code_count * 12)?.chunks_exact(12) {
            codes.push((
                get_code(&raw[..8]).ok_or(ShardFileError::Damaged("a code"))?,
                le32(&raw[8..]),
            ));
        }
        if codes.iter().any(|(_, at)| *at as usize >= count) {
            return Err(ShardFileError::Damaged("a code"));
        }
        let details: Vec<OfferDetails> = serde_json::from_slice(from.section()?)
            .map_err(|_| ShardFileError::Damaged("its details"))?;
        let digest = |text: &str| {
            let mut digest = [0; 32];
            hex::decode_to_slice(text, &mut digest).map(|()| digest)
        };
        let bad = |_| ShardFileError::Damaged("its head");
        // Another build may have the models in another order, and rows are ordered by model.
        let same = header.models.iter().eq(GpuModel::all().iter().map(|model| model.id.as_str()));
        let index = if same { Index::of_order(&rows, order) } else { Index::build(&rows) };
        Ok(Self {
            body: Arc::new(Body {
                provider: header.provider,
                strings,
                rows,
                details,
                regions,
                index,
                codes,
                content: digest(&header.content).map_err(bad)?,
                reads: digest(&header.reads).map_err(bad)?,
            }),
            head: Head {
                observed_at: header.observed_at,
                complete: header.complete,
                validator: header.validator,
                limits: Limits { max_age: header.max_age, spot_max_age: header.spot_max_age },
                rejected: Arc::new(header.rejected),
                gaps: header.gaps,
                doubles: header.doubles,
                unmapped: header.unmapped,
            },
        })
    }
}

const CUT: ShardFileError = ShardFileError::Damaged("it is cut off");

fn model_places(names: &[String]) -> Vec<u16> {
    let place = |name: &String| {
        let at = GpuModel::all().iter().position(|model| model.id.as_str() == name);
        at.and_then(|at| u16::try_from(at).ok()).unwrap_or(u16::MAX)
    };
    names.iter().map(place).collect()
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn section(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    put_u64(out, numbers.len() as u64);
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn put_row(out: &mut Vec<u8>, row: &Row, currencies: &[Currency]) {
    let start = out.len();
    let (numerator, denominator) = row.count.parts();
    let currency = currencies.binary_search(&row.currency).unwrap_or(0);
    out.extend_from_slice(&row.amount.serialize());
    for number in [row.memory_mib, row.gpu_memory_mib] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [row.observed, row.effective] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(row.code.as_str().as_bytes());
    for number in [
        numerator,
        denominator,
        row.region,
        row.zone,
        row.instance_type,
        row.gpu_raw,
        row.source,
        row.details,
        row.vcpus,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [row.gpu, row.marks, u16::try_from(currency).unwrap_or(0)] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let billing = BillingModel::ALL.iter().position(|model| *model == row.billing).unwrap_or(0);
    out.push(u8::try_from(billing).unwrap_or(0));
    out.push(match row.state {
        PriceStateTag::Known => 0,
        PriceStateTag::Unknown => 1,
        PriceStateTag::NotOffered => 2,
    });
    out.push(match row.kind {
        PriceKind::List => 0,
        PriceKind::Account => 1,
        PriceKind::Configured => 2,
        PriceKind::Bundled => 3,
    });
    out.push(match row.stock {
        Stock::Available => 0,
        Stock::Low => 1,
        Stock::SoldOut => 2,
        Stock::Unstated => 3,
    });
    out.push(u8::from(row.launchable) | u8::from(row.pretended) << 1 | u8::from(row.bundled) << 2);
    out.push(row.spot.0);
    out.resize(start + ROW, 0);
}

fn get_row(raw: &[u8], currencies: &[Currency], models: &[u16], texts: usize) -> Option<Row> {
    let u64_at = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().unwrap_or_default());
    let i64_at = |at: usize| i64::from_le_bytes(raw[at..at + 8].try_into().unwrap_or_default());
    let u32_at = |at: usize| le32(&raw[at..at + 4]);
    let u16_at = |at: usize| u16::from_le_bytes(raw[at..at + 2].try_into().unwrap_or_default());
    let text_at = |at: usize| Some(u32_at(at)).filter(|symbol| (*symbol as usize) < texts);
    Some(Row {
        amount: Decimal::deserialize(raw[..16].try_into().ok()?),
        memory_mib: u64_at(16),
        gpu_memory_mib: u64_at(24),
        observed: i64_at(32),
        effective: i64_at(40),
        code: get_code(&raw[48..56])?,
        count: GpuCount::fraction(u32_at(56), u32_at(60))?,
        region: text_at(64)?,
        zone: text_at(68)?,
        instance_type: text_at(72)?,
        gpu_raw: text_at(76)?,
        source: text_at(80)?,
        details: u32_at(84),
        vcpus: u32_at(88),
        gpu: models.get(usize::from(u16_at(92))).copied().unwrap_or(u16::MAX),
        marks: u16_at(94),
        currency: *currencies.get(usize::from(u16_at(96)))?,
        billing: *BillingModel::ALL.get(usize::from(raw[98]))?,
        state: match raw[99] {
            0 => PriceStateTag::Known,
            1 => PriceStateTag::Unknown,
            _ => PriceStateTag::NotOffered,
        },
        kind: match raw[100] {
            0 => PriceKind::List,
            1 => PriceKind::Account,
            2 => PriceKind::Configured,
            _ => PriceKind::Bundled,
        },
        stock: match raw[101] {
            0 => Stock::Available,
            1 => Stock::Low,
            2 => Stock::SoldOut,
            _ => Stock::Unstated,
        },
        launchable: raw[102] & 1 != 0,
        pretended: raw[102] & 2 != 0,
        bundled: raw[102] & 4 != 0,
        spot: SpotByte(raw[103]),
    })
}

fn get_code(raw: &[u8]) -> Option<OfferCode> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

fn le32(raw: &[u8]) -> u32 {
    u32::from_le_bytes(raw.try_into().unwrap_or_default())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], ShardFileError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of things of this size, no more than there are bytes.
    fn count(&mut self, size: usize) -> Result<usize, ShardFileError> {
        let count = u64::from_le_bytes(self.take(8)?.try_into().unwrap_or_default());
        let count = usize::try_from(count).map_err(|_| CUT)?;
        count.checked_mul(size).filter(|bytes| *bytes <= self.0.len()).map(|_| count).ok_or(CUT)
    }

    fn section(&mut self) -> Result<&'a [u8], ShardFileError> {
        let length = self.count(1)?;
        self.take(length)
    }

    fn numbers(&mut self) -> Result<Vec<u32>, ShardFileError> {
        let count = self.count(4)?;
        Ok(self.take(count * 4)?.chunks_exact(4).map(le32).collect())
    }
}
