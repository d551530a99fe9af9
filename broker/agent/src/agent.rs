//! The agent process: joins, runs the trial, ends.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runwhere_failpoint::failpoint;
use rustix::fs::FlockOperation;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::AgentError;
use crate::container::Engine;
use crate::files::Reserve;
use crate::heartbeat::{Wish, event_loop, hear, poll, poll_loop};
use crate::journal::{Journal, Progress};
use crate::link::{Closed, Link, LinkError, Pause};
use crate::protocol::{AgentState, Assignment, Desired, EventKind, ExitReason, Runtime};
use crate::session::{SessionKey, lock, read_bootstrap};
use crate::spool::{Writer, upload};
use crate::sweep::Members;
use crate::trial::Trial;
use crate::workfolder::Folders;

/// How to run the agent.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// Folder of this node, with `bootstrap.json` in it; the agent keeps everything there.
    pub node_dir: PathBuf,
    /// Program and arguments that call [`crate::exec_shim`] with the same folder. With `agent-end
    /// --uid <uid>` instead the program calls [`crate::end_user`].
    pub shim: Vec<OsString>,
}

impl AgentOptions {
    /// The shim is `<this executable> agent-exec --node-dir <node_dir>`.
    ///
    /// # Errors
    /// The system does not say which executable this is.
    pub fn new(node_dir: &Path) -> std::io::Result<Self> {
        let node_dir = std::path::absolute(node_dir)?;
        // By this name it is the same program even after an upgrade has replaced the file.
        let executable = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
        fs::metadata(&executable)?;
        let shim = vec![
            executable.into_os_string(),
            "agent-exec".into(),
            "--node-dir".into(),
            node_dir.clone().into_os_string(),
        ];
        Ok(Self { node_dir, shim })
    }
}

/// Why the agent ended. Whatever it is, nothing of the trial runs any more.
#[derive(Debug)]
pub enum AgentExit {
    /// The broker released the node.
    Released,
    /// The broker no longer knows this session.
    Fenced,
    /// The broker was silent for longer than the TTL; logs and journal are kept in the folder.
    BrokerSilent,
    /// The agent was asked to end by SIGTERM or SIGINT.
    Terminated,
    /// It could not work at all.
    Failed(AgentError),
}

/// What all parts of a running agent share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) options: AgentOptions,
    pub(crate) bootstrap: crate::protocol::Bootstrap,
    pub(crate) link: Arc<Link>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) reserve: Arc<Reserve>,
    pub(crate) folders: Folders,
    _work_lock: Option<fs::File>,
    pub(crate) progress: Progress,
    pub(crate) boot_id: String,
    pub(crate) state: watch::Sender<AgentState>,
    pub(crate) wish: watch::Sender<Wish>,
    pub(crate) acked_events: watch::Sender<u64>,
    /// Process id of the program of this agent process, 0 for none.
    pub(crate) session: watch::Sender<u32>,
}

/// Runs an agent to its end. Call it on a multi-threaded runtime; it installs handlers for
/// SIGTERM, SIGINT and SIGHUP, the last of which it ignores.
pub async fn run(options: AgentOptions) -> AgentExit {
    match open(options) {
        Ok((context, _lock)) => context.run().await,
        Err(error) => AgentExit::Failed(error),
    }
}

