//! Starting the agent so that it outlives us.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runwhere_failpoint::failpoint;

use super::folder::AGENT_LOG;
use super::process::{AgentProcess, NODE_MARK};

/// What the agent may see of our environment. Anything else could be a credential.
const PASSED_ON: [&str; 10] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "TZ",
    "LD_LIBRARY_PATH",
];

/// The agent's program and its arguments before the folder.
#[derive(Clone, Debug)]
pub(super) struct AgentProgram {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
}

impl AgentProgram {
    /// Starts the agent for an allocation's folder; `None` if it ended before it could be noted.
    pub(super) fn start(&self, folder: &Path, node: &str) -> io::Result<Option<AgentProcess>> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(folder.join(AGENT_LOG))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .arg(folder)
            .env_clear()
            .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(
                runwhere_failpoint::PASSED_ON
                    .iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .env(NODE_MARK, node)
            .current_dir(folder)
            // Its own group: a Ctrl-C or a closed terminal ends us, not it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        failpoint!("local.spawn.before");
        let mut child = command.spawn()?;
        failpoint!("local.spawn.after");
        let process = AgentProcess::of(child.id());
        // Collected as soon as it ends; after us, init does that.
        let collector = std::thread::Builder::new()
            .name("agent-collector".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || child.wait());
        if let Err(error) = collector {
            tracing::warn!(%error, "an ended agent will stay a zombie until this server ends");
        }
        Ok(process)
    }
}
