//! A bad day of every cloud, as those see it who ask for prices: nothing known is lost or lowered, and the
//! failure shows in the summary, among the sources, and in what `--strict` ends with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use runwhere_model::{
    OfferKey, OfferScope, OfferSheet, PriceState, ProviderError, ProviderId, SourceTerms,
};
use runwhere_pricing::{
    Audience, PriceOptions, PriceService, Refresher, SourceStatus, router_with,
};
use runwhere_providers::http::NoCache;
use runwhere_providers::testing::clouds::{
    Asked, CLOUDS, Cloud, Leaping, Reply, START, Script, Server,
};
use runwhere_providers::{Clock, OfferSource};
use serde_json::Value;
use serde_json::value::RawValue;
use tower::ServiceExt;

/// A source that expects no more rows than its fixtures have.
#[derive(Debug)]
struct Small(Arc<dyn OfferSource>);

#[async_trait::async_trait]
impl OfferSource for Small {
    fn id(&self) -> &ProviderId {
        self.0.id()
    }
    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet, ProviderError> {
        self.0.offers(scope).await
    }
    fn terms(&self) -> SourceTerms {
        SourceTerms { min_rows: 0, required: Vec::new(), ..self.0.terms() }
    }
}

/// What happens to one answer of a cloud.
type Play = fn(Cloud, &Asked) -> Reply;

/// What becomes of every answer.
const FAULTS: &[(&str, Play)] = &[
    ("throttled", |_, _| Reply::status(429, "slow down")),
    ("throttled for a day", |_, _| Reply::status(429, "{}").with("retry-after", "86400")),
    ("out of order", |_, _| Reply::html(503)),
    ("refused", |_, _| Reply::status(403, "{\"message\": \"no\"}")),
    ("half a body", |cloud, asked| cloud.reply(asked).cut()),
    ("half a document", |cloud, asked| {
        let mut reply = cloud.reply(asked);
        reply.body.truncate(reply.body.len() / 2);
        reply
    }),
    ("markup for JSON", |_, _| Reply::html(200)),
    ("nothing for JSON", |_, _| Reply::json("")),
    ("an empty object", |_, _| Reply::json("{}")),
    ("an empty list", |_, _| Reply::json("[]")),
    ("other names of all fields", |cloud, asked| {
        changed(cloud.reply(asked), &|name, value| Some((format!("{name}2"), value)))
    }),
    ("no prices", |cloud, asked| {
        changed(cloud.reply(asked), &|name, value| {
            (!is_price(&name, &value)).then_some((name, value))
        })
    }),
    ("texts for prices", |cloud, asked| {
        changed(cloud.reply(asked), &|name, value| match is_price(&name, &value) {
            true => Some((name, "\"ask sales\"".to_owned())),
            false => Some((name, value)),
        })
    }),
];

fn is_price(name: &str, value: &str) -> bool {
    let lower = name.to_lowercase();
    let words = ["price", "cost", "amount", "dph", "nanos", "bid"];
    let price = words.iter().any(|word| lower.contains(word)) || lower == "value";
    price && !value.starts_with(['[', '{'])
}

type Change<'a> = &'a dyn Fn(String, String) -> Option<(String, String)>;

/// A document with every field passed through `change`; `None` leaves the field out.
fn changed(mut reply: Reply, change: Change<'_>) -> Reply {
    reply.body = rewritten(&String::from_utf8(reply.body).unwrap(), 1, change).into_bytes();
    reply
}

/// Rewrites a document as text, so that no number passes through a float; every list's rows stand
/// `times` times.
fn rewritten(text: &str, times: usize, change: Change<'_>) -> String {
    let text = text.trim();
    if text.starts_with('[') {
        let rows: Vec<Box<RawValue>> = serde_json::from_str(text).unwrap();
        let rows: Vec<String> =
            rows.iter().map(|row| rewritten(row.get(), times, change)).collect();
        return format!("[{}]", vec![rows; times].concat().join(","));
    }
    if text.starts_with('{') {
        let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).unwrap();
        let fields = fields
            .into_iter()
            .filter_map(|(name, value)| change(name, rewritten(value.get(), times, change)));
        let fields: Vec<String> =
            fields.map(|(name, value)| format!("{}:{value}", Value::from(name))).collect();
        return format!("{{{}}}", fields.join(","));
    }
    text.to_owned()
}

