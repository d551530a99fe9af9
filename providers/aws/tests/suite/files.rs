//! Price files: forms told apart, currencies kept apart, nothing fetched twice.

use std::sync::Arc;

use crate::support::{Files, fixture, offer, source, told};
use runwhere_model::{ErrorKind, OfferScope};
use runwhere_providers::http::{FolderCache, NoCache};

fn files() -> Files {
    Files::start(|path| match path {
        "/offers/v1.0/aws/amazonec2/current/us-east-1/index.csv" => {
            Some(fixture("offers/us-east-1.csv"))
        }
        "/offers/v1.0/cn/amazonec2/current/cn-northwest-1/index.csv" => {
            Some(fixture("offers/cn-northwest-1.csv"))
        }
        "/offers/v1.0/aws/amazonec2/current/eu-west-1/index.csv" => {
            Some(b"<html>please come back later</html>".to_vec())
        }
        _ => None,
    })
}

fn settings(files: &Files, regions: &str) -> String {
    format!(r#"{{"kind":"aws","regions":[{regions}],"price_endpoint":"{}"}}"#, files.base)
}

#[tokio::test]
async fn forms_of_rent_are_told_apart() {
    let files = files();
    let source = source(&settings(&files, r#""us-east-1""#), Arc::new(NoCache)).unwrap();
    let sheet = source.offers(&OfferScope::default()).await.unwrap();
    assert!(sheet.complete, "{:?}", sheet.gaps);
    for (key, want) in [
        // A capacity block of 0.032 is never the on-demand price (no. 1).
        ("aws/us-east-1/-/on_demand/p4d.24xlarge", "a100-40g 8 32.7726 USD/h"),
        ("aws/us-east-1/-/capacity_block/p4d.24xlarge", "a100-40g 8 0.032 USD/h"),
        ("aws/us-east-1/-/windows/p4d.24xlarge", "a100-40g 8 37.1886 USD/h"),
        ("aws/us-east-1/-/dedicated_host/p4d.24xlarge", "a100-40g 8 36.04986 USD/h"),
        ("aws/us-east-1/-/on_demand/p5.48xlarge", "h100-80g 8 55.04 USD/h"),
        ("aws/us-east-1/-/on_demand/p5en.48xlarge", "h200 8 unknown"),
        // An eighth of an L4, whatever the file counts (P13).
        ("aws/us-east-1/-/on_demand/g6f.large", "l4 1/8 0.20245 USD/h"),
        ("aws/us-east-1/-/on_demand/g4dn.xlarge", "t4 1 0.526 USD/h"),
        // No GPU and an accelerator all the same (no. 56).
        ("aws/us-east-1/-/on_demand/inf2.xlarge", "inferentia2 1 0.7582 USD/h"),
    ] {
        assert_eq!(told(offer(&sheet, key)), want, "{key}");
    }
    assert_eq!(sheet.offers.len(), 9);
    let reasons: Vec<String> =
        sheet.rejected.iter().map(|row| format!("{}: {}", row.row, row.reason)).collect();
    for word in ["g99.xlarge: neither", "g5.xlarge: its market option", "g5.2xlarge: in EUR"] {
        assert!(reasons.iter().any(|reason| reason.contains(word)), "{word}: {reasons:?}");
    }
    assert_eq!(reasons.len(), 3, "{reasons:?}");
}

#[tokio::test]
async fn the_chinese_partition_is_another_host_path_and_currency() {
    let files = files();
    let source = source(&settings(&files, r#""cn-northwest-1""#), Arc::new(NoCache)).unwrap();
    let sheet = source.offers(&OfferScope::default()).await.unwrap();
    // 4.77 CNY: neither dropped nor taken for dollars (no. 10, 28).
    assert_eq!(
        told(offer(&sheet, "aws/cn-northwest-1/-/on_demand/g4dn.xlarge")),
        "t4 1 4.77 CNY/h"
    );
}

#[tokio::test]
async fn a_region_that_fails_does_not_hide_the_others() {
    let files = files();
    let regions = r#""us-east-1","eu-west-1","ap-east-1""#;
    let source = source(&settings(&files, regions), Arc::new(NoCache)).unwrap();
    let sheet = source.offers(&OfferScope::default()).await.unwrap();
    let parts: Vec<&str> = sheet.gaps.iter().map(|gap| gap.part.as_str()).collect();
    assert!(!sheet.complete);
    assert_eq!(parts, ["list prices in eu-west-1", "list prices in ap-east-1"]);
    assert_eq!(sheet.offers.len(), 9);
    let source =
        crate::support::source(&settings(&files, r#""eu-west-1""#), Arc::new(NoCache)).unwrap();
    let error = source.offers(&OfferScope::default()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
}

#[tokio::test]
async fn after_a_restart_an_unchanged_file_is_not_fetched() {
    let files = files();
    let folder = tempfile::tempdir().unwrap();
    let mut sheets = Vec::new();
    for _ in 0..2 {
        let cache = Arc::new(FolderCache::new(folder.path()));
        let source = source(&settings(&files, r#""us-east-1""#), cache).unwrap();
        sheets.push(source.offers(&OfferScope::default()).await.unwrap().offers.len());
    }
    assert_eq!(sheets, [9, 9]);
    let statuses: Vec<u16> = files.answers.lock().unwrap().iter().map(|(_, s)| *s).collect();
    assert_eq!(statuses, [200, 304]);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_by_name() {
    for (text, word) in [
        (r#"{"kind":"aws"}"#, "providers.aws.regions"),
        (r#"{"kind":"aws","regions":["us-east-1","cn-north-1"]}"#, "two partitions"),
        (r#"{"kind":"aws","regions":["us-east-1/../x"]}"#, "no name of a region"),
        (
            r#"{"kind":"aws","regions":["us-east-1"],"account":true,"access_key_id":"AK"}"#,
            "secret_access_key",
        ),
        (
            r#"{"kind":"aws","regions":["us-east-1"],"price_endpoint":"http://prices.example"}"#,
            "https",
        ),
    ] {
        let error = source(text, Arc::new(NoCache)).unwrap_err();
        assert!(error.contains(word), "{text}: {error}");
    }
}
