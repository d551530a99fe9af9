//! Remarks on an offer's figures, as a small set.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One remark.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The source has no currency; the usual one of that provider was taken.
    CurrencyAssumed,
    /// The source's GPU count was wrong (a share counted as a whole, or the reverse).
    CountCorrected,
    /// The source's GPU memory was wrong and the table's is shown.
    MemoryCorrected,
    /// A "from" price.
    FromPrice,
    /// A statistic over offers (a median), not a quote.
    Statistical,
    /// The least bid, not what it will cost.
    Floor,
    /// A machine of another cloud, sold on.
    Resold,
    /// Its id ends with the offer (a marketplace ask): no type one could ask for again.
    Ephemeral,
    /// The source had several prices for it; one was chosen by rule, all are kept.
    Duplicated,
    /// The price is the sum of parts that the source states one by one.
    Summed,
    /// Typed in from a price page, not read from an interface.
    Manual,
}

impl Mark {
    const ALL: [Self; 11] = [
        Self::CurrencyAssumed,
        Self::CountCorrected,
        Self::MemoryCorrected,
        Self::FromPrice,
        Self::Statistical,
        Self::Floor,
        Self::Resold,
        Self::Ephemeral,
        Self::Duplicated,
        Self::Summed,
        Self::Manual,
    ];

    fn bit(self) -> u16 {
        1 << (self as u16)
    }
}

/// A set of remarks. Written as a list of words.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Marks(u16);

impl Marks {
    /// No remark.
    pub const NONE: Self = Self(0);

    /// A set of one.
    pub fn of(mark: Mark) -> Self {
        Self(mark.bit())
    }

    /// The set with one more.
    #[must_use]
    pub fn with(self, mark: Mark) -> Self {
        Self(self.0 | mark.bit())
    }

    /// Whether a remark is in it.
    pub fn has(self, mark: Mark) -> bool {
        self.0 & mark.bit() != 0
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }

    /// The remarks, in a fixed order.
    pub fn iter(self) -> impl Iterator<Item = Mark> {
        Mark::ALL.into_iter().filter(move |mark| self.has(*mark))
    }

    /// The set as bits, for compact storage; unknown bits of a later version are dropped on the
    /// way back.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The set of bits.
    pub fn from_bits(bits: u16) -> Self {
        Mark::ALL.into_iter().filter(|mark| bits & mark.bit() != 0).collect()
    }
}

impl FromIterator<Mark> for Marks {
    fn from_iter<I: IntoIterator<Item = Mark>>(marks: I) -> Self {
        marks.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for Marks {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Marks {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Mark>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_survives_json_and_bits() {
        let marks = Marks::of(Mark::FromPrice).with(Mark::Resold);
        let json = serde_json::to_string(&marks).unwrap();
        assert_eq!(json, r#"["from_price","resold"]"#);
        assert_eq!(serde_json::from_str::<Marks>(&json).unwrap(), marks);
        assert_eq!(Marks::from_bits(marks.bits() | 1 << 15), marks);
        let all: Marks = Mark::ALL.into_iter().collect();
        assert_eq!(all.iter().count(), Mark::ALL.len());
    }
}
