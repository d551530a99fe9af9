//! Exchange rates: dated, sourced, in one direction, with an age limit.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use runwhere_model::{Currency, DecimalError, Money, parse_decimal};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::snapshot::fields;

const BUNDLED: &str = include_str!("../data/rates.csv");

/// Rates older than this many days decide nothing, unless configured otherwise.
pub const DEFAULT_MAX_AGE_DAYS: u32 = 120;

/// One rate: an amount in `from` times `rate` is the amount in `to`. Never used the other way.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FxRate {
    /// The currency of the original amount.
    pub from: Currency,
    /// The currency of the result.
    pub to: Currency,
    /// Units of `to` for one unit of `from`; positive.
    pub rate: Decimal,
    /// The day for which it was stated.
    pub date: Date,
    /// Who stated it.
    pub source: String,
}

/// The `[fx]` part of a configuration file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FxSettings {
    /// Days after which a rate decides nothing any more; 120 if absent.
    pub max_age_days: Option<u32>,
    /// A file of rates that replace or extend the bundled ones: lines `from,to,rate,date,source`
    /// under a header of these words.
    pub file: Option<PathBuf>,
    /// Rates that replace or extend the bundled ones and those of the file.
    pub rates: Vec<FxRateSetting>,
}

/// One configured rate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FxRateSetting {
    /// From which currency, for example `USD`.
    pub from: Currency,
    /// To which currency; `CNY` if absent.
    #[serde(default = "cny")]
    pub to: Currency,
    /// The rate as text, for example `"6.7489"`: a number would pass through a float.
    pub rate: String,
    /// The day for which it holds, for example `2026-11-20`.
    pub date: Date,
    /// Who states it.
    pub source: String,
}

fn cny() -> Currency {
    Currency::CNY
}

/// Why a configured rate was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FxSettingError {
    /// The rate is not an exact decimal.
    #[error("fx.rates {from} to {to}: the rate is {error}; write it as text, such as \"6.7489\"")]
    Rate {
        /// From which currency.
        from: Currency,
        /// To which currency.
        to: Currency,
        /// What is wrong.
        error: DecimalError,
    },
    /// Zero or negative.
    #[error("fx.rates {from} to {to}: the rate must be positive")]
    NotPositive {
        /// From which currency.
        from: Currency,
        /// To which currency.
        to: Currency,
    },
    /// Both currencies are the same.
    #[error("fx.rates {0} to {0}: the two currencies must differ")]
    SameCurrency(Currency),
    /// No source.
    #[error("fx.rates {from} to {to}: name the source of the rate")]
    NoSource {
        /// From which currency.
        from: Currency,
        /// To which currency.
        to: Currency,
    },
    /// The file cannot be read.
    #[error("fx.file: {} cannot be read: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file has a line that is no rate.
    #[error("fx.file: {}: {error}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line.
        error: FxFileError,
    },
}

/// A line of a file of rates that cannot be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "line {line}: expected from,to,rate,date,source, such as USD,CNY,6.7489,2026-09-24,treasury"
)]
pub struct FxFileError {
    /// Which line, from 1.
    pub line: usize,
}

/// Why an amount could not be converted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FxError {
    /// There is no rate in this direction; the opposite one is not turned round.
    #[error("no exchange rate from {from} to {to}; configure one in [fx]")]
    Missing {
        /// From which currency.
        from: Currency,
        /// To which currency.
        to: Currency,
    },
    /// The rate is too old to decide anything with.
    #[error(
        "the exchange rate from {from} to {to} is of {date}, {age_days} days old; at most \
         {max_age_days} are allowed: configure a newer one in [fx]"
    )]
    TooOld {
        /// From which currency.
        from: Currency,
        /// To which currency.
        to: Currency,
        /// The day of the rate.
        date: Date,
        /// How old it is.
        age_days: i64,
        /// How old it may be.
        max_age_days: u32,
    },
    /// The result has more digits than can be kept.
    #[error("the converted amount is out of range")]
    Range,
}

/// A converted amount with all that led to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Converted {
    /// The exact product, not rounded.
    pub money: Money,
    /// The rate; `None` when the amount was in the wanted currency already.
    pub rate: Option<Arc<FxRate>>,
    /// Age of the rate in days.
    pub age_days: i64,
    /// The rate is past the age limit: good enough to show, not to decide.
    pub stale: bool,
}

