use axum::body::Body;
use runwhere_engine::{JobKind, Permission, SyncedFile};
use runwhere_model::{JobId, ProjectId};
use serde_json::{Value, json};

use super::{Bench, Reply};
use crate::store::{JobQuery, Store as _};

const RECIPE_RUNNER: &str = "profiles = [\"envloop.job-profile/v1\", \"envloop.train-recipe/1\"]\nrecipe_entry = \"train.py\"";
const SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"required":["steps"],"properties":{
    "steps":{"type":"integer","minimum":1},
    "lr":{"type":"string","format":"decimal","default":"0.0002"}}}"#;

/// A recipe with a source of its own and an input, a dataset, a plugin, and a runner.
struct Shelf {
    bench: Bench,
    runner: String,
    library: Value,
    recipe: Value,
    dataset: Value,
    plugin: Value,
}

fn pin(published: &Value) -> Value {
    json!({ "uri": published["uri"], "manifest_sha256": published["manifest_sha256"] })
}

impl Shelf {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let runner = bench.runner("team/runner", RECIPE_RUNNER).await;
        let head = "[recipe]\nabi = \"envloop.train-recipe/1\"\n";
        let library = bench
            .publish(
                "recipes/team/library",
                None,
                &[("recipe.toml", &format!("{head}entry = \"lib.py\"\n")), ("lib.py", "X = 1\n")],
            )
            .await;
        let declared = format!(
            "{head}entry = \"train.py\"\n[inputs]\ndata = \"required\"\nmore = \"optional\"\n[dependencies.library]\nuri = {}\nmanifest_sha256 = {}\n",
            library["uri"], library["manifest_sha256"]
        );
        let files = [
            ("recipe.toml", declared.as_str()),
            ("train.py", "print('train')\n"),
            ("parameters.schema.json", SCHEMA),
        ];
        let recipe = bench.publish("recipes/team/recipe", None, &files).await;
        let files = [
            ("dataset.toml", "[configs.default]\ntrain = [\"train/*\"]\ntest = [\"test.jsonl\"]\n"),
            ("train/1.jsonl", "1\n"),
            ("train/2.jsonl", "2\n"),
            ("test.jsonl", "3\n"),
        ];
        let dataset = bench.publish("datasets/team/data", Some("smoke-1"), &files).await;
        let files = [("plugin.toml", "[plugin]\ndescription = \"p\"\n"), ("p.py", "")];
        let plugin = bench.publish("plugins/team/plugin", Some("1"), &files).await;
        Self { bench, runner, library, recipe, dataset, plugin }
    }

    fn profile(&self) -> Value {
        let mut data = pin(&self.dataset);
        data["config"] = json!("default");
        data["split"] = json!("train");
        json!({
            "schema": "envloop.job-profile/v2",
            "recipe": pin(&self.recipe),
            "parameters": { "steps": 1 },
            "inputs": { "data": data },
            "plugins": [],
        })
    }

    async fn submit(&self, profile: &Value) -> Reply {
        self.bench.submit(json!({ "runner": self.runner, "profile": profile })).await
    }

    #[track_caller]
    fn changed(&self, change: impl Fn(&mut Value)) -> Value {
        let mut profile = self.profile();
        change(&mut profile);
        profile
    }

    async fn jobs(&self) -> usize {
        let project = ProjectId::new("default").unwrap();
        let query = JobQuery { kind: Some(JobKind::Training), ..JobQuery::default() };
        self.bench.store.jobs(&project, &query).await.unwrap().len()
    }

    async fn approve(&self, method: &str) {
        let path = "/v1/content/plugins/team/plugin/versions/1/approval";
        self.bench.call(&self.bench.key, method, path, Body::empty()).await.expect(200);
    }
}

