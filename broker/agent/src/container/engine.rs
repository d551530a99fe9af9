//! The container engine: images, and containers by the name of their lease.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, ContainerStateStatusEnum as Status, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, InspectContainerOptionsBuilder,
    RemoveContainerOptionsBuilder, StartContainerOptions, WaitContainerOptions,
};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::version;
use crate::files::write_durable;
use crate::protocol::DockerPlace;
use crate::session::{lock, read_bootstrap};

/// Says that the engine may hold a container of this node.
const CONTAINER_FILE: &str = "container";

/// One call may wait for the end of a program.
const CALL_SECONDS: u64 = 400 * 24 * 3600;
const PULL_LIMIT: Duration = Duration::from_secs(3000);
const CHECK_LIMIT: Duration = Duration::from_secs(120);
const CHECK_TRIES: u32 = 3;
const CHECK_PAUSE: Duration = Duration::from_secs(2);
/// An engine that cannot say for so long how a container ended is believed not to know.
const ASK_LIMIT: Duration = Duration::from_secs(300);
const ASK_PAUSE: Duration = Duration::from_millis(200);
/// How often one that says that it lost the exit code is asked again.
const CODE_TRIES: u32 = 25;
const NO_PYTHON: i64 = 41;
const OLD_PYTHON: i64 = 42;
/// Looks for what the platform needs of an image.
const CHECK: &str = "p=$(command -v python3 || command -v python) || exit 41\n\
                     \"$p\" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 8) else 1)' || exit 42\n";

/// Why an image cannot be used; stage and reason of the event.
#[derive(Debug)]
pub(crate) struct Unusable(pub(crate) String);

/// A connection to the engine.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    pub(super) docker: Docker,
    pub(super) place: DockerPlace,
    name: String,
    /// There for as long as there may be a container.
    mark: PathBuf,
}

/// An error in one line, without what it was asked with.
pub(super) fn told(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { status_code, message } => {
            let line: String =
                message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
            format!("the container engine answered {status_code}: {line}")
        }
        other => {
            let line: String = other
                .to_string()
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .take(300)
                .collect();
            format!("the container engine cannot be used: {line}")
        }
    }
}

impl Engine {
    /// Connects; containers are named after the lease, and marked in the node's folder.
    pub(crate) async fn open(
        place: &DockerPlace,
        lease_id: &str,
        node_dir: &Path,
    ) -> Result<Self, String> {
        let newest = bollard::API_DEFAULT_VERSION;
        let docker = version::connect(&place.socket, CALL_SECONDS, newest)
            .await
            .map_err(|error| format!("{} ({})", told(&error), place.socket.display()))?;
        Ok(Self {
            docker,
            place: place.clone(),
            name: format!("runwhere-{lease_id}"),
            mark: node_dir.join(CONTAINER_FILE),
        })
    }

    pub(super) fn container(&self) -> &str {
        &self.name
    }

    /// Pulls the image where it is not here, and checks it once for each digest.
    pub(crate) async fn provide(&self, image: &str) -> Result<(), Unusable> {
        if self.docker.inspect_image(image).await.is_err() {
            self.pull(image).await?;
        }
        let verdict = self.verdict_file(image);
        if let Some(path) = &verdict
            && let Ok(kept) = fs::read_to_string(path)
        {
            return if kept.is_empty() { Ok(()) } else { Err(Unusable(kept)) };
        }
        let checked = self.checked(image).await?;
        if let Some(path) = &verdict {
            // A lost verdict is made again.
            let _ = path.parent().map(fs::create_dir_all);
            let _ = fs::write(path, checked.as_deref().unwrap_or_default());
        }
        match checked {
            None => Ok(()),
            Some(reason) => Err(Unusable(reason)),
        }
    }

    fn verdict_file(&self, image: &str) -> Option<PathBuf> {
        let digest = image.rsplit_once("@sha256:")?.1;
        let good = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        good.then(|| self.place.verdicts.as_ref().map(|folder| folder.join(digest)))?
    }

