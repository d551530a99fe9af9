//! Quotes, lists and summaries: order, exactness, replay.

use std::collections::BTreeMap;

use crate::support::{at, local_sheet, offer, provider, service, sheet, young};
use proptest::prelude::*;
use runwhere_model::offer::Stock;
use runwhere_model::{GpuModel, GpuModelId, Lang, Offer, OfferSheet, PriceKind, parse_decimal};
use runwhere_pricing::{
    Audience, Bundled, Catalogue, CodeBook, Flag, ListRequest, NotLaunchable, Parts, PriceService,
    Query, Reason, Rejection, ResolveError, SpotStanding, Tag, four_decimals,
};

fn gpu(name: &str) -> GpuModelId {
    GpuModel::resolve(name).expect("a model").id
}

fn catalogue(offers: Vec<Offer>) -> Catalogue {
    let mut sheets = BTreeMap::new();
    for offer in offers {
        let provider = offer.key.provider.clone();
        sheets.entry(provider).or_insert_with(|| sheet(Vec::new(), young())).offers.push(offer);
    }
    let parts = Parts { sheets, bundled: false, ..Parts::default() };
    Catalogue::build(&parts, &mut CodeBook::new())
}

fn member(gpu_name: &str, count: u32) -> Query {
    Query { audience: Audience::Member, ..Query::new(Some(gpu(gpu_name)), count) }
}

fn keys(catalogue: &Catalogue, query: &Query) -> Vec<String> {
    let quote = catalogue.quote(query, young());
    quote.recommendations.iter().map(|r| r.assessed.entry.offer.key.to_string()).collect()
}

#[test]
fn the_local_machine_comes_first_and_bundled_prices_name_the_account_they_need() {
    let service = service(young(), true);
    let (id, sheet) = local_sheet(young());
    service.replace_sheet(id, sheet);
    let reply = service.quote_named(Some("NVIDIA A100-80GB"), Query::new(None, 1), Lang::En);
    let first = &reply.recommendations[0];
    assert_eq!(first.offer.provider, "local");
    assert_eq!(first.offer.hourly_price.as_deref(), Some("36.4400"));
    assert_eq!(first.offer.fx_rate, None);
    assert_eq!(first.tag_code, Tag::Recommended);
    assert!(first.offer.launchable && first.offer.flags.contains(&Flag::Pretended));
    for other in &reply.recommendations[1..] {
        assert_eq!(other.tag_code, Tag::Reference);
        let why = other.offer.not_launchable.as_ref().expect("not launchable");
        let provider = other.offer.provider.clone();
        assert_eq!(why, &NotLaunchable::ConnectAccount { provider: provider.parse().unwrap() });
        assert!(other.reason.contains(&format!("connect an account of {provider}")));
        assert!(other.offer.flags.contains(&Flag::Bundled));
    }
    // The cheaper reference price does not hide behind the local one: it is said that it is cheaper.
    let cheapest = reply.recommendations[1].offer.hourly_price.as_deref().unwrap();
    assert!(parse_decimal(cheapest).unwrap() < parse_decimal("36.44").unwrap());
}

#[test]
fn a_share_of_a_gpu_is_never_a_gpu() {
    let service = service(young(), true);
    let quote = service.quote(&Query { top_n: 100, ..Query::new(Some(gpu("a10")), 1) });
    assert!(quote.rejected[&Rejection::Fraction] > 0);
    for recommended in &quote.recommendations {
        assert_eq!(recommended.assessed.entry.offer.gpu_count.as_whole(), Some(1));
    }
    let a10 = service
        .summary(Audience::Public)
        .items
        .into_iter()
        .find(|row| row.gpu_model == "NVIDIA A10");
    // 0.454 USD (a sixth of a GPU) would be 3.0640.
    assert_ne!(a10.unwrap().min_hourly_price.as_deref(), Some("3.0640"));
    let list = service.list(
        &ListRequest { gpu_model: Some("a10".to_owned()), limit: 500, ..ListRequest::default() },
        Audience::Public,
        Lang::Zh,
    );
    let fractions: Vec<bool> =
        list.unwrap().items.iter().map(|row| row.flags.contains(&Flag::Fraction)).collect();
    assert!(fractions.contains(&true));
    assert!(fractions.is_sorted(), "shares stand after whole GPUs");
}

