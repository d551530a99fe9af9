//! RunWhere's routes, `/api/v1/*` and `/ws/jobs`.

mod service;

pub use service::{
    CnyRates, Cost, Deleted, InCny, JobPage, JobReport, JobService, ListQuery, QuotaState, Refusal,
    ResumeRequest, SubmitRequest, Submitted,
};