    async fn pull(&self, image: &str) -> Result<(), Unusable> {
        let options =
            CreateImageOptionsBuilder::default().from_image(image).platform("linux/amd64").build();
        let mut progress = self.docker.create_image(Some(options), None, None);
        let pulled = async {
            while let Some(step) = progress.next().await {
                let step = step.map_err(|error| told(&error))?;
                if let Some(detail) = step.error_detail.and_then(|detail| detail.message) {
                    return Err(detail);
                }
            }
            Ok(())
        };
        match tokio::time::timeout(PULL_LIMIT, pulled).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(Unusable(format!("cannot pull {image}: {reason}"))),
            Err(_) => Err(Unusable(format!("{image} was not pulled in time"))),
        }
    }

    /// The verdict of a check. One that came to nothing is repeated: a busy engine's mishap says
    /// nothing of the image, and no user code has run.
    async fn checked(&self, image: &str) -> Result<Option<String>, Unusable> {
        let mut tries = 1;
        loop {
            match self.check(image).await {
                Err(Unusable(reason)) if tries < CHECK_TRIES => {
                    tracing::warn!(reason, tries, "the check of an image is repeated");
                    tokio::time::sleep(CHECK_PAUSE * tries).await;
                    tries += 1;
                }
                checked => return checked,
            }
        }
    }

    // The verdict; an error is no verdict.
    async fn check(&self, image: &str) -> Result<Option<String>, Unusable> {
        let name = self.check_name();
        self.note().map_err(Unusable)?;
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec!["bash".to_owned(), "-c".to_owned(), CHECK.to_owned()]),
            cmd: Some(Vec::new()),
            host_config: Some(HostConfig {
                network_mode: Some("none".to_owned()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        self.remove(&name).await.map_err(Unusable)?;
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let made = self.docker.create_container(Some(options), body).await;
        made.map_err(|error| Unusable(told(&error)))?;
        let run = async {
            self.docker
                .start_container(&name, None::<StartContainerOptions>)
                .await
                .map_err(|error| told(&error))?;
            self.wait(&name).await
        };
        let ended = tokio::time::timeout(CHECK_LIMIT, run).await;
        if let Err(reason) = self.remove(&name).await {
            tracing::warn!(reason, "the container of a check was not removed yet");
        }
        match ended {
            Ok(Ok(0)) => Ok(None),
            Ok(Ok(NO_PYTHON)) => Ok(Some(format!("the image {image} has no Python"))),
            Ok(Ok(OLD_PYTHON)) => {
                Ok(Some(format!("the image {image} has no Python of 3.8 or newer")))
            }
            Ok(Ok(126 | 127)) => Ok(Some(format!("the image {image} has no Bash"))),
            Ok(Ok(code)) => Err(Unusable(format!("the check of {image} ended with {code}"))),
            Ok(Err(reason)) => {
                let missing = ["executable file not found", "no such file", "not found in $PATH"];
                match missing.iter().any(|word| reason.contains(word)) {
                    true => Ok(Some(format!("the image {image} has no Bash"))),
                    false => Err(Unusable(reason)),
                }
            }
            Err(_) => Err(Unusable(format!("the check of {image} took too long"))),
        }
    }

    /// The exit code of a container once it has ended. An engine that fails meanwhile, or is
    /// being restarted, is asked again: its container runs on.
    pub(super) async fn wait(&self, name: &str) -> Result<i64, String> {
        let mut failing: Option<Instant> = None;
        let mut lost = 0;
        loop {
            let mut waiting = self.docker.wait_container(name, None::<WaitContainerOptions>);
            // The client takes an exit code that is not 0 for an error.
            let answered = match waiting.next().await {
                Some(Ok(answer)) => Some(answer.status_code),
                Some(Err(Error::DockerContainerWaitError { code, .. })) => Some(code),
                Some(Err(_)) | None => None,
            };
            let state = match self.docker.inspect_container(name, None).await {
                Ok(seen) => seen.state.unwrap_or_default(),
                Err(error @ Error::DockerResponseServerError { status_code: 404, .. }) => {
                    return Err(told(&error));
                }
                Err(error) => {
                    let since = *failing.get_or_insert_with(Instant::now);
                    if since.elapsed() >= ASK_LIMIT {
                        return Err(told(&error));
                    }
                    tracing::warn!(reason = told(&error), "the container engine is asked again");
                    tokio::time::sleep(ASK_PAUSE * 5).await;
                    continue;
                }
            };
            failing = None;
            // Podman makes an ended program anew for whoever attaches to it, and forgets its code.
            let over = !matches!(state.status, Some(Status::CREATED));
            if !over && state.finished_at.as_deref().is_some_and(|at| !at.starts_with("0001-")) {
                return Err("the container engine has forgotten how the program ended".to_owned());
            }
            if over
                && state.running != Some(true)
                && let Some(code) = state.exit_code
                && state.finished_at.is_some()
            {
                // Podman says so when it was too busy to note the end in time; the answer to the
                // wait may still be right.
                match answered {
                    _ if code >= 0 => return Ok(code),
                    Some(answered) if answered >= 0 => return Ok(answered),
                    _ if lost >= CODE_TRIES => return Ok(code),
                    _ => lost += 1,
                }
            }
            tokio::time::sleep(ASK_PAUSE).await;
        }
    }

    /// Ends and removes a container; nothing happens where there is none.
    async fn remove(&self, name: &str) -> Result<(), String> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let removed = match self.docker.remove_container(name, Some(options)).await {
            Ok(()) => Ok(()),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => return Ok(()),
            Err(error) => Err(told(&error)),
        };
        // An engine may answer before, or although, it is gone.
        match self.docker.inspect_container(name, None).await {
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
            Ok(_) => removed.and_then(|()| Err(format!("the container {name} is still there"))),
            Err(error) => Err(told(&error)),
        }
    }

    fn check_name(&self) -> String {
        format!("{}-check", self.name)
    }

    /// Notes, before a container is made, that there may be one: whoever cleans up after a dead
    /// agent looks for this.
    pub(super) fn note(&self) -> Result<(), String> {
        write_durable(&self.mark, b"").map_err(|error| format!("{}: {error}", self.mark.display()))
    }

    /// Ends and removes the lease's containers.
    pub(crate) async fn clear(&self) -> Result<(), String> {
        for name in [self.name.clone(), self.check_name()] {
            self.remove(&name).await?;
        }
        match fs::remove_file(&self.mark) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", self.mark.display()))
            }
            _ => Ok(()),
        }
    }

    /// How the container's own files have grown, in bytes; `None` where the engine does not say.
    pub(super) async fn written(&self) -> Option<u64> {
        let options = InspectContainerOptionsBuilder::default().size(true).build();
        let seen = self.docker.inspect_container(&self.name, Some(options)).await.ok()?;
        seen.size_rw.and_then(|bytes| u64::try_from(bytes).ok())
    }

    /// Whether the program of the lease's container runs; `None` where it was never started.
    pub(super) async fn runs(&self) -> Result<Option<bool>, String> {
        match self.docker.inspect_container(&self.name, None).await {
            Ok(seen) => {
                let state = seen.state.unwrap_or_default();
                let ended = state.status == Some(Status::EXITED);
                Ok((ended || state.running == Some(true)).then_some(!ended))
            }
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
            Err(error) => Err(told(&error)),
        }
    }

    /// Whether the system ended the program since it needed more memory than it may.
    pub(super) async fn out_of_memory(&self) -> bool {
        let seen = self.docker.inspect_container(&self.name, None).await.ok();
        seen.and_then(|seen| seen.state).and_then(|state| state.oom_killed) == Some(true)
    }
}

/// Removes what a dead agent left in the container engine of a node's folder.
///
/// # Errors
/// The engine does not answer or cannot remove it; to be repeated then.
pub async fn clear(node_dir: &Path) -> Result<(), String> {
    let told = |error: crate::AgentError| error.to_string();
    // An agent that still lives cleans up by itself.
    let _lock = lock(node_dir).map_err(told)?;
    let bootstrap = read_bootstrap(node_dir).map_err(told)?;
    match &bootstrap.docker {
        Some(place) => Engine::open(place, &bootstrap.lease_id, node_dir).await?.clear().await,
        None => Ok(()),
    }
}
