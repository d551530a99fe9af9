//! The key of an offer: `provider/region/zone/billing_model/instance_type`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::ProviderId;

/// How an offer is charged.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BillingModel {
    /// Runs until we end it.
    OnDemand,
    /// Cheaper; the cloud may take it back.
    Spot,
    /// Sold out of the block for a fixed time in the future (capacity blocks).
    CapacityBlock,
    /// A host of one's own.
    DedicatedHost,
    /// Azure's older batch product: cheaper, may be taken back, not spot.
    LowPriority,
    /// Waits in a queue for a limited time (calendar, flex start).
    Queued,
    /// Paid for a term.
    Reserved,
    /// On demand with a Windows licence in the price.
    Windows,
    /// Spot with a Windows licence in the price.
    WindowsSpot,
}

impl BillingModel {
    /// All of them, in order.
    pub const ALL: [Self; 9] = [
        Self::OnDemand,
        Self::Spot,
        Self::CapacityBlock,
        Self::DedicatedHost,
        Self::LowPriority,
        Self::Queued,
        Self::Reserved,
        Self::Windows,
        Self::WindowsSpot,
    ];

    /// The word used in keys and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnDemand => "on_demand",
            Self::Spot => "spot",
            Self::CapacityBlock => "capacity_block",
            Self::DedicatedHost => "dedicated_host",
            Self::LowPriority => "low_priority",
            Self::Queued => "queued",
            Self::Reserved => "reserved",
            Self::Windows => "windows",
            Self::WindowsSpot => "windows_spot",
        }
    }

    /// Whether a job can be launched this way. The other forms are prices of something else: they
    /// are listed when asked for and never recommended.
    pub fn is_standard(self) -> bool {
        matches!(self, Self::OnDemand | Self::Spot)
    }
}

impl fmt::Display for BillingModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for BillingModel {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::ALL.into_iter().find(|model| model.as_str() == text).ok_or(KeyError::BillingModel)
    }
}

/// Names one offer exactly. Parsing and printing are inverse; the order is that of the parts.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OfferKey {
    /// The account or machine that can launch it, or whose list it is from.
    pub provider: ProviderId,
    /// The cloud's region; `None` prints as `-`.
    pub region: Option<String>,
    /// The cloud's zone; `None` prints as `-`.
    pub zone: Option<String>,
    /// On demand or spot.
    pub billing_model: BillingModel,
    /// The cloud's own spelling of the type.
    pub instance_type: String,
}

/// Why a text is no offer key.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeyError {
    /// Not five parts.
    #[error(
        "an offer key has five parts: provider/region/zone/billing_model/instance_type; this has {0}"
    )]
    Parts(usize),
    /// One part is empty (`-` stands for "does not apply").
    #[error("the {0} part of the offer key is empty")]
    Empty(&'static str),
    /// The provider is not an identifier.
    #[error("the provider part of the offer key is not a valid provider id")]
    Provider,
    /// None of the billing models.
    #[error("the billing model of an offer key is on_demand or spot (or a form such as windows)")]
    BillingModel,
    /// A percent sign without two hexadecimal digits, bytes that are not UTF-8, or an encoding of
    /// a character that needs none (two texts for one key).
    #[error("the {0} part of the offer key is not encoded as it is printed")]
    Encoding(&'static str),
}

impl fmt::Display for OfferKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.provider.as_str())?;
        for part in [
            optional(self.region.as_deref()),
            optional(self.zone.as_deref()),
            Cow::Borrowed(self.billing_model.as_str()),
            encode(&self.instance_type),
        ] {
            f.write_str("/")?;
            f.write_str(&part)?;
        }
        Ok(())
    }
}

impl FromStr for OfferKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let parts: Vec<&str> = text.split('/').collect();
        let [provider, region, zone, billing_model, instance_type] = parts[..] else {
            return Err(KeyError::Parts(parts.len()));
        };
        for (part, name) in [
            (provider, "provider"),
            (region, "region"),
            (zone, "zone"),
            (instance_type, "instance type"),
        ] {
            if part.is_empty() {
                return Err(KeyError::Empty(name));
            }
        }
        Ok(Self {
            provider: ProviderId::new(provider).map_err(|_| KeyError::Provider)?,
            region: if region == "-" { None } else { Some(decode(region, "region")?) },
            zone: if zone == "-" { None } else { Some(decode(zone, "zone")?) },
            billing_model: billing_model.parse()?,
            instance_type: decode(instance_type, "instance type")?,
        })
    }
}

