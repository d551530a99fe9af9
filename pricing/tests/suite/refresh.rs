//! Refresh: what fails is seen, what is not believable is not served, nothing known is lost.

use proptest::prelude::*;
use runwhere_model::{Gap, GpuModel, Lang, Offer, OfferSheet, RejectedRow, SourceTerms};
use runwhere_pricing::{Audience, ListRequest, Outcome, Query, Reason};

use crate::support::{provider, sheet, young};
use crate::told::{Hand, Told, down, list, many, price_of, refresher, status};

#[tokio::test]
async fn pr_013_a_source_that_answers_429_keeps_its_prices_with_their_age() {
    let clock = Hand::new();
    let a = Told::new("a", vec![Ok(sheet(many("a", "on_demand", 3), young())), Err(down("429"))]);
    let b = Told::new("b", vec![Err(down("429"))]);
    let c = Told::new("c", vec![Ok(sheet(many("c", "on_demand", 1), young()))]);
    let refresher = refresher(&clock, &[&a, &b, &c], None);
    refresher.refresh_due().await;
    clock.pass(3 * 3600);
    assert!(matches!(refresher.refresh(&provider("a")).await, Ok(Outcome::Kept(_))));
    let kept = status(&refresher, "a");
    assert_eq!((kept.status.as_str(), kept.rows, kept.age), ("failing", 3, Some(3 * 3600)));
    assert!(kept.reason.unwrap().contains("429"));
    // Without a copy it is unavailable; the others work.
    let never = status(&refresher, "b");
    assert_eq!((never.status.as_str(), never.rows), ("failing", 0));
    assert_eq!(status(&refresher, "c").status, "ok");
}

#[tokio::test]
async fn pr_023_spot_prices_that_vanish_are_not_believed() {
    let clock = Hand::new();
    let both = |spot| [many("a", "on_demand", 400), many("a", "spot", spot)].concat();
    let a = Told::new("a", vec![Ok(sheet(both(400), young())), Ok(sheet(both(0), young()))]);
    let refresher = refresher(&clock, &[&a], None);
    refresher.refresh_due().await;
    clock.pass(601);
    let outcome = refresher.refresh(&provider("a")).await.unwrap();
    assert!(matches!(outcome, Outcome::Kept(_)), "{outcome:?}");
    let status = status(&refresher, "a");
    assert_eq!((status.status.as_str(), status.rows), ("refused", 800));
    assert!(status.reason.unwrap().contains("spot rows fell from 400 to 0"));
}

#[tokio::test]
async fn pr_035_a_price_that_falls_thirtyfold_waits_for_an_operator() {
    let clock = Hand::new();
    let now = |price: &str| {
        let mut sheet = sheet(vec![list("a/r/-/on_demand/m4", price)], young());
        sheet.validator = Some(format!("v{price}"));
        Ok(sheet)
    };
    let answers = ["0.210 USD", "0.007 USD", "0.007 USD", "0.007 USD", "0.008 USD", "9 USD"];
    let a = Told::new("a", answers.map(now).into());
    let refresher = refresher(&clock, &[&a], None);
    let read = || async {
        clock.pass(601);
        refresher.refresh(&provider("a")).await.unwrap()
    };
    read().await;
    read().await;
    assert_eq!(price_of(&refresher, "a/r/-/on_demand/m4"), "0.21 USD/h", "the last is served");
    read().await;
    let waiting = refresher.quarantine();
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].2.readings, 2);
    assert_eq!(waiting[0].2.new.to_string(), "0.007 USD/h");
    assert_eq!(status(&refresher, "a").quarantined, 1);
    refresher.decide(&waiting[0].1, true).unwrap();
    assert!(refresher.decide(&waiting[0].1, true).is_err(), "decided once");
    clock.pass(1);
    refresher.refresh_due().await;
    assert_eq!(price_of(&refresher, "a/r/-/on_demand/m4"), "0.007 USD/h");
    // After a decision the source is asked for everything, not for what changed.
    assert_eq!(a.validators.lock().unwrap().last(), Some(&None));
    read().await;
    assert_eq!(price_of(&refresher, "a/r/-/on_demand/m4"), "0.008 USD/h", "no jump");
    read().await;
    refresher.decide(&waiting[0].1, false).unwrap();
    assert!(refresher.quarantine().is_empty());
    assert_eq!(price_of(&refresher, "a/r/-/on_demand/m4"), "0.008 USD/h", "turned down");
}

