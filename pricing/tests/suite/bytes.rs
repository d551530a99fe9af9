//! Quotes over HTTP, whose offers are written once and used for a day, against the same quotes in process.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use jiff::Timestamp;
use proptest::prelude::*;
use runwhere_model::offer::Stock;
use runwhere_model::{Lang, Mark, Marks, Offer, OfferDetails, PriceKind};
use runwhere_pricing::{
    Audience, Policy, PriceOptions, PriceService, Query, four_decimals, router,
};
use runwhere_providers::Clock;
use rust_decimal::Decimal;
use serde_json::json;
use tower::ServiceExt;

use crate::support::{offer, provider, sheet, young};

/// A clock that is set, in seconds.
#[derive(Debug)]
struct Set(AtomicI64);

#[async_trait::async_trait]
impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).expect("a time")
    }
    async fn sleep_until(&self, _: Timestamp) {}
}

/// Texts that could be taken for the parts of an answer.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\"age\":null".to_owned()),
        Just("a\\\"age\\\":null,\u{7}\n".to_owned()),
        Just("],[{}".to_owned()),
        "\\PC{1,4}",
    ]
}

fn any_offer() -> impl Strategy<Value = Offer> {
    let of = (0..2u8, 0..2u8, any::<bool>(), 0..4u8, hostile());
    let price = prop_oneof![Just("-"), Just("1 CNY"), Just("0.15 USD"), Just("7 KRW")];
    let kind = prop_oneof![
        Just(PriceKind::List),
        Just(PriceKind::Account),
        Just(PriceKind::Configured),
        Just(PriceKind::Bundled),
    ];
    let state = (any::<bool>(), any::<bool>(), any::<bool>());
    // At no known time, now, as long ago as a price holds but for some seconds, and longer ago.
    let read = prop_oneof![Just(None), Just(Some(0i64)), Just(Some(86_398)), Just(Some(3_000_000))];
    (of, price, kind, state, read, hostile(), 0..4u16).prop_map(
        |((of, region, spot, number, name), price, kind, state, read, source, mark)| {
            let billing_model = if spot { "spot" } else { "on_demand" };
            let key = format!("p{of}/r{region}/-/{billing_model}/t{number}");
            let mut offer = offer(&key, "t4", if number == 3 { "2" } else { "1" }, price);
            let (launchable, sold_out, details) = state;
            offer.key.instance_type = format!("{name}{number}");
            offer.gpu_raw = name;
            offer.price.kind = kind;
            offer.price.source = source.clone();
            offer.price.observed_at = read.and_then(|seconds| {
                young().checked_sub(jiff::SignedDuration::from_secs(seconds)).ok()
            });
            offer.launchable = launchable;
            offer.stock = if sold_out { Stock::SoldOut } else { Stock::Unstated };
            offer.marks = match mark {
                0 => Marks::NONE,
                1 => Marks::NONE.with(Mark::FromPrice),
                2 => Marks::NONE.with(Mark::Floor),
                _ => Marks::NONE.with(Mark::CurrencyAssumed),
            };
            if details {
                offer.details = Some(Box::new(OfferDetails {
                    country: Some(source),
                    reclaim_percent: Some(Decimal::new(7, 0)),
                    ..OfferDetails::default()
                }));
            }
            offer
        },
    )
}