#[test]
fn dear_spot_is_flagged_and_never_preferred() {
    let mut all = vec![
        offer("c/r/-/on_demand/x", "t4", "1", "2.90 USD"),
        offer("c/r/z1/spot/x", "t4", "1", "3.10 USD"),
        offer("c/r/z2/spot/x", "t4", "1", "2.90 USD"),
        offer("c/r/z3/spot/x", "t4", "1", "2.90003 USD"),
        offer("c/r/z4/spot/x", "t4", "1", "0.87 USD"),
    ];
    let catalogue = catalogue(std::mem::take(&mut all));
    let quote = catalogue.quote(&member("t4", 1), young());
    let got: Vec<(String, Option<SpotStanding>)> = quote
        .recommendations
        .iter()
        .map(|r| (r.assessed.entry.offer.key.to_string(), r.assessed.spot))
        .collect();
    assert_eq!(
        got,
        [
            ("c/r/z4/spot/x".to_owned(), Some(SpotStanding::Saves(70))),
            ("c/r/-/on_demand/x".to_owned(), None),
            ("c/r/z2/spot/x".to_owned(), Some(SpotStanding::NoSaving)),
            ("c/r/z3/spot/x".to_owned(), Some(SpotStanding::NoSaving)),
            ("c/r/z1/spot/x".to_owned(), Some(SpotStanding::Above)),
        ]
    );
    let no_spot = Query { spot_allowed: false, ..member("t4", 1) };
    assert_eq!(keys(&catalogue, &no_spot), ["c/r/-/on_demand/x"]);
}

#[test]
fn p23_spot_above_on_demand_by_rounding_alone_is_no_saving() {
    let service = service(young(), true);
    for key in [
        "aws/ap-northeast-1/apne1-az4/spot/g5.12xlarge",
        "aws/eu-central-1/euc1-az2/spot/p4d.24xlarge",
        "aws/ap-southeast-1/apse1-az3/spot/p4de.24xlarge",
    ] {
        let spot = service.resolve(key).unwrap();
        assert_eq!(spot.spot, Some(SpotStanding::NoSaving), "{key}");
        // It is dearer, by less than half of the fourth digit.
        let amount =
            |entry: &runwhere_pricing::Entry| entry.offer.price.state.known().unwrap().amount;
        let mut plain = spot.entry.offer.key.clone();
        (plain.zone, plain.billing_model) = (None, runwhere_model::BillingModel::OnDemand);
        let difference = amount(&spot.entry) - amount(&service.catalogue().get(&plain).unwrap());
        assert!(difference.is_sign_positive() && difference <= parse_decimal("0.00005").unwrap());
    }
}

#[test]
fn unknown_prices_stand_last_and_never_pass_a_ceiling() {
    let catalogue = catalogue(vec![
        offer("a/-/-/on_demand/unknown", "t4", "1", "-"),
        offer("a/-/-/on_demand/dear", "t4", "1", "1000 CNY"),
        offer("a/-/-/on_demand/norate", "t4", "1", "1 KRW"),
        offer("b/-/-/on_demand/cheap", "t4", "1", "9.5 CNY"),
        offer("b/-/-/on_demand/two", "t4", "2", "1 CNY"),
    ]);
    assert_eq!(
        keys(&catalogue, &member("t4", 1)),
        [
            "b/-/-/on_demand/cheap",
            "a/-/-/on_demand/dear",
            "a/-/-/on_demand/norate",
            "a/-/-/on_demand/unknown",
        ]
    );
    let ceiling = Query { max_hourly_price: parse_decimal("9.5").ok(), ..member("t4", 1) };
    let quote = catalogue.quote(&ceiling, young());
    assert_eq!(quote.recommendations.len(), 1, "the ceiling itself is allowed");
    assert_eq!(
        quote.rejected,
        BTreeMap::from([
            (Rejection::GpuCount, 1),
            (Rejection::AboveMaxPrice, 1),
            (Rejection::PriceUnknown, 1),
            (Rejection::ExchangeRate, 1),
        ])
    );
    let below = Query { max_hourly_price: parse_decimal("9.499999999999").ok(), ..member("t4", 1) };
    assert!(keys(&catalogue, &below).is_empty());
}

