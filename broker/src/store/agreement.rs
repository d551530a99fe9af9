//! Both stores give the same answers to any sequence of transitions.

use jiff::Timestamp;
use proptest::prelude::*;
use runwhere_engine::{Job, JobKind, Lease, LeaseState, Stray, StrayState, Trial, TrialState};

use super::sample::{self, at, job_id, project_id};
use super::{JobQuery, MemoryStore, Row, SegmentQuery, SqliteStore, Store, StrayQuery, Transition};

const PROJECTS: [&str; 2] = ["p", "q"];
const NAMES: [&str; 2] = ["a", "b"];

fn jobs() -> impl Strategy<Value = Job> {
    (0..2_usize, 0..5_u32, 0..2_usize, 0..3_u64, any::<[bool; 4]>()).prop_map(
        |(project, number, name, version, [active, deleted, keyed, notebook])| Job {
            version,
            active,
            deleted_at: deleted.then(|| at(5)),
            idempotency_key: keyed.then(|| format!("key{}", number % 3)),
            kind: if notebook { JobKind::Notebook } else { JobKind::Training },
            lineage: job_id(number / 2),
            ..sample::job(PROJECTS[project], number, NAMES[name])
        },
    )
}

fn trials() -> impl Strategy<Value = Trial> {
    (jobs(), 0..2_u32, 0..3_u64, 0..TrialState::ALL.len(), any::<Option<u8>>(), any::<bool>())
        .prop_map(|(job, index, version, state, due, leased)| {
            let trial = sample::trial(&job, index);
            Trial {
                version,
                state: TrialState::ALL[state],
                next_at: due.map(|due| at(i64::from(due % 8))),
                lease: leased.then(|| sample::lease_id(&format!("l.{}", trial.id))),
                ..trial
            }
        })
}

fn leases() -> impl Strategy<Value = Lease> {
    (trials(), 0..3_u64, 0..LeaseState::ALL.len(), any::<Option<u8>>()).prop_map(
        |(trial, version, state, due)| Lease {
            version,
            state: LeaseState::ALL[state],
            next_at: due.map(|due| at(i64::from(due % 8))),
            ..sample::lease(&trial, &format!("l.{}", trial.id))
        },
    )
}

fn rows() -> impl Strategy<Value = Row> {
    prop_oneof![
        4 => jobs().prop_map(Row::Job),
        4 => trials().prop_map(Row::Trial),
        3 => leases().prop_map(Row::Lease),
        1 => (leases(), 0..3_u32, any::<bool>()).prop_map(|(lease, number, estimated)| {
            let mut segment = sample::segment(&lease, number);
            segment.estimated = estimated;
            Row::Segment(segment)
        }),
        1 => (leases(), 0..3_u32, any::<bool>()).prop_map(|(lease, number, whole)| {
            let mut entry = sample::entry(&sample::segment(&lease, number));
            if !whole {
                entry.lines.pop();
            }
            Row::Entry(entry)
        }),
        1 => (trials(), 0..3_u64).prop_map(|(trial, size)| {
            Row::Output(trial.id, sample::output(NAMES[usize::from(size > 1)], size))
        }),
        1 => (jobs(), 0..3_u32).prop_map(|(job, number)| {
            Row::Sync(sample::sync(job.project.as_str(), &format!("s{number}"), &job.name))
        }),
        1 => (0..2_usize, 0..3_u32, 0..3_u64, any::<bool>()).prop_map(
            |(provider, node, version, open)| {
                let state = if open { StrayState::Ending } else { StrayState::Cleared };
                let stray = sample::stray(PROJECTS[provider], &format!("n{node}"));
                Row::Stray(Stray { version, state, ..stray })
            }
        ),
        1 => (0..3_u32, 0..3_u32, 0..3_u64).prop_map(|(id, secret, version)| {
            let mut key = sample::key("p", &format!("k{id}"), &format!("s{secret}"));
            key.version = version;
            Row::ApiKey(key)
        }),
    ]
}

fn transitions() -> impl Strategy<Value = Transition> {
    (prop::collection::vec(rows(), 1..4), prop::option::of(jobs())).prop_map(|(rows, job)| {
        let events = job.iter().map(|job| sample::event(job, "seen")).collect();
        Transition { rows, events }
    })
}

/// Everything a store answers, as text; positions only where they order.
async fn answers(store: &dyn Store) -> Vec<String> {
    let mut answers = Vec::new();
    macro_rules! ask {
        ($answer:expr) => {
            answers.push(format!("{:?}", $answer.await))
        };
    }
    ask!(store.open_leases());
    ask!(store.next_due());
    ask!(store.keys());
    ask!(store.newest_leases(None, 5));
    ask!(store.counts());
    ask!(store.strays(&StrayQuery::default()));
    ask!(store.strays(&StrayQuery { open: true, ..StrayQuery::default() }));
    ask!(store.due(at(4), 3));
    ask!(store.due(Timestamp::MAX, 99));
    for project in PROJECTS.map(project_id) {
        for limit in [None, Some(2)] {
            for kind in [None, Some(JobKind::Notebook)] {
                for states in [vec![], TrialState::ALL[..4].to_vec()] {
                    for after in [None, Some(job_id(2))] {
                        let query = JobQuery { states: states.clone(), kind, limit, after };
                        ask!(store.jobs(&project, &query));
                    }
                }
            }
        }
        for name in NAMES {
            ask!(store.job_by_name(&project, name));
            ask!(store.active_job(&project, name));
            ask!(store.newest_sync(&project, Some(name)));
        }
        ask!(store.newest_sync(&project, None));
        for number in 0..5 {
            let id = job_id(number);
            ask!(store.job(&project, &id));
            ask!(store.lineage(&project, &id));
            ask!(store.events(&project, &id));
            ask!(store.job_by_key(&project, &format!("key{number}")));
            ask!(store.outputs(&sample::trial_id(&id, 0)));
            ask!(store.unit(&sample::trial_id(&id, 1)));
        }
        let query = SegmentQuery { from: Some(at(1)), limit: 99, ..SegmentQuery::default() };
        let segments = store.segments(&project, &query).await.unwrap();
        answers.push(format!("{:?}", segments.into_iter().map(|s| s.1).collect::<Vec<_>>()));
        let entries = store.entries(&project, None, 99).await.unwrap();
        answers.push(format!("{:?}", entries.into_iter().map(|e| e.1).collect::<Vec<_>>()));
    }
    answers
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn memory_and_sqlite_agree(transitions in prop::collection::vec(transitions(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryStore::new();
        let sqlite = SqliteStore::open_inline(&dir.path().join("broker.db")).unwrap();
        runtime.block_on(async {
            for transition in transitions {
                let told = memory.commit(transition.clone()).await;
                prop_assert_eq!(&told, &sqlite.commit(transition.clone()).await, "{:?}", transition);
            }
            let (memory, sqlite) = (answers(&memory).await, answers(&sqlite).await);
            for (memory, sqlite) in memory.iter().zip(&sqlite) {
                prop_assert_eq!(memory, sqlite);
            }
            Ok(())
        })?;
    }
}
