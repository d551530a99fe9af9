//! The machine's own GPUs: detected or configured.

use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use runwhere_model::{GpuModel, GpuModelId, RejectedRow};
use tokio::process::Command;

use super::config::GpuList;
use crate::clock::Clock;

/// A hung driver must not hang the server.
const DETECTION_LIMIT: Duration = Duration::from_secs(20);

/// One GPU; its position in the list is its slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Gpu {
    pub(super) model: GpuModelId,
    /// How a program is told to use this one: an index or a UUID.
    pub(super) device: String,
    /// The name it was found under.
    pub(super) raw: String,
}

/// What the driver's program answers about each GPU; `None` where it takes too long.
async fn ask(program: &str, fields: &str, clock: &dyn Clock) -> Option<io::Result<Output>> {
    let output = Command::new(program)
        .args([&format!("--query-gpu={fields}"), "--format=csv,noheader"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::select! {
        biased;
        output = output => Some(output),
        () = clock.sleep(DETECTION_LIMIT) => None,
    }
}

/// Why jobs will not find the GPUs that the operator states; `None` where they will. `program` is
/// that of the driver, `nvidia-smi`, which the agent asks before each job.
pub(super) async fn driver_problem(
    program: &str,
    wanted: usize,
    clock: &dyn Clock,
) -> Option<String> {
    let Some(output) = ask(program, "uuid", clock).await else {
        return Some(format!("{program} gives no answer"));
    };
    match output {
        Err(error) => Some(format!("{program} cannot be started ({error})")),
        Ok(output) if !output.status.success() => {
            Some(format!("{program} failed ({})", output.status))
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let shown = text.lines().filter(|line| !line.trim().is_empty()).count();
            (shown < wanted).then(|| format!("{program} shows {shown}"))
        }
    }
}

/// The GPUs, and what was found but is not known.
#[derive(Clone, Debug, Default)]
pub(super) struct Inventory {
    pub(super) gpus: Vec<Gpu>,
    pub(super) rejected: Vec<RejectedRow>,
    /// The operator says so; the driver may name them otherwise.
    pub(super) stated: bool,
}

impl Inventory {
    pub(super) fn configured(list: &GpuList) -> Self {
        let models = list
            .entries()
            .iter()
            .flat_map(|(model, count)| std::iter::repeat_n(*model, *count as usize));
        let gpus = models
            .enumerate()
            .map(|(index, model)| Gpu {
                model,
                device: index.to_string(),
                raw: model.model().name.to_owned(),
            })
            .collect();
        Self { gpus, rejected: Vec::new(), stated: true }
    }

    /// Asks `nvidia-smi`. A machine without it has no GPUs.
    pub(super) async fn detect(clock: &dyn Clock) -> Self {
        let Some(output) = ask("nvidia-smi", "uuid,name,memory.total", clock).await else {
            tracing::warn!("nvidia-smi gives no answer; no GPUs are offered");
            return Self::default();
        };
        match output {
            Ok(output) if output.status.success() => {
                Self::parse(&String::from_utf8_lossy(&output.stdout))
            }
            Ok(output) => {
                tracing::warn!(status = %output.status, "nvidia-smi failed; no GPUs are offered");
                Self::default()
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::default(),
            Err(error) => {
                tracing::warn!(%error, "nvidia-smi cannot be run; no GPUs are offered");
                Self::default()
            }
        }
    }

    fn parse(text: &str) -> Self {
        let mut inventory = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match gpu(line) {
                Ok(gpu) => inventory.gpus.push(gpu),
                Err(reason) => inventory.rejected.push(RejectedRow {
                    row: line.chars().take(200).collect(),
                    reason: reason.to_owned(),
                }),
            }
        }
        inventory
    }

    pub(super) fn count(&self, model: GpuModelId) -> usize {
        self.gpus.iter().filter(|gpu| gpu.model == model).count()
    }
}

fn gpu(line: &str) -> Result<Gpu, &'static str> {
    let (device, rest) = line.split_once(',').ok_or("expected uuid, name, memory")?;
    let (name, memory) = rest.rsplit_once(',').ok_or("expected uuid, name, memory")?;
    let name = name.trim();
    let model = GpuModel::resolve(name)
        .ok_or("not a known GPU model; state the machine's GPUs in [local] gpus")?;
    let mib: u64 = memory
        .trim()
        .strip_suffix(" MiB")
        .and_then(|number| number.parse().ok())
        .ok_or("memory is not stated in MiB")?;
    // One name is sold with several memory sizes; a tenth less is what a driver keeps to itself.
    let nominal = u64::from(model.memory_gib) * 1024;
    if nominal > 0 && (mib * 10 < nominal * 9 || mib * 10 > nominal * 11) {
        return Err("its memory is not that of the model; state the GPUs in [local] gpus");
    }
    Ok(Gpu { model: model.id, device: device.trim().to_owned(), raw: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stated_gpus_that_no_driver_shows_are_a_problem() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let driver = |script: &str| {
            let path = folder.path().join(script.len().to_string());
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let clock = crate::clock::SystemClock;
        for (program, part) in [
            ("/no/such/nvidia-smi".to_owned(), Some("cannot be started")),
            (driver("exit 9"), Some("failed (exit status: 9)")),
            (driver("echo GPU-1"), Some("shows 1")),
            (driver("echo GPU-1; echo GPU-2"), None),
        ] {
            let problem = driver_problem(&program, 2, &clock).await;
            assert_eq!(problem.is_some(), part.is_some(), "{problem:?}");
            assert!(problem.unwrap_or_default().contains(part.unwrap_or_default()));
        }
    }

    #[test]
    fn maps_what_is_known_and_shows_what_is_not() {
        let inventory = Inventory::parse(
            "GPU-1a, NVIDIA A100-SXM4-80GB, 81920 MiB\n\
             GPU-1b, Tesla T4, 15360 MiB\n\
             GPU-1c, NVIDIA A100-SXM4-80GB, 40960 MiB\n\
             GPU-1d, NVIDIA Riva TNT2, 32 MiB\n\
             GPU-1e, NVIDIA L40S, [N/A]\n\
             garbage\n\n",
        );
        let found: Vec<_> =
            inventory.gpus.iter().map(|g| (g.device.as_str(), g.model.as_str())).collect();
        assert_eq!(found, [("GPU-1a", "a100-80g"), ("GPU-1b", "t4")]);
        assert_eq!(inventory.rejected.len(), 4);
        assert!(inventory.rejected.iter().all(|row| !row.reason.is_empty()));
    }
}