#[test]
fn an_old_rate_lets_nothing_be_launched_under_a_ceiling() {
    let catalogue = catalogue(vec![offer("a/-/-/on_demand/x", "t4", "1", "1 USD")]);
    let ceiling = Query { max_hourly_price: parse_decimal("100").ok(), ..member("t4", 1) };
    // Sheets are old then, too: their offers are no longer launchable but still shown.
    let later = at("2027-06-01T00:00:00Z");
    let quote = catalogue.quote(&ceiling, later);
    assert_eq!(quote.recommendations.len(), 1);
    assert!(matches!(
        quote.recommendations[0].assessed.not_launchable,
        Some(NotLaunchable::StalePrice { .. })
    ));
    assert!(quote.recommendations[0].reasons.iter().any(|r| matches!(r, Reason::OldRate { .. })));
    // Read anew, it could be launched, but not on the word of that rate.
    let mut again = offer("a/-/-/on_demand/x", "t4", "1", "1 USD");
    again.price.observed_at = Some(later);
    let parts = Parts {
        sheets: BTreeMap::from([(provider("a"), sheet(vec![again], later))]),
        bundled: false,
        ..Parts::default()
    };
    let fresh = Catalogue::build(&parts, &mut CodeBook::new());
    let quote = fresh.quote(&ceiling, later);
    assert_eq!(quote.rejected, BTreeMap::from([(Rejection::ExchangeRate, 1)]));
    assert_eq!(fresh.quote(&member("t4", 1), later).recommendations.len(), 1);
}

#[test]
fn account_prices_are_for_members() {
    let service = service(young(), false);
    service.replace_sheet(
        provider("a"),
        sheet(vec![offer("a/-/-/on_demand/x", "t4", "1", "1 CNY")], young()),
    );
    let list = |audience| service.list(&ListRequest::default(), audience, Lang::Zh).unwrap().total;
    assert_eq!((list(Audience::Public), list(Audience::Member)), (0, 1));
    assert!(service.summary(Audience::Public).items.is_empty());
    assert_eq!(service.quote(&member("t4", 1)).matching, 1);
}

#[test]
fn sheets_are_swapped_and_codes_are_kept() {
    let service = service(young(), false);
    let first = offer("a/-/-/on_demand/x", "t4", "1", "1 CNY");
    let second = offer("a/-/-/on_demand/y", "t4", "1", "2 CNY");
    service.replace_sheet(provider("a"), sheet(vec![first.clone(), second.clone()], young()));
    let code = service.resolve("a/-/-/on_demand/x").unwrap().entry.code;
    assert_eq!(service.resolve(code.as_str()).unwrap().entry.offer.key, first.key);
    let id = || service.catalogue().snapshot_id().to_owned();
    let before = id();
    service.replace_sheet(
        provider("a"),
        sheet(vec![second.clone(), first.clone()], at("2026-11-20T12:00:30Z")),
    );
    assert_eq!(id(), before, "the same prices, read again");

    // A reading that broke off takes nothing away.
    let mut partial = sheet(vec![offer("a/-/-/on_demand/y", "t4", "1", "3 CNY")], young());
    partial.complete = false;
    service.replace_sheet(provider("a"), partial);
    assert_eq!(service.catalogue().entries().len(), 2);
    assert_ne!(id(), before);

    // What that reading did not see ages on its own.
    let later = at("2026-11-22T12:00:00Z");
    let later_service = half_read_again(later, &first, &second);
    assert!(later_service.resolve("a/-/-/on_demand/y").unwrap().launchable());
    assert!(!later_service.resolve("a/-/-/on_demand/x").unwrap().launchable());

    service.replace_sheet(provider("a"), sheet(vec![second.clone()], young()));
    assert_eq!(
        service.resolve(code.as_str()).unwrap_err(),
        ResolveError::Withdrawn { code, key: first.key.clone() }
    );
    service.remove_sheet(&provider("a"));
    assert!(service.catalogue().entries().is_empty());
    service.replace_sheet(provider("a"), sheet(vec![first, second], young()));
    assert_eq!(service.resolve("a/-/-/on_demand/x").unwrap().entry.code, code);
    assert_eq!(id(), before);
}

