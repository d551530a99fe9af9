//! What an agent is told to run.

use std::collections::BTreeMap;

use runwhere_agent::protocol::{
    Assignment, CollectLimits, Digest, Exec, Gpus, LEASE_MARKER, PROTOCOL_VERSION, SyncFile,
};
use runwhere_engine::{Job, Lease, Output, Policy, SyncManifest, Trial};

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
    let sync = parts.sync.map_or(&[][..], |sync| &sync.files);
    let (gpus, _) = spec.gpu_count.parts();
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
        gpus: Gpus {
            count: gpus,
            model: spec.gpu_model.map(|model| model.to_string()).unwrap_or_default(),
            pretend: spec.gpu_pretended,
        },
        max_log_bytes: parts.policy.log_bytes,
        stop_grace_seconds: parts.policy.stop_grace.as_secs(),
        collect: CollectLimits {
            max_bytes: parts.policy.collect_bytes,
            max_seconds: parts.policy.collect_limit.as_secs(),
        },
        image: spec.image.clone(),
    })
}

fn sync_file(path: &str, sha256: &str, size: u64) -> Result<SyncFile, String> {
    let sha256: Digest = sha256.parse().map_err(|_| format!("{path} has no valid digest"))?;
    Ok(SyncFile { path: path.to_owned(), sha256, size, mode: None })
}

/// The platform's variables win over the user's of the same name.
fn environment(parts: &Parts<'_>) -> BTreeMap<String, String> {
    let spec = &parts.job.spec;
    let mut env = spec.env.clone();
    let (gpus, _) = spec.gpu_count.parts();
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
