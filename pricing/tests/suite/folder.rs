//! The folder of prices: what a restart, another process and a damaged disk leave of them.

use jiff::SignedDuration;
use runwhere_model::{GpuModel, Lang, OfferSheet};
use runwhere_pricing::{Outcome, PriceFolder, Query, QuoteRef, QuoteReply, Refresher};
use runwhere_providers::Clock;

use crate::support::{offer, provider, sheet, young};
use crate::told::{Hand, Told, list, many, price_of, refresher, service, status};

#[tokio::test]
async fn pr_040_a_restart_with_unchanged_prices_downloads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::new();
    let mut first = sheet(many("a", "on_demand", 5), young());
    first.validator = Some("\"etag-1\"".to_owned());
    let a = Told::new("a", vec![Ok(first)]);
    let before = refresher(&clock, &[&a], Some(folder.path()));
    before.refresh_due().await;
    let id = before.service().catalogue().snapshot_id().to_owned();
    drop(before);
    // Prices are there without asking anybody, and nobody is asked before it is time.
    clock.pass(60);
    let later = clock.now() + SignedDuration::from_secs(600);
    let a = Told::new("a", vec![Ok(OfferSheet::unchanged(None, later))]);
    let after = refresher(&clock, &[&a], Some(folder.path()));
    assert_eq!(after.service().catalogue().snapshot_id(), id);
    assert_eq!(status(&after, "a").age, Some(60));
    after.refresh_due().await;
    assert_eq!(a.asked(), 0);
    clock.pass(600);
    assert_eq!(after.refresh_due().await, [(provider("a"), Outcome::Unchanged)]);
    assert_eq!(a.validators.lock().unwrap()[0].as_deref(), Some("\"etag-1\""));
    assert_eq!(status(&after, "a").age, Some(0), "confirmed now");
    assert_eq!(after.service().catalogue().snapshot_id(), id);
}

#[tokio::test]
async fn damaged_files_are_read_again_from_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::new();
    let good = || Ok(sheet(many("a", "on_demand", 5), young()));
    let a = Told::new("a", vec![good()]);
    refresher(&clock, &[&a], Some(folder.path())).refresh_due().await;
    for entry in std::fs::read_dir(folder.path().join("shards")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let a = Told::new("a", vec![good()]);
    let after = refresher(&clock, &[&a], Some(folder.path()));
    assert!(after.service().catalogue().is_empty());
    after.refresh_due().await;
    assert_eq!((a.asked(), after.service().catalogue().len()), (1, 5));
    let mended = refresher(&clock, &[&a], Some(folder.path()));
    assert_eq!(mended.service().catalogue().len(), 5, "the file is whole again");
    std::fs::write(folder.path().join("current.json"), b"{\"vers").unwrap();
    assert!(refresher(&clock, &[&a], Some(folder.path())).service().catalogue().is_empty());
}

#[tokio::test]
async fn what_other_processes_put_into_the_folder_is_kept_and_seen() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::new();
    let good = || Ok(sheet(many("a", "on_demand", 5), clock.now()));
    let a = Told::new("a", vec![good(), good()]);
    let server = refresher(&clock, &[&a], Some(folder.path()));
    server.refresh_due().await;
    // Two imports, begun before either has ended.
    let imports = ["b", "c"].map(|id| (id, refresher(&clock, &[], Some(folder.path()))));
    for (id, import) in &imports {
        let offers = sheet(many(id, "on_demand", 2), clock.now());
        import.service().replace_sheet(provider(id), offers);
        import.keep().unwrap();
    }
    let served = |server: &Refresher| {
        ["a", "b", "c"]
            .map(|id| server.service().catalogue().shard(&provider(id)).map_or(0, |s| s.len()))
    };
    assert_eq!(served(&server), [5, 0, 0]);
    server.look().await;
    assert_eq!(served(&server), [5, 2, 2], "seen without a restart");
    // An import that the server has not looked for is not written over.
    clock.pass(601);
    let (_, import) = &imports[0];
    import.service().replace_sheet(provider("b"), sheet(many("b", "on_demand", 3), clock.now()));
    import.keep().unwrap();
    server.refresh(&provider("a")).await.unwrap();
    assert_eq!(served(&server), [5, 3, 2]);
    assert_eq!(served(&refresher(&clock, &[&a], Some(folder.path()))), [5, 3, 2]);
}

/// A disk's clock goes in steps: what two processes write within one has one time.
#[tokio::test]
async fn what_is_written_within_a_step_of_the_disks_clock_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::new();
    let a = Told::new("a", vec![Ok(sheet(many("a", "on_demand", 5), clock.now()))]);
    let server = refresher(&clock, &[&a], Some(folder.path()));
    server.refresh_due().await;
    let current = folder.path().join("current.json");
    let seen = std::fs::metadata(&current).unwrap().modified().unwrap();
    let import = refresher(&clock, &[], Some(folder.path()));
    import.service().replace_sheet(provider("b"), sheet(many("b", "on_demand", 2), clock.now()));
    import.keep().unwrap();
    std::fs::File::options().write(true).open(&current).unwrap().set_modified(seen).unwrap();
    server.look().await;
    assert_eq!(server.service().catalogue().shard(&provider("b")).map_or(0, |s| s.len()), 2);
}

