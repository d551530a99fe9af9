//! What only the file can show: durability, space, formats, plans.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Waker};

use runwhere_engine::{Job, JobKind, TrialState};
use rusqlite::Connection;

use super::database::Database;
use super::read;
use super::schema::known_format;
use super::{OpenError, SqliteStore};
use crate::store::sample::{self, job_id, project_id};
use crate::store::{DEFAULT_JOBS, JobQuery, Row, SegmentQuery, Store, StoreError, Transition};

fn submit(number: u32, name: &str) -> Transition {
    let job = sample::job("p", number, name);
    let trial = Row::Trial(sample::trial(&job, 0));
    let events = vec![sample::event(&job, "job.accepted")];
    Transition { rows: vec![Row::Job(job), trial], events }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broker.db");
    (dir, path)
}

async fn count(store: &SqliteStore) -> usize {
    let all = JobQuery { limit: Some(u32::MAX), ..JobQuery::default() };
    store.jobs(&project_id("p"), &all).await.unwrap().len()
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let (_dir, path) = folder();
    let job = sample::job("p", 1, "a");
    let mut trial = sample::trial(&job, 0);
    trial.lease = Some(sample::lease_id("l1"));
    trial.next_at = Some(sample::at(7));
    let lease = sample::lease(&trial, "l1");
    let segment = sample::segment(&lease, 0);
    let store = SqliteStore::open(&path).unwrap();
    let transition = Transition {
        rows: vec![
            Row::Workspace(sample::workspace()),
            Row::Project(sample::project("p")),
            Row::Principal(sample::principal("ann")),
            Row::ApiKey(sample::key("p", "k", "s")),
            Row::Job(job.clone()),
            Row::Trial(trial.clone()),
            Row::Lease(lease.clone()),
            Row::Sync(sample::sync("p", "s", "a")),
            Row::Entry(sample::entry(&segment)),
            Row::Segment(segment.clone()),
            Row::Output(trial.id.clone(), sample::output("model.bin", 5)),
            Row::Budget(sample::budget("p")),
        ],
        events: vec![sample::event(&job, "job.accepted")],
    };
    store.commit(transition).await.unwrap();
    drop(store);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others cannot read it");

    let store = SqliteStore::open(&path).unwrap();
    let p = project_id("p");
    let view = store.job(&p, &job.id).await.unwrap().unwrap();
    assert_eq!(view.job, Job { version: 1, ..job.clone() });
    assert_eq!(view.trials[0].0, runwhere_engine::Trial { version: 1, ..trial.clone() });
    assert_eq!(view.trials[0].1, Some(runwhere_engine::Lease { version: 1, ..lease }));
    assert_eq!(store.next_due().await.unwrap(), Some(sample::at(7)));
    let all = SegmentQuery { limit: 9, ..SegmentQuery::default() };
    assert_eq!(store.segments(&p, &all).await.unwrap(), [(1, segment.clone())]);
    assert_eq!(store.entries(&p, None, 9).await.unwrap(), [(1, sample::entry(&segment))]);
    assert_eq!(store.outputs(&trial.id).await.unwrap(), [sample::output("model.bin", 5)]);
    let sync = sample::sync("p", "s", "a");
    assert_eq!(store.sync(&p, &sync.id).await.unwrap(), Some(sync));
    let events = store.events(&p, &job.id).await.unwrap();
    assert_eq!(events, [sample::event(&job, "job.accepted")]);
    assert!(store.key_by_secret("s").await.unwrap().is_some());
    assert!(store.budget(&p).await.unwrap().is_some());
    assert!(store.project(&p).await.unwrap().is_some());
    assert!(store.workspace(&sample::workspace_id()).await.unwrap().is_some());
}

#[tokio::test]
async fn the_version_is_another_one_after_every_commit_of_any_process() {
    let (_dir, path) = folder();
    let store = SqliteStore::open(&path).unwrap();
    let before = store.version().unwrap();
    count(&store).await;
    assert_eq!(store.version(), Some(before));
    store.commit(submit(1, "a")).await.unwrap();
    let own = store.version().unwrap();
    assert_ne!(own, before);
    assert_eq!(store.version(), Some(own));
    let beside = SqliteStore::open_inline(&path).unwrap();
    beside.commit(submit(2, "b")).await.unwrap();
    assert_ne!(store.version(), Some(own));
    // A store that cannot tell says so.
    assert_eq!(beside.version(), None);
}

