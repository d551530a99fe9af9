//! What holds of every price, every key, every order and every quote.

use std::sync::Arc;

use proptest::prelude::*;
use runwhere_model::{Lang, Offer, PriceKind, PriceState, RawNumber, parse_decimal};
use runwhere_pricing::{
    Audience, ListRequest, Policy, PriceFolder, PriceOptions, PriceService, Query, QuoteRef,
    QuoteReply,
};

use crate::support::{Fixed, offer, provider, service, sheet, young};

/// A price as a source may write it, with what it is afterwards: digits without zeros at the end.
fn written() -> impl Strategy<Value = (String, String)> {
    ("(0|[1-9][0-9]{0,9})", "[0-9]{0,18}", 0..6usize).prop_filter_map(
        "a price is above zero",
        |(whole, fraction, zeros)| {
            let kept = fraction.trim_end_matches('0');
            let canonical = match kept {
                "" => whole.clone(),
                kept => format!("{whole}.{kept}"),
            };
            let text = match fraction.len() + zeros {
                0 => whole,
                _ => format!("{whole}.{fraction}{}", "0".repeat(zeros)),
            };
            (canonical != "0").then_some((text, canonical))
        },
    )
}

fn kept_in(path: &std::path::Path) -> PriceService {
    let folder = Some(PriceFolder::open(path).expect("a folder"));
    let options = PriceOptions { bundled: false, folder, ..PriceOptions::default() };
    PriceService::new(Arc::new(Fixed(young())), options)
}

fn arbitrary_offer() -> impl Strategy<Value = Offer> {
    (
        0..2u8,
        "[a-z]{1,2}|\\PC{1,3}",
        any::<bool>(),
        0..3u8,
        prop_oneof![Just("1"), Just("2"), Just("1/6")],
        prop_oneof![Just("-"), Just("1 CNY"), Just("0.15 USD"), Just("7 KRW"), Just("0.2 EUR")],
        prop::option::of(1..3u32),
    )
        .prop_map(|(of, region, spot, kind, count, price, vcpus)| {
            let billing_model = if spot { "spot" } else { "on_demand" };
            let mut offer =
                offer(&format!("p{of}/r/-/{billing_model}/t{kind}"), "t4", count, price);
            offer.key.region = Some(region);
            offer.vcpus = vcpus;
            offer
        })
}

