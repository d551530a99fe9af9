//! What one commit does, and what two at once do.

use super::*;

pub(super) async fn versions_are_checked(store: AnyStore) {
    let job = sample::job("p", 1, "a");
    let trial = sample::trial(&job, 0);
    let lease = sample::lease(&trial, "l1");
    let (project, key) = (sample::project("p"), sample::key("p", "k", "s"));
    let budget = sample::budget("p");
    macro_rules! check {
        ($variant:ident, $row:expr, $version:expr) => {
            let mut row = $row.clone();
            row.version = 1;
            assert!(is_stale(put(&*store, [Row::$variant(row.clone())]).await), "update of none");
            put(&*store, [Row::$variant($row.clone())]).await.unwrap();
            assert_eq!($version, 1);
            assert!(is_stale(put(&*store, [Row::$variant($row.clone())]).await), "second insert");
            put(&*store, [Row::$variant(row.clone())]).await.unwrap();
            assert_eq!($version, 2);
            assert!(is_stale(put(&*store, [Row::$variant(row.clone())]).await), "old version");
            row.version = 3;
            assert!(is_stale(put(&*store, [Row::$variant(row.clone())]).await), "future version");
            assert_eq!($version, 2);
        };
    }
    check!(Project, project, store.project(&project.id).await.unwrap().unwrap().version);
    check!(ApiKey, key, store.key(&key.id).await.unwrap().unwrap().version);
    check!(Budget, budget, store.budget(&budget.project).await.unwrap().unwrap().version);
    check!(Job, job, store.job(&job.project, &job.id).await.unwrap().unwrap().job.version);
    check!(Trial, trial, store.unit(&trial.id).await.unwrap().unwrap().1.version);
    check!(Lease, lease, store.lease(&lease.id).await.unwrap().unwrap().version);
}

pub(super) async fn a_refusal_writes_nothing(store: AnyStore) {
    let old = sample::job("p", 1, "a");
    put(&*store, submit(&old)).await.unwrap();
    let mut renamed = store.job(&old.project, &old.id).await.unwrap().unwrap().job;
    renamed.name = "b".to_owned();
    let new = sample::job("p", 2, "c");
    let mut trial = sample::trial(&new, 0);
    trial.next_at = Some(at(5));
    let lease = sample::lease(&trial, "l1");
    let segment = sample::segment(&lease, 0);
    let mut late = sample::lease(&trial, "l2");
    late.version = 7;
    let transition = Transition {
        rows: vec![
            Row::Job(renamed),
            Row::Job(new.clone()),
            Row::Trial(trial.clone()),
            Row::Lease(lease),
            Row::Entry(sample::entry(&segment)),
            Row::Segment(segment),
            Row::Output(trial.id.clone(), sample::output("model.bin", 1)),
            Row::Sync(sample::sync("p", "s", "a")),
            Row::ApiKey(sample::key("p", "k", "secret")),
            Row::Workspace(sample::workspace()),
            Row::Lease(late),
        ],
        events: vec![sample::event(&new, "job.accepted")],
    };
    let refused = store.commit(transition).await;
    assert_eq!(refused, Err(StoreError::Stale { row: "lease l2".to_owned() }));
    let p = project_id("p");
    let views = store.jobs(&p, &JobQuery::default()).await.unwrap();
    assert_eq!(ids(&views), numbers([1]));
    assert_eq!(views[0].job.name, "a");
    assert_eq!(store.active_job(&p, "a").await.unwrap(), Some(job_id(1)));
    assert_eq!(store.active_job(&p, "b").await.unwrap(), None);
    assert!(store.job(&p, &new.id).await.unwrap().is_none());
    assert!(store.unit(&trial.id).await.unwrap().is_none());
    assert!(store.open_leases().await.unwrap().is_empty());
    assert_eq!(store.next_due().await.unwrap(), None);
    assert!(store.outputs(&trial.id).await.unwrap().is_empty());
    assert!(store.newest_sync(&p, None).await.unwrap().is_none());
    assert!(store.key_by_secret("secret").await.unwrap().is_none());
    assert!(store.workspace(&sample::workspace_id()).await.unwrap().is_none());
    assert!(store.entries(&p, None, 9).await.unwrap().is_empty());
    let all = SegmentQuery { limit: 9, ..SegmentQuery::default() };
    assert!(store.segments(&p, &all).await.unwrap().is_empty());
    assert!(store.events(&p, &new.id).await.unwrap().is_empty());
    put(&*store, submit(&new)).await.unwrap();
}

