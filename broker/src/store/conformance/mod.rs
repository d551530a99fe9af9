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

mod content;
mod jobs;
mod leases;
mod ledger;
mod writes;

use self::content::{
    keys_are_found_by_id_and_secret, outputs_are_replaced_by_path,
    publications_are_immutable_and_listed_newest_first, the_newest_sync_is_found,
};
use self::jobs::{
    a_name_belongs_to_one_active_job, a_name_finds_the_newest_job_that_is_not_deleted,
    an_idempotency_key_belongs_to_one_job, lists_filter_by_first_trial_and_kind,
    pages_hold_while_jobs_come_and_go, tenants_never_meet,
    the_default_list_holds_all_active_and_the_newest, views_show_trials_with_their_leases,
};
use self::leases::{
    due_comes_soonest_first, leases_are_counted_and_listed_newest_first,
    strays_and_sweepers_are_versioned_and_found,
};
use self::ledger::{entries_must_balance, segments_page_in_recorded_order};
use self::writes::{
    a_refusal_writes_nothing, events_are_kept_in_order,
    insert_only_rows_may_be_repeated_but_not_changed, one_of_many_submits_of_a_name_wins,
    one_of_many_writers_wins, rows_need_what_they_belong_to, the_position_only_grows,
    versions_are_checked,
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
