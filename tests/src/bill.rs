//! What the ledger says of a job.

use crate::api::Api;
use std::collections::BTreeMap;

/// The exact time of a job's usage segments, by node.
pub fn billed_microseconds(api: &Api, id: &str) -> BTreeMap<String, i64> {
    let mut total = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = api.get(&format!("/api/v1/billing/segments?limit=100{cursor}")).expect(200);
        for segment in page["data"].as_array().expect("segments") {
            if segment["job_id"] == id {
                let (from, to) = (&segment["start"], &segment["end"]);
                let at = |value: &serde_json::Value| -> jiff::Timestamp {
                    value
                        .as_str()
                        .unwrap_or_else(|| panic!("no time in {segment}"))
                        .parse()
                        .expect("a time")
                };
                let node = segment["node_id"].as_str().expect("a node").to_owned();
                *total.entry(node).or_default() +=
                    at(to).as_microsecond() - at(from).as_microsecond();
            }
        }
        // The cursor is told at the end too: more may be recorded there later.
        if page["has_more"] == false {
            return total;
        }
        cursor = format!("&cursor={}", page["next_cursor"].as_str().expect("a cursor"));
    }
}
