//! Cost as a running total, so that any cutting of time gives the same sum.

use rust_decimal::{Decimal, RoundingStrategy};

use crate::money::{Money, MoneyError};
use crate::price::HourlyPrice;

/// Decimal places of every stored amount.
pub const AMOUNT_PLACES: u32 = 12;

const MICROS_PER_HOUR: i128 = 3_600_000_000;

/// The exact cost of the first `micros` billed microseconds at one hourly price, rounded once
/// (half to even) to 12 decimals.
///
/// The product price x micros / 3,600,000,000 is formed on integers, so no digit is lost before
/// the one rounding.
pub fn cost_total(price: HourlyPrice, micros: u64) -> Result<Money, MoneyError> {
    let amount = price.amount.normalize();
    let scale = amount.scale();
    // amount = mantissa / 10^scale; result wanted at 12 places:
    // mantissa * micros * 10^12 / (10^scale * 3.6e9), in 256 bits at worst: split to stay in i128.
    let product = amount.mantissa().checked_mul(i128::from(micros)).ok_or(MoneyError::Range)?;
    let (numerator, denominator) = if scale <= AMOUNT_PLACES {
        let factor = 10i128.pow(AMOUNT_PLACES - scale);
        (product.checked_mul(factor).ok_or(MoneyError::Range)?, MICROS_PER_HOUR)
    } else {
        let factor = 10i128.pow(scale - AMOUNT_PLACES);
        (product, MICROS_PER_HOUR.checked_mul(factor).ok_or(MoneyError::Range)?)
    };
    let units = divide_half_even(numerator, denominator);
    let amount =
        Decimal::try_from_i128_with_scale(units, AMOUNT_PLACES).map_err(|_| MoneyError::Range)?;
    Ok(Money::new(amount, price.currency))
}

/// The cost of the billed microseconds from `from` up to `to` of one running total.
///
/// It is the difference of two totals, so the costs of adjoining pieces add up to the cost of the
/// whole to the last digit.
pub fn cost_between(price: HourlyPrice, from: u64, to: u64) -> Result<Money, MoneyError> {
    cost_total(price, to)?.checked_sub(cost_total(price, from)?)
}

/// Rounds an exact amount for showing; half away from zero, as invoices do.
pub fn round_for_display(amount: Decimal, places: u32) -> Decimal {
    let mut rounded = amount.round_dp_with_strategy(places, RoundingStrategy::MidpointAwayFromZero);
    rounded.rescale(places);
    rounded
}

fn divide_half_even(numerator: i128, denominator: i128) -> i128 {
    let quotient = numerator.div_euclid(denominator);
    let rest = numerator.rem_euclid(denominator);
    match (rest * 2).cmp(&denominator) {
        std::cmp::Ordering::Less => quotient,
        std::cmp::Ordering::Greater => quotient + 1,
        std::cmp::Ordering::Equal => quotient + (quotient & 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Currency;
    use proptest::prelude::*;

    fn price(text: &str) -> HourlyPrice {
        HourlyPrice { amount: crate::parse_decimal(text).unwrap(), currency: Currency::CNY }
    }

    #[test]
    fn the_design_example() {
        let total = cost_total(price("36.44"), 187_000_000).unwrap();
        assert_eq!(total.amount.to_string(), "1.892855555556");
    }

    #[test]
    fn a_full_day_is_twenty_four_hours_exactly() {
        let day = cost_total(price("0.0136"), 24 * 3_600_000_000).unwrap();
        assert_eq!(day.amount.normalize().to_string(), "0.3264");
    }

    #[test]
    fn overflow_is_refused_not_wrapped() {
        assert_eq!(
            cost_total(price("9999999999999999999999999999"), u64::MAX),
            Err(MoneyError::Range)
        );
    }

    #[test]
    fn display_rounds_half_up_and_pads() {
        assert_eq!(
            round_for_display(crate::parse_decimal("1.005").unwrap(), 2).to_string(),
            "1.01"
        );
        assert_eq!(
            round_for_display(crate::parse_decimal("36.44").unwrap(), 4).to_string(),
            "36.4400"
        );
    }

    proptest! {
        #[test]
        fn any_cutting_gives_the_same_sum(
            mantissa in 0i64..10_000_000_000,
            scale in 0u32..=18,
            cuts in proptest::collection::vec(0u64..10_000_000_000_000, 0..12),
        ) {
            let price = HourlyPrice { amount: Decimal::new(mantissa, scale), currency: Currency::USD };
            let mut cuts = cuts;
            cuts.push(0);
            cuts.sort_unstable();
            let end = *cuts.last().unwrap();
            let mut sum = Money::zero(Currency::USD);
            for pair in cuts.windows(2) {
                sum = sum.checked_add(cost_between(price, pair[0], pair[1]).unwrap()).unwrap();
            }
            prop_assert_eq!(sum, cost_total(price, end).unwrap());
        }
    }
}
