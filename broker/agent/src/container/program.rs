//! The user's program as the first process of a container.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, DeviceRequest, HostConfig, Mount, MountType};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, KillContainerOptionsBuilder,
    StartContainerOptions,
};
use futures_util::{Stream, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::disk;
use super::engine::{Engine, told};
use super::{HOME, RUNNER, WORK};
use crate::program::Exit;
use crate::protocol::{DropTo, LogStream, RunnerTask};
use crate::spool::Input;
use crate::texts;
use crate::workfolder::Folders;

const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long after the end of its output a program's own end is known, at most.
const SETTLE: Duration = Duration::from_secs(2);
const MIB: u64 = 1 << 20;

/// What a container is started with.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) task: &'a RunnerTask,
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) folders: &'a Folders,
    pub(crate) drop_to: Option<DropTo>,
    pub(crate) lease_id: &'a str,
    /// GPUs of the allocation, where they are real.
    pub(crate) gpus: Vec<String>,
}

/// A container that was made, and runs once its gate is opened.
#[derive(Debug)]
pub(crate) struct Container {
    engine: Engine,
    exit: watch::Sender<Option<Exit>>,
    output: JoinHandle<()>,
    log: SyncSender<Input>,
}

impl Container {
    /// Makes the container and listens to it; nothing runs yet.
    pub(crate) async fn make(
        engine: Engine,
        start: &Start<'_>,
        log: &SyncSender<Input>,
    ) -> Result<Self, String> {
        engine.clear().await?;
        engine.note()?;
        let options = CreateContainerOptionsBuilder::default().name(engine.container()).build();
        let made = engine.docker.create_container(Some(options), body(&engine, start)).await;
        made.map_err(|error| told(&error))?;
        Self::listen(engine, log).await
    }

    /// Takes up the container of an earlier agent, where that agent had let it start; `None` where it
    /// is gone or never started.
    pub(crate) async fn adopt(
        engine: Engine,
        log: &SyncSender<Input>,
    ) -> Result<Option<Self>, String> {
        let container = match engine.runs().await? {
            None => return Ok(None),
            Some(true) => Self::listen(engine, log).await?,
            // There is nothing more to hear, but how it ended.
            Some(false) => {
                let output = tokio::spawn(async {});
                Self { engine, exit: watch::channel(None).0, output, log: log.clone() }
            }
        };
        container.wait();
        Ok(Some(container))
    }

    async fn listen(engine: Engine, log: &SyncSender<Input>) -> Result<Self, String> {
        let options =
            AttachContainerOptionsBuilder::default().stream(true).stdout(true).stderr(true).build();
        let attached = engine.docker.attach_container(engine.container(), Some(options)).await;
        let streams = attached.map_err(|error| told(&error))?.output;
        let (exit, ended) = watch::channel(None);
        let runs = {
            let engine = engine.clone();
            async move { engine.runs().await }
        };
        let output = tokio::spawn(hear(streams, log.clone(), ended, runs));
        Ok(Self { engine, exit, output, log: log.clone() })
    }

    /// Lets user code start.
    pub(crate) async fn open(&self) -> Result<(), String> {
        let name = self.engine.container().to_owned();
        let started =
            self.engine.docker.start_container(&name, None::<StartContainerOptions>).await;
        started.map_err(|error| told(&error))?;
        self.wait();
        Ok(())
    }

