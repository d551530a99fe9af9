//! The step between agent and user code: a process of its own that gives up everything it must not
//! pass on and then becomes the user's program.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::Mode;
use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::{set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid};
use serde::{Deserialize, Serialize};

use crate::inherited;
use crate::protocol::DropTo;

/// File in the node folder in which the shim says why there was nothing to become.
pub(crate) const FAILURE_FILE: &str = "exec-failed";

/// What the shim reads from its standard input, to the end. It starts nothing before it has read
/// all of it, so the agent can first write down that it is about to start.
#[derive(Serialize, Deserialize)]
pub(crate) struct ExecSpec {
    pub(crate) agent_pid: u32,
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) folder: PathBuf,
    pub(crate) drop_to: Option<DropTo>,
}

/// Becomes the program that standard input describes; returns the exit code for the case that this
/// is impossible (126 or 127 as a shell would say it, 125 where the agent is gone). The program is
/// killed when the agent that started it dies.
///
/// Call it first thing in a fresh process, with no other threads.
#[must_use]
pub fn exec_shim(node_dir: &Path) -> u8 {
    let path = node_dir.join(FAILURE_FILE);
    // Opened while that is still allowed.
    let failure = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    inherited::close(failure.as_ref().ok());
    let (code, reason) = match become_program() {
        Ok(never) => match never {},
        Err(Failure::AgentGone) => return 125,
        Err(Failure::Setup(what, error)) => (126, format!("{what}: {error}")),
        Err(Failure::Exec { program, path, error }) => {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            let user = rustix::process::getuid();
            match error.kind() {
                io::ErrorKind::PermissionDenied if !user.is_root() => {
                    let user = user.as_raw();
                    match path.as_deref().is_some_and(|path| nowhere(&program, path)) {
                        true => (
                            127,
                            format!(
                                "cannot start `{program}`: no folder of PATH that the user id {user} may read has it"
                            ),
                        ),
                        false => (
                            code,
                            format!(
                                "cannot start `{program}`: {error}; it runs as the user id {user}"
                            ),
                        ),
                    }
                }
                _ => (code, format!("cannot start `{program}`: {error}")),
            }
        }
    };
    if let Ok(mut file) = failure {
        let _ = file.write_all(reason.as_bytes());
    }
    let _ = writeln!(io::stderr(), "{reason}");
    code
}

enum Failure {
    AgentGone,
    Setup(&'static str, io::Error),
    Exec { program: String, path: Option<String>, error: io::Error },
}

/// Whether a program that is looked for in `path` is in none of its folders, as far as they can be read. The system says
/// "permission denied" where one of them cannot.
fn nowhere(program: &str, path: &str) -> bool {
    !program.contains('/')
        && path.split(':').all(|folder| Path::new(folder).join(program).symlink_metadata().is_err())
}

fn become_program() -> Result<std::convert::Infallible, Failure> {
    let setup = |what| move |error: rustix::io::Errno| Failure::Setup(what, error.into());
    let bind = || set_parent_process_death_signal(Some(Signal::KILL));
    bind().map_err(setup("cannot bind to the agent"))?;
    setsid().map_err(setup("cannot start a session"))?;

    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text).map_err(|_| Failure::AgentGone)?;
    // An agent that died leaves nothing or half of it.
    let spec: ExecSpec = serde_json::from_slice(&text).map_err(|_| Failure::AgentGone)?;

    if let Some(to) = spec.drop_to {
        let (uid, gid) = (rustix::fs::Uid::from_raw(to.uid), rustix::fs::Gid::from_raw(to.gid));
        // Shared memory, queues and semaphores of its own, which end with the last of its processes. A machine
        // that refuses (a container without that right) is as before: what lies there is then left to it.
        let _ = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWIPC);
        // Users of one machine meet in its shared folders: what a job leaves there is nobody else's to read.
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
        // No program becomes anybody else's, whoever its file belongs to: what runs as this user is
        // found by that at the end.
        set_no_new_privs(true).map_err(setup("cannot give up other rights"))?;
        // The pipes of its output, so that it can also open them by `/dev/stdout` and `/dev/stderr`.
        rustix::fs::fchown(io::stdout(), Some(uid), Some(gid))
            .map_err(setup("cannot hand over"))?;
        rustix::fs::fchown(io::stderr(), Some(uid), Some(gid))
            .map_err(setup("cannot hand over"))?;
        set_thread_groups(&[]).map_err(setup("cannot drop groups"))?;
        set_thread_gid(gid).map_err(setup("cannot drop the group"))?;
        set_thread_uid(uid).map_err(setup("cannot drop the user"))?;
        // Changing identity has undone it.
        bind().map_err(setup("cannot bind to the agent"))?;
    }
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent != Some(spec.agent_pid) {
        return Err(Failure::AgentGone);
    }
    let Some((program, arguments)) = spec.argv.split_first() else {
        let (program, error) = (String::new(), io::ErrorKind::InvalidInput.into());
        return Err(Failure::Exec { program, path: None, error });
    };
    let error = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&spec.env)
        .current_dir(&spec.folder)
        .stdin(Stdio::null())
        .exec();
    Err(Failure::Exec { program: program.clone(), path: spec.env.get("PATH").cloned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_nowhere_only_where_every_folder_lacks_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("/nonexistent:{}", folder.path().display());
        assert!(nowhere("prog", &path));
        // It is there, whatever else is wrong with it.
        std::fs::write(folder.path().join("prog"), "").unwrap();
        assert!(!nowhere("prog", &path));
        assert!(!nowhere("./prog", "/nonexistent"), "a path is not looked for");
    }
}
