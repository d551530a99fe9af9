//! The user's program as a child of the agent.

use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::SyncSender;
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::{oneshot, watch};

use crate::capture::Capture;
use crate::protocol::{LEASE_MARKER, LogStream};
use crate::shim::{ExecSpec, FAILURE_FILE};
use crate::spool::Input;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        Self { code: status.code(), signal: status.signal() }
    }
}

/// A started shim that waits to be told what to become.
#[derive(Debug)]
pub(crate) struct Gate {
    spec: Vec<u8>,
    pipe: PipeWriter,
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    exit: watch::Receiver<Option<Exit>>,
    capture: Capture,
}

impl Gate {
    /// Lets user code start.
    pub(crate) async fn open(self) -> io::Result<()> {
        let Self { spec, mut pipe } = self;
        tokio::task::spawn_blocking(move || pipe.write_all(&spec))
            .await
            .map_err(io::Error::other)?
    }
}

impl Program {
    /// Starts the shim; user code does not run before the gate is opened.
    pub(crate) async fn start(
        shim: &[OsString],
        node_dir: &Path,
        lease_id: &str,
        spec: &ExecSpec,
        log: &SyncSender<Input>,
    ) -> io::Result<(Self, Gate)> {
        let (gate_reader, gate) = io::pipe()?;
        let (out_reader, out) = io::pipe()?;
        let (err_reader, err) = io::pipe()?;
        let (name, arguments) =
            shim.split_first().ok_or_else(|| io::Error::other("no program for the shim"))?;
        let mut command = Command::new(name);
        command
            .args(arguments)
            .env_clear()
            .env(LEASE_MARKER, lease_id)
            .current_dir(node_dir)
            .stdin(gate_reader)
            .stdout(out)
            .stderr(err);
        let spec = serde_json::to_vec(spec).map_err(io::Error::other)?;
        let (pid_sender, pid) = oneshot::channel();
        let (exit_sender, exit) = watch::channel(None);
        // The kernel binds a child to the thread that made it: when that thread ends, the program is
        // killed. So one thread starts it and waits for it.
        thread::Builder::new().name("program".to_owned()).spawn(move || {
            let child = command.spawn();
            // Our copies of the program's ends of the pipes go with it.
            drop(command);
            match child {
                Ok(mut child) => {
                    let _ = pid_sender.send(Ok(child.id()));
                    match child.wait() {
                        Ok(status) => exit_sender.send_replace(Some(status.into())),
                        Err(error) => {
                            tracing::error!(%error, "cannot wait for the program");
                            exit_sender.send_replace(Some(Exit { code: None, signal: None }))
                        }
                    };
                }
                Err(error) => {
                    let _ = pid_sender.send(Err(error));
                }
            }
        })?;
        let pid = pid.await.map_err(io::Error::other)??;
        let pipes = vec![
            (LogStream::Stdout, OwnedFd::from(out_reader)),
            (LogStream::Stderr, OwnedFd::from(err_reader)),
        ];
        let capture = Capture::start(pipes, log)?;
        Ok((Self { pid, exit, capture }, Gate { spec, pipe: gate }))
    }

    /// Returns once the program itself has ended.
    pub(crate) async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        ended.unwrap_or(Exit { code: None, signal: None })
    }

    /// Signals the process group.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.exit.borrow().is_none()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Takes the rest of its output.
    pub(crate) async fn finish(self) {
        let _ = tokio::task::spawn_blocking(move || self.capture.finish()).await;
    }
}

/// What the shim says where it could not become the program.
pub(crate) fn spawn_failure(node_dir: &Path) -> Option<String> {
    let text = fs::read_to_string(node_dir.join(FAILURE_FILE)).ok()?;
    (!text.is_empty()).then_some(text)
}
