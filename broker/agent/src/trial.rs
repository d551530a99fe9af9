//! One trial on this node, from the GPU check to `done`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runwhere_failpoint::failpoint;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::agent::Context;
use crate::container::{self, Container, Engine, Start, Unusable};
use crate::files::safe_folder;
use crate::gpu;
use crate::outputs::Collector;
use crate::program::{Exit, Gate, Program, spawn_failure};
use crate::protocol::{
    AgentState, Assignment, Desired, EventKind, ExitReason, LEASE_MARKER, LogStream,
    PROTOCOL_VERSION, RunnerTask, Runtime,
};
use crate::shim::ExecSpec;
use crate::spool::{Input, Spool, Writer};
use crate::texts;
use crate::workfolder::{self, Originals, PROFILE_FILE, RUN_COMMAND_FILE, prepare};

const MEMBERS_TICK: Duration = Duration::from_millis(100);
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The longest wait for the broker to hear of the start.
const START_TOLD: Duration = Duration::from_secs(2);

/// What a trial works with.
pub(crate) struct Trial<'a> {
    pub(crate) context: &'a Context,
    pub(crate) assignment: &'a Assignment,
    pub(crate) spool: Arc<Spool>,
}

impl Trial<'_> {
    /// Runs what is left to do of the trial; everything is durable in the journal step by step, so
    /// that a later agent process goes on from there. User code is started at most once.
    pub(crate) async fn run(&self, writer: Writer) {
        let earlier = &self.context.progress;
        if earlier.done {
            return;
        }
        let mut originals = None;
        let mut ran = earlier.started.is_some();
        if let Some(program) = self.adopted(&writer).await {
            originals = Some(workfolder::originals(self.assignment));
            if let Some(task) = self.contained() {
                self.context.state.send_replace(AgentState::Running);
                self.follow(task, program).await;
            }
        } else if earlier.ended || earlier.started.is_some() {
            self.context.kill_members().await;
            self.context.clear_container().await;
            if !earlier.ended {
                let reason = "the agent was restarted while the program ran".to_owned();
                self.event(EventKind::Lost { reason }).await;
            }
            if earlier.started.is_some() && !earlier.sealed {
                let bytes = texts::log_broken_off().as_bytes().to_vec();
                // A writer that has ended has nothing to seal either.
                let _ = writer.input().send(Input::Data { stream: LogStream::System, bytes });
            }
        } else {
            originals = self.attempt(&writer).await;
            ran = originals.is_some();
        }
        self.context.state.send_replace(AgentState::Collecting);
        if !earlier.sealed {
            self.seal(writer).await;
        }
        if ran && !earlier.collected {
            failpoint!("agent.collect.before");
            self.event(EventKind::Collecting).await;
            let known = originals.unwrap_or_else(|| workfolder::originals(self.assignment));
            let originals = Arc::new(known);
            let collector = Collector {
                link: &self.context.link,
                journal: &self.context.journal,
                assignment: self.assignment,
                work: &self.context.folders.work,
                owner: self.context.bootstrap.drop_to.map(|to| to.uid),
                originals: &originals,
                earlier: &earlier.outputs,
            };
            collector.run().await;
            failpoint!("agent.collect.after");
        }
        self.spool.durable(self.spool.last_seq()).await;
        failpoint!("agent.done.before");
        self.event(EventKind::Done).await;
        failpoint!("agent.done.journaled");
    }

    async fn event(&self, kind: EventKind) {
        self.context.journal.append(kind).await;
    }

    async fn seal(&self, writer: Writer) {
        failpoint!("agent.seal.before");
        if let Some(sealed) = writer.seal().await {
            failpoint!("agent.seal.after");
            self.event(EventKind::LogSealed {
                frames: sealed.frames,
                bytes: sealed.bytes,
                dropped_bytes: sealed.dropped_bytes,
                sha256_per_stream: sealed.streams,
            })
            .await;
        }
    }

    // From nothing to the end of the program; the sync as it was where user code ran.
    async fn attempt(&self, writer: &Writer) -> Option<Originals> {
        tokio::select! {
            biased;
            () = self.context.wished(Desired::Stop) => {
                self.exited(Exit { code: None, signal: None }, Some(self.stop_reason()), None).await;
                None
            }
            prepared = self.prepare() => match prepared {
                Ok(originals) => self.execute(writer, originals).await,
                Err((stage, reason)) => {
                    self.failed(stage, reason).await;
                    None
                }
            },
        }
    }

    async fn failed(&self, stage: &str, reason: String) {
        self.event(EventKind::Failed { stage: stage.to_owned(), reason }).await;
    }

    async fn exited(&self, exit: Exit, reason: Option<ExitReason>, detail: Option<String>) {
        let Exit { code, signal } = exit;
        self.event(EventKind::Exited { code, signal, reason, detail }).await;
    }

    fn stop_reason(&self) -> ExitReason {
        match self.context.wish.borrow().reason.as_deref() {
            Some("timeout") => ExitReason::Timeout,
            _ => ExitReason::Stopped,
        }
    }

    async fn prepare(&self) -> Result<Originals, (&'static str, String)> {
        let Context { bootstrap, link, folders, state, .. } = self.context;
        let protocol = self.assignment.protocol;
        if protocol != PROTOCOL_VERSION {
            let reason =
                format!("assignment of protocol {protocol}; this agent speaks {PROTOCOL_VERSION}");
            return Err(("agent", reason));
        }
        let wanted = &self.assignment.gpus;
        let gpus = gpu::check(wanted, bootstrap).await.map_err(|reason| ("gpu", reason))?;
        failpoint!("agent.prepare.gpus_checked");
        let pretended = wanted.pretend && wanted.count > 0;
        self.event(EventKind::GpusReady { gpus, pretended }).await;
        state.send_replace(AgentState::Preparing);
        let told = self.context.journal.append(EventKind::Preparing).await;
        failpoint!("agent.prepare.before");
        let originals = prepare(link, self.assignment, folders, bootstrap.drop_to)
            .await
            .map_err(|unprepared| (unprepared.stage, unprepared.reason))?;
        failpoint!("agent.prepare.after");
        if let Some(task) = self.contained() {
            let engine = self.context.engine().await.map_err(|reason| ("image", reason))?;
            engine.provide(&task.image).await.map_err(|Unusable(reason)| ("image", reason))?;
        }
        // A broker that does not know that the node was ready would replace it if it were lost, and
        // run user code a second time: none runs before that is known.
        let mut acked = self.context.acked_events.subscribe();
        let _ = acked.wait_for(|acked| *acked >= told).await;
        Ok(originals)
    }

    /// The runner, where it runs in a container here.
    fn contained(&self) -> Option<&RunnerTask> {
        let docker = self.context.bootstrap.runtime == Runtime::Docker;
        self.assignment.runner.as_ref().filter(|_| docker)
    }

    async fn execute(&self, writer: &Writer, originals: Originals) -> Option<Originals> {
        if let Some(task) = self.contained() {
            return self.execute_contained(task, writer, originals).await;
        }
        if let Some(task) = &self.assignment.runner {
            let bytes = texts::image_unused(&task.image).into_bytes();
            let line = Input::Data { stream: LogStream::System, bytes };
            // A writer that is gone loses no more than this.
            let _ = writer.input().send(line);
        }
        let Context { options, bootstrap, session, state, .. } = self.context;
        let node_dir = &options.node_dir;
        let started = match self.spec() {
            Ok(spec) => {
                let log = writer.input();
                failpoint!("agent.spawn.before");
                Program::start(&options.shim, node_dir, &bootstrap.lease_id, &spec, &log)
                    .await
                    .map_err(|error| format!("cannot start a process: {error}"))
            }
            Err(reason) => Err(reason),
        };
        let (program, gate) = match started {
            Ok(started) => started,
            Err(reason) => {
                self.failed("spawn", reason).await;
                return None;
            }
        };
        failpoint!("agent.spawn.after");
        session.send_replace(program.pid);
        let (exit, reason) = self.watch(&program, gate, state).await;
        let (reason, detail) = match spawn_failure(node_dir) {
            Some(detail) => (Some(ExitReason::SpawnFailed), Some(detail)),
            None => (reason, None),
        };
        failpoint!("agent.program.exited");
        self.exited(exit, reason, detail).await;
        failpoint!("agent.exited.journaled");
        // Whatever it left behind may still hold its pipes; the log does not wait for that.
        self.context.kill_members().await;
        failpoint!("agent.program.swept");
        program.finish().await;
        failpoint!("agent.program.drained");
        Some(originals)
    }

    async fn execute_contained(
        &self,
        task: &RunnerTask,
        writer: &Writer,
        originals: Originals,
    ) -> Option<Originals> {
        let made = match self.context.engine().await {
            Ok(engine) => self.make_container(task, engine, writer).await,
            Err(reason) => Err(reason),
        };
        let program = match made {
            Ok(program) => program,
            Err(reason) => {
                self.failed("spawn", reason).await;
                return None;
            }
        };
        // As with a process: written down first, then the gate opens.
        self.announce(0).await;
        if let Err(reason) = program.open().await {
            let exit = Exit { code: Some(127), signal: None };
            self.exited(exit, Some(ExitReason::SpawnFailed), Some(reason)).await;
            program.finish().await;
            return Some(originals);
        }
        self.follow(task, program).await;
        Some(originals)
    }

    /// The container that an earlier agent process left running, or ended, in this boot. What it
    /// said while no agent listened is missing, and the log says so.
    async fn adopted(&self, writer: &Writer) -> Option<Container> {
        let earlier = &self.context.progress;
        let same_boot = earlier.boot_id.as_ref() == Some(&self.context.boot_id);
        if self.contained().is_none() || earlier.started.is_none() || earlier.ended || !same_boot {
            return None;
        }
        let engine = self.context.engine().await;
        let found = match engine {
            Ok(engine) => Container::adopt(engine, &writer.input()).await,
            Err(reason) => Err(reason),
        };
        let program = found.unwrap_or_else(|reason| {
            tracing::warn!(reason, "the trial's container cannot be taken up");
            None
        })?;
        let bytes = texts::log_broken_off().as_bytes().to_vec();
        // A writer that is gone loses no more than this.
        let _ = writer.input().send(Input::Data { stream: LogStream::System, bytes });
        Some(program)
    }

    /// Waits for the end of a container's program, and ends it where that is wanted or it passes a
    /// limit.
    async fn follow(&self, task: &RunnerTask, program: Container) {
        let disk = program.over_disk(&self.context.folders, task.storage_mib);
        let (exit, reason, detail) = tokio::select! {
            biased;
            exit = program.exited() => {
                let passed = program.passed_limit(task, exit).await;
                (exit, passed.as_ref().map(|_| ExitReason::Limit), passed)
            }
            () = self.context.wished(Desired::Stop) => {
                self.context.state.send_replace(AgentState::Stopping);
                (self.stop_contained(&program).await, Some(self.stop_reason()), None)
            }
            passed = disk => {
                self.context.state.send_replace(AgentState::Stopping);
                program.signal("SIGKILL").await;
                (program.exited().await, Some(ExitReason::Limit), Some(passed))
            }
        };
        self.exited(exit, reason, detail).await;
        self.context.kill_members().await;
        program.finish().await;
    }

    async fn make_container(
        &self,
        task: &RunnerTask,
        engine: Engine,
        writer: &Writer,
    ) -> Result<Container, String> {
        let Context { bootstrap, folders, .. } = self.context;
        let mut env = self.runner_env(task, container::RUNNER);
        env.entry("HOME".to_owned()).or_insert_with(|| container::HOME.to_owned());
        env.entry("TMPDIR".to_owned()).or_insert_with(|| "/tmp".to_owned());
        env.entry("LANG".to_owned()).or_insert_with(|| "C.UTF-8".to_owned());
        let wanted = &self.assignment.gpus;
        let real =
            wanted.count > 0 && !wanted.pretend && std::path::Path::new("/dev/nvidiactl").exists();
        let start = Start {
            task,
            argv: runner_argv(task, container::RUNNER),
            env,
            folders,
            drop_to: bootstrap.drop_to,
            lease_id: &bootstrap.lease_id,
            gpus: bootstrap.gpu_devices.clone().filter(|_| real).unwrap_or_default(),
        };
        Container::make(engine, &start, &writer.input()).await
    }

    // The first process of a container ends by a polite signal only where it listens; what it
    // started always hears it.
    async fn stop_contained(&self, program: &Container) -> Exit {
        let grace = Duration::from_secs(self.assignment.stop_grace_seconds);
        program.signal("SIGTERM").await;
        let members = self.context.members();
        let _ = tokio::task::spawn_blocking(move || members.terminate()).await;
        match tokio::time::timeout(grace, program.exited()).await {
            Ok(exit) => exit,
            Err(_) => {
                program.signal("SIGKILL").await;
                program.exited().await
            }
        }
    }

    fn runner_env(&self, task: &RunnerTask, root: &str) -> BTreeMap<String, String> {
        let mut env = self.assignment.env.clone();
        let mut set = |name: &str, value: String| {
            env.insert(name.to_owned(), value);
        };
        set("ENVLOOP_JOB_ID", self.assignment.job_id.clone());
        set("ENVLOOP_TRIAL_ID", self.assignment.trial_id.clone());
        set("ENVLOOP_RUNNER_DIR", format!("{root}/runner"));
        if let Some(command) = &task.command {
            set("ENVLOOP_RUN_COMMAND", command.clone());
            set("ENVLOOP_RUN_COMMAND_FILE", format!("{root}/{RUN_COMMAND_FILE}"));
        }
        if task.profile.is_some() {
            set("ENVLOOP_PROFILE_FILE", format!("{root}/{PROFILE_FILE}"));
            set("ENVLOOP_PROFILE_DIR", format!("{root}/profile"));
        }
        set(LEASE_MARKER, self.context.bootstrap.lease_id.clone());
        env
    }

    /// Writes down that user code starts: from here on it is never started again. The broker hears
    /// of it before the program's first line; an absent broker delays nobody.
    async fn announce(&self, pid: u32) {
        self.event(EventKind::Started { pid }).await;
        failpoint!("agent.started.journaled");
        self.context.state.send_replace(AgentState::Running);
        let started = self.context.journal.last_seq();
        let mut acked = self.context.acked_events.subscribe();
        let _ = tokio::time::timeout(START_TOLD, acked.wait_for(|acked| *acked >= started)).await;
        failpoint!("agent.started.told");
    }

    async fn watch(
        &self,
        program: &Program,
        gate: Gate,
        state: &tokio::sync::watch::Sender<AgentState>,
    ) -> (Exit, Option<ExitReason>) {
        self.announce(program.pid).await;
        if let Err(error) = gate.open().await {
            tracing::warn!(%error, "the shim ended early");
        }
        failpoint!("agent.gate.opened");
        tokio::select! {
            biased;
            exit = program.exited() => (exit, None),
            () = self.context.wished(Desired::Stop) => {
                state.send_replace(AgentState::Stopping);
                failpoint!("agent.stop.heard");
                (self.stop(program).await, Some(self.stop_reason()))
            }
        }
    }

    // Politely first; what is there after the grace, also children of the program, is killed.
    async fn stop(&self, program: &Program) -> Exit {
        let deadline = Instant::now() + Duration::from_secs(self.assignment.stop_grace_seconds);
        program.signal(Signal::TERM);
        let all_gone = async {
            program.exited().await;
            loop {
                let members = self.context.members();
                let found = tokio::task::spawn_blocking(move || members.find()).await;
                if found.is_ok_and(|found| found.is_empty()) {
                    return;
                }
                tokio::time::sleep(MEMBERS_TICK).await;
            }
        };
        if tokio::time::timeout_at(deadline, all_gone).await.is_err() {
            program.signal(Signal::KILL);
            self.context.kill_members().await;
        }
        program.exited().await
    }

    fn spec(&self) -> Result<ExecSpec, String> {
        let Context { bootstrap, folders, .. } = self.context;
        let assignment = self.assignment;
        let workdir = safe_folder(&assignment.workdir)
            .map_err(|problem| format!("workdir `{}`: {problem}", assignment.workdir))?;
        let folder = folders.work.join(workdir);
        let mut wanted = vec![folder.clone()];
        if let Some(Ok(path)) = assignment.checkpoint.as_deref().map(safe_folder) {
            wanted.push(folder.join(path));
        }
        for path in wanted {
            workfolder::make(&folders.work, &path, bootstrap.drop_to)
                .map_err(|error| format!("cannot make `{}`: {error}", path.display()))?;
        }
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let root = text(&folders.runner);
        let (mut env, argv) = match &assignment.runner {
            Some(task) => (self.runner_env(task, &root), runner_argv(task, &root)),
            None => (assignment.env.clone(), assignment.command.argv.clone()),
        };
        let mut default = |name: &str, value: String| {
            env.entry(name.to_owned()).or_insert(value);
        };
        let path = std::env::var("PATH").ok().filter(|path| !path.is_empty());
        default("PATH", path.unwrap_or_else(|| DEFAULT_PATH.to_owned()));
        default("HOME", text(&folders.home));
        default("TMPDIR", text(&folders.temp));
        default("LANG", "C.UTF-8".to_owned());
        if let Some(devices) = &bootstrap.gpu_devices {
            default("CUDA_VISIBLE_DEVICES", devices.join(","));
        }
        env.insert(LEASE_MARKER.to_owned(), bootstrap.lease_id.clone());
        Ok(ExecSpec {
            agent_pid: std::process::id(),
            argv,
            env,
            folder,
            drop_to: bootstrap.drop_to,
        })
    }
}

/// The published entry, started with what its name says.
fn runner_argv(task: &RunnerTask, root: &str) -> Vec<String> {
    let entry = format!("{root}/runner/{}", task.entrypoint);
    if task.entrypoint.ends_with(".py") {
        let find = "exec \"$(command -v python3 || command -v python)\" \"$0\"";
        return vec!["bash".to_owned(), "-c".to_owned(), find.to_owned(), entry];
    }
    vec!["bash".to_owned(), entry]
}