/// The rates in force.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FxTable {
    rates: BTreeMap<(Currency, Currency), InForce>,
    max_age_days: u32,
}

/// A rate, and its day as a number.
#[derive(Clone, Debug, Eq, PartialEq)]
struct InForce {
    rate: Arc<FxRate>,
    /// Days since 1970-01-01; `None` where a day is too far away to be one.
    day: Option<i64>,
}

impl InForce {
    fn new(rate: FxRate) -> Self {
        let midnight = rate.date.to_zoned_datetime(TimeZone::UTC).ok();
        let day = midnight.map(|midnight| day_of(midnight.timestamp()));
        Self { rate: Arc::new(rate), day }
    }

    fn age_days(&self, now: Timestamp) -> i64 {
        // A rate of tomorrow (another time zone) is not negative in age.
        self.day.map_or(i64::MAX, |day| (day_of(now) - day).max(0))
    }
}

/// The day of an instant, as ages of rates count days.
pub(crate) fn day_of(at: Timestamp) -> i64 {
    at.as_second().div_euclid(86_400)
}

fn by_direction(
    rates: impl IntoIterator<Item = FxRate>,
) -> impl Iterator<Item = ((Currency, Currency), InForce)> {
    rates.into_iter().map(|rate| ((rate.from, rate.to), InForce::new(rate)))
}

impl FxTable {
    /// The bundled rates alone.
    pub fn bundled() -> Self {
        let rates = by_direction(BUNDLED.lines().skip(1).filter_map(read)).collect();
        Self { rates, max_age_days: DEFAULT_MAX_AGE_DAYS }
    }

    /// The bundled rates, replaced and extended by those of the configured file, and these by
    /// configured ones.
    pub fn new(settings: &FxSettings) -> Result<Self, FxSettingError> {
        let mut table = Self::bundled();
        table.max_age_days = settings.max_age_days.unwrap_or(DEFAULT_MAX_AGE_DAYS);
        if let Some(path) = &settings.file {
            let text = std::fs::read_to_string(path).map_err(|error| FxSettingError::File {
                path: path.clone(),
                reason: error.to_string(),
            })?;
            let rates = Self::read_file(&text)
                .map_err(|error| FxSettingError::Line { path: path.clone(), error })?;
            table.rates.extend(by_direction(rates));
        }
        for setting in &settings.rates {
            let (from, to) = (setting.from, setting.to);
            if from == to {
                return Err(FxSettingError::SameCurrency(from));
            }
            let rate = parse_decimal(setting.rate.trim())
                .map_err(|error| FxSettingError::Rate { from, to, error })?;
            if rate <= Decimal::ZERO {
                return Err(FxSettingError::NotPositive { from, to });
            }
            let source = setting.source.trim().to_owned();
            if source.is_empty() {
                return Err(FxSettingError::NoSource { from, to });
            }
            table.rates.extend(by_direction([FxRate {
                from,
                to,
                rate,
                date: setting.date,
                source,
            }]));
        }
        Ok(table)
    }

    /// The table with newer rates put in; an older rate of a direction does not replace a newer one.
    #[must_use]
    pub fn with(mut self, rates: impl IntoIterator<Item = FxRate>) -> Self {
        for rate in rates {
            let direction = (rate.from, rate.to);
            let present = self.rates.get(&direction);
            let newer = present.is_none_or(|present| rate.date >= present.rate.date);
            if newer && rate.from != rate.to && rate.rate > Decimal::ZERO {
                self.rates.insert(direction, InForce::new(rate));
            }
        }
        self
    }

