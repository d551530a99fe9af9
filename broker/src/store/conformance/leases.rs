//! What is due, leases, strays and sweepers.

use super::*;

pub(super) async fn due_comes_soonest_first(store: AnyStore) {
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

pub(super) async fn strays_and_sweepers_are_versioned_and_found(store: AnyStore) {
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

pub(super) async fn leases_are_counted_and_listed_newest_first(store: AnyStore) {
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