/// A cloud whose weather changes, and the prices read from it.
struct Day {
    cloud: Cloud,
    play: Arc<Mutex<Play>>,
    clock: Arc<Leaping>,
    refresher: Arc<Refresher>,
    server: Server,
}

fn good(cloud: Cloud, asked: &Asked) -> Reply {
    cloud.reply(asked)
}

impl Day {
    async fn of(cloud: Cloud) -> Self {
        let play: Arc<Mutex<Play>> = Arc::new(Mutex::new(good));
        let playing = Arc::clone(&play);
        let script: Script = Arc::new(move |_, asked: &Asked| {
            let play = *playing.lock().unwrap();
            play(cloud, asked)
        });
        let server = Server::start(script).await;
        let clock = Leaping::at(START);
        let source = cloud.source(&server.base, Arc::clone(&clock) as _, Arc::new(NoCache));
        let options = PriceOptions { bundled: false, ..PriceOptions::default() };
        let service = Arc::new(PriceService::new(Arc::clone(&clock) as _, options));
        let source: Arc<dyn OfferSource> = Arc::new(Small(source));
        let refresher = Arc::new(Refresher::new(service, [source]));
        Self { cloud, play, clock, refresher, server }
    }

    async fn read(&self, play: Play) {
        *self.play.lock().unwrap() = play;
        self.clock.sleep(Duration::from_secs(2 * 3600)).await;
        let id = ProviderId::new(self.cloud.name).unwrap();
        self.refresher.refresh(&id).await.unwrap();
    }

    fn prices(&self) -> BTreeMap<OfferKey, PriceState> {
        let catalogue = self.refresher.service().catalogue();
        let price = |entry: Arc<runwhere_pricing::Entry>| {
            (entry.offer.key.clone(), entry.offer.price.state)
        };
        catalogue.entries().into_iter().map(price).collect()
    }

    fn status(&self) -> SourceStatus {
        let all = self.refresher.status();
        all.into_iter().find(|status| status.provider.as_str() == self.cloud.name).unwrap()
    }

    /// Whether the summary names the cloud as one that is not well.
    fn summary_says_so(&self) -> bool {
        let summary = self.refresher.service().summary(Audience::Member);
        summary.troubles.keys().any(|provider| provider.as_str() == self.cloud.name)
    }

    async fn strict(&self) -> StatusCode {
        let request = Request::get("/api/v1/prices/sources?strict=true").body(Body::empty());
        let router = router_with(Arc::clone(&self.refresher));
        let response = router.oneshot(request.unwrap()).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["items"][0]["provider"], self.cloud.name);
        status
    }

    /// Holds that the failure is seen everywhere; what is not so goes to `wrong`.
    async fn seen(&self, what: &str, wrong: &mut Vec<String>) {
        let status = self.status();
        let ok = status.status == "ok" || status.reason.is_none();
        let strict = self.strict().await;
        if ok || !self.summary_says_so() || strict != StatusCode::SERVICE_UNAVAILABLE {
            let name = self.cloud.name;
            wrong.push(format!("{name}: {what}: not seen: {strict} {status:?}"));
        }
    }

    /// Holds that no price is lost or changed.
    fn kept(&self, what: &str, before: &BTreeMap<OfferKey, PriceState>, wrong: &mut Vec<String>) {
        let after = self.prices();
        for (key, price) in before.iter().filter(|(key, price)| after.get(*key) != Some(*price)) {
            let now = after.get(key);
            wrong.push(format!("{}: {what}: {key} was {price:?}, is {now:?}", self.cloud.name));
        }
    }

    /// Holds that all is well.
    async fn well(&self, what: &str, wrong: &mut Vec<String>) {
        let (status, strict) = (self.status(), self.strict().await);
        if status.status != "ok" || self.summary_says_so() || strict != StatusCode::OK {
            wrong.push(format!("{}: {what}: not well: {strict} {status:?}", self.cloud.name));
        }
    }
}

/// Faults of prices alone are none where a cloud's answers have no prices: they come from a table.
fn concerns(cloud: &Cloud, what: &str) -> bool {
    cloud.name != "crusoe" || !what.contains("prices")
}

