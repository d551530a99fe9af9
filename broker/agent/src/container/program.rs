//! The user's program as the first process of a container.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::models::{ContainerCreateBody, DeviceRequest, HostConfig, Mount, MountType};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, KillContainerOptionsBuilder,
    StartContainerOptions,
};
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::disk;
use super::engine::{Engine, told};
use super::{HOME, RUNNER, WORK};
use crate::program::Exit;
use crate::protocol::{DropTo, LogStream, RunnerTask};
use crate::spool::Input;
use crate::workfolder::Folders;

const DRAIN_LIMIT: Duration = Duration::from_secs(5);
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
                Self { engine, exit: watch::channel(None).0, output: tokio::spawn(async {}) }
            }
        };
        container.wait();
        Ok(Some(container))
    }

    async fn listen(engine: Engine, log: &SyncSender<Input>) -> Result<Self, String> {
        let options =
            AttachContainerOptionsBuilder::default().stream(true).stdout(true).stderr(true).build();
        let attached = engine.docker.attach_container(engine.container(), Some(options)).await;
        let mut streams = attached.map_err(|error| told(&error))?.output;
        let log = log.clone();
        let output = tokio::spawn(async move {
            while let Some(piece) = streams.next().await {
                let (stream, bytes) = match piece {
                    Ok(LogOutput::StdOut { message } | LogOutput::Console { message }) => {
                        (LogStream::Stdout, message)
                    }
                    Ok(LogOutput::StdErr { message }) => (LogStream::Stderr, message),
                    Ok(LogOutput::StdIn { .. }) => continue,
                    Err(error) => {
                        tracing::warn!(reason = told(&error), "a container's output broke off");
                        return;
                    }
                };
                for piece in bytes.chunks(256 << 10) {
                    let input = Input::Data { stream, bytes: piece.to_vec() };
                    // The program waits while the log is behind.
                    if tokio::task::block_in_place(|| log.send(input)).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Self { engine, exit: watch::channel(None).0, output })
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
        let (engine, exit) = (self.engine.clone(), self.exit.clone());
        let name = engine.container().to_owned();
        tokio::spawn(async move {
            let ended = match engine.wait(&name).await {
                // Below 0 the engine does not know.
                Ok(code) => {
                    Exit { code: i32::try_from(code).ok().filter(|code| *code >= 0), signal: None }
                }
                Err(reason) => {
                    tracing::error!(reason, "cannot wait for the container");
                    Exit { code: None, signal: None }
                }
            };
            exit.send_replace(Some(ended));
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