/// Two offers read two days ago, one of them again just now.
fn half_read_again(now: jiff::Timestamp, first: &Offer, second: &Offer) -> PriceService {
    let service = service(now, false);
    let undated = |offer: &Offer| {
        let mut offer = offer.clone();
        offer.price.observed_at = None;
        offer
    };
    service.replace_sheet(provider("a"), sheet(vec![undated(first), undated(second)], young()));
    let partial = OfferSheet { complete: false, ..sheet(vec![undated(second)], now) };
    service.replace_sheet(provider("a"), partial);
    service
}

#[test]
fn a_busy_machine_comes_before_prices_that_nothing_can_launch() {
    let service = service(young(), true);
    let (id, mut local) = local_sheet(young());
    local.offers[0].stock = Stock::SoldOut;
    let mut gone = offer("local/-/-/on_demand/gone", "a100-80g", "1", "1 CNY");
    (gone.stock, gone.launchable) = (Stock::SoldOut, false);
    gone.price.kind = PriceKind::Configured;
    local.offers.push(gone);
    service.replace_sheet(id, local);
    let quote = service.quote(&Query::new(Some(gpu("a100-80g")), 1));
    let first = &quote.recommendations[0];
    assert_eq!(first.tag, Tag::Waits);
    assert_eq!(first.assessed.not_launchable, Some(NotLaunchable::SoldOut));
    assert_eq!(quote.recommendations[1].tag, Tag::Reference);
    // The row that its provider would not launch even when free is no answer.
    assert_eq!(quote.rejected[&Rejection::SoldOut], 1);
}

#[test]
fn hostile_sheets_do_not_speak_for_others() {
    let service = service(young(), true);
    let mut dear = offer("a/-/-/on_demand/x", "t4", "1", "2 CNY");
    dear.stock = Stock::Low;
    service.replace_sheet(
        provider("a"),
        sheet(
            vec![
                offer("aws/us-east-1/-/on_demand/p5.48xlarge", "h100", "8", "0.01 USD"),
                dear,
                offer("a/-/-/on_demand/x", "t4", "1", "1 CNY"),
            ],
            young(),
        ),
    );
    let aws = service.resolve("aws/us-east-1/-/on_demand/p5.48xlarge").unwrap();
    assert_eq!(aws.entry.offer.price.kind, PriceKind::Bundled);
    let catalogue = service.catalogue();
    assert_eq!(catalogue.rejected().len(), 1, "foreign provider");
    // Of two prices for one key the dearer is shown and both are kept.
    let row = service.resolve("a/-/-/on_demand/x").unwrap();
    assert_eq!(row.entry.offer.price.state.known().unwrap().to_string(), "2 CNY/h");
    let details = row.entry.offer.details.as_ref().unwrap();
    assert_eq!(details.alternatives[0].price.to_string(), "1 CNY/h");
}