fn question() -> impl Strategy<Value = Query> {
    let gpu = runwhere_model::GpuModel::resolve("t4").map(|model| model.id);
    (
        prop_oneof![Just(gpu), Just(None)],
        1..3u32,
        any::<bool>(),
        prop::option::of("[1-9]\\.[0-9]{1,12}"),
        0..9usize,
        prop::option::of("\\PC{1,3}"),
        any::<bool>(),
        prop::option::of((1..10_000u32, 0..5000u32)),
    )
        .prop_map(|(gpu, count, spot_allowed, ceiling, top_n, region, reclaim, run)| Query {
            spot_allowed,
            max_hourly_price: ceiling.and_then(|text| parse_decimal(&text).ok()),
            top_n,
            prefer_regions: region.into_iter().collect(),
            policy: if reclaim { Policy::Reclaim } else { Policy::Price },
            hours: run.map(|(hours, _)| rust_decimal::Decimal::new(i64::from(hours), 2)),
            disk_gib: run.map(|(_, disk)| disk),
            audience: Audience::Member,
            ..Query::new(gpu, count)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// From the text of a JSON number to the text that is shown, through the file of the prices.
    #[test]
    fn every_digit_of_every_price_comes_out_as_it_went_in(
        prices in prop::collection::vec(written(), 1..12),
    ) {
        let mut offers = Vec::new();
        for (at, (text, canonical)) in prices.iter().enumerate() {
            let number: RawNumber = serde_json::from_str(text).expect("a number");
            let amount = number.decimal().expect("at most 28 digits");
            prop_assert_eq!(&amount.to_string(), canonical);
            let currency = ["USD", "CNY", "EUR"][at % 3];
            let price = format!("{text} {currency}");
            let mut offer = offer(&format!("a/r/-/on_demand/t{at}"), "t4", "1", &price);
            offer.price.kind = PriceKind::List;
            offers.push(offer);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let before = kept_in(folder.path());
        before.replace_sheet(provider("a"), sheet(offers, young()));
        before.keep_state();
        let restored = before.state(before.catalogue().state_id()).expect("a kept state");
        for (at, (_, canonical)) in prices.iter().enumerate() {
            let key = format!("a/r/-/on_demand/t{at}");
            let shown = before.row(&before.resolve(&key).expect("it").entry, Lang::En);
            prop_assert_eq!(shown.price.as_deref(), Some(canonical.as_str()));
            let again = restored.get(&key.parse().expect("a key")).expect("it");
            let known = again.offer.price.state.known().expect("a price");
            prop_assert_eq!(&known.amount.to_string(), canonical);
        }
    }

    /// More digits than fit are refused, never rounded.
    #[test]
    fn digits_that_do_not_fit_are_refused(
        digits in "[1-9][0-9]{28,40}[1-9]",
        point in 1..28usize,
    ) {
        let (whole, fraction) = digits.split_at(point);
        let text = format!("{whole}.{fraction}");
        let number: RawNumber = serde_json::from_str(&text).expect("a number");
        prop_assert!(number.decimal().is_err(), "{}", text);
    }

    /// Whichever way the offers came, the same first, the same last, each before all after it.
    #[test]
    fn the_order_is_total_whichever_way_offers_came(
        (offers, shuffled) in prop::collection::vec(arbitrary_offer(), 0..24)
            .prop_flat_map(|offers| (Just(offers.clone()), Just(offers).prop_shuffle())),
        query in question(),
    ) {
        let with = |offers: Vec<Offer>| {
            let service = service(young(), false);
            for id in ["p0", "p1"] {
                let own = offers.iter().filter(|o| o.key.provider.as_str() == id).cloned();
                service.replace_sheet(provider(id), sheet(own.collect(), young()));
            }
            service
        };
        let query = Query { top_n: 100, ..query };
        let (one, other) = (with(offers), with(shuffled));
        let (one, other) = (one.quote(&query), other.quote(&query));
        let keys = |quote: &runwhere_pricing::Quote| {
            let of = |r: &runwhere_pricing::Recommended| r.assessed.entry.offer.key.to_string();
            quote.recommendations.iter().map(of).collect::<Vec<_>>()
        };
        prop_assert_eq!(keys(&one), keys(&other));
        prop_assert_eq!(&one.id, &other.id);
        if query.policy == Policy::Price && query.prefer_regions.is_empty() {
            let all = &one.recommendations;
            for (at, first) in all.iter().enumerate() {
                for second in &all[at + 1..] {
                    let order = first.assessed.order(&second.assessed);
                    prop_assert_eq!(order, std::cmp::Ordering::Less);
                    prop_assert_eq!(second.assessed.order(&first.assessed), order.reverse());
                }
            }
        }
    }

    /// Any quote is answered again byte for byte by another process on a copy, whatever came since.
    #[test]
    fn any_quote_replays(
        offers in prop::collection::vec(arbitrary_offer(), 0..12),
        query in question(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let before = kept_in(folder.path());
        for id in ["p0", "p1"] {
            let own = offers.iter().filter(|o| o.key.provider.as_str() == id).cloned();
            before.replace_sheet(provider(id), sheet(own.collect(), young()));
        }
        let quote = before.quote(&query);
        let text = serde_json::to_string(&QuoteReply::new(&quote, Lang::Zh)).expect("JSON");
        before.keep_state();
        // Everything is sold by somebody else for something else now.
        let mut dear = offer("p0/r/-/on_demand/t0", "t4", "1", "9 CNY");
        dear.price.state = PriceState::Unknown;
        before.replace_sheet(provider("p0"), sheet(vec![dear], young()));
        before.remove_sheet(&provider("p1"));
        drop(before);
        let reference = QuoteRef::parse(&quote.id).expect("its own id");
        prop_assert_eq!(&reference.query, &query);
        let again = kept_in(folder.path()).replay(&reference).expect("a kept state");
        prop_assert_eq!(
            serde_json::to_string(&QuoteReply::new(&again, Lang::Zh)).expect("JSON"),
            text
        );
    }
}

#[test]
fn every_bundled_price_is_shown_as_the_source_writes_it() {
    let table = include_str!("../../data/prices.csv");
    let service = service(young(), true);
    let request =
        |offset| ListRequest { all_forms: true, limit: 500, offset, ..ListRequest::default() };
    let mut shown = std::collections::BTreeMap::new();
    loop {
        let page = service.list(&request(shown.len()), Audience::Public, Lang::En).expect("a page");
        if page.items.is_empty() {
            break;
        }
        shown.extend(page.items.into_iter().map(|row| (row.offer_key, row.price)));
    }
    assert_eq!(shown.len(), table.lines().count() - 1);
    let mut written: Vec<String> = Vec::new();
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    for record in reader.records() {
        let record = record.expect("a row");
        let text = &record[11];
        written.push(match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.to_owned(),
        });
    }
    let mut shown: Vec<String> =
        shown.into_values().map(|price| price.expect("a price").to_string()).collect();
    written.sort();
    shown.sort();
    assert_eq!(written, shown);
}
