//! Ceilings in another currency: converted by the rates of whoever answers.

use runwhere_model::{Currency, Money};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::ids::Ceiling;
use crate::api::{Client, View};
use crate::failure::{Failure, Outcome};
use crate::seams::prices::LocalPrices;
use crate::texts::{self, Lang, Text};

/// A ceiling in CNY, as prices are compared, and the rate that made it of another amount.
#[derive(Clone, Debug, Default)]
pub(super) struct InCny {
    stated: Option<Money>,
    pub(super) amount: Option<Decimal>,
    rate: Option<Value>,
}

impl InCny {
    /// What the decision rests on, for `--json`; null without a ceiling.
    pub(super) fn told(&self) -> Value {
        let (Some(stated), Some(amount)) = (self.stated, self.amount) else { return Value::Null };
        let of = |key: &str| self.rate.as_ref().and_then(|rate| View(rate).text(key));
        json!({
            "amount": stated.amount.to_string(), "currency": stated.currency.code(),
            "cny": amount.to_string(), "fx_rate": of("rate"), "fx_date": of("date"),
            "fx_source": of("source"),
        })
    }
}

/// By the rates of a server.
pub(super) async fn by_server(client: &Client, ceiling: Option<Ceiling>) -> Outcome<InCny> {
    match ceiling.map(|ceiling| ceiling.0) {
        Some(money) if money.currency != Currency::CNY => {
            let answer = client.get("/api/v1/prices/fx").await?;
            in_cny(Some(money), View(&answer).list("items"))
        }
        money => in_cny(money, &[]),
    }
}

/// By the rates of this machine.
pub(super) fn by_machine(prices: &LocalPrices, ceiling: Option<Ceiling>) -> Outcome<InCny> {
    in_cny(ceiling.map(|ceiling| ceiling.0), View(&prices.fx()).list("items"))
}

fn in_cny(ceiling: Option<Money>, rates: &[Value]) -> Outcome<InCny> {
    let Some(stated) = ceiling else { return Ok(InCny::default()) };
    let refused = |why: Failure| {
        let said = |lang| {
            let text = texts::price_no_rate(stated.currency.code(), why.message.get(lang));
            text.get(lang).to_owned()
        };
        let text = Text::new(said(Lang::Zh), said(Lang::En));
        Failure::usage("price_currency", text).hint(texts::price_no_rate_hint())
    };
    let (converted, rate) = convert(stated, Currency::CNY, rates).map_err(refused)?;
    Ok(InCny { stated: Some(stated), amount: Some(converted.amount), rate })
}

/// Converts with a rate of this direction; the opposite one is never turned round.
pub(super) fn convert(
    money: Money,
    to: Currency,
    rates: &[Value],
) -> Outcome<(Money, Option<Value>)> {
    if money.currency == to {
        return Ok((money, None));
    }
    let none = || {
        let from = money.currency;
        Failure::other("no_rate", texts::price_no_direction(from, to))
            .hint(texts::price_no_direction_hint())
    };
    let direction = |rate: &&Value| {
        let text = |key: &str| View(rate).text(key).unwrap_or_default();
        text("from") == money.currency.code() && text("to") == to.code()
    };
    let rate = rates.iter().find(direction).ok_or_else(none)?;
    if View(rate).flag("decides") == Some(false) {
        return Err(Failure::other("old_rate", texts::price_old_rate()));
    }
    let factor = View(rate).decimal("rate").ok_or_else(none)?;
    let large = || Failure::usage("amount_too_large", texts::price_too_large());
    let amount = money.amount.checked_mul(factor).ok_or_else(large)?;
    Ok((Money::new(amount, to), Some(rate.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> [Value; 2] {
        [
            json!({"from": "CNY", "to": "USD", "rate": "0.140845", "date": "2026-11-20", "decides": true}),
            json!({"from": "USD", "to": "CNY", "rate": "7.10", "date": "2026-01-01", "decides": false}),
        ]
    }

    #[test]
    fn pr_076_an_amount_is_converted_not_relabelled() {
        let money: Money = "4.77 CNY".parse().unwrap();
        let (converted, _) = convert(money, Currency::USD, &rates()).unwrap();
        assert_eq!(runwhere_pricing::four_decimals(converted.amount), "0.6718");
        assert!(convert("1 USD".parse().unwrap(), Currency::CNY, &rates()).is_err(), "too old");
        assert!(
            convert("1 EUR".parse().unwrap(), Currency::CNY, &rates()).is_err(),
            "no direction"
        );
        let rate = [json!({"from": "USD", "to": "CNY", "rate": "7.1", "decides": true})];
        let most = Money::new(rust_decimal::Decimal::MAX, Currency::USD);
        assert_eq!(convert(most, Currency::CNY, &rate).unwrap_err().code, "amount_too_large");
    }

    #[test]
    fn a_ceiling_says_by_which_rate_it_was_converted() {
        let usd: Option<Money> = Some("5.5 USD".parse().unwrap());
        assert_eq!(in_cny(usd, &rates()).unwrap_err().exit, crate::failure::Exit::Usage);
        let rate = json!({"from": "USD", "to": "CNY", "rate": "7.1", "date": "2026-11-28",
                          "source": "treasury", "decides": true});
        let ceiling = in_cny(usd, &[rate]).unwrap();
        let told = json!({"amount": "5.5", "currency": "USD", "cny": "39.05", "fx_rate": "7.1",
                          "fx_date": "2026-11-28", "fx_source": "treasury"});
        assert_eq!(ceiling.told(), told);
        assert_eq!(in_cny(None, &[]).unwrap().told(), Value::Null);
    }
}
