//! Starting the agent so that it outlives us.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

/// A user's programs can stop the helper that ends them, in the instant in which it is theirs.
const END_LIMIT: Duration = Duration::from_secs(2);
const END_LOOK: Duration = Duration::from_millis(2);

/// The agent's program and its arguments before the folder.
#[derive(Clone, Debug)]
pub(super) struct AgentProgram {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    /// The same, for removing a dead agent's container.
    pub(super) clear_args: Vec<OsString>,
    /// Before a user id, for ending everything that runs as that user.
    pub(super) end_user_args: Vec<OsString>,
}

/// The agent keeps this file in its folder for as long as it may have a container.
const CONTAINER_FILE: &str = "container";
/// A container engine that takes longer is asked again later.
const CLEAR_LIMIT: Duration = Duration::from_secs(60);

impl AgentProgram {
    /// Removes the container that a dead agent left behind; nothing happens where it left none.
    pub(super) fn clear(&self, folder: &Path) -> io::Result<()> {
        if !folder.join(CONTAINER_FILE).try_exists()? {
            return Ok(());
        }
        let mut child = Command::new(&self.program)
            .args(&self.clear_args)
            .arg(folder)
            .env_clear()
            .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(
                OpenOptions::new()
                    .create(true)
                    .append(true)
                    .mode(0o600)
                    .open(folder.join(AGENT_LOG))?,
            )
            .spawn()?;
        let since = Instant::now();
        loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => {
                    return Err(io::Error::other("the trial's container could not be removed"));
                }
                None if since.elapsed() > CLEAR_LIMIT => {
                    child.kill()?;
                    child.wait()?;
                    return Err(io::Error::other("the container engine does not answer"));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

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

    /// Ends every process of a user at one stroke: none of them can be born meanwhile, and none of
    /// them makes a child any more. False where they have kept the helper from it.
    pub(super) fn end_user(&self, uid: u32) -> io::Result<bool> {
        let failed = |what: &dyn std::fmt::Display| {
            let program = self.program.display();
            io::Error::other(format!(
                "cannot end the programs of user {uid} with {program}: {what}"
            ))
        };
        let mut helper = Command::new(&self.program)
            .args(&self.end_user_args)
            .arg(uid.to_string())
            .env_clear()
            .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(&error))?;
        let since = Instant::now();
        loop {
            match helper.try_wait()? {
                Some(status) => {
                    return match status.code() {
                        Some(0) => Ok(true),
                        // Killed.
                        None => Ok(false),
                        Some(_) => Err(failed(&status)),
                    };
                }
                None if since.elapsed() > END_LIMIT => {
                    helper.kill()?;
                    helper.wait()?;
                    return Ok(false);
                }
                None => std::thread::sleep(END_LOOK),
            }
        }
    }
}