pub(super) async fn insert_only_rows_may_be_repeated_but_not_changed(store: AnyStore) {
    let job = sample::job("p", 1, "a");
    let lease = sample::lease(&sample::trial(&job, 0), "l1");
    let segment = sample::segment(&lease, 0);
    let entry = sample::entry(&segment);
    let rows = || {
        vec![
            Row::Workspace(sample::workspace()),
            Row::Principal(sample::principal("ann")),
            Row::Sync(sample::sync("p", "s", "a")),
            Row::Segment(segment.clone()),
            Row::Entry(entry.clone()),
        ]
    };
    put(&*store, rows()).await.unwrap();
    put(&*store, rows()).await.unwrap();
    let all = SegmentQuery { limit: 9, ..SegmentQuery::default() };
    assert_eq!(store.segments(&job.project, &all).await.unwrap().len(), 1);
    assert_eq!(store.entries(&job.project, None, 9).await.unwrap().len(), 1);
    let mut workspace = sample::workspace();
    workspace.name = "Other".to_owned();
    let mut principal = sample::principal("ann");
    principal.name = "Other".to_owned();
    let mut sync = sample::sync("p", "s", "a");
    sync.files.clear();
    let mut dearer = segment.clone();
    dearer.amount = Money::new(Decimal::ONE, sample::cny());
    for (row, label) in [
        (Row::Workspace(workspace), "workspace acme"),
        (Row::Principal(principal), "principal ann"),
        (Row::Sync(sync), "sync s"),
        (Row::Entry(LedgerEntry { recorded_at: at(1), ..entry.clone() }), "entry entry.l1.0"),
        (Row::Segment(dearer), "segment l1.0"),
    ] {
        let refused = Err(StoreError::Exists { row: label.to_owned() });
        assert_eq!(put(&*store, [row]).await, refused);
    }
    assert_eq!(store.segments(&job.project, &all).await.unwrap()[0].1, segment);
}

pub(super) async fn one_of_many_writers_wins(store: AnyStore) {
    let job = sample::job("p", 1, "a");
    put(&*store, submit(&job)).await.unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let (store, mut trial) = (Arc::clone(&store), sample::trial(&job, 0));
            (trial.version, trial.attempts) = (1, number);
            tokio::spawn(async move { put(&*store, [Row::Trial(trial)]).await.map(|()| number) })
        })
        .collect();
    let mut won = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(number) => won.push(number),
            Err(error) => assert!(is_stale(Err(error))),
        }
    }
    let trial = store.unit(&sample::trial_id(&job.id, 0)).await.unwrap().unwrap().1;
    assert_eq!((won, trial.version), (vec![trial.attempts], 2));
}

pub(super) async fn one_of_many_submits_of_a_name_wins(store: AnyStore) {
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let store = Arc::clone(&store);
            let job = sample::job("p", number, "a");
            tokio::spawn(async move { put(&*store, submit(&job)).await.map(|()| job.id) })
        })
        .collect();
    let (mut won, mut named) = (Vec::new(), Vec::new());
    for task in tasks {
        match task.await.unwrap() {
            Ok(id) => won.push(id),
            Err(StoreError::NameTaken { existing }) => named.push(existing),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((won.len(), named.len()), (1, 49));
    assert!(named.iter().all(|existing| *existing == won[0]));
    assert_eq!(store.active_job(&project_id("p"), "a").await.unwrap().as_ref(), won.first());
}

pub(super) async fn rows_need_what_they_belong_to(store: AnyStore) {
    let job = sample::job("p", 1, "a");
    let trial = sample::trial(&job, 0);
    let failed = |result| matches!(result, Err(StoreError::Failed(_)));
    assert!(failed(put(&*store, [Row::Trial(trial.clone())]).await));
    put(&*store, [Row::Job(job)]).await.unwrap();
    assert!(failed(put(&*store, [Row::Lease(sample::lease(&trial, "l"))]).await));
    let output = Row::Output(trial.id.clone(), sample::output("a", 1));
    assert!(failed(put(&*store, [output]).await));
    put(&*store, [Row::Trial(trial.clone())]).await.unwrap();
    put(&*store, [Row::Lease(sample::lease(&trial, "l"))]).await.unwrap();
}

pub(super) async fn events_are_kept_in_order(store: AnyStore) {
    let (one, two) = (sample::job("p", 1, "a"), sample::job("p", 2, "b"));
    for kind in ["x", "y", "x"] {
        let mut project_event = sample::event(&one, "project");
        project_event.subject.job = None;
        let events = vec![sample::event(&one, kind), project_event, sample::event(&two, "other")];
        store.commit(Transition { rows: Vec::new(), events }).await.unwrap();
    }
    let events = store.events(&one.project, &one.id).await.unwrap();
    assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<String>(), "xyx");
    assert_eq!(events[1], sample::event(&one, "y"));
}

pub(super) async fn the_position_only_grows(store: AnyStore) {
    assert_eq!(store.position().await.unwrap(), 0);
    let mut last = 0;
    for number in 0..3 {
        let job = sample::job("p", number, &format!("j{number}"));
        let events = vec![sample::event(&job, "job.accepted")];
        store.commit(Transition { rows: vec![Row::Job(job)], events }).await.unwrap();
        let position = store.position().await.unwrap();
        assert!(position > last);
        last = position;
    }
}
