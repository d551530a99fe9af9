//! What an agent is told to run.

use std::collections::BTreeMap;

use runwhere_agent::protocol::{
    Assignment, CollectLimits, Digest, Exec, Gpus, LEASE_MARKER, PROTOCOL_VERSION, RunnerTask,
    SyncFile,
};
use runwhere_engine::{Job, Lease, Output, Policy, RunnerRun, SyncManifest, SyncedFile, Trial};
use runwhere_model::{GpuCount, GpuModel, GpuModelId};

/// What the assignment is made of.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) job: &'a Job,
    pub(super) trial: &'a Trial,
    pub(super) lease: &'a Lease,
    pub(super) sync: Option<&'a SyncManifest>,
    pub(super) restore: &'a [Output],
    pub(super) policy: &'a Policy,
}

/// Makes the assignment of a lease; the same every time it is asked for.
pub(super) fn assignment(parts: &Parts<'_>) -> Result<Assignment, String> {
    let spec = &parts.job.spec;
    let terms = parts.job.terms(parts.trial.index);
    let sync = parts.sync.map_or(&[][..], |sync| &sync.files);
    Ok(Assignment {
        protocol: PROTOCOL_VERSION,
        job_id: parts.job.id.to_string(),
        trial_id: parts.trial.id.to_string(),
        job_name: parts.job.name.clone(),
        command: Exec { argv: spec.argv.clone() },
        env: environment(parts),
        sync: sync
            .iter()
            .map(|file| sync_file(&file.path, &file.sha256, file.size))
            .collect::<Result<_, _>>()?,
        restore: parts
            .restore
            .iter()
            .map(|output| sync_file(&output.path, &output.sha256, output.size))
            .collect::<Result<_, _>>()?,
        workdir: ".".into(),
        checkpoint: spec.checkpoint.clone(),
        gpus: gpus(terms.gpu_count, terms.gpu_model, terms.gpu_pretended),
        max_log_bytes: parts.policy.log_bytes,
        stop_grace_seconds: parts.policy.stop_grace.as_secs(),
        collect: CollectLimits {
            max_bytes: parts.policy.collect_bytes,
            max_seconds: parts.policy.collect_limit.as_secs(),
        },
        image: spec.image.clone(),
        runner: match parts.job.trial_spec(parts.trial.index) {
            Some(own) => Some(runner(&own.run)?),
            None => None,
        },
    })
}

fn runner(run: &RunnerRun) -> Result<RunnerTask, String> {
    let files = |files: &[SyncedFile]| {
        files
            .iter()
            .map(|file| sync_file(&file.path, &file.sha256, file.size))
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(RunnerTask {
        entrypoint: run.entrypoint.clone(),
        files: files(&run.files)?,
        inputs: files(&run.inputs)?,
        profile: run.profile.as_ref().map(ToString::to_string),
        command: run.command.clone(),
        outputs: run.outputs.clone(),
        image: run.image.pull_reference(),
        cpus: run.limits.cpus,
        memory_mib: run.limits.memory_mib,
        shm_mib: run.limits.shm_mib,
        storage_mib: run.limits.storage_mib,
    })
}

/// What the node's GPUs must be. A share of one is shown with a name and a memory of its own, so
/// only the number of those is checked.
fn gpus(count: GpuCount, model: Option<GpuModelId>, pretend: bool) -> Gpus {
    let (number, shares) = count.parts();
    let whole = model.map(GpuModelId::model).filter(|_| shares == 1);
    Gpus {
        count: number,
        model: model.map(|model| model.to_string()).unwrap_or_default(),
        pretend,
        memory_gib: whole.map(|model| model.memory_gib).filter(|gib| *gib > 0),
        names: whole.map(names).unwrap_or_default(),
    }
}

/// The words of all spellings of a model, without those that say its maker or its memory.
fn names(model: &GpuModel) -> Vec<String> {
    let telling = |word: &&str| {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let memory = unit.len() < word.len()
            && ["g", "gb"].iter().any(|known| unit.eq_ignore_ascii_case(known));
        !memory && !word.is_empty() && !word.eq_ignore_ascii_case(model.vendor.as_str())
    };
    let words = |name: &str| {
        let words: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).filter(telling).collect();
        words.join(" ")
    };
    let mut names = Vec::new();
    for name in [model.name].iter().chain(model.aliases) {
        let name = words(name);
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn sync_file(path: &str, sha256: &str, size: u64) -> Result<SyncFile, String> {
    let sha256: Digest = sha256.parse().map_err(|_| format!("{path} has no valid digest"))?;
    Ok(SyncFile { path: path.to_owned(), sha256, size, mode: None })
}

/// The platform's variables win over the user's of the same name.
fn environment(parts: &Parts<'_>) -> BTreeMap<String, String> {
    let spec = &parts.job.spec;
    let mut env = spec.env.clone();
    let (gpus, _) = parts.job.terms(parts.trial.index).gpu_count.parts();
    let mut set = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    set("RUNWHERE_JOB_ID", parts.job.id.to_string());
    set("RUNWHERE_JOB_NAME", parts.job.name.clone());
    set("RUNWHERE_ORG_ID", parts.job.workspace.to_string());
    set("RUNWHERE_USER_ID", parts.job.principal.to_string());
    set("RUNWHERE_NPROC_PER_NODE", gpus.to_string());
    set(LEASE_MARKER, parts.lease.id.to_string());
    if let Some(step) = spec.from_step {
        set("RUNW_RESUME_FROM_STEP", step.to_string());
    }
    if let Some(checkpoint) = &spec.checkpoint {
        set("RUNWHERE_CHECKPOINT_DIR", checkpoint.clone());
    }
    // Defaults that a user may override.
    for (name, value) in
        [("NCCL_TIMEOUT", "1800"), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"), ("NCCL_DEBUG", "WARN")]
    {
        env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    env
}

#[cfg(test)]
mod tests {
    use runwhere_agent::protocol::Gpu;

    use super::*;

    fn one(model: &GpuModel) -> Gpus {
        gpus(GpuCount::whole(1).unwrap(), Some(model.id), false)
    }

    // Names as drivers write them; 6 % is what drivers keep to themselves.
    fn shown(model: &GpuModel) -> impl Iterator<Item = Gpu> {
        let memory_mib = u64::from(model.memory_gib) * 1024 * 94 / 100;
        [model.name]
            .into_iter()
            .chain(model.aliases.iter().copied())
            .map(move |name| Gpu { name: name.to_owned(), memory_mib })
    }

    #[test]
    fn every_model_is_accepted_as_itself_and_as_no_other() {
        let nvidia = || GpuModel::all().iter().filter(|model| model.vendor.as_str() == "NVIDIA");
        for wanted in nvidia() {
            let gpus = one(wanted);
            for there in nvidia() {
                for gpu in shown(there) {
                    let same = there.id == wanted.id;
                    assert_eq!(gpus.accepts(&gpu), same, "{} on {gpu:?}", wanted.id);
                }
            }
        }
    }

    #[test]
    fn a_share_or_an_unnamed_model_is_only_counted() {
        let t4 = GpuModel::resolve("t4").unwrap();
        let share = gpus(GpuCount::fraction(1, 6).unwrap(), Some(t4.id), false);
        assert_eq!((share.count, share.memory_gib, share.names), (1, None, Vec::new()));
        let any = gpus(GpuCount::whole(2).unwrap(), None, false);
        assert_eq!((any.count, any.memory_gib, any.names), (2, None, Vec::new()));
        assert_eq!(one(GpuModel::resolve("a100-80g").unwrap()).names[0], "A100");
    }
}
