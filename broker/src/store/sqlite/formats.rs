//! Data folders of earlier formats open, and hold what they held.

use std::path::{Path, PathBuf};

use runwhere_engine::{Evidence, Lease, LeaseState, Trial, TrialState};
use rust_decimal::Decimal;

use super::SqliteStore;
use crate::store::sample::{self, at, job_id, project_id};
use crate::store::{JobQuery, Row, SegmentQuery, Store, Transition};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/data-dirs")
}

/// Writes the folder of the present format, in place. A released one is never written again.
#[tokio::test]
#[ignore = "writes a fixture"]
async fn write_the_folder_of_this_format() {
    let path = fixtures().join("v1/broker.db");
    let _ = std::fs::remove_file(&path);
    let store = SqliteStore::open_inline(&path).unwrap();
    let ended = sample::job("p", 1, "llama");
    let mut trial = Trial {
        state: TrialState::Succeeded,
        started_at: Some(at(20)),
        ended_at: Some(at(3600)),
        cleanup_confirmed: true,
        lease: Some(sample::lease_id("l1")),
        ..sample::trial(&ended, 0)
    };
    let lease = Lease {
        state: LeaseState::Released,
        evidence: Some(Evidence::NothingLaunched { at: at(3700) }),
        ..sample::lease(&trial, "l1")
    };
    trial.evidence.extend(lease.evidence.clone());
    let segment = sample::segment(&lease, 0);
    let waiting = sample::job("p", 2, "llama");
    let mut queued = sample::trial(&waiting, 0);
    queued.next_at = Some(at(4000));
    let rows = vec![
        Row::Workspace(sample::workspace()),
        Row::Project(sample::project("p")),
        Row::Principal(sample::principal("ann")),
        Row::ApiKey(sample::key("p", "k", &"0f".repeat(32))),
        Row::Budget(sample::budget("p")),
        Row::Sync(sample::sync("p", "sync-1", "llama")),
        Row::Job(runwhere_engine::Job { active: false, ..ended.clone() }),
        Row::Trial(trial.clone()),
        Row::Lease(lease),
        Row::Output(trial.id, sample::output("model.bin", 5)),
        Row::Entry(sample::entry(&segment)),
        Row::Segment(segment),
        Row::Job(waiting),
        Row::Trial(queued),
    ];
    let events = vec![sample::event(&ended, "job.accepted")];
    store.commit(Transition { rows, events }).await.unwrap();
}

/// A copy of the database of a stored folder, opened as it is.
fn opened(folder: &str) -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broker.db");
    std::fs::copy(fixtures().join(folder).join("broker.db"), &path).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    (dir, store)
}

#[tokio::test]
async fn folders_of_every_format_open() {
    let mut folders = 0;
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            let (_dir, store) = opened(entry.file_name().to_str().unwrap());
            assert!(!store.newest_leases(None, 99).await.unwrap().is_empty());
            folders += 1;
        }
    }
    assert!(folders >= 2, "{folders}");
}

#[tokio::test]
async fn the_folder_of_a_real_server_holds_what_it_did() {
    let (_dir, store) = opened("v3");
    let default = project_id("default");
    let listed = store.jobs(&default, &JobQuery::default()).await.unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|view| {
            let (trial, lease) = &view.trials[0];
            let lease = lease.as_ref().unwrap();
            assert!(trial.cleanup_confirmed && lease.state == LeaseState::Released);
            assert!(matches!(lease.evidence, Some(Evidence::TerminalRead { .. })));
            (view.job.id.as_str(), view.job.name.as_str(), trial.state)
        })
        .collect();
    assert_eq!(
        listed,
        [
            ("job-0cd3f4a6", "llama-stopped", TrialState::Cancelled),
            ("job-4272244a", "llama-bad", TrialState::Failed),
            ("job-f2992f9d", "llama-ok", TrialState::Succeeded),
        ]
    );
    let all = SegmentQuery { limit: 9, ..SegmentQuery::default() };
    let segments = store.segments(&default, &all).await.unwrap();
    let billed: Vec<_> = segments
        .iter()
        .map(|(_, one)| (one.job.as_str(), one.billed_to_micros, one.amount.to_string()))
        .collect();
    assert_eq!(
        billed,
        [
            ("job-f2992f9d", 2_000_000, "0.020244444444 CNY".to_owned()),
            ("job-4272244a", 1_000_000, "0.010122222222 CNY".to_owned()),
            ("job-0cd3f4a6", 5_000_000, "0.050611111111 CNY".to_owned()),
        ]
    );
    let entries = store.entries(&default, None, 9).await.unwrap();
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(|(_, entry)| entry.is_balanced()));
    assert_eq!(
        store.outputs(&segments[0].1.trial).await.unwrap()[0].path,
        "checkpoints/step-1.bin"
    );
}

#[tokio::test]
async fn the_folder_of_format_1_opens() {
    let (_dir, store) = opened("v1");
    let p = project_id("p");
    let listed = store.jobs(&p, &JobQuery::default()).await.unwrap();
    assert_eq!(listed.len(), 2);
    let view = store.job(&p, &job_id(1)).await.unwrap().unwrap();
    let (trial, lease) = &view.trials[0];
    assert_eq!((trial.state, trial.cleanup_confirmed), (TrialState::Succeeded, true));
    let lease = lease.as_ref().unwrap();
    assert_eq!(lease.state, LeaseState::Released);
    assert_eq!(lease.evidence, Some(Evidence::NothingLaunched { at: at(3700) }));
    assert_eq!(store.active_job(&p, "llama").await.unwrap(), Some(job_id(2)));
    assert_eq!(store.next_due().await.unwrap(), Some(at(4000)));
    let all = SegmentQuery { limit: 9, ..SegmentQuery::default() };
    let segments = store.segments(&p, &all).await.unwrap();
    assert_eq!(segments[0].1.amount.amount, Decimal::new(3644, 2));
    assert!(store.entries(&p, None, 9).await.unwrap()[0].1.is_balanced());
    assert_eq!(store.outputs(&trial.id).await.unwrap()[0].size, 5);
    assert_eq!(store.events(&p, &job_id(1)).await.unwrap().len(), 1);
    let key = store.key_by_secret(&"0f".repeat(32)).await.unwrap().unwrap();
    assert_eq!(key.principal, store.principal(&key.principal).await.unwrap().unwrap().id);
    assert!(store.project(&p).await.unwrap().is_some());
    assert!(store.workspace(&sample::workspace_id()).await.unwrap().is_some());
    assert!(store.budget(&p).await.unwrap().is_some());
    assert!(store.newest_sync(&p, Some("llama")).await.unwrap().is_some());
    // And go on.
    let mut queued = store.job(&p, &job_id(2)).await.unwrap().unwrap().trials.remove(0).0;
    queued.next_at = None;
    let rows = vec![Row::Trial(queued)];
    store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
}