#[tokio::test]
async fn what_is_known_stays_and_the_failure_is_seen() {
    let mut wrong = Vec::new();
    for cloud in CLOUDS {
        for (what, play) in FAULTS.iter().filter(|(what, _)| concerns(cloud, what)) {
            let day = Day::of(*cloud).await;
            day.read(good).await;
            let before = day.prices();
            assert!(!before.is_empty(), "{}", cloud.name);
            day.well("before", &mut wrong).await;
            day.read(*play).await;
            day.kept(what, &before, &mut wrong);
            day.seen(what, &mut wrong).await;
            // And the day after all is well again, by itself.
            day.clock.sleep(Duration::from_secs(2 * 86_400)).await;
            day.read(good).await;
            day.well(&format!("after {what}"), &mut wrong).await;
            day.kept(&format!("after {what}"), &before, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn a_first_reading_that_fails_is_seen_and_claims_nothing() {
    let mut wrong = Vec::new();
    for cloud in CLOUDS {
        for (what, play) in FAULTS.iter().filter(|(what, _)| concerns(cloud, what)) {
            let day = Day::of(*cloud).await;
            day.read(*play).await;
            if let Some((key, _)) = day.prices().iter().find(|(_, price)| price.known().is_some()) {
                wrong.push(format!("{}: {what}: a price out of nothing: {key}", cloud.name));
            }
            day.seen(what, &mut wrong).await;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn another_currency_is_seen_and_changes_nothing() {
    let other: Play = |cloud, asked| {
        let (is, instead) = cloud.currency.unwrap();
        let mut reply = cloud.reply(asked);
        let text = String::from_utf8(reply.body).unwrap();
        reply.body = text.replace(is, instead).into_bytes();
        reply
    };
    let mut wrong = Vec::new();
    for cloud in CLOUDS.iter().filter(|cloud| cloud.currency.is_some()) {
        let day = Day::of(*cloud).await;
        day.read(good).await;
        let before = day.prices();
        day.read(other).await;
        day.kept("another currency", &before, &mut wrong);
        day.seen("another currency", &mut wrong).await;
        let day = Day::of(*cloud).await;
        day.read(other).await;
        assert!(day.prices().values().all(|price| price.known().is_none()), "{}", cloud.name);
        day.seen("another currency at first", &mut wrong).await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn one_page_that_fails_costs_its_rows_their_freshness_only() {
    let mut wrong = Vec::new();
    for cloud in CLOUDS {
        let day = Day::of(*cloud).await;
        day.read(good).await;
        let before = day.prices();
        // Its last call is a second page, a second kind of row, or all there is.
        let last = day.server.asked().last().unwrap().clone();
        let cloud = *cloud;
        let script: Script = Arc::new(move |_, asked: &Asked| {
            let same =
                (&asked.path, &asked.query, &asked.body) == (&last.path, &last.query, &last.body);
            if same { Reply::html(502) } else { cloud.reply(asked) }
        });
        let server = Server::start(script).await;
        let source = cloud.source(&server.base, Arc::clone(&day.clock) as _, Arc::new(NoCache));
        let source: Arc<dyn OfferSource> = Arc::new(Small(source));
        let service = Arc::clone(day.refresher.service());
        let refresher = Arc::new(Refresher::new(service, [source]));
        let day = Day { refresher, server, ..day };
        day.read(good).await;
        day.kept("one page", &before, &mut wrong);
        day.seen("one page", &mut wrong).await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn three_times_as_many_rows_are_no_failure_and_change_no_price() {
    let mut wrong = Vec::new();
    for cloud in CLOUDS {
        let day = Day::of(*cloud).await;
        day.read(good).await;
        let before = day.prices();
        day.read(|cloud, asked| {
            let mut reply = cloud.reply(asked);
            let text = String::from_utf8(reply.body).unwrap();
            reply.body = rewritten(&text, 3, &|name, value| Some((name, value))).into_bytes();
            reply
        })
        .await;
        day.kept("three times the rows", &before, &mut wrong);
        day.well("three times the rows", &mut wrong).await;
        assert_eq!(day.prices().len(), before.len(), "{}", cloud.name);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