    fn wait(&self) {
        let (engine, exit, log) = (self.engine.clone(), self.exit.clone(), self.log.clone());
        tokio::spawn(async move {
            // Below 0 the engine does not know.
            let code = match engine.wait(engine.container()).await {
                Ok(code) => i32::try_from(code)
                    .ok()
                    .filter(|code| *code >= 0)
                    .ok_or_else(|| format!("the container engine knows none, and says {code}")),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = &code {
                say(&log, &texts::exit_unknown(reason));
            }
            exit.send_replace(Some(Exit { code: code.ok(), signal: None }));
        });
    }

    /// Returns once the program has ended.
    pub(crate) async fn exited(&self) -> Exit {
        let mut exit = self.exit.subscribe();
        let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        ended.unwrap_or(Exit { code: None, signal: None })
    }

    /// Signals the container's first process.
    pub(crate) async fn signal(&self, signal: &str) {
        let options = KillContainerOptionsBuilder::default().signal(signal).build();
        let sent = self.engine.docker.kill_container(self.engine.container(), Some(options)).await;
        if let Err(error) = sent {
            tracing::debug!(reason = told(&error), signal, "a container was not signalled");
        }
    }

    /// Takes the rest of its output and removes it.
    pub(crate) async fn finish(self) {
        let mut output = self.output;
        if tokio::time::timeout(DRAIN_LIMIT, &mut output).await.is_err() {
            output.abort();
        }
        if let Err(reason) = self.engine.clear().await {
            tracing::warn!(reason, "the trial's container is not removed yet");
        }
    }

    /// Returns, with a sentence, once more disk is used than may be.
    pub(crate) async fn over_disk(&self, folders: &Folders, limit_mib: Option<u64>) -> String {
        let Some(limit) = limit_mib else { return std::future::pending().await };
        disk::over(&self.engine, folders, limit).await
    }

    /// Which limit ended the program, where one did. To be asked before [`Self::finish`]. A program
    /// that ended well got over whatever part of it was ended.
    pub(crate) async fn passed_limit(&self, task: &RunnerTask, exit: Exit) -> Option<String> {
        let limit = task.memory_mib.filter(|_| exit.code != Some(0))?;
        let out = self.engine.out_of_memory().await;
        out.then(|| format!("memory: the program needed more than its {limit} MiB"))
    }
}

type Streams = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;

/// Brings a container's output into the log. Where it breaks off before the program ends, which an
/// engine does that is restarted while its containers run on, the log says so: nothing attaches to it
/// again, for Podman makes a program that has ended anew for whoever comes then, and forgets its code.
async fn hear(
    mut streams: Streams,
    log: SyncSender<Input>,
    mut ended: watch::Receiver<Option<Exit>>,
    runs: impl Future<Output = Result<Option<bool>, String>>,
) {
    while let Some(piece) = streams.next().await {
        match piece {
            Ok(piece) => {
                if !write(&log, piece) {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(reason = told(&error), "a container's output broke off");
                break;
            }
        }
    }
    let known = tokio::time::timeout(SETTLE, ended.wait_for(Option::is_some)).await.is_ok();
    if !known && matches!(runs.await, Ok(Some(true)) | Err(_)) {
        say(&log, texts::output_broken_off());
    }
}

fn write(log: &SyncSender<Input>, piece: LogOutput) -> bool {
    let (stream, bytes) = match piece {
        LogOutput::StdOut { message } | LogOutput::Console { message } => {
            (LogStream::Stdout, message)
        }
        LogOutput::StdErr { message } => (LogStream::Stderr, message),
        LogOutput::StdIn { .. } => return true,
    };
    bytes.chunks(256 << 10).all(|piece| {
        let input = Input::Data { stream, bytes: piece.to_vec() };
        // The program waits while the log is behind.
        tokio::task::block_in_place(|| log.send(input)).is_ok()
    })
}

/// A line of the agent's. A writer that is gone loses no more than this.
fn say(log: &SyncSender<Input>, line: &str) {
    let input = Input::Data { stream: LogStream::System, bytes: line.as_bytes().to_vec() };
    let _ = tokio::task::block_in_place(|| log.send(input));
}

fn body(engine: &Engine, start: &Start<'_>) -> ContainerCreateBody {
    let task = start.task;
    let mount = |source: &Path, target: &str, read_only: bool| Mount {
        target: Some(target.to_owned()),
        source: Some(source.to_string_lossy().into_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        ..Mount::default()
    };
    let folders = start.folders;
    let mounts = vec![
        mount(&folders.work, WORK, false),
        mount(&folders.home, HOME, false),
        mount(&folders.temp, "/tmp", false),
        mount(&folders.runner, RUNNER, true),
    ];
    let bytes = |mib: u64| i64::try_from(mib.saturating_mul(MIB)).unwrap_or(i64::MAX);
    // No more than there are: the engine refuses what the machine does not have.
    let here = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let cpus = task.cpus.map(|cpus| u64::from(cpus).min(here));
    let device_requests = (!start.gpus.is_empty()).then(|| {
        vec![DeviceRequest {
            driver: Some("nvidia".to_owned()),
            device_ids: Some(start.gpus.clone()),
            capabilities: Some(vec![vec!["gpu".to_owned()]]),
            ..DeviceRequest::default()
        }]
    });
    let host = HostConfig {
        mounts: Some(mounts),
        network_mode: engine.place.network.clone(),
        nano_cpus: cpus.map(|cpus| i64::try_from(cpus * 1_000_000_000).unwrap_or(i64::MAX)),
        memory: task.memory_mib.map(bytes),
        shm_size: task.shm_mib.map(bytes),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        device_requests,
        ..HostConfig::default()
    };
    let mut entry = start.argv.iter();
    ContainerCreateBody {
        image: Some(task.image.clone()),
        user: start.drop_to.map(|to| format!("{}:{}", to.uid, to.gid)),
        entrypoint: entry.next().map(|first| vec![first.clone()]),
        cmd: Some(entry.cloned().collect()),
        env: Some(start.env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        working_dir: Some(WORK.to_owned()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        labels: Some(HashMap::from([("runwhere.lease".to_owned(), start.lease_id.to_owned())])),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::stream;

    use super::*;

    /// What is in the log where the program's end is known `later`, and the engine says so of it.
    async fn heard(later: Duration, runs: Result<Option<bool>, String>) -> Vec<String> {
        let (log, lines) = mpsc::sync_channel(16);
        let (exit, ended) = watch::channel(None);
        let said = LogOutput::StdOut { message: "said".into() };
        let end = async {
            tokio::time::sleep(later).await;
            exit.send_replace(Some(Exit { code: Some(0), signal: None }));
        };
        let streams = stream::iter([Ok(said)]).boxed();
        tokio::join!(hear(streams, log, ended, std::future::ready(runs)), end);
        let line = |input| match input {
            Input::Data { bytes, .. } => String::from_utf8(bytes).unwrap(),
            Input::Seal(_) => unreachable!("nobody seals it"),
        };
        lines.into_iter().map(line).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn output_that_breaks_off_before_the_programs_end_is_said_in_the_log() {
        let (soon, late) = (SETTLE / 8, SETTLE * 5 / 4);
        let away = || Err("the engine is away".to_owned());
        let (whole, seen, running, unknown) = tokio::join!(
            heard(soon, away()),
            heard(late, Ok(Some(false))),
            heard(late, Ok(Some(true))),
            heard(late, away()),
        );
        assert_eq!((whole, seen), (vec!["said".to_owned()], vec!["said".to_owned()]));
        let broken = vec!["said".to_owned(), texts::output_broken_off().to_owned()];
        assert_eq!((running, unknown), (broken.clone(), broken));
    }
}
