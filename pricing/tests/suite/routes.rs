//! The three routes, with the types that the published client insists on.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Extension;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use runwhere_pricing::{Audience, PriceService, router};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{at, local_sheet, offer, provider, service, sheet, young};

fn with_local(now: jiff::Timestamp) -> Arc<PriceService> {
    let service = service(now, true);
    let (id, sheet) = local_sheet(now);
    service.replace_sheet(id, sheet);
    Arc::new(service)
}

async fn send(service: &Arc<PriceService>, request: Request<Body>) -> (StatusCode, Value) {
    let response = router(service.clone()).oneshot(request).await.expect("an answer");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let value: Value = serde_json::from_slice(&body).expect("JSON");
    assert!(value.is_object(), "every body is an object");
    // Texts that the published client prints as markup.
    for text in [&value["message"], &value["recommendations"][0]["reason"]] {
        assert!(!text.to_string().contains(['[', ']']), "{text}");
    }
    (status, value)
}

async fn get(service: &Arc<PriceService>, path: &str) -> (StatusCode, Value) {
    send(service, Request::get(path).body(Body::empty()).expect("a request")).await
}

async fn quote(service: &Arc<PriceService>, body: impl Into<Body>) -> (StatusCode, Value) {
    let request = Request::post("/api/v1/comparison/quote")
        .header("content-type", "application/json")
        .body(body.into());
    send(service, request.expect("a request")).await
}

#[tokio::test]
async fn summary_has_the_types_of_the_contract() {
    let (status, body) = get(&with_local(young()), "/api/v1/comparison/summary").await;
    assert_eq!(status, StatusCode::OK);
    assert!(body["staleness_seconds"].is_u64());
    let items = body["items"].as_array().expect("items");
    assert_eq!(items.len(), 52);
    for item in items {
        assert!(item["gpu_model"].is_string());
        assert!(item["gpu_memory_gb"].is_u64());
        assert!(item["has_spot"].is_boolean());
        for price in ["min_hourly_price", "max_hourly_price", "min_hourly_price_per_gpu"] {
            let text = item[price].as_str().expect("a price as text");
            assert_eq!(text.split_once('.').map(|(_, digits)| digits.len()), Some(4), "{text}");
        }
        assert!(item["provider_count"].as_u64() >= Some(1));
        assert!(item["offer_count"].as_u64() >= item["provider_count"].as_u64());
    }
    let a100 = items.iter().find(|item| item["gpu_type"] == "a100-80g").expect("a100-80g");
    assert_eq!(a100["gpu_model"], "NVIDIA A100-80GB");
    assert_eq!(a100["launchable_count"], 1);
}

#[tokio::test]
async fn summary_without_any_date_leaves_staleness_out() {
    let empty = Arc::new(service(young(), false));
    let (status, body) = get(&empty, "/api/v1/comparison/summary").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["items"], json!([]));
    assert_eq!(body.get("staleness_seconds"), None);
}

