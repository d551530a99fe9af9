use axum::body::Body;
use runwhere_engine::Permission;
use serde_json::json;

use super::Bench;
use crate::runners::canonical;

const DATASET: &[(&str, &str)] =
    &[("dataset.toml", "[configs.default]\ntrain = [\"*.jsonl\"]\n"), ("a.jsonl", "{}\n")];

#[tokio::test]
async fn content_is_immutable_and_its_digest_can_be_made_again() {
    let bench = Bench::new().await;
    let made = bench.publish("datasets/team/data", Some("1"), DATASET).await;
    assert_eq!(made["uri"], "envloop://datasets/team/data@1");
    let digest = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(canonical(&made["manifest"])));
    assert_eq!(made["manifest_sha256"], digest);
    // An identical repeat is the first one; anything else is refused.
    assert_eq!(bench.publish("datasets/team/data", Some("1"), DATASET).await, made);
    let changed = [DATASET[0], ("a.jsonl", "{ }\n")];
    let refused =
        bench.publish_as(&bench.key, "datasets/team/data", Some("1"), &changed, "workspace").await;
    refused.refused(409, "VERSION_CONFLICT");
    let second = bench.publish("datasets/team/data", Some("2"), &changed).await;
    assert_ne!(second["manifest_sha256"], made["manifest_sha256"]);
    // By version, by digest, newest, and listed.
    let digest = made["manifest_sha256"].as_str().unwrap();
    for revision in ["1", digest] {
        let path = format!("/v1/content/datasets/team/data/versions/{revision}");
        assert_eq!(bench.get(&path).await.expect(200)["uri"], made["uri"]);
    }
    let newest = bench.get("/v1/content/datasets/team/data").await.expect(200);
    assert_eq!(newest["revision"], "2");
    let page = bench.get("/v1/content/datasets?limit=1").await.expect(200);
    assert_eq!(page["items"][0]["revision"], "2");
    let cursor = page["next_cursor"].as_str().unwrap();
    let page =
        bench.get(&format!("/v1/content/datasets?limit=1&cursor={cursor}")).await.expect(200);
    assert_eq!((&page["items"][0]["revision"], &page["next_cursor"]), (&json!("1"), &json!(null)));
    assert_eq!(bench.get("/v1/content/recipes").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn what_cannot_be_published_says_why() {
    let bench = Bench::new().await;
    let key = bench.key.clone();
    type Case<'a> = (&'a str, Option<&'a str>, &'a [(&'a str, &'a str)], &'a str);
    let recipe = "[recipe]\nabi = \"envloop.train-recipe/1\"\nentry = \"train.py\"\n";
    let digest = "0a".repeat(32);
    let stands = format!(
        "{recipe}[dependencies.lib]\nuri = \"envloop://recipes/no/lib@{digest}\"\nmanifest_sha256 = \"{digest}\"\n"
    );
    let cases: [Case<'_>; 10] = [
        ("datasets/team/data", None, DATASET, "need a version"),
        ("datasets/team/data", Some("a/b"), DATASET, "version"),
        ("datasets/team/data", Some(&digest), DATASET, "no digest"),
        ("datasets/team/data", Some("1"), &[("a", "x")], "dataset.toml"),
        ("datasets/team/data", Some("1"), &[("dataset.toml", "x")], "dataset.toml"),
        ("datasets/team/data", Some("1"), &[("../dataset.toml", "x")], "relative path"),
        ("datasets/team/data", Some("1"), &[], "1 to 1000 files"),
        ("recipes/team/r", Some("1"), &[("recipe.toml", recipe), ("train.py", "")], "no versions"),
        ("recipes/team/r", None, &[("recipe.toml", recipe)], "recipe.entry"),
        (
            "recipes/team/r",
            None,
            &[
                ("recipe.toml", recipe),
                ("train.py", ""),
                (
                    "parameters.schema.json",
                    "{\"type\":\"object\",\"additionalProperties\":false,\"oneOf\":[]}",
                ),
            ],
            "oneOf",
        ),
    ];
    for (path, version, files, words) in cases {
        let reply = bench.publish_as(&key, path, version, files, "workspace").await;
        let message = reply.refused(400, "BAD_REQUEST");
        assert!(message.contains(words), "{words}: {message}");
    }
    let files = [("recipe.toml", stands.as_str()), ("train.py", "")];
    let reply = bench.publish_as(&key, "recipes/team/r", None, &files, "workspace").await;
    assert!(reply.refused(404, "RESOURCE_NOT_FOUND").contains("recipes/no/lib"));
    // Names of files that were never uploaded are no content.
    let listed = json!([{ "path": "dataset.toml", "sha256": digest, "size": 1 }]);
    let body = json!({ "version": "1", "files": listed });
    let reply = bench.post("/v1/content/datasets/team/data/versions", &body).await;
    assert!(reply.refused(400, "BAD_REQUEST").contains("not uploaded"));
    // Nor is content that is not what its digest says.
    let path = format!("/v1/content/files/{digest}?size=1");
    bench.call(&key, "PUT", &path, "x").await.refused(400, "BAD_REQUEST");
    bench
        .call(&key, "PUT", &format!("/v1/content/files/{digest}?size=99999999999"), "x")
        .await
        .refused(413, "REQUEST_TOO_LARGE");
    bench.get(&format!("/v1/content/files/{digest}")).await.refused(404, "RESOURCE_NOT_FOUND");
    bench.get("/v1/content/models").await.refused(404, "NOT_FOUND");
    assert_eq!(bench.get("/v1/content/datasets").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn publishing_needs_admin_and_reading_needs_the_readers_permission() {
    let bench = Bench::new().await;
    bench.publish("datasets/team/data", Some("1"), DATASET).await;
    let reader = bench.new_key("default", &[Permission::RunnerRead]).await;
    let runner = bench.new_key("default", &[Permission::TrainingRun]).await;
    for (key, status) in [(&reader, 200), (&runner, 403)] {
        let reply = bench.call(key, "GET", "/v1/content/datasets", Body::empty()).await;
        assert_eq!(reply.status, status);
    }
    for key in [&reader, &runner] {
        let body = json!({ "files": [] }).to_string();
        let reply = bench.call(key, "POST", "/v1/content/datasets/a/b/versions", body).await;
        reply.refused(403, "PERMISSION_DENIED");
        let path = format!("/v1/content/files/{}?size=1", "0a".repeat(32));
        bench.call(key, "PUT", &path, "x").await.refused(403, "PERMISSION_DENIED");
        let path = "/v1/content/plugins/a/b/versions/1/approval";
        bench.call(key, "POST", path, Body::empty()).await.refused(403, "PERMISSION_DENIED");
    }
}