    /// Rates of a file: lines `from,to,rate,date,source` under a header of these words.
    pub fn read_file(text: &str) -> Result<Vec<FxRate>, FxFileError> {
        let mut lines = text.lines().enumerate();
        let header =
            lines.next().map_or("", |(_, line)| line.trim_start_matches('\u{feff}').trim());
        if header != "from,to,rate,date,source" {
            return Err(FxFileError { line: 1 });
        }
        lines
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(at, line)| {
                let rate = read(line.trim_end()).filter(|rate| {
                    rate.rate > Decimal::ZERO && rate.from != rate.to && !rate.source.is_empty()
                });
                rate.ok_or(FxFileError { line: at + 1 })
            })
            .collect()
    }

    /// A table of rates that were in force.
    pub fn restore(rates: Vec<FxRate>, max_age_days: u32) -> Self {
        Self { rates: by_direction(rates).collect(), max_age_days }
    }

    /// All rates, ordered by currency.
    pub fn rates(&self) -> impl Iterator<Item = &FxRate> {
        self.rates.values().map(|in_force| in_force.rate.as_ref())
    }

    /// Days after which a rate decides nothing any more.
    pub fn max_age_days(&self) -> u32 {
        self.max_age_days
    }

    /// All rates as rows, with their age.
    pub fn listed(&self, now: Timestamp) -> Vec<serde_json::Value> {
        let row = |in_force: &InForce| {
            let (rate, age_days) = (&in_force.rate, in_force.age_days(now));
            serde_json::json!({
                "from": rate.from, "to": rate.to, "rate": rate.rate, "date": rate.date,
                "source": rate.source, "age_days": age_days,
                "decides": age_days <= i64::from(self.max_age_days),
            })
        };
        self.rates.values().map(row).collect()
    }

    /// Converts for showing and ordering; a rate past its age is used and marked.
    pub fn convert(
        &self,
        money: Money,
        to: Currency,
        now: Timestamp,
    ) -> Result<Converted, FxError> {
        if money.currency == to {
            return Ok(Converted { money, rate: None, age_days: 0, stale: false });
        }
        let from = money.currency;
        let in_force = self.rates.get(&(from, to)).ok_or(FxError::Missing { from, to })?;
        let rate = &in_force.rate;
        let amount = money.amount.checked_mul(rate.rate).ok_or(FxError::Range)?;
        let age_days = in_force.age_days(now);
        Ok(Converted {
            money: Money::new(amount, to),
            rate: Some(Arc::clone(rate)),
            age_days,
            stale: age_days > i64::from(self.max_age_days),
        })
    }

    /// Converts for a decision (a ceiling, a budget); a rate past its age is refused.
    pub fn decide(&self, money: Money, to: Currency, now: Timestamp) -> Result<Converted, FxError> {
        let converted = self.convert(money, to, now)?;
        match &converted.rate {
            Some(rate) if converted.stale => Err(FxError::TooOld {
                from: rate.from,
                to: rate.to,
                date: rate.date,
                age_days: converted.age_days,
                max_age_days: self.max_age_days,
            }),
            _ => Ok(converted),
        }
    }
}