#[tokio::test]
async fn a_decision_of_another_process_reaches_the_server_and_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::new();
    let at = |price: &str| {
        let mut offers = many("a", "on_demand", 20);
        offers[0] = list("a/r/-/on_demand/t000", price);
        Ok(sheet(offers, clock.now()))
    };
    let answers = vec![at("2 USD"), at("20 USD"), at("20 USD"), at("20 USD")];
    let a = Told::new("a", answers);
    let server = refresher(&clock, &[&a], Some(folder.path()));
    let key = "a/r/-/on_demand/t000";
    for _ in 0..2 {
        server.refresh_due().await;
        clock.pass(601);
    }
    assert_eq!((price_of(&server, key), server.quarantine().len()), ("2 USD/h".to_owned(), 1));
    let operator = refresher(&clock, &[&a], Some(folder.path()));
    operator.decide(&key.parse().unwrap(), true).unwrap();
    // The server reads once more before it looks, and saves what it read.
    clock.pass(601);
    server.refresh(&provider("a")).await.unwrap();
    assert!(server.quarantine().is_empty());
    server.refresh_due().await;
    assert_eq!(price_of(&server, key), "20 USD/h");
    let later = refresher(&clock, &[&a], Some(folder.path()));
    assert_eq!((price_of(&later, key), later.quarantine().len()), ("20 USD/h".to_owned(), 0));
}

#[test]
fn changes_outlive_lines_that_were_cut_off_or_are_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let changes = |price: &str| {
        let offer = |price| vec![list("a/r/-/on_demand/t", price)];
        let (old, new) = (service(&Hand::new(), None), service(&Hand::new(), None));
        old.replace_sheet(provider("a"), sheet(offer("2 USD"), young()));
        new.replace_sheet(provider("a"), sheet(offer(price), young()));
        new.catalogue().changes_since(&old.catalogue())
    };
    let kept = PriceFolder::open(folder.path()).unwrap();
    kept.note_changes(&provider("a"), &changes("3 USD")).unwrap();
    let path = folder.path().join("changes/a.jsonl");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"\xff\xfe\n{\"at\":");
    std::fs::write(&path, bytes).unwrap();
    kept.note_changes(&provider("a"), &changes("4 USD")).unwrap();
    assert_eq!(kept.changes(&provider("a")).unwrap().len(), 2);
}

#[tokio::test]
async fn quotes_replay_byte_for_byte_after_a_restart_and_on_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::new();
    let at = |price: &str| Ok(sheet(vec![list("a/r/-/on_demand/x", price)], clock.now()));
    let a = Told::new("a", vec![at("2 USD"), at("3 USD")]);
    let before = refresher(&clock, &[&a], Some(folder.path()));
    before.refresh_due().await;
    clock.pass(77);
    let query = Query::new(GpuModel::resolve("t4").map(|model| model.id), 1);
    let reply = before.service().quote_named(Some("t4"), query.clone(), Lang::En);
    let text = serde_json::to_string(&reply).unwrap();
    let id = reply.quote_id.unwrap();
    clock.pass(4000);
    before.refresh(&provider("a")).await.unwrap();
    drop(before);
    let copy = tempfile::tempdir().unwrap();
    for part in ["shards", "states"] {
        std::fs::create_dir_all(copy.path().join(part)).unwrap();
        for entry in std::fs::read_dir(folder.path().join(part)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.path().join(part).join(entry.file_name())).unwrap();
        }
    }
    for path in [folder.path(), copy.path()] {
        let service = service(&clock, Some(path));
        let again = service.replay(&QuoteRef::parse(&id).unwrap()).expect("a kept state");
        assert_eq!(serde_json::to_string(&QuoteReply::new(&again, Lang::En)).unwrap(), text);
    }
    for bad in ["", "x.y", &id[1..], &id.replace('.', ".."), "../../etc/passwd."] {
        assert_eq!(QuoteRef::parse(bad), None, "{bad}");
    }
    let unknown = format!("{}.{}", "0".repeat(32), id.split_once('.').unwrap().1);
    assert!(
        service(&clock, Some(folder.path())).replay(&QuoteRef::parse(&unknown).unwrap()).is_none()
    );
}

#[test]
fn where_one_state_is_quoted_from_the_next_is_kept_before_anybody_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(&Hand::new(), Some(folder.path()));
    let priced = |price: &str| {
        let offers = vec![offer("a/r/-/on_demand/x", "t4", "1", price)];
        service.replace_sheet(provider("a"), sheet(offers, young()));
        let present = service.catalogue().state_id().to_owned();
        service.states().unwrap().into_iter().any(|(id, _)| id == present)
    };
    assert!(!priced("1 USD"), "nobody asks");
    service.quote_named(Some("t4"), Query::new(None, 1), Lang::En);
    assert!(priced("2 USD"), "no quote waits for the disk");
    assert!(!priced("3 USD"), "nobody asked meanwhile");
}