#[tokio::test]
async fn rows_that_no_longer_fit_are_a_part_that_was_not_read() {
    let clock = Hand::new();
    let reading = |rows: usize, odd: usize| {
        let row = |at: usize| RejectedRow {
            row: format!("row {at}"),
            reason: "its unit is per second".to_owned(),
        };
        Ok(OfferSheet {
            rejected: (0..odd).map(row).collect(),
            ..sheet(many("a", "on_demand", rows), young())
        })
    };
    let a = Told::new(
        "a",
        vec![
            reading(6, 1),
            // One is gone, and one more does not fit; so it stays, until it fits again.
            reading(5, 2),
            reading(5, 2),
            reading(6, 1),
            // One is gone, and no other row than before is odd: it is not sold any more.
            reading(5, 1),
            // None fits.
            reading(0, 6),
            reading(4, 2),
        ],
    );
    let refresher = refresher(&clock, &[&a], None);
    for (at, (word, rows)) in
        [("ok", 6), ("partial", 6), ("partial", 6), ("ok", 6), ("ok", 5), ("refused", 5), ("ok", 4)]
            .into_iter()
            .enumerate()
    {
        if at == 6 {
            // An operator has seen what is gone.
            refresher.accept_next(&provider("a")).unwrap();
        }
        clock.pass(7200);
        refresher.refresh(&provider("a")).await.unwrap();
        let status = status(&refresher, "a");
        assert_eq!((status.status.as_str(), status.rows), (word, rows), "reading {at}");
        if word == "partial" {
            assert_eq!(status.gaps[0].part, "rows");
            assert!(status.gaps[0].reason.contains("per second"), "{:?}", status.gaps);
        }
        let troubled = refresher.service().summary(Audience::Public).troubles;
        assert_eq!(troubled.contains_key(&provider("a")), word != "ok");
    }
}

#[tokio::test]
async fn a_sheet_in_another_unit_is_refused_as_a_whole() {
    let clock = Hand::new();
    let cents: Vec<Offer> =
        (0..40).map(|at| list(&format!("a/r/-/on_demand/t{at:03}"), "200 USD")).collect();
    let yuan: Vec<Offer> =
        (0..40).map(|at| list(&format!("a/r/-/on_demand/t{at:03}"), "2 CNY")).collect();
    let first = many("a", "on_demand", 40);
    let answers = [first, cents, yuan].map(|offers| Ok(sheet(offers, young())));
    let a = Told::new("a", answers.into());
    let refresher = refresher(&clock, &[&a], None);
    for seconds in [0, 601, 7000] {
        clock.pass(seconds);
        refresher.refresh(&provider("a")).await.unwrap();
        assert_eq!(price_of(&refresher, "a/r/-/on_demand/t000"), "2 USD/h");
    }
    assert_eq!(status(&refresher, "a").status, "refused");
}

#[tokio::test]
async fn errors_cool_down_and_many_askers_share_one_reading() {
    let clock = Hand::new();
    let ok = || Ok(sheet(many("a", "on_demand", 1), young()));
    let a = Told::new("a", vec![Err(down("no route")), Err(down("no route")), ok(), ok()]);
    let refresher = refresher(&clock, &[&a], None);
    refresher.refresh_due().await;
    for (seconds, asked) in [(29, 1), (1, 2), (59, 2), (1, 3)] {
        clock.pass(seconds);
        refresher.refresh_due().await;
        assert_eq!(a.asked(), asked, "after {seconds} s more");
    }
    clock.pass(601);
    let id = provider("a");
    let (one, other) = tokio::join!(refresher.refresh(&id), refresher.refresh(&id));
    assert_eq!(one, other);
    assert_eq!(a.asked(), 4);
}