#[tokio::test]
async fn the_second_profile_is_frozen_with_defaults_and_files() {
    let shelf = Shelf::new().await;
    let made = shelf.submit(&shelf.profile()).await.expect(201);
    let profile = &made["training"]["trials"][0]["profile"];
    // The integer stays one, the default is there.
    assert_eq!(profile["parameters"], json!({ "steps": 1, "lr": "0.0002" }));
    assert_eq!(profile["recipe"]["entry"], "train.py");
    assert_eq!(profile["recipe"]["dependencies"]["library"]["path"], "dependencies/library");
    let data = &profile["inputs"]["data"];
    assert_eq!(data["files"], json!(["train/1.jsonl", "train/2.jsonl"]));
    assert_eq!(data["manifest_sha256"], shelf.dataset["manifest_sha256"]);
    let id = JobId::new(made["job_id"].as_str().unwrap()).unwrap();
    let project = ProjectId::new("default").unwrap();
    let job = shelf.bench.store.job(&project, &id).await.unwrap().unwrap().job;
    let mut paths: Vec<&str> =
        job.trial_specs[0].run.inputs.iter().map(|file: &SyncedFile| file.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "dependencies/library/lib.py",
            "dependencies/library/recipe.toml",
            "inputs/data/train/1.jsonl",
            "inputs/data/train/2.jsonl",
            "recipe/parameters.schema.json",
            "recipe/recipe.toml",
            "recipe/train.py",
        ]
    );
    // The snapshot shows what was frozen.
    let trial = made["training"]["trials"][0]["trial_id"].as_str().unwrap();
    let snapshot = shelf.bench.get(&format!("/v1/trials/{trial}/snapshot")).await.expect(200);
    assert_eq!(snapshot["profile"], *profile);
    assert_eq!(snapshot["profile_files"].as_array().map(Vec::len), Some(7));
}

#[tokio::test]
async fn the_first_profile_carries_fixed_parameters() {
    let shelf = Shelf::new().await;
    let mut data = pin(&shelf.dataset);
    data["split"] = json!("test");
    let profile = json!({
        "schema": "envloop.job-profile/v1",
        "inputs": { "anything": data },
        "recipe": { "steps": 3, "lr": "0.5", "nested": { "on": true } },
    });
    let made = shelf.submit(&profile).await.expect(201);
    let frozen = &made["training"]["trials"][0]["profile"];
    assert_eq!(frozen["recipe"], profile["recipe"]);
    assert_eq!(frozen["inputs"]["anything"]["files"], json!(["test.jsonl"]));
    let mut wrong = profile.clone();
    wrong["recipe"]["lr"] = json!(0.5);
    let message = shelf.submit(&wrong).await.refused(422, "INVALID_PROFILE");
    assert!(message.contains("spec.profile.recipe.lr"), "{message}");
}

#[tokio::test]
async fn every_refusal_comes_before_anything_is_taken() {
    let shelf = Shelf::new().await;
    type Change = fn(&mut Value);
    let cases: [(Change, u16, &str, &str); 14] = [
        (|p| p["parameters"] = json!({}), 422, "INVALID_PROFILE", "steps is missing"),
        (|p| p["parameters"]["steps"] = json!(0), 422, "INVALID_PROFILE", "at least 1"),
        (|p| p["parameters"]["steps"] = json!(1.5), 422, "INVALID_PROFILE", "parameters.steps"),
        (|p| p["parameters"]["lr"] = json!(0.5), 422, "INVALID_PROFILE", "decimal as a string"),
        (|p| p["parameters"]["lr"] = json!("fast"), 422, "INVALID_PROFILE", "parameters.lr"),
        (|p| p["parameters"]["step"] = json!(1), 422, "INVALID_PROFILE", "step is not a member"),
        (|p| p["inputs"] = json!({}), 422, "INVALID_PROFILE", "the recipe needs it"),
        (
            |p| p["inputs"]["other"] = p["inputs"]["data"].clone(),
            422,
            "INVALID_PROFILE",
            "no such input",
        ),
        (
            |p| p["inputs"]["data"]["split"] = json!("valid"),
            422,
            "INVALID_PROFILE",
            "there are: test, train",
        ),
        (
            |p| p["inputs"]["data"]["config"] = json!("en"),
            422,
            "INVALID_PROFILE",
            "there are: default",
        ),
        (
            |p| p["inputs"]["data"]["uri"] = json!("envloop://datasets/team/data@smoke-2"),
            404,
            "DATASET_REVISION_NOT_FOUND",
            "smoke-2",
        ),
        (
            |p| p["inputs"]["data"]["manifest_sha256"] = json!("0a".repeat(32)),
            409,
            "PROFILE_HASH_MISMATCH",
            "another manifest",
        ),
        (
            |p| {
                let digest = "0a".repeat(32);
                p["recipe"] = json!({ "uri": format!("envloop://recipes/team/recipe@{digest}"), "manifest_sha256": digest });
            },
            404,
            "RESOURCE_NOT_FOUND",
            "team/recipe",
        ),
        (
            |p| p["recipe"]["manifest_sha256"] = json!("<recipe-manifest-sha256>"),
            422,
            "INVALID_PROFILE",
            "64 hexadecimal",
        ),
    ];
    for (change, status, code, words) in cases {
        let message = shelf.submit(&shelf.changed(change)).await.refused(status, code);
        assert!(message.contains(words), "{words}: {message}");
    }
    assert_eq!(shelf.jobs().await, 0);
}

