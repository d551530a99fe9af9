//! Canonical GPU models and counts.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

mod name;
mod table;

/// The canonical name of a model, for example `a100-80g`: what a YAML's `gpuType` says.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GpuModelId(&'static str, u16);

impl GpuModelId {
    /// The name.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// The model behind it.
    pub fn model(self) -> &'static GpuModel {
        &table::MODELS[self.place()]
    }

    /// Its model's place in [`GpuModel::all`].
    pub fn place(self) -> usize {
        usize::from(self.1)
    }
}

impl fmt::Display for GpuModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Serialize for GpuModelId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for GpuModelId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        GpuModel::resolve(&text)
            .map(|model| model.id)
            .ok_or_else(|| serde::de::Error::custom("not a known GPU model"))
    }
}

/// Who makes a model.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Google.
    Google,
    /// Intel.
    Intel,
    /// Amazon Web Services.
    Aws,
    /// Huawei.
    Huawei,
}

impl Vendor {
    /// The name as people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Google => "Google",
            Self::Intel => "Intel",
            Self::Aws => "AWS",
            Self::Huawei => "Huawei",
        }
    }
}

/// A canonical accelerator.
#[derive(Debug, Eq, PartialEq)]
pub struct GpuModel {
    /// Canonical name.
    pub id: GpuModelId,
    /// Maker.
    pub vendor: Vendor,
    /// The name on the wire of the price routes, for example `NVIDIA A100-80GB`.
    pub name: &'static str,
    /// True memory of one whole GPU in GiB as people name it (80, 141, 24); 0 where it varies.
    pub memory_gib: u32,
    /// Other spellings; compared without case, blanks, dashes and underscores.
    pub aliases: &'static [&'static str],
}

impl GpuModel {
    /// All models, in a fixed order.
    pub fn all() -> &'static [GpuModel] {
        table::MODELS
    }

    /// Whether a stated memory of one GPU in MiB is this model's, within the 7 % by which decimal
    /// and binary units differ. A model without a fixed memory takes any.
    pub fn memory_fits(&self, stated_mib: u64) -> bool {
        self.memory_gib == 0 || name::near(stated_mib, u64::from(self.memory_gib) * 1024)
    }

    /// The model that a spelling names exactly (canonical id, wire name or alias), never a near
    /// guess.
    pub fn resolve(text: &str) -> Option<&'static GpuModel> {
        static SPELLINGS: LazyLock<HashMap<String, &'static GpuModel>> = LazyLock::new(|| {
            let named = |model: &'static GpuModel| {
                let names = model.aliases.iter().copied().chain([model.id.0, model.name]);
                names.map(move |name| (fold(name), model))
            };
            table::MODELS.iter().flat_map(named).collect()
        });
        SPELLINGS.get(&fold(text)).copied()
    }
}

fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !matches!(c, ' ' | '-' | '_')) {
        match c.is_ascii() {
            true => folded.push(c.to_ascii_lowercase()),
            false => folded.extend(c.to_lowercase()),
        }
    }
    folded
}

/// A number of GPUs: whole, or a fraction of one (`1/6`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GpuCount {
    numerator: u32,
    denominator: u32,
}

/// The text is no count such as `8` or `1/6`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a GPU count is a positive whole number or a fraction such as 1/6")]
pub struct GpuCountError;

impl GpuCount {
    /// A whole number of GPUs; `None` for 0.
    pub fn whole(count: u32) -> Option<Self> {
        Self::fraction(count, 1)
    }

    /// A fraction in lowest terms; `None` when either part is 0.
    pub fn fraction(numerator: u32, denominator: u32) -> Option<Self> {
        if numerator == 0 || denominator == 0 {
            return None;
        }
        let divisor = gcd(numerator, denominator);
        Some(Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// The count if it is whole.
    pub fn as_whole(self) -> Option<u32> {
        (self.denominator == 1).then_some(self.numerator)
    }

    /// Numerator and denominator in lowest terms.
    pub fn parts(self) -> (u32, u32) {
        (self.numerator, self.denominator)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl PartialOrd for GpuCount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for GpuCount {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = u64::from(self.numerator) * u64::from(other.denominator);
        let right = u64::from(other.numerator) * u64::from(self.denominator);
        left.cmp(&right)
    }
}

impl fmt::Display for GpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            denominator => write!(f, "{}/{denominator}", self.numerator),
        }
    }
}

impl FromStr for GpuCount {
    type Err = GpuCountError;

    fn from_str(text: &str) -> Result<Self, GpuCountError> {
        let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
        let number = |part: &str| match part.bytes().all(|b| b.is_ascii_digit()) {
            true => part.parse().map_err(|_| GpuCountError),
            false => Err(GpuCountError),
        };
        Self::fraction(number(numerator)?, number(denominator)?).ok_or(GpuCountError)
    }
}

impl TryFrom<String> for GpuCount {
    type Error = GpuCountError;
    fn try_from(text: String) -> Result<Self, GpuCountError> {
        text.parse()
    }
}

impl From<GpuCount> for String {
    fn from(count: GpuCount) -> String {
        count.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_short_names_resolve_to_their_wire_names() {
        for (short, wire) in [
            ("a100-80g", "NVIDIA A100-80GB"),
            ("a100-40g", "NVIDIA A100-40GB"),
            ("h100-80g", "NVIDIA H100"),
            ("l40s", "NVIDIA L40S"),
            ("a10", "NVIDIA A10"),
            ("t4", "NVIDIA T4"),
        ] {
            let model = GpuModel::resolve(short).expect(short);
            assert_eq!(model.name, wire);
            assert_eq!(GpuModel::resolve(wire), Some(model));
        }
        assert_eq!(GpuModel::resolve("a1000"), None);
        assert_eq!(GpuModel::resolve(""), None);
    }

    #[test]
    fn no_spelling_names_two_models() {
        let mut seen = std::collections::HashMap::new();
        for model in GpuModel::all() {
            let spellings = model.aliases.iter().copied().chain([model.id.0, model.name]);
            for folded in spellings.map(fold).collect::<std::collections::BTreeSet<_>>() {
                if let Some(other) = seen.insert(folded.clone(), model.id) {
                    assert_eq!(other, model.id, "{folded} names two models");
                }
            }
        }
    }

    #[test]
    fn counts_are_rational() {
        let sixth: GpuCount = "2/12".parse().unwrap();
        assert_eq!(sixth.to_string(), "1/6");
        assert!(sixth < GpuCount::whole(1).unwrap());
        assert_eq!(sixth.as_whole(), None);
        for bad in ["0", "-1", "1.5", "", "1/0", "+2", "99999999999"] {
            assert!(bad.parse::<GpuCount>().is_err(), "{bad}");
        }
    }
}