fn read(line: &str) -> Option<FxRate> {
    let fields = fields(line);
    let [from, to, rate, date, source] = fields.as_slice() else { return None };
    Some(FxRate {
        from: from.parse().ok()?,
        to: to.parse().ok()?,
        rate: parse_decimal(rate).ok()?,
        date: date.parse().ok()?,
        source: source.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(text: &str) -> Money {
        Money::new(parse_decimal(text).unwrap(), Currency::USD)
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn bundled_rates_cover_every_bundled_currency() {
        let table = FxTable::bundled();
        for row in &crate::snapshot::Bundled::get().offers {
            let money = row.price.state.known().unwrap().per_hour();
            let converted =
                table.convert(money, Currency::CNY, at("2026-11-20T00:00:00Z")).unwrap();
            assert_eq!(converted.rate.is_none(), money.currency == Currency::CNY);
        }
    }

    #[test]
    fn the_product_is_exact_and_carries_its_rate() {
        let converted = FxTable::bundled()
            .convert(usd("21.957642"), Currency::CNY, at("2026-10-02T00:00:00Z"))
            .unwrap();
        assert_eq!(converted.money.amount.to_string(), "148.1899300938");
        assert_eq!(converted.age_days, 8);
        assert!(!converted.stale);
        assert_eq!(converted.rate.unwrap().source, "CFETS central parity rate");
    }

    #[test]
    fn rates_are_never_turned_round() {
        let yuan = Money::new(Decimal::ONE, Currency::CNY);
        assert_eq!(
            FxTable::bundled().convert(yuan, Currency::USD, at("2026-10-02T00:00:00Z")),
            Err(FxError::Missing { from: Currency::CNY, to: Currency::USD })
        );
    }

    #[test]
    fn an_old_rate_shows_but_does_not_decide() {
        let table = FxTable::bundled();
        let last_day = at("2027-01-22T23:59:59Z");
        assert!(table.decide(usd("1"), Currency::CNY, last_day).is_ok());
        let next = at("2027-01-23T00:00:00Z");
        let shown = table.convert(usd("1"), Currency::CNY, next).unwrap();
        assert!(shown.stale);
        assert_eq!(shown.age_days, 121);
        assert!(matches!(
            table.decide(usd("1"), Currency::CNY, next),
            Err(FxError::TooOld { age_days: 121, max_age_days: 120, .. })
        ));
        let settings: FxSettings = toml::from_str(
            "max_age_days = 30\n[[rates]]\nfrom = \"USD\"\nrate = \"6.9\"\ndate = \"2027-01-20\"\nsource = \"treasury\"\n",
        )
        .unwrap();
        let table = FxTable::new(&settings).unwrap();
        assert_eq!(
            table.decide(usd("2"), Currency::CNY, next).unwrap().money.to_string(),
            "13.8 CNY"
        );
    }

    #[test]
    fn bad_settings_are_refused_by_name() {
        let rate = |rate: &str, from: &str, source: &str| FxSettings {
            max_age_days: None,
            file: None,
            rates: vec![FxRateSetting {
                from: from.parse().unwrap(),
                to: Currency::CNY,
                rate: rate.to_owned(),
                date: "2026-01-01".parse().unwrap(),
                source: source.to_owned(),
            }],
        };
        let error = |settings: &FxSettings| FxTable::new(settings).unwrap_err();
        assert!(matches!(error(&rate("7,1", "USD", "x")), FxSettingError::Rate { .. }));
        assert!(matches!(error(&rate("0", "USD", "x")), FxSettingError::NotPositive { .. }));
        assert!(matches!(error(&rate("1", "CNY", "x")), FxSettingError::SameCurrency(_)));
        assert!(matches!(error(&rate("7", "USD", " ")), FxSettingError::NoSource { .. }));
        assert!(toml::from_str::<FxSettings>("[[rates]]\nfrom = \"USD\"\nrate = 7.1\n").is_err());
    }

    #[test]
    fn a_file_of_rates_replaces_the_bundled_ones_and_is_replaced_by_settings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rates.csv");
        let head = "from,to,rate,date,source\n";
        let write = |lines: &str| std::fs::write(&path, format!("{head}{lines}")).unwrap();
        let settings = FxSettings { file: Some(path.clone()), ..FxSettings::default() };
        let now = at("2026-11-20T00:00:00Z");
        let yuan = |table: &FxTable, money: &str| {
            table.decide(money.parse().unwrap(), Currency::CNY, now).unwrap().money.to_string()
        };
        write("USD,CNY,7.10,2026-11-19,treasury\nGBP,CNY,9.4,2026-11-19,treasury\n");
        let table = FxTable::new(&settings).unwrap();
        assert_eq!(yuan(&table, "10 USD"), "71.0 CNY");
        assert_eq!(yuan(&table, "10 GBP"), "94.0 CNY");
        let over: FxSettings = toml::from_str(
            "[[rates]]\nfrom = \"USD\"\nrate = \"7.2\"\ndate = \"2026-11-20\"\nsource = \"cfo\"\n",
        )
        .unwrap();
        let table = FxTable::new(&FxSettings { file: Some(path.clone()), ..over }).unwrap();
        assert_eq!(
            (yuan(&table, "10 USD"), yuan(&table, "1 GBP")),
            ("72.0 CNY".into(), "9.4 CNY".into())
        );

        for odd in ["USD,CNY,0,2026-11-19,x\n", "USD,CNY,7.1\n", "USD,USD,1,2026-11-19,x\n"] {
            write(odd);
            let error = FxTable::new(&settings).unwrap_err().to_string();
            assert!(error.contains("rates.csv") && error.contains("line 2"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = FxTable::new(&settings).unwrap_err().to_string();
        assert!(error.contains("rates.csv cannot be read"), "{error}");
    }
}