impl TryFrom<String> for OfferKey {
    type Error = KeyError;
    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<OfferKey> for String {
    fn from(key: OfferKey) -> String {
        key.to_string()
    }
}

fn optional(part: Option<&str>) -> Cow<'_, str> {
    match part {
        None => Cow::Borrowed("-"),
        // A region that is literally "-" must not read back as "none".
        Some("-") => Cow::Borrowed("%2D"),
        Some(part) => encode(part),
    }
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._:+-".contains(&byte)
}

fn encode(part: &str) -> Cow<'_, str> {
    if part.bytes().all(plain) {
        return Cow::Borrowed(part);
    }
    let mut text = String::with_capacity(part.len() + 8);
    for byte in part.bytes() {
        match plain(byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    Cow::Owned(text)
}

fn decode(part: &str, name: &'static str) -> Result<String, KeyError> {
    let bad = || KeyError::Encoding(name);
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok()).ok_or_else(bad)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
        rest = &tail[2..];
    }
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    // One key has one text: anything that would print differently is refused.
    let printed =
        if text == "-" && name != "instance type" { Cow::Borrowed("%2D") } else { encode(&text) };
    if printed == part { Ok(text) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_keys_of_the_documents() {
        let text = "aliyun/cn-hangzhou/cn-hangzhou-i/on_demand/ecs.gn7i.2xlarge";
        let key: OfferKey = text.parse().unwrap();
        assert_eq!(key.instance_type, "ecs.gn7i.2xlarge");
        assert_eq!(key.zone.as_deref(), Some("cn-hangzhou-i"));
        assert_eq!(key.to_string(), text);
        let regional: OfferKey = "aws/us-east-1/-/on_demand/p5.48xlarge".parse().unwrap();
        assert_eq!(regional.zone, None);
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, want) in [
            ("aliyun/cn-hangzhou", KeyError::Parts(2)),
            ("a/b/c/d/e/f", KeyError::Parts(6)),
            ("a//-/spot/x", KeyError::Empty("region")),
            ("a/-/-/spot/", KeyError::Empty("instance type")),
            ("a/-/-/cheap/x", KeyError::BillingModel),
            ("a b/-/-/spot/x", KeyError::Provider),
            ("a/-/-/spot/%zz", KeyError::Encoding("instance type")),
            ("a/-/-/spot/%41", KeyError::Encoding("instance type")),
            ("a/-/-/spot/RTX 4090", KeyError::Encoding("instance type")),
        ] {
            assert_eq!(text.parse::<OfferKey>(), Err(want), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parse_and_print_are_inverse(
            provider in "[a-z][a-z0-9-]{0,8}",
            region in proptest::option::of("(?s).{1,12}"),
            zone in proptest::option::of("[-a-z/%]{1,6}|(?s).{1,4}"),
            billing_model in proptest::sample::select(BillingModel::ALL.to_vec()),
            instance_type in "[-%/.]{1,4}|(?s).{1,20}",
        ) {
            let Ok(provider) = ProviderId::new(&provider) else { return Ok(()) };
            let key = OfferKey { provider, region, zone, billing_model, instance_type };
            let text = key.to_string();
            // A key is one word of five parts, fit for a command line and an address.
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(text.split('/').count(), 5);
            prop_assert_eq!(text.parse::<OfferKey>(), Ok(key.clone()));
            let json = serde_json::to_string(&key).unwrap();
            prop_assert_eq!(serde_json::from_str::<OfferKey>(&json).unwrap(), key);
        }

        #[test]
        fn a_text_that_parses_prints_as_itself(text in "[a-z%0-9/_-]{1,40}") {
            if let Ok(key) = text.parse::<OfferKey>() {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }
}