#[tokio::test]
async fn a_budget_is_kept_whoever_asks() {
    let clock = Hand::new();
    let terms = SourceTerms { readings_per_hour: 2, ..SourceTerms::default() };
    let ok = || Ok(sheet(many("a", "on_demand", 1), young()));
    let a = Told::with("a", terms, vec![ok(), ok(), ok()]);
    let refresher = refresher(&clock, &[&a], None);
    for _ in 0..5 {
        clock.pass(60);
        refresher.refresh(&provider("a")).await.unwrap();
    }
    assert_eq!(a.asked(), 2);
    clock.pass(3600);
    refresher.refresh(&provider("a")).await.unwrap();
    assert_eq!(a.asked(), 3);
    assert!(refresher.refresh(&provider("zz")).await.is_err());
}

#[tokio::test]
async fn terms_are_held() {
    let clock = Hand::new();
    let terms = SourceTerms {
        min_rows: 3,
        required: vec![GpuModel::resolve("h100-80g").unwrap().id],
        ..SourceTerms::default()
    };
    let few = many("a", "on_demand", 2);
    let without = many("a", "on_demand", 3);
    let mut whole = many("a", "on_demand", 3);
    whole.push({
        let mut one = list("a/r/-/on_demand/p5", "98.32 USD");
        one.gpu = GpuModel::resolve("h100-80g").map(|model| model.id);
        one
    });
    let answers = [few, without, whole].map(|offers| Ok(sheet(offers, young())));
    let a = Told::with("a", terms, answers.into());
    let refresher = refresher(&clock, &[&a], None);
    let reasons = [Some("2 rows, at least 3"), Some("h100-80g"), None];
    for reason in reasons {
        clock.pass(7200);
        refresher.refresh(&provider("a")).await.unwrap();
        let status = status(&refresher, "a");
        match reason {
            Some(reason) => assert!(status.reason.unwrap().contains(reason)),
            None => assert_eq!((status.status.as_str(), status.rows), ("ok", 4)),
        }
    }
}

#[tokio::test]
async fn failing_and_partial_sources_never_claim_the_cheapest() {
    let clock = Hand::new();
    let mut partial = sheet(vec![list("b/r/-/on_demand/x", "1 USD")], young());
    partial.complete = false;
    partial.gaps = vec![Gap { part: "eu-1".into(), reason: "timed out".into() }];
    let a = Told::new("a", vec![Ok(sheet(vec![list("a/r/-/on_demand/x", "2 USD")], young()))]);
    let b = Told::new("b", vec![Ok(partial)]);
    let refresher = refresher(&clock, &[&a, &b], None);
    refresher.refresh_due().await;
    let gpu = GpuModel::resolve("t4").map(|model| model.id);
    let quote = refresher.service().quote(&Query::new(gpu, 1));
    assert_eq!(quote.recommendations.len(), 2, "nobody is hidden");
    let first = &quote.recommendations[0];
    assert_eq!(first.assessed.entry.offer.key.provider.as_str(), "b");
    let cheapest = |reason: &Reason| {
        matches!(reason, Reason::CheapestLaunchable { .. } | Reason::CheapestListed { .. })
    };
    assert!(!first.reasons.iter().any(cheapest));
    assert!(first.reasons.contains(&Reason::SourcesIncomplete { providers: "b".to_owned() }));
    let b = status(&refresher, "b");
    assert_eq!((b.status.as_str(), b.gaps[0].part.as_str()), ("partial", "eu-1"));
}