#[test]
fn a_newer_database_is_refused_and_left_alone() {
    let (_dir, path) = folder();
    drop(SqliteStore::open_inline(&path).unwrap());
    let raw = Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", known_format() + 1).unwrap();
    drop(raw);
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(matches!(&error, OpenError::Newer { found, .. } if *found == known_format() + 1));
    assert!(error.to_string().contains("use the version that wrote it"), "{error}");
}

#[test]
fn files_of_others_are_refused_and_left_alone() {
    let (_dir, path) = folder();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch("CREATE TABLE photos (id INTEGER)").unwrap();
    drop(raw);
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(SqliteStore::open(&path), Err(OpenError::Foreign { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    std::fs::write(&path, "not a database at all, but long enough to look at".repeat(9)).unwrap();
    assert!(matches!(SqliteStore::open(&path), Err(OpenError::Foreign { .. })));
    let missing = path.with_file_name("missing").join("broker.db");
    assert!(matches!(SqliteStore::open(&missing), Err(OpenError::Io { .. })));
}

#[tokio::test]
async fn audit_and_money_cannot_be_changed() {
    let (_dir, path) = folder();
    let store = SqliteStore::open_inline(&path).unwrap();
    let job = sample::job("p", 1, "a");
    let segment = sample::segment(&sample::lease(&sample::trial(&job, 0), "l1"), 0);
    let rows = vec![Row::Entry(sample::entry(&segment)), Row::Segment(segment)];
    let events = vec![sample::event(&job, "job.accepted")];
    store.commit(Transition { rows, events }).await.unwrap();
    store.with_connection(|c| {
        for table in ["events", "segments", "entries"] {
            for sql in [format!("UPDATE {table} SET doc = '{{}}'"), format!("DELETE FROM {table}")]
            {
                let error = c.execute(&sql, []).unwrap_err();
                assert!(error.to_string().contains("append-only"), "{sql}: {error}");
            }
        }
    });
}

#[tokio::test]
async fn a_full_disk_refuses_whole_transitions_until_there_is_space() {
    let (_dir, path) = folder();
    let store = SqliteStore::open_inline(&path).unwrap();
    store.commit(submit(0, "n0")).await.unwrap();
    store.with_connection(|c| {
        let pages: i64 = c.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        c.pragma_update(None, "max_page_count", pages + 8).unwrap();
    });
    let mut acknowledged = 1;
    let refused = loop {
        match store.commit(submit(acknowledged, &format!("n{acknowledged}"))).await {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 1000, "the limit has no effect");
    };
    assert_eq!(refused, StoreError::Full);
    let id = job_id(acknowledged);
    let p = project_id("p");
    assert!(store.job(&p, &id).await.unwrap().is_none());
    assert!(store.events(&p, &id).await.unwrap().is_empty());
    assert_eq!(store.active_job(&p, &format!("n{acknowledged}")).await.unwrap(), None);
    assert_eq!(count(&store).await, usize::try_from(acknowledged).unwrap());
    store.with_connection(|c| c.pragma_update(None, "max_page_count", 1_000_000).unwrap());
    store.commit(submit(acknowledged, &format!("n{acknowledged}"))).await.unwrap();
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(count(&store).await, usize::try_from(acknowledged).unwrap() + 1);
}

/// With `RUNWHERE_TEST_SMALL_DISK` a file system of a few MiB.
#[tokio::test]
#[ignore = "needs a small file system"]
async fn a_small_disk_loses_nothing_and_works_again_once_there_is_space() {
    let disk = PathBuf::from(std::env::var_os("RUNWHERE_TEST_SMALL_DISK").unwrap());
    let dir = tempfile::tempdir_in(&disk).unwrap();
    let (path, ballast) = (dir.path().join("broker.db"), dir.path().join("ballast"));
    let store = Arc::new(SqliteStore::open(&path).unwrap());
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let mut number = round * 1_000_000;
        // Several at once until every one is refused.
        loop {
            let lanes: Vec<_> = (number..number + 8)
                .map(|number| {
                    let store = Arc::clone(&store);
                    tokio::spawn(async move {
                        (number, store.commit(submit(number, &format!("n{number}"))).await)
                    })
                })
                .collect();
            let mut refused = 0;
            for lane in lanes {
                match lane.await.unwrap() {
                    (number, Ok(())) => acknowledged.push(number),
                    (_, Err(error)) => {
                        assert_eq!(error, StoreError::Full);
                        refused += 1;
                    }
                }
            }
            number += 8;
            if refused == 8 {
                break;
            }
        }
        assert_eq!(count(&store).await, acknowledged.len(), "reads go on");
        if round == 0 {
            std::fs::remove_file(&ballast).unwrap();
        }
    }
    println!("{} jobs", acknowledged.len());
    // As after a crash: no tidying up.
    let copy = tempfile::tempdir().unwrap();
    for file in ["broker.db", "broker.db-wal"] {
        std::fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
    }
    let reopened = SqliteStore::open(&copy.path().join("broker.db")).unwrap();
    for number in &acknowledged {
        let view = reopened.job(&project_id("p"), &job_id(*number)).await.unwrap();
        assert_eq!(view.unwrap().trials.len(), 1);
    }
    assert_eq!(count(&reopened).await, acknowledged.len());
}

#[test]
fn a_batch_commits_what_is_not_refused() {
    let (_dir, path) = folder();
    let mut database = Database::open(&path).unwrap();
    let results = database.commit(&[submit(1, "a"), submit(2, "a"), submit(3, "b")]);
    let taken = StoreError::NameTaken { existing: job_id(1) };
    assert_eq!(results, [Ok(()), Err(taken), Ok(())]);
    // What is too large for the space left keeps nothing out that fits.
    let pages: i64 =
        database.connection().pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    database.connection().pragma_update(None, "max_page_count", pages + 20).unwrap();
    let mut large = sample::sync("p", "large", "a");
    large.yaml = Some("x".repeat(1 << 20));
    let large = Transition { rows: vec![Row::Sync(large)], events: Vec::new() };
    let results = database.commit(&[submit(4, "c"), large, submit(5, "d")]);
    assert_eq!(results, [Ok(()), Err(StoreError::Full), Ok(())]);
    drop(database);
    let mut database = Database::open(&path).unwrap();
    let views = read::jobs(database.connection(), &project_id("p"), &JobQuery::default()).unwrap();
    assert_eq!(views.len(), 4);
    assert_eq!(database.commit(&[]), []);
}

#[tokio::test]
async fn after_an_ambiguous_commit_the_log_is_settled_beside_a_reader() {
    let (_dir, path) = folder();
    let store = SqliteStore::open(&path).unwrap();
    store.commit(submit(1, "a")).await.unwrap();
    let mut database = Database::open(&path).unwrap();
    database.suspect();
    assert_eq!(database.commit(&[submit(2, "b")]), [Ok(())]);
    assert_eq!(count(&store).await, 2);
}

#[tokio::test]
async fn two_processes_may_write_one_file() {
    let (_dir, path) = folder();
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let stores = [Arc::new(one), Arc::new(two)];
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let store = Arc::clone(&stores[usize::try_from(number % 2).unwrap()]);
            tokio::spawn(async move { store.commit(submit(number, &format!("n{number}"))).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!((count(&stores[0]).await, count(&stores[1]).await), (40, 40));
}

#[tokio::test]
async fn what_was_queued_is_committed_when_the_store_is_dropped() {
    let (_dir, path) = folder();
    let store = SqliteStore::open(&path).unwrap();
    for number in 0..20 {
        let mut commit = Box::pin(store.commit(submit(number, &format!("n{number}"))));
        // Polled once: queued. Then its caller goes away.
        let _ = commit.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    drop(store);
    assert_eq!(count(&SqliteStore::open(&path).unwrap()).await, 20);
}

const CHILD_PATH: &str = "RUNWHERE_TEST_STORE";

/// The process that the next test kills: commits for ever and prints what was acknowledged.
#[test]
#[ignore = "started by killed_processes_lose_nothing_acknowledged"]
fn child_that_commits_until_killed() {
    let path = PathBuf::from(std::env::var_os(CHILD_PATH).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(SqliteStore::open(&path).unwrap());
        let first = u32::try_from(count(&store).await).unwrap() * 10;
        for lane in 0..4 {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for number in (first + lane..).step_by(4) {
                    store.commit(submit(number, &format!("n{number}"))).await.unwrap();
                    println!("acknowledged {number}");
                }
            });
        }
        std::future::pending::<()>().await;
    });
}

#[tokio::test]
async fn killed_processes_lose_nothing_acknowledged() {
    let (_dir, path) = folder();
    let mut acknowledged = Vec::new();
    for round in 1..=5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::sqlite::tests::child_that_commits_until_killed"])
            .args(["--ignored", "--nocapture"])
            .env(CHILD_PATH, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        for line in lines {
            // The last line may be cut.
            let Ok(line) = line else { break };
            let Some(number) = line.strip_prefix("acknowledged ") else { continue };
            acknowledged.extend(number.parse::<u32>());
            seen += 1;
            if seen == 7 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= 7 * round, "the child ended early");
        let store = SqliteStore::open(&path).unwrap();
        for number in &acknowledged {
            let view = store.job(&project_id("p"), &job_id(*number)).await.unwrap();
            assert_eq!(view.unwrap().trials.len(), 1, "job {number}");
            let events = store.events(&project_id("p"), &job_id(*number)).await.unwrap();
            assert_eq!(events.len(), 1, "job {number}");
        }
    }
}

#[test]
fn frequent_queries_use_an_index() {
    let (_dir, path) = folder();
    let database = Database::open(&path).unwrap();
    let states = [TrialState::Running, TrialState::Queued];
    for (states, kind, active) in [
        (&states[..], None, true),
        (&states[..1], Some(JobKind::Training), false),
        (&[], None, true),
        (&[], Some(JobKind::Training), false),
    ] {
        let sql = read::positions_sql(states, kind.is_some(), active);
        assert_planned(database.connection(), &sql);
    }
    for sql in [read::DUE, read::NEXT_DUE, read::OPEN_LEASES, read::BY_NAME, read::UNIT] {
        assert_planned(database.connection(), sql);
    }
}

fn assert_planned(connection: &Connection, sql: &str) {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let parameters = vec![rusqlite::types::Null; statement.parameter_count()];
    let plan: Vec<String> = statement
        .query_map(rusqlite::params_from_iter(parameters), |row| row.get(3))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for step in &plan {
        let scans =
            step.starts_with("SCAN") && !step.contains("USING") && !step.contains("subquery");
        assert!(!scans, "{sql}\n{plan:#?}");
    }
}

fn fill(path: &Path, jobs: u32) -> Database {
    let mut database = Database::open(path).unwrap();
    let rows = |number| {
        let job = Job { active: false, ..sample::job("p", number, &format!("n{number}")) };
        let mut trial = sample::trial(&job, 0);
        trial.state = TrialState::Succeeded;
        trial.lease = Some(sample::lease_id(&format!("l{number}")));
        let mut lease = sample::lease(&trial, &format!("l{number}"));
        lease.state = runwhere_engine::LeaseState::Released;
        [Row::Job(job), Row::Trial(trial), Row::Lease(lease)]
    };
    let rows: Vec<Row> = (0..jobs).flat_map(rows).collect();
    let results = database.commit(&[Transition { rows, events: Vec::new() }]);
    assert_eq!(results, [Ok(())]);
    database
}

/// Steps of SQLite's machine for the list of positions, which is what a list looks for before it reads what it shows.
fn steps(database: &Database, states: &[TrialState], limit: i64, and_active: bool) -> i32 {
    let sql = read::positions_sql(states, false, and_active);
    let mut statement = database.connection().prepare(&sql).unwrap();
    let mut rows = statement.query(rusqlite::params!["p", i64::MAX, limit]).unwrap();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    statement.get_status(rusqlite::StatementStatus::VmStep)
}

/// A list costs what it returns, not what is stored.
#[test]
fn ended_jobs_do_not_slow_lists_down() {
    let dir = tempfile::tempdir().unwrap();
    let few = fill(&dir.path().join("few.db"), DEFAULT_JOBS);
    let many = fill(&dir.path().join("many.db"), 6 * DEFAULT_JOBS);
    let newest = i64::from(DEFAULT_JOBS);
    for (states, limit, and_active) in
        [(&[][..], newest, true), (&[][..], 10, false), (&[TrialState::Running][..], newest, true)]
    {
        let (few, many) =
            (steps(&few, states, limit, and_active), steps(&many, states, limit, and_active));
        assert!(few > 0 && many <= few + few / 10 + 20, "{states:?} {limit}: {few}, {many}");
    }
}