#[test]
fn keys_and_codes_resolve_or_are_refused() {
    let service = service(young(), true);
    let text = "azure/eastus/-/on_demand/Standard_NC24ads_A100_v4";
    let found = service.resolve(text).unwrap();
    assert_eq!(service.resolve(found.entry.code.as_str()).unwrap().entry.offer, found.entry.offer);
    let folded = service.resolve("azure/EastUS/-/on_demand/standard_nc24ads_a100_v4").unwrap();
    assert_eq!(folded.entry.offer.key.to_string(), text, "the vendor's case is kept");
    assert!(matches!(service.resolve("ZZZZZZZZ"), Err(ResolveError::Unknown(_))));
    assert!(matches!(service.resolve("a/b/-/spot/c"), Err(ResolveError::Unknown(_))));
    for bad in ["", "abcdefgh", "a/b", "x/[y]/-/spot/z", &"A".repeat(9), &"a".repeat(5000)] {
        let error = service.resolve(bad).unwrap_err();
        assert!(matches!(error, ResolveError::Malformed(_)), "{error}");
        for lang in [Lang::Zh, Lang::En] {
            assert!(!error.text(lang).contains(['[', ']']));
        }
    }
    let twins = service_with_twins();
    assert!(matches!(twins.resolve("a/-/-/spot/pcie"), Err(ResolveError::Ambiguous { .. })));
    assert!(twins.resolve("a/-/-/spot/PCIE").is_ok());
}

fn service_with_twins() -> PriceService {
    let service = service(young(), false);
    let twins = ["a/-/-/spot/PCIE", "a/-/-/spot/PCIe"].map(|key| offer(key, "t4", "1", "1 CNY"));
    service.replace_sheet(provider("a"), sheet(twins.to_vec(), young()));
    service
}

#[test]
fn the_documents_examples_are_served() {
    let service = service(young(), true);
    for gpu_type in ["t4", "a100-80g", "a100-40g", "h100-80g", "l40s", "a10"] {
        for count in [1, 8] {
            let reply = service.quote_named(Some(gpu_type), Query::new(None, count), Lang::Zh);
            let row = reply.recommendations.first();
            assert!(row.is_some() || count > 1, "{gpu_type}");
            for row in &reply.recommendations {
                assert_eq!(row.offer.gpu_count, count.to_string());
                // What is written back to the YAML names the same offer.
                let again = service.resolve(&row.offer.offer_key).unwrap();
                assert_eq!(again.entry.code.to_string(), row.offer.offer_code);
            }
        }
    }
    let key = "aliyun/cn-hangzhou/cn-hangzhou-i/on_demand/ecs.gn7i.2xlarge";
    let error = service.resolve(key).unwrap_err();
    assert_eq!(error, ResolveError::Unknown(key.to_owned()));
    assert!(error.text(Lang::Zh).contains("runwhere price list"));
}

#[test]
fn every_bundled_offer_has_its_own_code() {
    let service = service(young(), true);
    let codes: std::collections::BTreeSet<_> =
        service.catalogue().entries().iter().map(|entry| entry.code).collect();
    assert_eq!(codes.len(), Bundled::get().offers.len());
}

#[test]
fn across_models_gives_one_offer_each() {
    let service = service(young(), true);
    let query = Query { top_n: 100, ..Query::new(None, 1) };
    let rows = service.recommend_across(query, Lang::Zh);
    let models: std::collections::BTreeSet<_> = rows.iter().map(|row| row.offer.gpu_type).collect();
    assert_eq!(models.len(), rows.len());
    assert!(rows.len() > 40);
    let prices: Vec<_> = rows
        .iter()
        .map(|row| parse_decimal(row.offer.hourly_price.as_deref().unwrap()).unwrap())
        .collect();
    assert!(prices.is_sorted());
    assert_eq!(
        rows.iter().map(|row| row.rank).collect::<Vec<_>>(),
        (1..=rows.len()).collect::<Vec<_>>()
    );
}

