//! The clouds as their fixtures tell them, played by a server on loopback: well, or as badly as a test
//! wants.

mod server;

use std::sync::Arc;

use runwhere_model::{OfferScope, OfferSheet, ProviderId};

pub use server::{Asked, Leaping, Reply, Script, Server, fixture};

use crate::clock::Clock;
use crate::http::{HttpClient, NoCache, PageCache};
use crate::provider::{OfferSource, Result};
use crate::sources::{SourceContext, SourceSettings, sources};

/// When the tests play.
pub const START: &str = "2026-11-29T10:00:00Z";
/// A text that stands in every credential of the tests and must never be seen again.
pub const SECRET: &str = "hush-hush-do-not-print";

/// A cloud: its settings (`{base}` and `{secret}` are filled in) and its right answers.
#[derive(Clone, Copy, Debug)]
pub struct Cloud {
    /// The kind of its source, which is also the provider's id here.
    pub name: &'static str,
    /// `[providers.<id>]` as JSON.
    pub settings: &'static str,
    /// The right answer to a request; `None` = no such page.
    pub answer: fn(&Asked) -> Option<String>,
    /// Texts that tell the currency in its answers, with what to write instead.
    pub currency: Option<(&'static str, &'static str)>,
}

/// Every cloud whose source is in this package.
pub const CLOUDS: &[Cloud] = &[
    Cloud {
        name: "huawei",
        settings: r#"{"kind":"huawei","endpoint":"{base}","access_key":"id-of-tests","secret_key":"{secret}","projects":{"cn-north-4":"0123456789abcdef"}}"#,
        answer: |asked| match asked.path.as_str() {
            "/v1/0123456789abcdef/cloudservers/flavors" => {
                Some(fixture("huawei/offers/flavors.json"))
            }
            "/v2/bills/ratings/on-demand-resources" => Some(fixture("huawei/offers/ratings.json")),
            _ => None,
        },
        currency: None,
    },
    Cloud {
        name: "oci",
        settings: r#"{"kind":"oci","endpoint":"{base}"}"#,
        answer: |asked| match asked.path.as_str() {
            "/products.json" => Some(fixture("oci/offers/products.json")),
            "/shapes.json" => Some(fixture("oci/offers/shapes.json")),
            _ => None,
        },
        currency: Some((r#""currencyCode": "USD""#, r#""currencyCode": "EUR""#)),
    },
    Cloud {
        name: "crusoe",
        // The secret in the form that Crusoe gives out.
        settings: r#"{"kind":"crusoe","endpoint":"{base}","access_key":"id-of-tests","secret_key":"{secret}","project":"p-1"}"#,
        answer: |asked| match asked.path.as_str() {
            "/v1alpha5/projects/p-1/compute/vms/types" => Some(fixture("crusoe/offers/types.json")),
            "/v1alpha5/capacities" => Some(fixture("crusoe/offers/capacities.json")),
            _ => None,
        },
        currency: None,
    },
    Cloud {
        name: "gcp",
        settings: r#"{"kind":"gcp","endpoint":"{base}","api_key":"{secret}"}"#,
        answer: |asked| {
            let page = if asked.query.ends_with("pageToken=page2") { 2 } else { 1 };
            (asked.path == "/v1/services/6F81-5844-456A/skus")
                .then(|| fixture(&format!("gcp/offers/skus{page}.json")))
        },
        currency: Some((r#""currencyCode": "USD""#, r#""currencyCode": "EUR""#)),
    },
    Cloud {
        name: "aliyun",
        settings: r#"{"kind":"aliyun","endpoint":"{base}","access_key_id":"id-of-tests","access_key_secret":"{secret}"}"#,
        answer: aliyun,
        currency: Some((r#""Currency": "CNY""#, r#""Currency": "USD""#)),
    },
    Cloud {
        name: "tencent",
        settings: r#"{"kind":"tencent","endpoint":"{base}","secret_id":"id-of-tests","secret_key":"{secret}"}"#,
        answer: |asked| {
            let file = match asked.header("x-tc-action")? {
                "DescribeRegions" => "regions",
                "DescribeInstanceTypeConfigs" => "configs",
                "DescribeZoneInstanceConfigInfos" if asked.body.contains("SPOTPAID") => "spot",
                "DescribeZoneInstanceConfigInfos" => "on-demand",
                _ => return None,
            };
            Some(fixture(&format!("tencent/offers/{file}.json")))
        },
        currency: None,
    },
    Cloud {
        name: "azure",
        settings: r#"{"kind":"azure","endpoint":"{base}"}"#,
        answer: |asked| {
            let page = if asked.query.contains("skip=1000") { "page2" } else { "page1" };
            (asked.path == "/api/retail/prices")
                .then(|| fixture(&format!("azure/offers/{page}.json")))
        },
        currency: Some((r#""currencyCode": "USD""#, r#""currencyCode": "EUR""#)),
    },
    Cloud {
        name: "lambda",
        settings: r#"{"kind":"lambda","endpoint":"{base}","api_key":"{secret}"}"#,
        answer: |asked| {
            (asked.path == "/instance-types").then(|| fixture("lambda/offers/instance-types.json"))
        },
        currency: None,
    },
    Cloud {
        name: "runpod",
        settings: r#"{"kind":"runpod","endpoint":"{base}","api_key":"{secret}"}"#,
        answer: |asked| {
            (asked.path == "/graphql" && asked.body.contains("gpuTypes"))
                .then(|| fixture("runpod/offers/gpu-types.json"))
        },
        currency: None,
    },
    Cloud {
        name: "vast",
        settings: r#"{"kind":"vast","endpoint":"{base}","api_key":"{secret}"}"#,
        answer: |asked| {
            if asked.path != "/bundles/" {
                return None;
            }
            Some(match &asked.body {
                body if body.contains(r#""lte":1}"#) => fixture("vast/offers/asks1.json"),
                body if body.contains(r#""lte":8}"#) => fixture("vast/offers/asks8.json"),
                _ => r#"{"offers": []}"#.to_owned(),
            })
        },
        currency: None,
    },
    Cloud {
        name: "digitalocean",
        settings: r#"{"kind":"digitalocean","endpoint":"{base}","token":"{secret}"}"#,
        answer: |asked| {
            let page = if asked.query.starts_with("page=2") { 2 } else { 1 };
            (asked.path == "/v2/sizes")
                .then(|| fixture(&format!("digitalocean/offers/sizes{page}.json")))
        },
        currency: None,
    },
    Cloud {
        name: "vultr",
        settings: r#"{"kind":"vultr","endpoint":"{base}"}"#,
        answer: |asked| match asked.path.as_str() {
            "/plans" => Some(fixture("vultr/offers/plans.json")),
            "/plans-metal" => Some(fixture("vultr/offers/plans-metal.json")),
            "/regions/ewr/availability" => Some(fixture("vultr/offers/availability-ewr.json")),
            path if path.ends_with("/availability") => {
                Some(fixture("vultr/offers/availability-other.json"))
            }
            _ => None,
        },
        currency: None,
    },
    Cloud {
        name: "verda",
        settings: r#"{"kind":"verda","endpoint":"{base}","client_id":"id-of-tests","client_secret":"{secret}"}"#,
        answer: |asked| match asked.path.as_str() {
            "/oauth2/token" => {
                asked.body.contains(SECRET).then(|| fixture("verda/offers/token.json"))
            }
            "/instance-types" => Some(fixture("verda/offers/instance-types.json")),
            "/instance-availability" if asked.query.contains("true") => {
                Some(fixture("verda/offers/availability-spot.json"))
            }
            "/instance-availability" => Some(fixture("verda/offers/availability.json")),
            _ => None,
        },
        currency: Some((r#""currency": "usd""#, r#""currency": "gbp""#)),
    },
];

fn aliyun(asked: &Asked) -> Option<String> {
    let has = |text: &str| asked.query.contains(text);
    let hangzhou = has("cn-hangzhou");
    let file = match asked.header("x-acs-action")? {
        "DescribeRegions" => "regions",
        "DescribeInstanceTypes" if has("NextToken=page2token") => "types2",
        "DescribeInstanceTypes" => "types1",
        "QuerySkuPriceList" if hangzhou && has("NextPageToken") => "skus-hangzhou2",
        "QuerySkuPriceList" if hangzhou => "skus-hangzhou1",
        "QuerySkuPriceList" => "skus-heyuan",
        "DescribeAvailableResource" => match (has("SpotStrategy"), hangzhou) {
            (true, true) => "spot-stock-hangzhou",
            (true, false) => "spot-stock-heyuan",
            (false, true) => "stock-hangzhou",
            (false, false) => "stock-heyuan",
        },
        "DescribeSpotPriceHistory" if has("Offset=1000") => "spot-history2",
        "DescribeSpotPriceHistory" => "spot-history1",
        "DescribePrice" if has("cloud_essd") => "price",
        _ => return None,
    };
    Some(fixture(&format!("aliyun/offers/{file}.json")))
}

/// The cloud of a name.
pub fn cloud(name: &str) -> Cloud {
    *CLOUDS.iter().find(|cloud| cloud.name == name).expect("a cloud of the tests")
}

impl Cloud {
    /// Its right answers.
    pub fn good(self) -> Script {
        Arc::new(move |_, asked| self.reply(asked))
    }

    /// One right answer.
    pub fn reply(self, asked: &Asked) -> Reply {
        match (self.answer)(asked) {
            Some(body) => Reply::json(body),
            None => Reply::status(404, r#"{"error":"no such thing here"}"#),
        }
    }

    /// Its source, pointed at `base`.
    pub fn source(
        self,
        base: &str,
        clock: Arc<dyn Clock>,
        cache: Arc<dyn PageCache>,
    ) -> Arc<dyn OfferSource> {
        let text = self.settings.replace("{base}", base).replace("{secret}", SECRET);
        let settings: SourceSettings = serde_json::from_str(&text).unwrap();
        // Making one takes longer than most of the tests' calls.
        thread_local! {
            static CLIENT: HttpClient = HttpClient::loopback().unwrap();
        }
        let client = CLIENT.with(HttpClient::clone);
        let context = SourceContext { client: &client, clock, cache, env: &|_| None };
        let id = ProviderId::new(self.name).unwrap();
        let all = [(id, settings)].into_iter().collect();
        sources(&all, &context, &|_, _, _| None).unwrap().remove(0)
    }

    /// Reads it from a server that plays `script`.
    pub async fn read(self, script: Script) -> (Result<OfferSheet>, Server, Arc<Leaping>) {
        let server = Server::start(script).await;
        let clock = Leaping::at(START);
        let source = self.source(&server.base, Arc::clone(&clock) as _, Arc::new(NoCache));
        let sheet = source.offers(&OfferScope::default()).await;
        (sheet, server, clock)
    }

    /// The sheet of its right answers.
    pub async fn sheet(self) -> OfferSheet {
        self.read(self.good()).await.0.unwrap()
    }
}
