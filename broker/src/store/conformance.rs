//! What every store must do, run against each of them.

use std::sync::Arc;

use jiff::Timestamp;
use runwhere_engine::{
    Job, JobKind, Lease, LeaseState, LedgerEntry, PublicationKind, Stray, StrayState, SweeperState,
    TrialState,
};
use runwhere_model::{JobId, Money, NodeId, ProviderId};
use rust_decimal::Decimal;

use super::sample::{self, at, job_id, lease_id, project_id};
use super::{
    Counts, DEFAULT_JOBS, Due, JobQuery, JobView, MemoryStore, Row, SegmentQuery, SqliteStore,
    Store, StoreError, StrayQuery, Transition,
};

type AnyStore = Arc<dyn Store>;

macro_rules! on_every_store {
    ($($case:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $case() {
                super::$case(super::Arc::new(super::MemoryStore::new())).await;
            })*
        }
        mod sqlite_threads {
            $(#[tokio::test]
            async fn $case() {
                let dir = tempfile::tempdir().unwrap();
                let store = super::SqliteStore::open(&dir.path().join("broker.db")).unwrap();
                super::$case(super::Arc::new(store)).await;
            })*
        }
        mod sqlite_inline {
            $(#[tokio::test]
            async fn $case() {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("broker.db");
                let store = super::SqliteStore::open_inline(&path).unwrap();
                super::$case(super::Arc::new(store)).await;
            })*
        }
    };
}

on_every_store! {
    versions_are_checked
    a_refusal_writes_nothing
    a_name_belongs_to_one_active_job
    an_idempotency_key_belongs_to_one_job
    a_name_finds_the_newest_job_that_is_not_deleted
    pages_hold_while_jobs_come_and_go
    the_default_list_holds_all_active_and_the_newest
    lists_filter_by_first_trial_and_kind
    due_comes_soonest_first
    tenants_never_meet
    insert_only_rows_may_be_repeated_but_not_changed
    entries_must_balance
    segments_page_in_recorded_order
    one_of_many_writers_wins
    one_of_many_submits_of_a_name_wins
    views_show_trials_with_their_leases
    outputs_are_replaced_by_path
    the_newest_sync_is_found
    events_are_kept_in_order
    publications_are_immutable_and_listed_newest_first
    keys_are_found_by_id_and_secret
    rows_need_what_they_belong_to
    strays_and_sweepers_are_versioned_and_found
    leases_are_counted_and_listed_newest_first
    the_position_only_grows
}

pub(super) async fn put(
    store: &dyn Store,
    rows: impl IntoIterator<Item = Row>,
) -> Result<(), StoreError> {
    store.commit(Transition { rows: rows.into_iter().collect(), events: Vec::new() }).await
}

fn submit(job: &Job) -> [Row; 2] {
    [Row::Job(job.clone()), Row::Trial(sample::trial(job, 0))]
}

fn ids(views: &[JobView]) -> Vec<JobId> {
    views.iter().map(|view| view.job.id.clone()).collect()
}

fn numbers(numbers: impl IntoIterator<Item = u32>) -> Vec<JobId> {
    numbers.into_iter().map(job_id).collect()
}

fn is_stale(result: Result<(), StoreError>) -> bool {
    matches!(result, Err(StoreError::Stale { .. }))
}