#[tokio::test]
async fn the_published_clients_questions_are_answered() {
    let service = with_local(young());
    let (status, body) = quote(
        &service,
        r#"{"gpu_model":"NVIDIA A100-80GB","gpu_count":1,"task_type":"training","spot_allowed":true,"top_n":1}"#,
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    let best = &body["recommendations"][0];
    assert_eq!(best["rank"], 1);
    assert_eq!(best["offer"]["offer_key"], "local/-/-/on_demand/a100-80g.x1");
    assert_eq!(best["offer"]["hourly_price"], "36.4400");
    assert_eq!(best["offer"]["price"], "36.44");
    assert_eq!(best["offer"]["currency"], "CNY");
    assert_eq!(best["offer"]["fx_rate"], Value::Null);
    assert_eq!(best["tag"], "推荐");
    assert!(best["reason"].as_str().is_some_and(|text| text.contains("可直接启动")));
    assert_eq!(body["recommendations"].as_array().map(Vec::len), Some(1));

    let list = "/api/v1/offers?gpu_model=NVIDIA+A100-80GB&is_active=true&limit=20&offset=0";
    let (status, body) = get(&service, list).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["items"].as_array().map(Vec::len), Some(20));
    assert_eq!((&body["limit"], &body["offset"]), (&json!(20), &json!(0)));
    assert!(body["total"].as_u64() > Some(200));
    for item in body["items"].as_array().expect("items") {
        for field in ["offer_key", "offer_code", "provider", "region", "billing_model"] {
            assert!(item[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
        }
        let code = item["offer_code"].as_str().unwrap_or_default();
        assert!(code.len() == 8 && code.bytes().all(|b| b.is_ascii_uppercase()));
    }
    let usd = &body["items"][1];
    assert_eq!(usd["launchable"], false);
    assert_eq!(usd["currency"], "USD");
    assert_eq!(usd["fx_rate"], "6.7489");
    assert_eq!(usd["fx_date"], "2026-09-24");
    assert!(usd["fx_source"].is_string());
    assert_eq!(usd["age"], Value::Null, "no date is no age");
}

#[tokio::test]
async fn lists_filter_and_page() {
    let service = with_local(young());
    let (_, all) = get(&service, "/api/v1/offers?limit=500").await;
    assert_eq!(all["total"], 1497);
    let (_, aliyun) =
        get(&service, "/api/v1/offers?provider=aliyun&billing_model=on_demand&limit=500").await;
    assert_eq!(aliyun["total"], 30);
    assert_eq!(aliyun["items"][0]["currency"], "CNY");
    assert!(aliyun["items"][0]["age"].as_u64() > Some(900 * 86_400));
    assert_eq!(aliyun["items"][0]["observed_at"], "2023-06-17T00:00:00Z");
    let (_, last) = get(&service, "/api/v1/offers?provider=aliyun&limit=20&offset=20").await;
    assert_eq!(last["items"].as_array().map(Vec::len), Some(10));
    assert_eq!(last["items"][9], aliyun["items"][29]);
    let (_, local) = get(&service, "/api/v1/offers?launchable=true").await;
    assert_eq!(local["total"], 1);
    for nothing in ["provider=nobody", "region=nowhere", "offset=99999", "is_active=false"] {
        let (status, body) = get(&service, &format!("/api/v1/offers?{nothing}")).await;
        assert_eq!((status, body["items"].clone()), (StatusCode::OK, json!([])), "{nothing}");
    }
}

#[tokio::test]
async fn unknown_models_get_suggestions_not_errors() {
    let service = with_local(young());
    let (status, body) =
        quote(&service, r#"{"gpu_model":"NVIDIA A100-80GBB","gpu_count":1}"#).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["recommendations"], json!([]));
    assert_eq!(body["suggestions"][0], "a100-80g");
    let (status, body) = get(&service, "/api/v1/offers?gpu_model=h1000-80g").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((&body["items"], &body["total"]), (&json!([]), &json!(0)));
    assert_eq!(body["suggestions"][0], "h100-80g");
    let (_, body) = get(&service, "/api/v1/offers?gpu_model=%5B/red%5D").await;
    assert_eq!(body["total"], 0);
}

#[tokio::test]
async fn a_gpu_that_nobody_knows_is_found_by_its_own_name() {
    let service = Arc::new(service(young(), true));
    let mut strange = offer("lab/-/-/on_demand/x", "t4", "1", "1 CNY");
    strange.gpu = None;
    strange.gpu_raw = "Moore [S4000]".to_owned();
    strange.price.kind = runwhere_model::PriceKind::List;
    service.replace_sheet(provider("lab"), sheet(vec![strange], young()));
    let (_, body) = get(&service, "/api/v1/offers?gpu_model=moore%20%5BS4000%5D").await;
    assert_eq!(body["items"][0]["gpu_model"], "Moore (S4000)");
    assert_eq!(body["items"][0]["gpu_type"], Value::Null);
    let (_, body) = get(&service, "/api/v1/comparison/summary").await;
    let last = body["items"].as_array().and_then(|items| items.last()).expect("a row");
    assert_eq!(last["gpu_model"], "Moore (S4000)");
}

#[tokio::test]
async fn ceilings_are_read_exactly_from_number_or_text() {
    let service = with_local(young());
    let count = |price: &'static str| {
        let service = service.clone();
        async move {
            let body = format!(
                r#"{{"gpu_model":"a100-80g","gpu_count":1,"top_n":1,"max_hourly_price":{price}}}"#
            );
            let (status, body) = quote(&service, body).await;
            assert_eq!(status, StatusCode::OK, "{price}");
            body["recommendations"][0]["offer"]["provider"] == "local"
        }
    };
    for enough in ["36.44", "\"36.44\"", "36.440", "3644e-2", "50.0", "null"] {
        assert!(count(enough).await, "{enough}");
    }
    // As a float, 36.44 and this are the same number.
    assert!(!count("36.4399999999999999999999").await);
    assert!(!count("36").await);
}

#[tokio::test]
async fn mistakes_are_named() {
    let service = with_local(young());
    for (body, field) in [
        ("", "body"),
        ("[]", "body"),
        ("{", "body"),
        ("\"x\"", "body"),
        (r#"{"gpu_count":1,"gpu_count":2}"#, "body"),
        (r#"{"gpu_model":7}"#, "gpu_model"),
        (r#"{"gpu_model":"  "}"#, "gpu_model"),
        (r#"{"gpu_count":0}"#, "gpu_count"),
        (r#"{"gpu_count":-1}"#, "gpu_count"),
        (r#"{"gpu_count":1.5}"#, "gpu_count"),
        (r#"{"gpu_count":"1"}"#, "gpu_count"),
        (r#"{"gpu_count":99999999999999999999}"#, "gpu_count"),
        (r#"{"task_type":"mining"}"#, "task_type"),
        (r#"{"spot_allowed":"yes"}"#, "spot_allowed"),
        (r#"{"top_n":0}"#, "top_n"),
        (r#"{"max_hourly_price":0}"#, "max_hourly_price"),
        (r#"{"max_hourly_price":-3}"#, "max_hourly_price"),
        (r#"{"max_hourly_price":"cheap"}"#, "max_hourly_price"),
        (r#"{"max_hourly_price":"NaN"}"#, "max_hourly_price"),
        (r#"{"max_hourly_price":[1]}"#, "max_hourly_price"),
        (r#"{"max_hourly_price":1e99}"#, "max_hourly_price"),
        // A ceiling with a typing error in its name must not be no ceiling.
        (r#"{"max_price":5}"#, "max_price"),
    ] {
        let (status, answer) = quote(&service, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(answer["code"], 400);
        assert_eq!(answer["detail"]["field"], field, "{body}");
        assert!(answer["message"].as_str().is_some_and(|text| text.starts_with(field)));
    }
    for (parameters, field) in [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=many", "limit"),
        ("offset=-1", "offset"),
        ("billing_model=cheap", "billing_model"),
        ("is_active=perhaps", "is_active"),
        // A ceiling that is none must not be no ceiling.
        ("max_price=0", "max_price"),
        ("max_price=-1", "max_price"),
        ("max_price=1e-400", "max_price"),
        // Nor must one whose name is mistyped, or that stands twice.
        ("max_hourly_price=5", "max_hourly_price"),
        ("%5B2J%1B=5", "(2J "),
        ("max_price=5&max_price=500", "max_price"),
    ] {
        let (status, answer) = get(&service, &format!("/api/v1/offers?{parameters}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{parameters}");
        assert_eq!(answer["detail"]["field"], field);
    }
    for (path, field) in [
        ("sources?strict=perhaps", "strict"),
        ("sources?strct=true", "strct"),
        ("offer?key=local", "key"),
        ("diff?from=a&form=b", "form"),
        ("changes?provider=local&provider=aws", "provider"),
        ("changes", "provider"),
        ("changes?offer=a/b", "offer"),
        ("changes?offer=a/b&provider=local", "offer"),
        ("changes?provider=local&limit=0", "limit"),
    ] {
        let (status, answer) = get(&service, &format!("/api/v1/prices/{path}")).await;
        assert_eq!(
            (status, &answer["detail"]["field"]),
            (StatusCode::BAD_REQUEST, &json!(field)),
            "{path}"
        );
    }
    let (_, page) = get(&service, "/api/v1/offers?provider=local").await;
    let code = page["items"][0]["offer_code"].as_str().expect("a code");
    let (status, _) = get(&service, &format!("/api/v1/prices/changes?offer={code}")).await;
    assert_eq!(status, StatusCode::OK, "a code names an offer as well as a key does");
    let (status, answer) = quote(&service, "x".repeat(70_000)).await;
    assert_eq!((status, &answer["code"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!(413)));
    let (status, answer) = get(&service, "/api/v1/comparison/quote").await;
    assert_eq!((status, &answer["code"]), (StatusCode::METHOD_NOT_ALLOWED, &json!(405)));
}

#[tokio::test]
async fn without_a_model_each_model_gets_its_best_offer() {
    let (status, body) = quote(&with_local(young()), r#"{"gpu_count":1,"top_n":3}"#).await;
    assert_eq!(status, StatusCode::OK);
    let rows = body["recommendations"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["offer"]["provider"], "local");
    assert_ne!(rows[1]["offer"]["gpu_type"], rows[2]["offer"]["gpu_type"]);
}

#[tokio::test]
async fn sentences_come_in_the_language_asked_for() {
    let service = with_local(at("2027-06-01T00:00:00Z"));
    for (accepted, word) in [
        (None, "参考价"),
        (Some("en-US,en;q=0.9"), "reference"),
        (Some("fr, zh;q=0.5, en;q=0.7"), "reference"),
        (Some("en;q=0, zh"), "参考价"),
        (Some("fr"), "参考价"),
    ] {
        let mut request = Request::post("/api/v1/comparison/quote");
        if let Some(accepted) = accepted {
            request = request.header("accept-language", accepted);
        }
        let body = r#"{"gpu_model":"h100-80g","gpu_count":8}"#;
        let (_, body) = send(&service, request.body(Body::from(body)).expect("a request")).await;
        let first = &body["recommendations"][0];
        assert_eq!(first["tag"], word, "{accepted:?}");
        assert!(first["offer"]["flags"].as_array().is_some_and(|f| f.contains(&json!("old_rate"))));
        assert!(first["reasons"].as_array().is_some_and(|r| {
            r.iter().any(|r| r["code"] == "old_rate" && r["params"]["date"] == "2026-09-24")
        }));
    }
}

#[tokio::test]
async fn account_prices_need_a_credential() {
    let service = Arc::new(service(young(), false));
    service.replace_sheet(
        provider("a"),
        sheet(vec![offer("a/-/-/on_demand/x", "t4", "1", "1 CNY")], young()),
    );
    let (_, body) = get(&service, "/api/v1/offers").await;
    assert_eq!(body["total"], 0);
    let request = Request::get("/api/v1/offers").body(Body::empty()).expect("a request");
    let app = router(service).layer(Extension(Audience::Member));
    let response = app.oneshot(request).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["items"][0]["price_kind"], "account");
}

#[tokio::test]
async fn the_document_names_every_route_and_no_other() {
    let service = with_local(young());
    let (status, document) = get(&service, "/api/v1/prices/openapi.json").await;
    assert_eq!(status, StatusCode::OK);
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 15);
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().expect("operations") {
            let path = path.replace("{id}", "x");
            let request = Request::builder().method(method.to_uppercase().as_str()).uri(&path);
            let (status, _) = send(&service, request.body(Body::empty()).expect("a request")).await;
            let there = status != StatusCode::NOT_FOUND || path.ends_with("/diff");
            assert!(there && status != StatusCode::METHOD_NOT_ALLOWED, "{method} {path}: {status}");
            assert!(operation["summary"].is_string(), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_ask() {
    let service = with_local(young());
    let get = |path: &str, encoding: &str| {
        let request = Request::get(path).header("accept-encoding", encoding);
        router(service.clone()).oneshot(request.body(Body::empty()).expect("a request"))
    };
    let bytes = async |response: axum::response::Response| {
        response.into_body().collect().await.expect("a body").to_bytes()
    };
    let list = "/api/v1/offers?limit=100";
    let plain = get(list, "identity").await.expect("an answer");
    assert!(!plain.headers().contains_key("content-encoding"));
    let packed = get(list, "gzip").await.expect("an answer");
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    assert!(packed.headers()["etag"].to_str().is_ok_and(|tag| tag.starts_with("W/")));
    let (plain, packed) = (bytes(plain).await, bytes(packed).await);
    assert!(packed.len() * 5 < plain.len(), "{} of {}", packed.len(), plain.len());
    let small = get("/api/v1/prices/fx", "gzip").await.expect("an answer");
    assert!(!small.headers().contains_key("content-encoding"));

    let ask = |top_n: usize, encoding: &str| {
        let question = json!({ "top_n": top_n }).to_string();
        let request = Request::post("/api/v1/comparison/quote").header("accept-encoding", encoding);
        router(service.clone()).oneshot(request.body(Body::from(question)).expect("a request"))
    };
    let plain = ask(40, "identity").await.expect("an answer");
    assert!(!plain.headers().contains_key("content-encoding"));
    let packed = ask(40, "gzip").await.expect("an answer");
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    assert_eq!(packed.headers()["content-type"], "application/json");
    assert!(packed.headers()["vary"].to_str().is_ok_and(|by| by == "accept-encoding"));
    let (plain, packed) = (bytes(plain).await, bytes(packed).await);
    assert!(packed.len() * 4 < plain.len(), "{} of {}", packed.len(), plain.len());
    let small = ask(3, "gzip").await.expect("an answer");
    assert!(!small.headers().contains_key("content-encoding"));
}

/// Within a second a question has one answer, under one id.
#[tokio::test]
async fn a_quote_holds_for_a_second_and_its_prices() {
    let service = with_local(at("2026-11-20T12:00:00.75Z"));
    let asked = r#"{"gpu_model":"a100-80g","gpu_count":1}"#;
    let app = router(service.clone());
    let ask = async |body: &'static str| {
        let request = Request::post("/api/v1/comparison/quote").body(Body::from(body));
        let response = app.clone().oneshot(request.expect("a request")).await.expect("an answer");
        assert_eq!(response.headers()["content-type"], "application/json");
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (bytes.clone(), serde_json::from_slice::<Value>(&bytes).expect("JSON"))
    };
    let (first, told) = ask(asked).await;
    assert_eq!(told["as_of"], "2026-11-20T12:00:00Z");
    assert_eq!(ask(asked).await.0, first);
    let (_, other) = ask(r#"{"gpu_model":"a100-80g","gpu_count":8}"#).await;
    assert_ne!(other["quote_id"], told["quote_id"]);
    // Other prices, another answer, also within the second.
    service.remove_sheet(&provider("local"));
    let (_, later) = ask(asked).await;
    assert_ne!(later["quote_id"], told["quote_id"]);
    assert_ne!(later["recommendations"][0]["offer"]["provider"], "local");
    let again = format!("/api/v1/prices/quotes/{}", later["quote_id"].as_str().expect("an id"));
    assert_eq!(get(&service, &again).await.1, later);
}
