//! One trial on this node, from the GPU check to `done`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runwhere_failpoint::failpoint;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::agent::Context;
use crate::files::safe_folder;
use crate::gpu;
use crate::outputs::Collector;
use crate::program::{Exit, Gate, Program, spawn_failure};
use crate::protocol::{
    AgentState, Assignment, Desired, EventKind, ExitReason, LEASE_MARKER, PROTOCOL_VERSION,
};
use crate::shim::ExecSpec;
use crate::spool::{Spool, Writer};
use crate::workfolder::{self, Originals, prepare};

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
        if earlier.ended || earlier.started.is_some() {
            self.context.kill_members().await;
            if !earlier.ended {
                let reason = "the agent was restarted while the program ran".to_owned();
                self.event(EventKind::Lost { reason }).await;
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
            let originals = originals.unwrap_or_else(|| workfolder::originals(self.assignment));
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
        let prepared = prepare(link, self.assignment, folders, bootstrap.drop_to)
            .await
            .map_err(|unprepared| (unprepared.stage, unprepared.reason));
        failpoint!("agent.prepare.after");
        // A broker that does not know that the node was ready would replace it if it were lost, and
        // run user code a second time: none runs before that is known.
        let mut acked = self.context.acked_events.subscribe();
        let _ = acked.wait_for(|acked| *acked >= told).await;
        prepared
    }

    async fn execute(&self, writer: &Writer, originals: Originals) -> Option<Originals> {
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

    async fn watch(
        &self,
        program: &Program,
        gate: Gate,
        state: &tokio::sync::watch::Sender<AgentState>,
    ) -> (Exit, Option<ExitReason>) {
        // Written down before the gate opens: from here on user code is never started again.
        self.event(EventKind::Started { pid: program.pid }).await;
        failpoint!("agent.started.journaled");
        state.send_replace(AgentState::Running);
        // The broker says that the program runs before the program's first line arrives; an absent broker delays nobody.
        let started = self.context.journal.last_seq();
        let mut acked = self.context.acked_events.subscribe();
        let _ = tokio::time::timeout(START_TOLD, acked.wait_for(|acked| *acked >= started)).await;
        failpoint!("agent.started.told");
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
        let mut env: BTreeMap<String, String> = assignment.env.clone();
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
            argv: assignment.command.argv.clone(),
            env,
            folder,
            drop_to: bootstrap.drop_to,
        })
    }
}