#[tokio::test]
async fn a_runner_must_declare_what_a_profile_needs() {
    let shelf = Shelf::new().await;
    let v1 = json!({ "schema": "envloop.job-profile/v1" });
    for (name, more, profile, words) in [
        ("team/none", "", v1.clone(), "envloop.job-profile/v1"),
        (
            "team/one",
            "profiles = [\"envloop.job-profile/v1\"]",
            shelf.profile(),
            "envloop.train-recipe/1",
        ),
        ("team/two", "profiles = [\"envloop.train-recipe/1\"]", shelf.profile(), "recipe_entry"),
        (
            "team/three",
            "profiles = [\"envloop.train-recipe/1\"]\nrecipe_entry = \"other.py\"",
            shelf.profile(),
            "train.py",
        ),
        (
            "team/four",
            "profiles = [\"envloop.train-recipe/1\"]\nrecipe_entry = \"train.py\"",
            v1,
            "envloop.job-profile/v1",
        ),
    ] {
        let runner = shelf.bench.runner(name, more).await;
        let reply = shelf.bench.submit(json!({ "runner": runner, "profile": profile })).await;
        let message = reply.refused(422, "PROFILE_RUNNER_UNSUPPORTED");
        assert!(message.contains(words), "{words}: {message}");
    }
    assert_eq!(shelf.jobs().await, 0);
}

#[tokio::test]
async fn only_approved_plugins_are_bound_and_an_approval_can_end() {
    let shelf = Shelf::new().await;
    let profile = shelf.changed(|profile| profile["plugins"] = json!([]));
    let mut bound = profile.clone();
    bound["plugins"] = json!([pin(&shelf.plugin)]);
    let message = shelf.submit(&bound).await.refused(403, "PERMISSION_DENIED");
    assert!(message.contains("el content approve"), "{message}");
    shelf.approve("POST").await;
    shelf.approve("POST").await;
    let request =
        json!({ "request_id": "r1", "spec": { "runner": shelf.runner, "profile": bound } });
    let made = shelf.bench.post("/v1/jobs", &request).await.expect(201);
    assert_eq!(
        made["training"]["trials"][0]["profile"]["plugins"][0]["path"],
        "plugins/team/plugin"
    );
    // What is no parameter of the plugin is refused.
    let mut more = bound.clone();
    more["plugins"][0]["parameters"] = json!({ "x": 1 });
    shelf.submit(&more).await.refused(422, "INVALID_PROFILE");
    // A repeat is the same job, until the approval ends.
    let again = shelf.bench.post("/v1/jobs", &request).await.expect(200);
    assert_eq!(again["job_id"], made["job_id"]);
    shelf.approve("DELETE").await;
    shelf.bench.post("/v1/jobs", &request).await.refused(403, "PERMISSION_DENIED");
}

