use proptest::prelude::*;

use super::*;
use crate::api::text::is_chinese;

const RUNNER: &str = "envloop/bash@0123456789abcdef0123456789abcdef01234567";

fn read(value: &Value) -> Result<Request, Refused> {
    Request::read(value.to_string().as_bytes())
}

fn code(value: &Value) -> &'static str {
    read(value).map_or_else(|refused| refused.code.as_str(), |_| "OK")
}

fn single(key: &str, value: Value) -> Value {
    json!({ "spec": { "runner": RUNNER, key: value } })
}

#[test]
fn both_forms_and_the_documents_request_are_read() {
    let spec = json!({
        "runner": RUNNER, "resources": { "gpu_type": "H100", "gpus": 4 }, "timeout_seconds": 600,
    });
    let request = read(&json!({
        "type": "train", "request_id": "gpu-run-001",
        "trials": [{ "name": "first", "spec": spec }, { "name": "second", "spec": spec }],
    }))
    .unwrap();
    assert_eq!(request.trials.len(), 2);
    assert_eq!(request.trials[1].name, "second");
    assert_eq!(request.trials[0].resources.gpus, Some(4));
    let one = read(&json!({ "request_id": "x", "spec": { "runner": RUNNER } })).unwrap();
    assert_eq!((one.trials.len(), one.trials[0].name.as_str()), (1, "trial-1"));
}

#[test]
fn every_rule_has_its_code() {
    let many = |n: usize| json!({ "trials": vec![json!({ "spec": { "runner": RUNNER } }); n] });
    let resource = |key: &str, value: Value| single("resources", json!({ key: value }));
    let long = |n: usize| single("command", json!("é".repeat(n / 2)));
    let cases = [
        (many(1), "OK"),
        (many(16), "OK"),
        (many(17), "INVALID_TRIALS"),
        (many(0), "INVALID_TRIALS"),
        (json!({}), "INVALID_TRIALS"),
        (json!({ "trials": {} }), "INVALID_TRIALS"),
        (json!({ "trials": [{ "name": "a" }] }), "INVALID_TRIALS"),
        (json!({ "trials": [{ "name": "a/b", "spec": {} }] }), "INVALID_TRIALS"),
        (json!({ "spec": { "runner": RUNNER }, "trials": [] }), "INVALID_TRIALS"),
        (json!({ "type": "agent", "spec": { "runner": RUNNER } }), "INVALID_JOB_TYPE"),
        (json!({ "spec": {} }), "INVALID_TRAIN_JOB_SPEC"),
        (json!({ "spec": { "runner": 1 } }), "INVALID_RUNNER"),
        (json!({ "spec": { "runner": "envloop/bash" } }), "INVALID_RUNNER"),
        (json!({ "spec": { "runner": "bash@main" } }), "INVALID_RUNNER"),
        (json!({ "spec": { "runner": "envloop/bash@main" } }), "RUNNER_VERSION_AMBIGUOUS"),
        (json!({ "spec": { "runner": "envloop/bash@0123456" } }), "RUNNER_VERSION_AMBIGUOUS"),
        (json!({ "spec": { "runner": "envloop/bash@FULL_COMMIT" } }), "RUNNER_VERSION_AMBIGUOUS"),
        (json!({ "spec": { "base_model": "m" } }), "INVALID_TRAIN_JOB_SPEC"),
        (single("dataset", json!("d")), "INVALID_TRAIN_JOB_SPEC"),
        (single("files", json!([])), "INVALID_TRAIN_JOB_SPEC"),
        (single("env", json!({})), "INVALID_TRAIN_JOB_SPEC"),
        (single("snapshot", json!({})), "INVALID_TRAIN_JOB_SPEC"),
        (single("provider", json!("aws")), "UNSUPPORTED_TRAINING_BACKEND_SELECTION"),
        (
            json!({ "executor": "x", "spec": { "runner": RUNNER } }),
            "UNSUPPORTED_TRAINING_BACKEND_SELECTION",
        ),
        (single("profile", json!("org/name")), "INVALID_TRAIN_JOB_SPEC"),
        (single("profile", json!({ "schema": "x" })), "INVALID_PROFILE"),
        (single("profile", json!({ "schema": "envloop.job-profile/v1" })), "OK"),
        (
            single(
                "profile",
                json!({ "schema": "envloop.job-profile/v1", "recipe": { "lr": 0.5 } }),
            ),
            "INVALID_PROFILE",
        ),
        (single("command", json!("echo")), "OK"),
        (single("command", json!(" \n\t")), "INVALID_COMMAND"),
        (single("command", json!("")), "INVALID_COMMAND"),
        (single("command", json!("a\u{0}b")), "INVALID_COMMAND"),
        (single("command", json!(1)), "INVALID_COMMAND"),
        (long(65_536), "OK"),
        (long(65_538), "INVALID_COMMAND"),
        (resource("gpus", json!(0)), "INVALID_TRAIN_JOB_SPEC"),
        (resource("gpus", json!(-1)), "INVALID_TRAIN_JOB_SPEC"),
        (resource("gpus", json!(1.5)), "INVALID_TRAIN_JOB_SPEC"),
        (resource("gpus", json!("4")), "INVALID_TRAIN_JOB_SPEC"),
        (resource("gpus", json!(4.0)), "OK"),
        (resource("gpu_type", json!(" ")), "INVALID_TRAIN_JOB_SPEC"),
        (resource("tpus", json!(1)), "INVALID_TRAIN_JOB_SPEC"),
        (single("timeout_sec", json!(600)), "OK"),
        (single("timeout_seconds", json!(0)), "INVALID_TRAIN_JOB_SPEC"),
        (
            json!({ "spec": { "runner": RUNNER, "timeout_sec": 1, "timeout_seconds": 2 } }),
            "INVALID_TRAIN_JOB_SPEC",
        ),
        (single("tags", json!({ "a": 1 })), "INVALID_TAG"),
        (single("tags", json!({})), "OK"),
        (json!({ "request_id": "", "spec": { "runner": RUNNER } }), "INVALID_REQUEST_ID"),
        (
            json!({ "request_id": "x".repeat(129), "spec": { "runner": RUNNER } }),
            "INVALID_REQUEST_ID",
        ),
        (json!({ "request_id": 7, "spec": { "runner": RUNNER } }), "INVALID_REQUEST_ID"),
        (
            json!({ "user_metadata": {}, "spec": { "runner": RUNNER } }),
            "INVALID_TRAIN_JOB_METADATA",
        ),
    ];
    for (value, expected) in cases {
        let shown: String = value.to_string().chars().take(200).collect();
        assert_eq!(code(&value), expected, "{shown}");
    }
    let twice = br#"{"spec":{"runner":"x","runner":"y"}}"#;
    assert_eq!(Request::read(twice).unwrap_err().code, Code::InvalidSpec);
    assert_eq!(Request::read(b"[]").unwrap_err().code, Code::BadRequest);
}