/// A question and how many seconds after the last it is asked.
fn asked() -> impl Strategy<Value = (Query, i64, Lang)> {
    // Within the second, later that day, at the end of ages, on another day.
    let later = prop_oneof![Just(0i64), 1..5i64, 600..90_000i64, Just(86_400 * 100)];
    let places = prop::option::of(prop_oneof![Just("r0"), Just("r1")]);
    (
        (
            (prop::bool::weighted(0.9), any::<bool>(), any::<bool>(), any::<bool>()),
            prop_oneof![1..9usize, Just(100)],
            prop_oneof![4 => Just(1u32), 1 => Just(2)],
            any::<bool>(),
        ),
        prop::option::of(1..40u32),
        places.clone(),
        places,
        prop::option::of((1..1000u32, 1..100u32)),
        later,
        any::<bool>(),
    )
        .prop_map(|(flags, ceiling, region, preferred, run, later, zh)| {
            let ((named, spot_allowed, reclaim, fresh_only), top_n, count, member) = flags;
            let gpu = runwhere_model::GpuModel::resolve("t4").map(|model| model.id);
            let query = Query {
                spot_allowed,
                top_n,
                fresh_only,
                max_hourly_price: ceiling.map(|tenths| Decimal::new(i64::from(tenths), 1)),
                region: region.map(str::to_owned),
                prefer_regions: preferred.into_iter().map(str::to_owned).collect(),
                policy: if reclaim { Policy::Reclaim } else { Policy::Price },
                hours: run.map(|(hours, _)| Decimal::new(i64::from(hours), 1)),
                disk_gib: run.map(|(_, disk)| disk),
                audience: if member { Audience::Member } else { Audience::Public },
                ..Query::new(gpu.filter(|_| named), count)
            };
            (query, later, if zh { Lang::Zh } else { Lang::En })
        })
}

fn body(query: &Query) -> String {
    let mut body = json!({
        "gpu_count": query.gpu_count, "top_n": query.top_n, "spot_allowed": query.spot_allowed,
        "fresh_only": query.fresh_only, "prefer_regions": query.prefer_regions,
        "policy": query.policy,
    });
    let mut put = |name: &str, value: Option<serde_json::Value>| {
        if let Some(value) = value {
            body[name] = value;
        }
    };
    put("gpu_model", query.gpu.map(|gpu| json!(gpu)));
    put("region", query.region.as_ref().map(|region| json!(region)));
    put("max_hourly_price", query.max_hourly_price.map(|price| json!(four_decimals(price))));
    put("hours", query.hours.map(|hours| json!(hours.to_string())));
    put("disk_gib", query.disk_gib.map(|disk| json!(disk)));
    body.to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever was asked before, and however old prices and rates have become since.
    #[test]
    fn quotes_over_http_are_those_in_process_byte_for_byte(
        before in prop::collection::vec(any_offer(), 0..10),
        after in prop::collection::vec(any_offer(), 0..10),
        questions in prop::collection::vec(asked(), 1..12),
        changes in 0..12usize,
    ) {
        let clock = Arc::new(Set(AtomicI64::new(young().as_second())));
        let now = Arc::clone(&clock);
        let service = Arc::new(PriceService::new(now, PriceOptions::default()));
        let put = |offers: &[Offer]| {
            for id in ["p0", "p1"] {
                let own = offers.iter().filter(|offer| offer.key.provider.as_str() == id).cloned();
                service.replace_sheet(provider(id), sheet(own.collect(), clock.now()));
            }
        };
        put(&before);
        let routes = router(Arc::clone(&service));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for (at, (query, later, lang)) in questions.into_iter().enumerate() {
            clock.0.fetch_add(later, Ordering::Relaxed);
            if at == changes {
                put(&after);
            }
            let request = Request::post("/api/v1/comparison/quote")
                .header("accept-language", if lang == Lang::Zh { "zh" } else { "en" })
                .extension(query.audience)
                .body(Body::from(body(&query)))
                .expect("a request");
            let send = async |request: Request<Body>| {
                let response = routes.clone().oneshot(request).await.expect("an answer");
                response.into_body().collect().await.expect("a body").to_bytes()
            };
            let answer = runtime.block_on(send(request));
            let audience = query.audience;
            let name = query.gpu.map(|gpu| gpu.to_string());
            let reply = service.quote_named(name.as_deref(), query, lang);
            let wanted = serde_json::to_string(&reply).expect("JSON");
            prop_assert_eq!(std::str::from_utf8(&answer).expect("text"), wanted);
            let id = reply.quote_id.expect("a model that there is");
            let again = Request::get(format!("/api/v1/prices/quotes/{id}"))
                .header("accept-language", if lang == Lang::Zh { "zh" } else { "en" })
                .extension(audience)
                .body(Body::empty())
                .expect("a request");
            prop_assert_eq!(runtime.block_on(send(again)), answer, "answered again by its id");
        }
    }
}
