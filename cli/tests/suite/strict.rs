//! Price sources that are not well show in the summary, and with `--strict` in its exit code.

use serde_json::{Value, json};

use crate::client::User;
use crate::server::{Server, ok};

fn summary(troubles: Value) -> Value {
    json!({
        "items": [{
            "gpu_model": "NVIDIA T4", "gpu_type": "t4", "gpu_memory_gb": 16,
            "min_hourly_price": "3.5499", "max_hourly_price": "9.0000", "provider_count": 2,
            "offer_count": 7, "has_spot": true,
        }],
        "troubles": troubles,
        "snapshot_id": "1",
    })
}

#[test]
fn a_summary_names_sources_that_could_not_be_read_and_strict_ends_with_one() {
    for (trouble, name) in [
        (json!({"code": "failing", "params": {"reason": "answered 503"}}), "lambda"),
        (json!({"code": "refused", "params": {"reason": "spot rows fell from 400 to 0"}}), "gcp"),
        (json!({"code": "partial", "params": {"gaps": 2}}), "aliyun"),
    ] {
        let answer = summary(json!({ name: trouble }));
        let server = Server::start(move |_| ok(answer.clone()));
        let user = User::new(Some(&server.url));
        let lenient = user.run(&["price", "summary"]).expect(0);
        assert!(lenient.stdout.contains("NVIDIA T4") && lenient.stderr.contains(name));
        let strict = user.run(&["price", "summary", "--strict"]).expect(1);
        assert!(strict.stdout.contains("NVIDIA T4"), "what is known is shown all the same");
        assert!(strict.stderr.contains(name), "{}", strict.stderr);
        let json = user.run(&["--json", "price", "summary", "--strict"]).expect(1);
        assert!(json.stdout.contains(name));
        // The warning of before, then the error.
        let last = json.stderr.lines().last().unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["error"]["code"], "sources_incomplete");
        assert_eq!(last["error"]["exit_code"], 1);
    }
    let server = Server::start(|_| ok(summary(json!({}))));
    User::new(Some(&server.url)).run(&["price", "summary", "--strict"]).expect(0);
}
