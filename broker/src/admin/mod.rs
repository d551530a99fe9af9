//! What operators see and do: leases, nodes that nobody owns, sweeps, numbers for monitoring.

mod service;

pub use service::{Admin, AdminService, RestoreGuard};
