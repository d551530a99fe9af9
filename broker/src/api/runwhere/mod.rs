//! RunWhere's routes, `/api/v1/*` and `/ws/jobs`.

pub(super) mod account;
mod jobs;
mod live;
mod outputs;
mod service;
mod sync;
mod wire;

pub(super) use routes::routes;
pub use service::{
    CnyRates, Cost, Deleted, InCny, JobPage, JobReport, JobService, ListQuery, QuotaState, Refusal,
    ResumeRequest, SubmitRequest, Submitted,
};

mod routes {
    use std::sync::Arc;

    use axum::Router;

    use super::{account, jobs, live, outputs, sync};
    use crate::api::state::Api;

    pub(crate) fn routes() -> Router<Arc<Api>> {
        Router::new()
            .merge(account::routes())
            .merge(jobs::routes())
            .merge(sync::routes())
            .merge(live::routes())
            .merge(outputs::routes())
    }
}