#[tokio::test]
async fn pr_071_unchanged_prices_give_an_empty_diff_and_changes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::new();
    let at = |prices: &[(&str, &str)]| {
        let offers =
            prices.iter().map(|(key, price)| list(&format!("a/r/-/on_demand/{key}"), price));
        Ok(sheet(offers.collect(), young()))
    };
    let a = Told::new(
        "a",
        vec![
            at(&[("x", "0.4 USD"), ("y", "1 USD")]),
            at(&[("y", "1.00 USD"), ("x", "0.40 USD")]),
            at(&[("x", "0.44 USD"), ("z", "2 USD")]),
        ],
    );
    let refresher = refresher(&clock, &[&a], Some(folder.path()));
    refresher.refresh_due().await;
    let first = refresher.service().catalogue();
    clock.pass(601);
    let outcome = refresher.refresh(&provider("a")).await.unwrap();
    assert_eq!(outcome, Outcome::Taken { rows: 2, changed: 0, complete: true });
    assert!(refresher.service().catalogue().changes_since(&first).is_empty());
    assert_eq!(price_of(&refresher, "a/r/-/on_demand/x"), "0.4 USD/h");
    clock.pass(601);
    refresher.refresh(&provider("a")).await.unwrap();
    let changes = refresher.service().changes(&provider("a")).unwrap();
    assert_eq!(changes, refresher.service().catalogue().changes_since(&first));
    let told: Vec<String> = changes
        .iter()
        .map(|change| {
            format!("{:?} {} {:?}", change.kind, change.offer_key.instance_type, change.percent)
        })
        .collect();
    assert_eq!(told, ["Dearer x Some(\"10\")", "Removed y None", "Added z None"]);
}

fn page(at: usize) -> Vec<Offer> {
    (0..3)
        .map(|row| {
            let billing = if row == 2 { "spot" } else { "on_demand" };
            list(&format!("a/r{at}/-/{billing}/t{row}"), &format!("{}.{at} USD", row + 1))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// A refresh with any subset of failing pages never lowers a known price, never makes it unknown
    /// and never loses a provider.
    #[test]
    fn failing_pages_lose_nothing(
        rounds in prop::collection::vec(prop::collection::vec(any::<bool>(), 6), 1..5),
        unknown in any::<bool>(),
    ) {
        let clock = Hand::new();
        let whole: Vec<Offer> = (0..6).flat_map(page).collect();
        let mut answers = vec![Ok(sheet(whole.clone(), young()))];
        for failing in &rounds {
            let mut offers: Vec<Offer> = Vec::new();
            for (at, fails) in failing.iter().enumerate() {
                if !fails {
                    offers.extend(page(at));
                } else if unknown {
                    // A page of prices failed, the page of types did not.
                    offers.extend(page(at).into_iter().map(|mut offer| {
                        offer.price.state = runwhere_model::PriceState::Unknown;
                        offer
                    }));
                }
            }
            let fails = failing.iter().filter(|fails| **fails).count();
            answers.push(match fails {
                6 if !unknown => Err(down("every page failed")),
                0 => Ok(sheet(offers, young())),
                _ => {
                    let mut partial = sheet(offers, young());
                    partial.complete = false;
                    partial.gaps = vec![Gap { part: "pages".into(), reason: "failed".into() }];
                    Ok(partial)
                }
            });
        }
        let a = Told::new("a", answers);
        let refresher = refresher(&clock, &[&a], None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for _ in 0..=rounds.len() {
            clock.pass(7200);
            runtime.block_on(refresher.refresh(&provider("a"))).unwrap();
            for offer in &whole {
                let got = refresher.service().catalogue().get(&offer.key);
                prop_assert_eq!(got.map(|e| e.offer.price.state), Some(offer.price.state));
            }
        }
        let rows = refresher.service().list(&ListRequest::default(), Audience::Public, Lang::Zh);
        prop_assert_eq!(rows.unwrap().total, whole.len());
    }
}
