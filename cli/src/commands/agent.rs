//! The hidden commands that nodes run.

use crate::args::{NodeArgs, UserArgs};
use crate::failure::Outcome;
use crate::seams;

/// Runs the agent.
///
/// # Errors
/// Exit code 1 with the agent's reason.
pub fn agent(args: &NodeArgs) -> Outcome {
    // It outlives the server, and what the server was started with need not.
    runwhere_agent::close_inherited(None);
    seams::agent::run(&args.node_dir)
}

/// Removes the container that a dead agent left behind.
///
/// # Errors
/// Exit code 1 with the container engine's reason.
pub fn agent_clear(args: &NodeArgs) -> Outcome {
    seams::agent::clear(&args.node_dir)
}

/// Becomes the user's program; comes back only with the exit code of a failure to do so.
#[must_use]
pub fn agent_exec(args: &NodeArgs) -> u8 {
    seams::agent::exec(&args.node_dir)
}

/// Ends everything that runs as a user.
#[must_use]
pub fn agent_end(args: &UserArgs) -> u8 {
    seams::agent::end(args.uid)
}
