//! EnvLoop's profiles: content published with our `el`, frozen by the server, read by a program in a real container.
//! Needs root.

use runwhere_tests::{Site, text};
use serde_json::{Value, json};
use std::fs;

const RECIPE: &str = r#"
import json, os
root = os.environ["ENVLOOP_PROFILE_DIR"]
profile = json.load(open(os.environ["ENVLOOP_PROFILE_FILE"]))
import lib
data = profile["inputs"]["data"]
rows = [open(os.path.join(root, data["path"], name)).read().strip() for name in data["files"]]
held = []
for place in [profile["recipe"]["path"], data["path"], ""]:
    try:
        open(os.path.join(root, place, "new"), "w")
    except OSError:
        held.append(place)
    try:
        open(os.path.join(root, profile["recipe"]["path"], "train.py"), "a")
        held.append("written")
    except OSError:
        pass
json.dump({"parameters": profile["parameters"], "rows": rows, "lib": lib.NAME, "held": held}, open("outputs/seen.json", "w"))
"#;

const SCHEMA: &str = r#"{"type": "object", "additionalProperties": false, "required": ["steps"], "properties": {
    "steps": {"type": "integer", "minimum": 1, "maximum": 10},
    "learning_rate": {"type": "string", "format": "decimal", "default": "0.0002"}}}"#;

/// A folder with these files.
fn folder(site: &Site, name: &str, files: &[(&str, &str)]) -> String {
    let folder = site.home.path().join(name);
    for (path, content) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder.to_string_lossy().into_owned()
}

fn pin(published: &Value) -> Value {
    json!({ "uri": published["uri"], "manifest_sha256": published["manifest_sha256"] })
}

/// The selector of the shipped runner of profiles.
fn runner(site: &Site) -> String {
    let shown = site.ours(&["runner", "get", "envloop/recipe"]).expect_code(0).json();
    text(&shown, "selector").to_owned()
}

#[test]
fn envloop_a_recipe_runs_with_frozen_parameters_and_read_only_inputs() {
    let site = Site::new("h100:1");
    let runner = runner(&site);
    let head = "[recipe]\nabi = \"envloop.train-recipe/1\"\n";
    let library = folder(
        &site,
        "library",
        &[
            ("recipe.toml", &format!("{head}entry = \"lib.py\"\n")),
            ("lib.py", "NAME = \"of the library\"\n"),
        ],
    );
    let publish = ["content", "publish", "recipes", &library, "--name", "envloop/library"];
    let library = site.ours(&publish).expect_code(0).json();
    let declared = format!(
        "{head}entry = \"train.py\"\n[inputs]\ndata = \"required\"\n[dependencies.library]\nuri = {}\nmanifest_sha256 = {}\n",
        library["uri"], library["manifest_sha256"]
    );
    let recipe = folder(
        &site,
        "recipe",
        &[("recipe.toml", &declared), ("train.py", RECIPE), ("parameters.schema.json", SCHEMA)],
    );
    let publish = ["content", "publish", "recipes", &recipe, "--name", "envloop/pev-recipe"];
    let recipe = site.ours(&publish).expect_code(0).json();
    assert_eq!(
        text(&recipe, "uri"),
        format!("envloop://recipes/envloop/pev-recipe@{}", text(&recipe, "manifest_sha256"))
    );
    let data = folder(
        &site,
        "data",
        &[
            (
                "dataset.toml",
                "[configs.default]\ntrain = [\"train/*.txt\"]\ntest = [\"test.txt\"]\n",
            ),
            ("train/1.txt", "one"),
            ("train/2.txt", "two"),
            ("test.txt", "secret"),
        ],
    );
    let publish = [
        "content",
        "publish",
        "datasets",
        &data,
        "--name",
        "envloop/pev-smoke-data",
        "--version",
        "smoke-1",
    ];
    let data = site.ours(&publish).expect_code(0).json();
    // Published once: a repeat is the same, another content under the version is refused.
    assert_eq!(
        site.ours(&publish).expect_code(0).json()["manifest_sha256"],
        data["manifest_sha256"]
    );
    let listed = site.ours(&["content", "list", "datasets", "--json"]).expect_code(0).json();
    assert_eq!(listed["items"][0]["uri"], data["uri"]);
    let got = site.ours(&["content", "get", text(&data, "uri")]).expect_code(0).json();
    assert_eq!(got["manifest"]["files"].as_array().map(Vec::len), Some(4));

    let mut input = pin(&data);
    input["config"] = json!("default");
    input["split"] = json!("train");
    let image = site.containers.image();
    let request = json!({ "request_id": "profile-1", "spec": { "runner": runner, "image": image, "profile": {
        "schema": "envloop.job-profile/v2",
        "recipe": pin(&recipe),
        "parameters": { "steps": 1 },
        "inputs": { "data": input },
        "plugins": [],
    } } });
    // The published client and ours know one job.
    let path = site.file("profile.json", &request);
    let made =
        site.published(&["job", "submit", "--type", "train", "--file", &path]).expect_code(0);
    let id = text(&made.json(), "job_id").to_owned();
    assert_eq!(site.submit(&request), id);
    let job = site.completed(&id);
    let trial = &job["training"]["trials"][0];
    let parameters = json!({ "steps": 1, "learning_rate": "0.0002" });
    assert_eq!(trial["profile"]["parameters"], parameters);
    let out = site.home.path().join("out");
    let trial = text(trial, "trial_id").to_owned();
    site.ours(&["trial", "artifact", "download", &trial, out.to_str().unwrap()]).expect_code(0);
    let seen: Value =
        serde_json::from_slice(&fs::read(out.join("outputs/seen.json")).unwrap()).unwrap();
    assert_eq!(
        seen,
        json!({
            "parameters": parameters, "rows": ["one", "two"], "lib": "of the library",
            "held": ["recipe", "inputs/data", ""],
        })
    );
    // Anything that does not fit is refused with the documents' codes, and nothing runs.
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 5] = [
        (|p| p["parameters"]["steps"] = json!(11), "INVALID_PROFILE"),
        (|p| p["parameters"]["learning_rate"] = json!(0.5), "INVALID_PROFILE"),
        (|p| p["recipe"]["manifest_sha256"] = json!("<recipe-manifest-sha256>"), "INVALID_PROFILE"),
        (
            |p| p["inputs"]["data"]["manifest_sha256"] = json!("0a".repeat(32)),
            "PROFILE_HASH_MISMATCH",
        ),
        (
            |p| p["inputs"]["data"]["uri"] = json!("envloop://datasets/envloop/none@1"),
            "DATASET_REVISION_NOT_FOUND",
        ),
    ];
    for (change, code) in changes {
        let mut other = request.clone();
        other["request_id"] = json!("another");
        change(&mut other["spec"]["profile"]);
        assert_eq!(site.refused(&other), code);
    }
    let mut conflict = request.clone();
    conflict["spec"]["profile"]["parameters"]["steps"] = json!(2);
    assert_eq!(site.refused(&conflict), "JOB_REQUEST_CONFLICT");
    let mut bash = request;
    bash["spec"]["runner"] = json!(site.runner());
    bash["request_id"] = json!("third");
    assert_eq!(site.refused(&bash), "PROFILE_RUNNER_UNSUPPORTED");
    let jobs = site.ours(&["job", "list", "--json"]).expect_code(0).json();
    assert_eq!(jobs["items"].as_array().map(Vec::len), Some(1));
}
