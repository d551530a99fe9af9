//! The price service inside this process, for price commands without a server.

use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::texts;

/// As `GET /api/v1/comparison/summary`.
///
/// # Errors
/// Exit code 1 while this build has no bundled prices.
pub fn summary() -> Outcome<Value> {
    Err(missing())
}

/// As `GET /api/v1/offers` with this query string.
///
/// # Errors
/// Exit code 2 for an unknown GPU model.
pub fn offers(_query: &[(&str, String)]) -> Outcome<Value> {
    Err(missing())
}

/// As `POST /api/v1/comparison/quote` with this body.
///
/// # Errors
/// Exit code 2 for an unknown GPU model.
pub fn quote(_body: &Value) -> Outcome<Value> {
    Err(missing())
}

fn missing() -> Failure {
    Failure::other("not_in_this_build", texts::not_in_this_build("prices"))
}