#[tokio::test]
async fn repeats_of_a_profile_are_known_by_what_it_means() {
    let shelf = Shelf::new().await;
    let (bench, runner) = (&shelf.bench, &shelf.runner);
    let send = |profile: Value| {
        let spec = json!({ "runner": runner, "profile": profile });
        let request = json!({ "request_id": "same", "spec": spec });
        async move { bench.post("/v1/jobs", &request).await }
    };
    let first = send(shelf.profile()).await.expect(201);
    for same in [
        shelf.changed(|p| {
            p.as_object_mut().unwrap().remove("plugins");
        }),
        shelf.changed(|p| p["parameters"]["lr"] = Value::Null),
    ] {
        assert_eq!(send(same).await.expect(200)["job_id"], first["job_id"]);
    }
    for other in [
        shelf.changed(|p| p["parameters"]["steps"] = json!(2)),
        // The default said in words is another explicit input.
        shelf.changed(|p| p["parameters"]["lr"] = json!("0.0002")),
        shelf.changed(|p| p["inputs"]["data"]["split"] = json!("test")),
    ] {
        send(other).await.refused(409, "JOB_REQUEST_CONFLICT");
    }
    assert_eq!(shelf.jobs().await, 1);
}

#[tokio::test]
async fn each_dependency_needs_its_own_permission() {
    let shelf = Shelf::new().await;
    let bench = &shelf.bench;
    // A public recipe that stands on a source of its tenant only.
    let files = [
        (
            "recipe.toml",
            &*format!(
                "[recipe]\nabi = \"envloop.train-recipe/1\"\nentry = \"train.py\"\n[dependencies.library]\nuri = {}\nmanifest_sha256 = {}\n",
                shelf.library["uri"], shelf.library["manifest_sha256"]
            ),
        ),
        ("train.py", ""),
    ];
    let open = bench.publish_as(&bench.key, "recipes/team/open", None, &files, "public").await;
    let open = open.expect(201);
    let profile = json!({ "schema": "envloop.job-profile/v2", "recipe": pin(&open) });
    let spec = json!({ "spec": { "runner": shelf.runner, "profile": profile } }).to_string();
    let stranger = bench.new_key("other", &[Permission::Admin]).await;
    let reply = bench.call(&stranger, "POST", "/v1/jobs", spec.clone()).await;
    let message = reply.refused(404, "RESOURCE_NOT_FOUND");
    assert!(message.contains("team/library"), "{message}");
    bench.call(&bench.key, "POST", "/v1/jobs", spec.clone()).await.expect(201);
    // Without the permission to read there is no content at all.
    let blind = bench.new_key("default", &[Permission::TrainingRun]).await;
    bench.call(&blind, "POST", "/v1/jobs", spec).await.refused(404, "RUNNER_NOT_FOUND");
}

#[tokio::test]
async fn a_recipe_names_the_sources_of_its_sources() {
    let shelf = Shelf::new().await;
    let on = |inner: &Value, more: &str| {
        format!(
            "[recipe]\nabi = \"envloop.train-recipe/1\"\nentry = \"train.py\"\n[dependencies.inner]\nuri = {}\nmanifest_sha256 = {}\n{more}",
            inner["uri"], inner["manifest_sha256"]
        )
    };
    let lone = on(&shelf.recipe, "");
    let files = [("recipe.toml", lone.as_str()), ("train.py", "")];
    let key = &shelf.bench.key;
    let reply = shelf.bench.publish_as(key, "recipes/team/outer", None, &files, "workspace").await;
    assert!(reply.refused(400, "BAD_REQUEST").contains("it stands on library"));
    let both = on(
        &shelf.recipe,
        &format!(
            "[dependencies.library]\nuri = {}\nmanifest_sha256 = {}\n",
            shelf.library["uri"], shelf.library["manifest_sha256"]
        ),
    );
    let files = [("recipe.toml", both.as_str()), ("train.py", "")];
    shelf.bench.publish("recipes/team/outer", None, &files).await;
}
