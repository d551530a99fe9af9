//! Figures of answers, read exactly.

use runwhere_model::{Currency, GpuCount, GpuModel, HourlyPrice, PriceState, RawNumber};
use rust_decimal::Decimal;

/// The hourly price that a figure states. None and zero are "unknown": clouds use both for prices
/// that are not set yet. The reason otherwise.
pub fn hourly(amount: Option<&RawNumber>, currency: Currency) -> Result<PriceState, String> {
    let Some(amount) = amount else { return Ok(PriceState::Unknown) };
    let value = amount.decimal().map_err(|error| format!("price {}: {error}", amount.text()))?;
    state(value, currency)
}

/// The price state of an exact amount.
pub(crate) fn state(value: Decimal, currency: Currency) -> Result<PriceState, String> {
    if value.is_zero() {
        return Ok(PriceState::Unknown);
    }
    if value.is_sign_negative() {
        return Err(format!("the price {value} is negative"));
    }
    Ok(PriceState::Known { price: HourlyPrice { amount: value, currency } })
}

/// A whole number of at most 32 bits; `None` where the figure is none.
pub fn whole(number: &RawNumber) -> Option<u32> {
    let value = number.decimal().ok()?;
    if !value.fract().is_zero() {
        return None;
    }
    u32::try_from(value).ok()
}

/// GiB, possibly with a fraction, in MiB; parts of a MiB are dropped.
pub fn gib_to_mib(number: &RawNumber) -> Option<u64> {
    let mib = number.decimal().ok()?.checked_mul(Decimal::from(1024))?;
    u64::try_from(mib.trunc()).ok().filter(|mib| *mib > 0)
}

/// The GPU count of a decimal: a whole number, or a share of one GPU written with a few digits
/// (`0.333`). `None` for zero and for shares that no cloud sells.
pub fn count(value: Decimal) -> Option<GpuCount> {
    if value.fract().is_zero() {
        return GpuCount::whole(u32::try_from(value).ok()?);
    }
    let slack = Decimal::new(1, 3);
    (2..=16u32)
        .find(|parts| (Decimal::ONE / Decimal::from(*parts) - value).abs() < slack)
        .and_then(|parts| GpuCount::fraction(1, parts))
}

/// Memory of one GPU where a cloud writes that of one and that of all into the same field: the
/// reading that fits the model.
pub fn one_gpu_mib(stated_mib: u64, gpus: GpuCount, raw: &str) -> u64 {
    let fits =
        |mib: u64| GpuModel::named(raw, Some(mib)).is_some_and(|model| model.memory_fits(mib));
    match gpus.as_whole() {
        Some(count) if count > 1 && !fits(stated_mib) && fits(stated_mib / u64::from(count)) => {
            stated_mib / u64::from(count)
        }
        _ => stated_mib,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(json: &str) -> RawNumber {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn shares_are_fractions() {
        let of = |text: &str| count(text.parse().unwrap()).map(|count| count.to_string());
        assert_eq!(of("8"), Some("8".to_owned()));
        assert_eq!(of("8.0"), Some("8".to_owned()));
        assert_eq!(of("0.25"), Some("1/4".to_owned()));
        assert_eq!(of("0.333"), Some("1/3".to_owned()));
        assert_eq!(of("0.167"), Some("1/6".to_owned()));
        assert_eq!(of("0.0625"), Some("1/16".to_owned()));
        assert_eq!(of("0"), None);
        assert_eq!(of("0.7"), None);
        assert_eq!(of("1.5"), None);
    }

    #[test]
    fn zero_and_nothing_are_unknown_and_odd_figures_have_a_reason() {
        assert_eq!(hourly(None, Currency::USD), Ok(PriceState::Unknown));
        assert_eq!(hourly(Some(&number("0.0")), Currency::USD), Ok(PriceState::Unknown));
        assert!(hourly(Some(&number("-1")), Currency::USD).unwrap_err().contains("negative"));
        assert!(hourly(Some(&number("\"ask\"")), Currency::USD).is_err());
    }
}