/// The lowest price has 100, also where it is nothing: a machine of one's own.
#[test]
fn the_lowest_price_has_the_full_score() {
    let service = service(young(), false);
    let own = |name: &str, price| {
        let mut offer = offer(&format!("a/-/-/on_demand/{name}"), "t4", "1", price);
        offer.price.kind = PriceKind::Configured;
        offer
    };
    let scores = |offers: Vec<Offer>| {
        service.replace_sheet(provider("a"), sheet(offers, young()));
        let rows = service.quote_named(Some("t4"), member("t4", 1), Lang::En).recommendations;
        rows.iter().map(|row| row.score.map(|score| score.to_string())).collect::<Vec<_>>()
    };
    let score = |text: &str| Some(text.to_owned());
    let two = vec![own("x", "1.50 CNY"), own("y", "1.5 CNY"), own("z", "2 CNY")];
    assert_eq!(scores(two), [score("100"), score("100"), score("75.0")]);
    let far = vec![own("x", "1 CNY"), own("y", "2 CNY"), own("z", "30 CNY")];
    assert_eq!(scores(far), [score("100"), score("50.0"), score("3.3")]);
    assert_eq!(scores(vec![own("x", "0 CNY"), own("z", "2 CNY")]), [score("100"), score("0.0")]);
}

