//! The node's program.

use std::path::Path;

use runwhere_agent::{AgentExit, AgentOptions};

use crate::failure::{Failure, Outcome};
use crate::texts;

/// Runs the agent of the node folder to its end.
///
/// # Errors
/// Exit code 1 with the agent's reason.
pub fn run(node_dir: &Path) -> Outcome {
    let failed = |reason: String| Failure::other("agent_failed", texts::agent_failed(reason));
    let options = AgentOptions::new(node_dir).map_err(|error| failed(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other("runtime", texts::runtime(error)))?;
    match runtime.block_on(runwhere_agent::run(options)) {
        AgentExit::Failed(error) => Err(failed(error.to_string())),
        AgentExit::Released
        | AgentExit::Fenced
        | AgentExit::BrokerSilent
        | AgentExit::Terminated => Ok(()),
    }
}

/// Removes what a dead agent left in the container engine.
///
/// # Errors
/// Exit code 1 with the engine's reason.
pub fn clear(node_dir: &Path) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::other("runtime", texts::runtime(error)))?;
    let cleared = runtime.block_on(runwhere_agent::clear_containers(node_dir));
    cleared.map_err(|reason| Failure::other("agent_failed", texts::agent_failed(reason)))
}

/// Becomes the user's program; comes back only with the exit code of a failure to do so.
#[must_use]
pub fn exec(node_dir: &Path) -> u8 {
    runwhere_agent::exec_shim(node_dir)
}

/// Ends everything that runs as a user; this process must end then.
#[must_use]
pub fn end(uid: u32) -> u8 {
    runwhere_agent::end_user(uid)
}