async fn versions_are_checked(store: AnyStore) {
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

async fn a_refusal_writes_nothing(store: AnyStore) {
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

async fn a_name_belongs_to_one_active_job(store: AnyStore) {
    let first = sample::job("p", 1, "a");
    put(&*store, submit(&first)).await.unwrap();
    let second = sample::job("p", 2, "a");
    let taken = Err(StoreError::NameTaken { existing: job_id(1) });
    assert_eq!(put(&*store, submit(&second)).await, taken);
    put(&*store, submit(&sample::job("q", 12, "a"))).await.unwrap();

    let mut ended = first.clone();
    (ended.version, ended.active) = (1, false);
    put(&*store, [Row::Job(ended.clone())]).await.unwrap();
    assert_eq!(store.active_job(&first.project, "a").await.unwrap(), None);
    put(&*store, submit(&second)).await.unwrap();
    assert_eq!(store.active_job(&first.project, "a").await.unwrap(), Some(job_id(2)));
    (ended.version, ended.active) = (2, true);
    let taken = Err(StoreError::NameTaken { existing: job_id(2) });
    assert_eq!(put(&*store, [Row::Job(ended)]).await, taken);

    // A hidden job still has its name until it has ended.
    let mut hidden = second.clone();
    (hidden.version, hidden.deleted_at) = (1, Some(at(9)));
    put(&*store, [Row::Job(hidden)]).await.unwrap();
    let third = sample::job("p", 3, "a");
    assert_eq!(put(&*store, submit(&third)).await, taken);
}

async fn an_idempotency_key_belongs_to_one_job(store: AnyStore) {
    let keyed = |project: &str, number, name: &str| Job {
        idempotency_key: Some("once".to_owned()),
        ..sample::job(project, number, name)
    };
    let first = keyed("p", 1, "a");
    put(&*store, submit(&first)).await.unwrap();
    let used = Err(StoreError::KeyUsed { existing: job_id(1) });
    assert_eq!(put(&*store, submit(&keyed("p", 2, "a"))).await, used, "before the name");
    assert_eq!(put(&*store, submit(&keyed("p", 2, "b"))).await, used);
    put(&*store, submit(&keyed("q", 2, "a"))).await.unwrap();
    let ended = Job { version: 1, active: false, deleted_at: Some(at(9)), ..first.clone() };
    put(&*store, [Row::Job(ended)]).await.unwrap();
    assert_eq!(put(&*store, submit(&keyed("p", 2, "a"))).await, used, "for ever");
    let view = store.job_by_key(&first.project, "once").await.unwrap().unwrap();
    assert_eq!((view.job.id, view.trials.len()), (job_id(1), 1));
    assert!(store.job_by_key(&first.project, "other").await.unwrap().is_none());
}

async fn a_name_finds_the_newest_job_that_is_not_deleted(store: AnyStore) {
    let p = project_id("p");
    // The clock stands, then steps back: the order of recording counts.
    for (number, second) in [(9, 50), (3, 50), (5, 20)] {
        let job = Job {
            created_at: at(second),
            lineage: job_id(9),
            active: false,
            ..sample::job("p", number, "a")
        };
        put(&*store, submit(&job)).await.unwrap();
    }
    put(&*store, submit(&sample::job("p", 6, "b"))).await.unwrap();
    let newest = store.job_by_name(&p, "a").await.unwrap().unwrap().job;
    assert_eq!(newest.id, job_id(5));
    let hidden = Job { deleted_at: Some(at(60)), ..newest };
    put(&*store, [Row::Job(hidden)]).await.unwrap();
    assert_eq!(store.job_by_name(&p, "a").await.unwrap().unwrap().job.id, job_id(3));
    assert!(store.job_by_name(&p, "c").await.unwrap().is_none());
    let lineage = store.lineage(&p, &job_id(9)).await.unwrap();
    assert_eq!(ids(&lineage), numbers([5, 3, 9]));
    assert_eq!(lineage[0].trials.len(), 1);
    assert!(store.job(&p, &job_id(5)).await.unwrap().is_some(), "by id also when deleted");
}

async fn pages_hold_while_jobs_come_and_go(store: AnyStore) {
    let p = project_id("p");
    for number in 1..=20 {
        put(&*store, submit(&sample::job("p", number, &format!("n{number}")))).await.unwrap();
    }
    let page = |after: Option<JobId>| JobQuery { limit: Some(7), after, ..JobQuery::default() };
    let first = ids(&store.jobs(&p, &page(None)).await.unwrap());
    assert_eq!(first, numbers((14..=20).rev()));
    // The cursor itself and one of the next page are deleted, and a new job comes.
    for number in [14, 10] {
        let job = store.job(&p, &job_id(number)).await.unwrap().unwrap().job;
        let hidden = Job { deleted_at: Some(at(99)), ..job };
        put(&*store, [Row::Job(hidden)]).await.unwrap();
    }
    put(&*store, submit(&sample::job("p", 21, "n21"))).await.unwrap();
    let second = ids(&store.jobs(&p, &page(Some(job_id(14)))).await.unwrap());
    assert_eq!(second, numbers([13, 12, 11, 9, 8, 7, 6]));
    let third = ids(&store.jobs(&p, &page(Some(job_id(6)))).await.unwrap());
    assert_eq!(third, numbers((1..=5).rev()));
    assert!(store.jobs(&p, &page(Some(job_id(1)))).await.unwrap().is_empty());
    assert!(store.jobs(&p, &page(Some(job_id(77)))).await.unwrap().is_empty());
    let none = JobQuery { limit: Some(0), ..JobQuery::default() };
    assert!(store.jobs(&p, &none).await.unwrap().is_empty());
    let rest = JobQuery { after: Some(job_id(4)), ..JobQuery::default() };
    assert_eq!(ids(&store.jobs(&p, &rest).await.unwrap()), numbers([3, 2, 1]));
}

async fn the_default_list_holds_all_active_and_the_newest(store: AnyStore) {
    let p = project_id("p");
    let mut rows = Vec::new();
    for number in 1..=DEFAULT_JOBS + 20 {
        let mut job = sample::job("p", number, &format!("n{number}"));
        job.active = number <= 3;
        job.deleted_at = (number == 2 || number == 100).then(|| at(0));
        rows.extend(submit(&job));
    }
    put(&*store, rows).await.unwrap();
    let listed = ids(&store.jobs(&p, &JobQuery::default()).await.unwrap());
    let mut expected: Vec<u32> = (20..=DEFAULT_JOBS + 20).rev().filter(|n| *n != 100).collect();
    expected.extend([3, 1]);
    assert_eq!(listed, numbers(expected));
    let large = JobQuery { limit: Some(10_000), ..JobQuery::default() };
    assert_eq!(store.jobs(&p, &large).await.unwrap().len(), 518);
}

async fn lists_filter_by_first_trial_and_kind(store: AnyStore) {
    let p = project_id("p");
    let states = [TrialState::Running, TrialState::Failed, TrialState::Queued];
    for number in 0..9 {
        let mut job = sample::job("p", number, &format!("n{number}"));
        job.kind = if number < 5 { JobKind::Training } else { JobKind::Notebook };
        let (mut first, mut second) = (sample::trial(&job, 0), sample::trial(&job, 1));
        first.state = states[usize::try_from(number % 3).unwrap()];
        second.state = TrialState::Cancelled;
        job.active = !first.state.is_terminal();
        put(&*store, [Row::Job(job), Row::Trial(second), Row::Trial(first)]).await.unwrap();
    }
    let list = async |states: &[TrialState], kind, limit, after: Option<u32>| {
        let after = after.map(job_id);
        let query = JobQuery { states: states.to_vec(), kind, limit, after };
        ids(&store.jobs(&p, &query).await.unwrap())
    };
    let [running, failed, queued] = states;
    for limit in [None, Some(100)] {
        assert_eq!(list(&[running], None, limit, None).await, numbers([6, 3, 0]));
        assert_eq!(
            list(&[queued, failed, queued], None, limit, None).await,
            numbers([8, 7, 5, 4, 2, 1])
        );
        assert_eq!(list(&[TrialState::Cancelled], None, limit, None).await, numbers([]));
        assert_eq!(list(&[], Some(JobKind::Notebook), limit, None).await, numbers([8, 7, 6, 5]));
        assert_eq!(list(&[running], Some(JobKind::Notebook), limit, None).await, numbers([6]));
        assert_eq!(list(&[running, failed], None, limit, Some(6)).await, numbers([4, 3, 1, 0]));
    }
    assert_eq!(list(&[running, failed], None, Some(3), None).await, numbers([7, 6, 4]));
    // The filter follows the trial.
    let mut trial = store.job(&p, &job_id(6)).await.unwrap().unwrap().trials.remove(0).0;
    trial.state = TrialState::Succeeded;
    put(&*store, [Row::Trial(trial)]).await.unwrap();
    assert_eq!(list(&[running], None, None, None).await, numbers([3, 0]));
    assert_eq!(list(&[TrialState::Succeeded], None, None, None).await, numbers([6]));
}

async fn due_comes_soonest_first(store: AnyStore) {
    let mut trials = Vec::new();
    let nanosecond = jiff::SignedDuration::from_nanos(1);
    for (number, next_at) in [(1, at(30)), (2, at(10)), (3, at(20) + nanosecond)] {
        let job = sample::job(if number == 2 { "q" } else { "p" }, number, "a");
        let mut trial = sample::trial(&job, 0);
        trial.next_at = Some(next_at);
        let job = Job { active: false, ..job };
        put(&*store, [Row::Job(job), Row::Trial(trial.clone())]).await.unwrap();
        trials.push(trial);
    }
    let mut lease = sample::lease(&trials[0], "l1");
    lease.next_at = Some(at(20));
    put(&*store, [Row::Lease(lease.clone())]).await.unwrap();
    let [first, second, third] =
        [&trials[0], &trials[1], &trials[2]].map(|trial| Due::Trial(trial.id.clone()));
    let by_lease = Due::Lease(lease.id.clone());
    assert_eq!(store.next_due().await.unwrap(), Some(at(10)));
    assert!(store.due(at(9), 9).await.unwrap().is_empty());
    assert_eq!(store.due(at(20), 9).await.unwrap(), [second.clone(), by_lease.clone()]);
    assert_eq!(
        store.due(Timestamp::MAX, 9).await.unwrap(),
        [second.clone(), by_lease.clone(), third, first.clone()]
    );
    assert_eq!(store.due(at(40), 1).await.unwrap(), [second]);
    (lease.version, lease.next_at) = (1, None);
    let mut waiting = trials[1].clone();
    (waiting.version, waiting.next_at) = (1, Some(at(35)));
    put(&*store, [Row::Lease(lease), Row::Trial(waiting)]).await.unwrap();
    assert_eq!(store.next_due().await.unwrap(), Some(at(20) + nanosecond));
    assert_eq!(store.due(at(30), 9).await.unwrap().len(), 2);
}

async fn tenants_never_meet(store: AnyStore) {
    let (p, q) = (project_id("p"), project_id("q"));
    let job = Job { idempotency_key: Some("k".to_owned()), ..sample::job("p", 1, "a") };
    let trial = sample::trial(&job, 0);
    let lease = sample::lease(&trial, "l1");
    let segment = sample::segment(&lease, 0);
    let transition = Transition {
        rows: vec![
            Row::Job(job.clone()),
            Row::Trial(trial.clone()),
            Row::Lease(lease.clone()),
            Row::Entry(sample::entry(&segment)),
            Row::Segment(segment),
            Row::Sync(sample::sync("p", "s", "a")),
            Row::Budget(sample::budget("p")),
        ],
        events: vec![sample::event(&job, "job.accepted")],
    };
    store.commit(transition).await.unwrap();
    let all = SegmentQuery { limit: 9, ..SegmentQuery::default() };
    assert!(store.job(&q, &job.id).await.unwrap().is_none());
    assert!(store.job_by_name(&q, "a").await.unwrap().is_none());
    assert!(store.job_by_key(&q, "k").await.unwrap().is_none());
    assert!(store.active_job(&q, "a").await.unwrap().is_none());
    assert!(store.lineage(&q, &job.id).await.unwrap().is_empty());
    assert!(store.jobs(&q, &JobQuery::default()).await.unwrap().is_empty());
    let after = JobQuery { after: Some(job.id.clone()), ..JobQuery::default() };
    assert!(store.jobs(&q, &after).await.unwrap().is_empty());
    assert!(store.sync(&q, &sample::sync("q", "s", "a").id).await.unwrap().is_none());
    assert!(store.newest_sync(&q, None).await.unwrap().is_none());
    assert!(store.newest_sync(&q, Some("a")).await.unwrap().is_none());
    assert!(store.segments(&q, &all).await.unwrap().is_empty());
    assert!(store.entries(&q, None, 9).await.unwrap().is_empty());
    assert!(store.events(&q, &job.id).await.unwrap().is_empty());
    assert!(store.budget(&q).await.unwrap().is_none());

    // The same ids where users or digests choose them; rows of others cannot be taken over.
    put(&*store, [Row::Sync(sample::sync("q", "s", "b"))]).await.unwrap();
    put(&*store, [Row::Job(sample::job("q", 1, "a"))]).await.unwrap();
    let stolen = |version| runwhere_engine::Trial { version, project: q.clone(), ..trial.clone() };
    assert!(is_stale(put(&*store, [Row::Trial(stolen(0))]).await));
    assert!(is_stale(put(&*store, [Row::Trial(stolen(1))]).await));
    let stolen = runwhere_engine::Lease { version: 1, project: q.clone(), ..lease };
    assert!(put(&*store, [Row::Lease(stolen)]).await.is_err());
    assert_eq!(store.unit(&trial.id).await.unwrap().unwrap().0.project, p);
    assert_eq!(store.job(&q, &job.id).await.unwrap().unwrap().trials, []);
}

async fn insert_only_rows_may_be_repeated_but_not_changed(store: AnyStore) {
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

async fn entries_must_balance(store: AnyStore) {
    let job = sample::job("p", 1, "a");
    let segment = sample::segment(&sample::lease(&sample::trial(&job, 0), "l1"), 0);
    let mut entry = sample::entry(&segment);
    entry.lines.pop();
    let refused = put(&*store, [Row::Segment(segment.clone()), Row::Entry(entry.clone())]).await;
    assert_eq!(refused, Err(StoreError::Unbalanced(format!("entry {}", entry.id))));
    let all = SegmentQuery { limit: 9, ..SegmentQuery::default() };
    assert!(store.segments(&job.project, &all).await.unwrap().is_empty());
}

async fn segments_page_in_recorded_order(store: AnyStore) {
    let p = project_id("p");
    let (one, two) = (sample::job("p", 1, "a"), sample::job("p", 2, "b"));
    let leases =
        [(&one, "l1"), (&two, "l2")].map(|(job, id)| sample::lease(&sample::trial(job, 0), id));
    // Recorded out of the order of their times.
    for number in [4, 2, 0, 1, 3] {
        for lease in &leases {
            let segment = sample::segment(lease, number);
            put(&*store, [Row::Entry(sample::entry(&segment)), Row::Segment(segment)])
                .await
                .unwrap();
        }
    }
    let mut seen = Vec::new();
    let mut query = SegmentQuery { limit: 3, ..SegmentQuery::default() };
    loop {
        let page = store.segments(&p, &query).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        query.after = Some(*last);
        assert!(page.len() <= 3);
        seen.extend(page);
    }
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0));
    let text: Vec<&str> = seen.iter().map(|(_, segment)| segment.id.as_str()).collect();
    let recorded = "l1.4 l2.4 l1.2 l2.2 l1.0 l2.0 l1.1 l2.1 l1.3 l2.3";
    assert_eq!(text.join(" "), recorded);
    let ids = async |query: SegmentQuery| -> Vec<String> {
        let found = store.segments(&p, &query).await.unwrap();
        found.into_iter().map(|(_, segment)| segment.id).collect()
    };
    let of_one = SegmentQuery { job: Some(one.id.clone()), limit: 99, ..SegmentQuery::default() };
    assert_eq!(ids(of_one.clone()).await.join(" "), "l1.4 l1.2 l1.0 l1.1 l1.3");
    // Whole hours: one that only touches the period is outside.
    let period = SegmentQuery { from: Some(at(3600)), to: Some(at(3 * 3600)), ..of_one.clone() };
    assert_eq!(ids(period).await.join(" "), "l1.2 l1.1");
    let within = SegmentQuery { from: Some(at(3601)), to: Some(at(3602)), ..of_one.clone() };
    assert_eq!(ids(within).await.join(" "), "l1.1");
    let far = SegmentQuery { after: Some(u64::MAX), ..of_one };
    assert!(ids(far).await.is_empty());
    let entries = store.entries(&p, None, 4).await.unwrap();
    assert_eq!(entries.len(), 4);
    let rest = store.entries(&p, Some(entries[3].0), 99).await.unwrap();
    assert_eq!((rest.len(), rest[0].1.segment.as_str()), (6, "l1.0"));
}

async fn one_of_many_writers_wins(store: AnyStore) {
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

async fn one_of_many_submits_of_a_name_wins(store: AnyStore) {
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

async fn views_show_trials_with_their_leases(store: AnyStore) {
    let job = sample::job("p", 1, "a");
    let mut trials: Vec<_> = (0..3).map(|index| sample::trial(&job, index)).collect();
    trials[1].lease = Some(lease_id("l2"));
    let (mut old, new) = (sample::lease(&trials[1], "l1"), sample::lease(&trials[1], "l2"));
    old.state = LeaseState::Void;
    let mut rows = vec![Row::Job(job.clone())];
    rows.extend(trials.iter().rev().cloned().map(Row::Trial));
    rows.extend([Row::Lease(old), Row::Lease(new)]);
    put(&*store, rows).await.unwrap();
    let view = store.job(&job.project, &job.id).await.unwrap().unwrap();
    let shown: Vec<_> = view
        .trials
        .iter()
        .map(|(trial, lease)| (trial.index, lease.as_ref().map(|lease| lease.id.as_str())))
        .collect();
    assert_eq!(shown, [(0, None), (1, Some("l2")), (2, None)]);
    assert_eq!(view.job, Job { version: 1, ..job.clone() });
    let (of, trial, lease) = store.unit(&trials[1].id).await.unwrap().unwrap();
    assert_eq!((&of, &trial), (&view.job, &view.trials[1].0));
    assert_eq!(lease, view.trials[1].1);
    assert!(store.unit(&trials[0].id).await.unwrap().unwrap().2.is_none());
    let open = store.open_leases().await.unwrap();
    assert_eq!(open.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), ["l2"]);
    let mut ended = open[0].clone();
    ended.state = LeaseState::Released;
    put(&*store, [Row::Lease(ended)]).await.unwrap();
    assert!(store.open_leases().await.unwrap().is_empty());
    assert!(store.lease(&lease_id("l1")).await.unwrap().is_some());
}

async fn outputs_are_replaced_by_path(store: AnyStore) {
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
}

async fn the_newest_sync_is_found(store: AnyStore) {
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

async fn events_are_kept_in_order(store: AnyStore) {
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

async fn publications_are_immutable_and_listed_newest_first(store: AnyStore) {
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

async fn keys_are_found_by_id_and_secret(store: AnyStore) {
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

async fn rows_need_what_they_belong_to(store: AnyStore) {
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

async fn strays_and_sweepers_are_versioned_and_found(store: AnyStore) {
    let of = |query: StrayQuery| {
        let store = store.clone();
        async move {
            let found = store.strays(&query).await.unwrap();
            found.iter().map(|one| format!("{}/{}", one.provider, one.node())).collect::<Vec<_>>()
        }
    };
    let (a1, a2, b1) = (sample::stray("a", "1"), sample::stray("a", "2"), sample::stray("b", "1"));
    put(&*store, [&b1, &a2, &a1].map(|one| Row::Stray(one.clone()))).await.unwrap();
    assert!(is_stale(put(&*store, [Row::Stray(a1.clone())]).await), "second insert");
    let ended = Stray { version: 1, state: StrayState::Ended, ..a2.clone() };
    put(&*store, [Row::Stray(ended.clone())]).await.unwrap();
    assert!(is_stale(put(&*store, [Row::Stray(ended)]).await), "old version");
    assert_eq!(of(StrayQuery::default()).await, ["a/1", "a/2", "b/1"]);
    assert_eq!(of(StrayQuery { open: true, ..StrayQuery::default() }).await, ["a/1", "b/1"]);
    let provider = Some(ProviderId::new("a").unwrap());
    let nodes = Some(["2", "1", "1", "9"].map(|id| NodeId::new(id).unwrap()).to_vec());
    let query = StrayQuery { provider: provider.clone(), nodes: nodes.clone(), open: false };
    assert_eq!(of(query).await, ["a/1", "a/2"]);
    assert_eq!(of(StrayQuery { provider: None, nodes, open: true }).await, ["a/1", "b/1"]);
    assert!(of(StrayQuery { provider, nodes: Some(vec![]), open: false }).await.is_empty());

    let row = SweeperState::new(ProviderId::new("a").unwrap(), at(0));
    put(&*store, [Row::Sweeper(row.clone())]).await.unwrap();
    assert!(is_stale(put(&*store, [Row::Sweeper(row.clone())]).await));
    let next = SweeperState { version: 1, epoch: 7, ..row };
    put(&*store, [Row::Sweeper(next.clone())]).await.unwrap();
    assert_eq!(store.sweepers().await.unwrap(), [SweeperState { version: 2, ..next }]);
}

async fn leases_are_counted_and_listed_newest_first(store: AnyStore) {
    assert_eq!(store.counts().await.unwrap(), Counts::default());
    for (number, (project, state, since)) in [
        ("p", LeaseState::Releasing, 9),
        ("q", LeaseState::Releasing, 4),
        ("p", LeaseState::Released, 1),
        ("p", LeaseState::Ready, 2),
    ]
    .into_iter()
    .enumerate()
    {
        let job = sample::job(project, u32::try_from(number).unwrap(), &format!("j{number}"));
        let job = Job { active: state != LeaseState::Released, ..job };
        let trial = sample::trial(&job, 0);
        // Names in the other order than they are recorded in.
        let id = format!("l{}", 9 - number);
        let lease = Lease { state, since: at(since), ..sample::lease(&trial, &id) };
        put(&*store, [Row::Job(job), Row::Trial(trial), Row::Lease(lease)]).await.unwrap();
    }
    let ids = |leases: Vec<Lease>| leases.into_iter().map(|lease| lease.id.to_string()).collect();
    let newest: Vec<String> = ids(store.newest_leases(None, 3).await.unwrap());
    assert_eq!(newest, ["l6", "l7", "l8"]);
    let newest: Vec<String> = ids(store.newest_leases(Some(&project_id("p")), 9).await.unwrap());
    assert_eq!(newest, ["l6", "l7", "l9"]);
    let some = ["l9", "l6", "none", "l9"].map(lease_id);
    let found: Vec<String> = ids(store.leases(&some).await.unwrap());
    assert_eq!(found, ["l6", "l9"]);
    let counts = store.counts().await.unwrap();
    assert_eq!(counts.leases, [(LeaseState::Ready, 1), (LeaseState::Releasing, 2)]);
    assert_eq!(counts.trials, [(TrialState::Queued, 3)]);
    assert_eq!(counts.releasing_since, Some(at(4)));
}

async fn the_position_only_grows(store: AnyStore) {
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