/// As within one model: what the question says decides, not the price alone.
#[test]
fn across_models_the_preferred_region_comes_first() {
    let service = service(young(), false);
    let cheap = offer("a/r1/-/on_demand/x", "t4", "1", "1 CNY");
    let dear = offer("a/r2/-/on_demand/y", "a100-80g", "1", "9 CNY");
    service.replace_sheet(provider("a"), sheet(vec![cheap, dear], young()));
    let types = |query: Query| {
        let query = Query { audience: Audience::Member, ..query };
        let rows = service.recommend_across(query, Lang::En);
        rows.iter().map(|row| row.offer.instance_type.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(types(Query::new(None, 1)), ["x", "y"]);
    let prefer_regions = vec!["r2".to_owned()];
    assert_eq!(types(Query { prefer_regions, ..Query::new(None, 1) }), ["y", "x"]);
}

#[test]
fn a_quote_replays_and_differs_where_the_answer_may_differ() {
    let quote = |service: &PriceService, query: &Query| {
        let quote = service.quote(query);
        let reply = runwhere_pricing::QuoteReply::new(&quote, Lang::Zh);
        (quote.id.clone(), serde_json::to_string(&reply).unwrap())
    };
    let query = Query::new(Some(gpu("h100-80g")), 8);
    let (a, b) = (service(young(), true), service(young(), true));
    assert_eq!(quote(&a, &query), quote(&b, &query));
    let other = Query { spot_allowed: false, ..query.clone() };
    assert_ne!(quote(&a, &query).0, quote(&a, &other).0);
    let same_ceiling =
        |text: &str| Query { max_hourly_price: parse_decimal(text).ok(), ..query.clone() };
    assert_eq!(quote(&a, &same_ceiling("50")).0, quote(&a, &same_ceiling("50.00")).0);
    // The day on which the rates become too old changes the answer, so it changes the id.
    let later = service(at("2027-06-01T00:00:00Z"), true);
    assert_ne!(quote(&a, &query).0, quote(&later, &query).0);
    let (id, local) = local_sheet(young());
    b.replace_sheet(id, local);
    assert_ne!(quote(&a, &query).0, quote(&b, &query).0);
}

#[test]
fn four_decimals_round_half_up() {
    for (exact, shown) in [
        ("36.44", "36.4400"),
        ("0.00005", "0.0001"),
        ("0.00004999", "0.0000"),
        ("155.1043915596", "155.1044"),
        ("1", "1.0000"),
    ] {
        assert_eq!(four_decimals(parse_decimal(exact).unwrap()), shown);
    }
}

fn arbitrary_offer() -> impl Strategy<Value = Offer> {
    (
        0..3u8,
        0..3u8,
        any::<bool>(),
        0..4u8,
        prop_oneof![Just("1"), Just("2"), Just("1/6")],
        prop_oneof![Just("-"), Just("1 CNY"), Just("1.00 CNY"), Just("0.15 USD"), Just("7 KRW")],
        prop::option::of(1..3u32),
        any::<bool>(),
    )
        .prop_map(|(provider, zone, spot, kind, count, price, vcpus, launchable)| {
            let billing_model = if spot { "spot" } else { "on_demand" };
            let key = format!("p{provider}/r/z{zone}/{billing_model}/t{kind}");
            let mut offer = offer(&key, "t4", count, price);
            offer.vcpus = vcpus;
            offer.launchable = launchable;
            offer
        })
}

proptest! {
    #[test]
    fn the_order_is_total_and_independent_of_insertion(
        offers in prop::collection::vec(arbitrary_offer(), 0..30),
        seed in any::<prop::sample::Index>(),
    ) {
        let mut shuffled = offers.clone();
        shuffled.reverse();
        if !shuffled.is_empty() {
            let at = seed.index(shuffled.len());
            shuffled.rotate_left(at);
        }
        let (one, other) = (catalogue(offers), catalogue(shuffled));
        prop_assert_eq!(one.snapshot_id(), other.snapshot_id());
        let query = Query { top_n: 100, ..member("t4", 1) };
        prop_assert_eq!(keys(&one, &query), keys(&other, &query));
        let quote = one.quote(&query, young());
        prop_assert_eq!(&quote.id, &other.quote(&query, young()).id);
        for pair in quote.recommendations.windows(2) {
            prop_assert_eq!(pair[0].assessed.order(&pair[1].assessed), std::cmp::Ordering::Less);
            prop_assert!(pair[0].assessed.launchable() || !pair[1].assessed.launchable());
        }
    }

    #[test]
    fn pages_hold_every_row_once(
        offers in prop::collection::vec(arbitrary_offer(), 0..40),
        limit in 1..9usize,
    ) {
        let service = service(young(), false);
        for id in ["p0", "p1", "p2"] {
            let own = offers.iter().filter(|o| o.key.provider.as_str() == id).cloned().collect();
            service.replace_sheet(provider(id), sheet(own, young()));
        }
        let page = |limit, offset| {
            let request = ListRequest { limit, offset, ..ListRequest::default() };
            service.list(&request, Audience::Member, Lang::Zh).unwrap()
        };
        let whole = page(500, 0);
        let mut paged = Vec::new();
        while paged.len() < whole.total {
            let next = page(limit, paged.len());
            prop_assert_eq!(next.total, whole.total);
            prop_assert!(!next.items.is_empty());
            paged.extend(next.items);
        }
        prop_assert_eq!(paged, whole.items);
    }
}

/// The directory that quotes look into, against a look at every offer.
#[test]
fn every_model_count_and_region_finds_what_a_look_at_all_offers_finds() {
    let service = service(young(), true);
    let (id, sheet) = local_sheet(young());
    service.replace_sheet(id, sheet);
    let catalogue = service.catalogue();
    let entries = catalogue.entries();
    let mut asked = std::collections::BTreeSet::new();
    for entry in &entries {
        let offer = &entry.offer;
        let (Some(gpu), Some(count)) = (offer.gpu, offer.gpu_count.as_whole()) else { continue };
        asked.insert((gpu, count, offer.key.region.clone()));
        asked.insert((gpu, count, None));
        asked.insert((gpu, count, Some("nowhere".to_owned())));
    }
    for (gpu, count, region) in asked {
        let query = Query { region, audience: Audience::Member, ..Query::new(Some(gpu), count) };
        let quote = catalogue.quote(&query, young());
        let of_model = entries.iter().filter(|entry| entry.offer.gpu == Some(gpu));
        let (fits, not): (Vec<_>, Vec<_>) = of_model.partition(|entry| {
            let offer = &entry.offer;
            offer.gpu_count.as_whole() == Some(count)
                && offer.key.billing_model.is_standard()
                && (query.region.is_none() || offer.key.region == query.region)
        });
        let rejected: usize = quote.rejected.values().sum();
        assert_eq!((quote.matching, rejected), (fits.len(), not.len()), "{query:?}");
        let cheapest = quote.recommendations.first().and_then(|first| first.assessed.amount());
        let amounts = fits.iter().filter_map(|entry| {
            let assessed = catalogue.assess(entry, young());
            Some((assessed.standing(), assessed.stale, assessed.amount()?))
        });
        assert_eq!(cheapest, amounts.min().map(|(.., amount)| amount), "{query:?}");
    }
}