fn open(options: AgentOptions) -> Result<(Context, fs::File), AgentError> {
    let node_dir = options.node_dir.clone();
    let lock = lock(&node_dir)?;
    failpoint!("agent.start.locked");
    let bootstrap = read_bootstrap(&node_dir)?;
    // A dropped user whose work folder is in here must pass through, but sees nothing else.
    let passable = bootstrap.drop_to.is_some() && bootstrap.work_dir.is_none();
    let mode = if passable { 0o711 } else { 0o700 };
    fs::set_permissions(&node_dir, fs::Permissions::from_mode(mode))
        .map_err(|source| AgentError::file(&node_dir, source))?;
    let work_lock = bootstrap.work_dir.as_deref().map(hold_work_dir).transpose()?;
    let reserve = Arc::new(Reserve::set_aside(&node_dir));
    let key = SessionKey::of_folder(&node_dir)?;
    let path = node_dir.join("journal.jsonl");
    let journal = Journal::open(&path, Arc::clone(&reserve))
        .map_err(|source| AgentError::file(&path, source))?;
    failpoint!("agent.start.journal_opened");
    let link = Arc::new(Link::new(&node_dir, &bootstrap, key)?);
    let context = Context {
        folders: Folders::below(bootstrap.work_dir.as_deref().unwrap_or(&node_dir)),
        _work_lock: work_lock,
        progress: journal.progress(),
        boot_id: boot_id(),
        state: watch::channel(AgentState::Booting).0,
        wish: watch::channel(Wish { desired: Desired::Run, reason: None }).0,
        acked_events: watch::channel(0).0,
        session: watch::channel(0).0,
        journal: Arc::new(journal),
        options,
        bootstrap,
        link,
        reserve,
    };
    Ok((context, lock))
}

/// Programs that clean shared temporary folders by age leave a locked one alone.
fn hold_work_dir(folder: &Path) -> Result<fs::File, AgentError> {
    let failed = |source| AgentError::file(folder, source);
    let file = fs::File::open(folder).map_err(failed)?;
    if let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        tracing::debug!(%error, "cannot lock the work folder");
    }
    Ok(file)
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

impl Context {
    async fn run(self) -> AgentExit {
        let exit = tokio::select! {
            biased;
            () = told_to_end() => AgentExit::Terminated,
            closed = self.link.closed() => match closed {
                Closed::Fenced => AgentExit::Fenced,
                Closed::Silent => AgentExit::BrokerSilent,
            },
            () = self.wished(Desired::Release) => AgentExit::Released,
            () = self.work() => AgentExit::Released,
        };
        tracing::info!(?exit, "ending");
        if matches!(exit, AgentExit::BrokerSilent) && !self.journal.progress().ended {
            self.members().terminate();
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        }
        failpoint!("agent.end.before_kill");
        self.kill_members().await;
        failpoint!("agent.end.after_kill");
        self.clear_container().await;
        if matches!(exit, AgentExit::BrokerSilent) {
            // The threads of the log path still write what was in the pipes.
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            let progress = self.journal.progress();
            if progress.started.is_some() && !progress.ended {
                let reason = Some(ExitReason::BrokerSilent);
                let gone = EventKind::Exited { code: None, signal: None, reason, detail: None };
                self.journal.append(gone).await;
            }
        }
        exit
    }

    /// Returns once the broker wants at least `desired`.
    pub(crate) async fn wished(&self, desired: Desired) {
        let mut wish = self.wish.subscribe();
        if wish.wait_for(|wish| wish.desired >= desired).await.is_err() {
            std::future::pending().await
        }
    }

    /// Everything that belongs to the trial on this node.
    pub(crate) fn members(&self) -> Members {
        let now = Some(*self.session.borrow()).filter(|pid| *pid != 0);
        // A number of an earlier boot may be anybody's by now.
        let same_boot = self.progress.boot_id.as_ref() == Some(&self.boot_id);
        let earlier = self.progress.started.filter(|_| same_boot);
        let uid = self.bootstrap.drop_to.map(|to| to.uid);
        let ender = self.options.shim.first().cloned().unwrap_or_default();
        Members::new(&self.bootstrap.lease_id, now.or(earlier), uid, ender)
    }

    /// The container engine of this place.
    pub(crate) async fn engine(&self) -> Result<Engine, String> {
        match &self.bootstrap.docker {
            Some(place) => {
                let node_dir = &self.options.node_dir;
                Engine::open(place, &self.bootstrap.lease_id, node_dir).await
            }
            None => Err("the node says nothing of its container engine".to_owned()),
        }
    }

