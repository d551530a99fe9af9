//! Jobs, their names and their lists.

use super::*;

pub(super) async fn a_name_belongs_to_one_active_job(store: AnyStore) {
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

pub(super) async fn an_idempotency_key_belongs_to_one_job(store: AnyStore) {
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

pub(super) async fn a_name_finds_the_newest_job_that_is_not_deleted(store: AnyStore) {
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

pub(super) async fn pages_hold_while_jobs_come_and_go(store: AnyStore) {
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

pub(super) async fn the_default_list_holds_all_active_and_the_newest(store: AnyStore) {
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

pub(super) async fn lists_filter_by_first_trial_and_kind(store: AnyStore) {
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

pub(super) async fn tenants_never_meet(store: AnyStore) {
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

pub(super) async fn views_show_trials_with_their_leases(store: AnyStore) {
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