#[test]
fn spelling_does_not_change_the_fingerprint_and_input_does() {
    let print = |value: Value| read(&value).unwrap().fingerprint();
    let spec = |more: Value| {
        let mut spec = json!({ "runner": RUNNER, "timeout_seconds": 600 });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let plain = print(json!({ "spec": spec(json!({})) }));
    for same in [
        json!({ "type": "train", "request_id": "other", "spec": spec(json!({})) }),
        json!({ "trials": [{ "name": "trial-1", "spec": spec(json!({})) }] }),
        json!({ "trials": [{ "spec": spec(json!({ "command": null })) }] }),
        json!({ "spec": { "timeout_sec": 600.0, "runner": RUNNER, "tags": {}, "resources": {} } }),
    ] {
        assert_eq!(print(same.clone()), plain, "{same}");
    }
    for other in [
        json!({ "spec": spec(json!({ "timeout_seconds": 601 })) }),
        json!({ "spec": spec(json!({ "command": "x" })) }),
        json!({ "spec": spec(json!({ "tags": { "a": "b" } })) }),
        json!({ "spec": spec(json!({ "image": "python" })) }),
        json!({ "spec": spec(json!({ "resources": { "gpus": 1 } })) }),
        json!({ "spec": spec(json!({ "profile": { "schema": "envloop.job-profile/v1" } })) }),
        json!({ "spec": spec(json!({ "profile": { "schema": "envloop.job-profile/v1", "recipe": { "steps": 1 } } })) }),
        json!({ "trials": [{ "name": "first", "spec": spec(json!({})) }] }),
        json!({ "trials": [{ "spec": spec(json!({})) }, { "spec": spec(json!({})) }] }),
    ] {
        assert_ne!(print(other.clone()), plain, "{other}");
    }
}

proptest! {
    #[test]
    fn hostile_bodies_are_refused_with_a_sentence(body in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(refused) = Request::read(&body) {
            prop_assert!(is_chinese(&refused.message.zh) && !refused.message.en.is_empty());
        }
    }

    #[test]
    fn hostile_members_are_refused_with_a_sentence(key in "\\PC{0,12}", text in "\\PC{0,20}", number in any::<f64>()) {
        for value in [json!(text), json!(number), json!([text]), json!({ "a": number })] {
            let refused = read(&single(&key, value.clone()));
            if let Err(refused) = refused {
                let Words { zh, en } = refused.message;
                prop_assert!(is_chinese(&zh) && !zh.contains('[') && !en.contains('['), "{}", en);
            }
            let _ = read(&json!({ &key: value }));
        }
    }
}
