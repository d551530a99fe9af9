//! The node's program.

use std::path::Path;

use crate::failure::{Failure, Outcome};
use crate::texts;

/// Runs the agent of the node folder.
///
/// # Errors
/// Exit code 1 with the agent's reason.
pub fn run(_node_dir: &Path) -> Outcome {
    Err(Failure::other("not_in_this_build", texts::not_in_this_build("agent")))
}

/// Becomes the user's program.
///
/// # Errors
/// Exit code 1 when that is not possible.
pub fn exec(_node_dir: &Path) -> Outcome {
    Err(Failure::other("not_in_this_build", texts::not_in_this_build("agent-exec")))
}