    /// Ends and removes the trial's container, where it may have one.
    pub(crate) async fn clear_container(&self) {
        if self.bootstrap.runtime != Runtime::Docker {
            return;
        }
        let cleared = match self.engine().await {
            Ok(engine) => engine.clear().await,
            Err(reason) => Err(reason),
        };
        if let Err(reason) = cleared {
            tracing::warn!(reason, "the trial's container is not removed yet");
        }
    }

    /// Ends everything that belongs to the trial.
    pub(crate) async fn kill_members(&self) {
        let members = self.members();
        let killed = tokio::task::spawn_blocking(move || members.kill()).await;
        if !killed.unwrap_or(false) {
            tracing::error!("some processes of the trial could not be ended");
        }
    }

    // Returns when the session is over or nothing is left to do.
    async fn work(&self) {
        if let Err(error) = self.join_and_run().await {
            tracing::info!(%error, "session is over");
            // `closed` has the reason and wins the selection.
            std::future::pending::<()>().await;
        }
    }

    async fn join_and_run(&self) -> Result<(), LinkError> {
        let version = env!("CARGO_PKG_VERSION");
        failpoint!("agent.redeem.before");
        repeat(|| self.link.redeem(&self.bootstrap.lease_token, version)).await?;
        failpoint!("agent.redeem.after");
        let first =
            repeat(|| poll(&self.link, &self.journal, 0, AgentState::Booting, None)).await?;
        let durable = first.durable_log_seq;
        self.acked_events.send_replace(first.acked_event_seq.min(self.journal.last_seq()));
        self.wish.send_if_modified(|wish| hear(wish, first));
        self.journal
            .append(EventKind::Booted {
                agent_version: version.to_owned(),
                boot_id: self.boot_id.clone(),
            })
            .await;
        failpoint!("agent.booted.journaled");
        let mut tasks = JoinSet::new();
        tasks.spawn(event_loop(
            Arc::clone(&self.link),
            Arc::clone(&self.journal),
            self.acked_events.clone(),
        ));
        let assignment: Assignment = repeat(|| self.link.get("assignment", "assignment")).await?;
        failpoint!("agent.assignment.received");
        let (writer, spool) = self.open_spool(&assignment, durable).await;
        failpoint!("agent.spool.opened");
        tasks.spawn(upload(
            Arc::clone(&spool),
            Arc::clone(&self.link),
            Arc::clone(&self.journal),
            self.acked_events.subscribe(),
        ));
        tasks.spawn(poll_loop(
            Arc::clone(&self.link),
            Arc::clone(&self.journal),
            Arc::clone(&spool),
            self.state.subscribe(),
            self.wish.clone(),
        ));
        Trial { context: self, assignment: &assignment, spool }.run(writer).await;
        self.state.send_replace(AgentState::Done);
        self.wished(Desired::Release).await;
        Ok(())
    }

    async fn open_spool(
        &self,
        assignment: &Assignment,
        durable: u64,
    ) -> (Writer, Arc<crate::spool::Spool>) {
        let folder = self.options.node_dir.join("spool");
        let mut pause = Pause::default();
        loop {
            let reserve = Arc::clone(&self.reserve);
            match Writer::start(&folder, durable, assignment.max_log_bytes, reserve) {
                Ok(opened) => return opened,
                Err(error) => {
                    tracing::error!(%error, "cannot open the log spool");
                    self.reserve.release();
                    tokio::time::sleep(pause.next()).await;
                }
            }
        }
    }
}

// A broker that refuses or talks nonsense may be in the middle of an upgrade.
async fn repeat<T, F>(call: impl Fn() -> F) -> Result<T, LinkError>
where
    F: Future<Output = Result<T, LinkError>>,
{
    let mut pause = Pause::default();
    loop {
        match call().await {
            Err(error @ (LinkError::Refused { .. } | LinkError::Reply { .. })) => {
                tracing::error!(%error, "will be repeated");
                tokio::time::sleep(pause.next()).await;
            }
            result => return result,
        }
    }
}

async fn told_to_end() {
    let handlers = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::hangup()),
    );
    let (Ok(mut term), Ok(mut int), Ok(_hangup)) = handlers else {
        tracing::warn!("cannot handle signals");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
