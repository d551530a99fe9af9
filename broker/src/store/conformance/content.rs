//! Outputs, syncs, publications and keys.

use super::*;

pub(super) async fn outputs_are_replaced_by_path(store: AnyStore) {
    let job = sample::job("p", 1, "a");
    put(&*store, submit(&job)).await.unwrap();
    let trial = sample::trial_id(&job.id, 0);
    for (path, size) in [("b", 1), ("a/x", 2), ("a", 3), ("b", 4), ("a-", 5)] {
        put(&*store, [Row::Output(trial.clone(), sample::output(path, size))]).await.unwrap();
    }
    let outputs = store.outputs(&trial).await.unwrap();
    let found: Vec<_> = outputs.iter().map(|out| (out.path.as_str(), out.size)).collect();
    assert_eq!(found, [("a", 3), ("a-", 5), ("a/x", 2), ("b", 4)]);
    assert!(store.outputs(&sample::trial_id(&job.id, 1)).await.unwrap().is_empty());
    let page = async |after: Option<&str>, limit| {
        let page = store.outputs_after(&trial, after, limit).await.unwrap();
        page.into_iter().map(|out| out.path).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2).await, ["a", "a-"]);
    assert_eq!(page(Some("a-"), 2).await, ["a/x", "b"]);
    assert_eq!(page(Some("a-z"), 1).await, ["a/x"], "behind a path that is not there");
    assert!(page(Some("b"), 2).await.is_empty());
    assert_eq!(store.output(&trial, "b").await.unwrap().map(|out| out.size), Some(4));
    assert_eq!(store.output(&trial, "c").await.unwrap(), None);
}

pub(super) async fn the_newest_sync_is_found(store: AnyStore) {
    let p = project_id("p");
    for (id, name) in [("s3", "a"), ("s1", "b"), ("s2", "a"), ("s0", "c")] {
        put(&*store, [Row::Sync(sample::sync("p", id, name))]).await.unwrap();
    }
    let newest = async |name| {
        let sync = store.newest_sync(&p, name).await.unwrap();
        sync.map(|sync| sync.id.to_string())
    };
    assert_eq!(newest(Some("a")).await.as_deref(), Some("s2"));
    assert_eq!(newest(Some("d")).await, None);
    assert_eq!(newest(None).await.as_deref(), Some("s0"));
    let found = store.sync(&p, &sample::sync("p", "s3", "a").id).await.unwrap().unwrap();
    assert_eq!(found, sample::sync("p", "s3", "a"));
}

pub(super) async fn publications_are_immutable_and_listed_newest_first(store: AnyStore) {
    let kind = PublicationKind::Runner;
    for (name, revision) in [("a/x", "1"), ("b/y", "1"), ("a/x", "2")] {
        put(&*store, [Row::Publication(sample::publication(name, revision))]).await.unwrap();
    }
    put(&*store, [Row::Publication(sample::publication("a/x", "1"))]).await.unwrap();
    let mut changed = sample::publication("a/x", "1");
    changed.manifest_sha256 = "ff".repeat(32);
    let refused = put(&*store, [Row::Publication(changed)]).await;
    assert!(matches!(refused, Err(StoreError::Exists { .. })), "{refused:?}");
    let shown = async |name, before, limit| {
        let rows = store.publications(kind, name, before, limit).await.unwrap();
        let last = rows.last().map(|(pos, _)| *pos);
        let names = rows.iter().map(|(_, row)| format!("{}@{}", row.name, row.revision));
        (names.collect::<Vec<_>>().join(" "), last)
    };
    assert_eq!(shown(None, None, 9).await.0, "a/x@2 b/y@1 a/x@1");
    assert_eq!(shown(Some("a/x"), None, 9).await.0, "a/x@2 a/x@1");
    let (first, last) = shown(None, None, 2).await;
    assert_eq!((first.as_str(), shown(None, last, 2).await.0.as_str()), ("a/x@2 b/y@1", "a/x@1"));
    let found = store.publication(kind, "b/y", "1").await.unwrap();
    assert_eq!(found, Some(sample::publication("b/y", "1")));
    assert!(store.publication(PublicationKind::Recipe, "b/y", "1").await.unwrap().is_none());
    // Its first tenant has a namespace, also where two publish at once.
    let mut theirs = sample::publication("a/z", "1");
    theirs.workspace = runwhere_model::WorkspaceId::new("theirs").unwrap();
    let refused = put(&*store, [Row::Publication(theirs)]).await;
    assert!(matches!(refused, Err(StoreError::Exists { .. })), "{refused:?}");
    let holder = store.namespace_holder("a").await.unwrap().unwrap();
    assert_eq!(holder.revision, "1");
    assert!(store.namespace_holder("c").await.unwrap().is_none());
}

pub(super) async fn keys_are_found_by_id_and_secret(store: AnyStore) {
    for (id, secret) in [("k2", "s2"), ("k1", "s1")] {
        put(&*store, [Row::ApiKey(sample::key("p", id, secret))]).await.unwrap();
    }
    let refused = put(&*store, [Row::ApiKey(sample::key("q", "k3", "s1"))]).await;
    assert!(matches!(refused, Err(StoreError::Exists { .. })), "{refused:?}");
    let mut revoked = store.key_by_secret("s1").await.unwrap().unwrap();
    assert_eq!(revoked.id.as_str(), "k1");
    revoked.revoked_at = Some(at(5));
    put(&*store, [Row::ApiKey(revoked)]).await.unwrap();
    let keys = store.keys().await.unwrap();
    assert_eq!(keys.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), ["k2", "k1"]);
    assert!(keys[1].revoked_at.is_some());
    assert!(store.key_by_secret("s3").await.unwrap().is_none());
    put(&*store, [Row::Principal(sample::principal("ann"))]).await.unwrap();
    let ann = sample::principal("ann");
    assert_eq!(store.principal(&ann.id).await.unwrap(), Some(ann));
}
