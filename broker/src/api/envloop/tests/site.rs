use bytes::Bytes;
use runwhere_agent::protocol::{Digest, LogFrame, LogStream};
use runwhere_engine::{Budget, LogSeal, Output, TrialState};
use runwhere_model::{JobId, LeaseId, ProjectId, TrialId, WorkspaceId};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::Bench;
use crate::blobs::Encoding;
use crate::logs::Logs;
use crate::store::{Row, Store as _, Transition};

/// A bench with one runner, and jobs of it that nothing drives.
pub(super) struct Site {
    pub(super) bench: Bench,
    runner: String,
}

impl Site {
    pub(super) async fn new() -> Self {
        let bench = Bench::new().await;
        let runner = bench.runner("team/runner", "").await;
        Self { bench, runner }
    }

    pub(super) fn logs(&self) -> &Logs {
        &self.bench.logs
    }

    /// As a client that asks for no language.
    pub(super) async fn call(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, Value) {
        let reply = self.bench.call_in(None, &self.bench.key, method, path, body).await;
        (reply.status, reply.body)
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        self.bench.get(path).await.expect(200)
    }

    /// Nothing is ever accepted any more: the last of all checks refuses it.
    pub(super) async fn without_money(&self) {
        let currency = "CNY".parse().unwrap();
        let workspace = WorkspaceId::new("default").unwrap();
        let project = ProjectId::new("default").unwrap();
        let known = self.bench.store.budget(&project).await.unwrap();
        let budget = known.unwrap_or_else(|| Budget::unlimited(workspace, project, currency));
        let rows =
            vec![Row::Budget(Budget { limit: Some(Decimal::new(1, 2)), currency, ..budget })];
        self.bench.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
    }

    pub(super) fn spec(&self) -> Value {
        json!({
            "runner": self.runner,
            "image": "r.example/x:1",
            "command": "python train.py",
            "resources": { "gpu_type": "H100", "gpus": 1 },
            "timeout_seconds": 600,
            "tags": { "a": "b" },
        })
    }

    /// A queued job of so many trials.
    pub(super) async fn job(&self, trials: usize) -> (JobId, Vec<TrialId>) {
        let specs: Vec<Value> = (0..trials).map(|_| json!({ "spec": self.spec() })).collect();
        let made = self.bench.post("/v1/jobs", &json!({ "trials": specs })).await.expect(201);
        let job = JobId::new(made["job_id"].as_str().unwrap()).unwrap();
        let ids = (0..trials).map(|index| TrialId::new(format!("{job}.{index}")).unwrap());
        let ids = ids.collect();
        (job, ids)
    }

    /// A file that was collected of the trial.
    pub(super) async fn output(&self, trial: &TrialId, path: &str, content: &[u8]) {
        let project = ProjectId::new("default").unwrap();
        let (sha256, size) = (Digest::of(content), content.len() as u64);
        let begun = self.bench.blobs().begin(&project, sha256, size, Encoding::Identity).await;
        let mut writer = begun.unwrap();
        writer.write(Bytes::copy_from_slice(content)).await.unwrap();
        writer.finish().await.unwrap();
        let (path, sha256) = (path.to_owned(), sha256.to_string());
        let output = Output { path, sha256, size, checkpoint: false };
        let rows = vec![Row::Output(trial.clone(), output)];
        self.bench.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
    }

    /// The trial has ended, and its agent has said what it dropped.
    pub(super) async fn end(&self, id: &TrialId, dropped_bytes: u64) {
        let (_, mut trial, _) = self.bench.store.unit(id).await.unwrap().unwrap();
        trial.state = TrialState::Succeeded;
        trial.started_at = Some(trial.created_at);
        trial.ended_at = Some(trial.created_at);
        trial.next_at = None;
        trial.log = Some(LogSeal { frames: 1, bytes: 1, dropped_bytes });
        let rows = vec![Row::Trial(trial)];
        self.bench.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
        self.logs().seal(id).await.unwrap();
    }
}

/// What an agent has said so far.
#[derive(Debug, Default)]
pub(super) struct Talk {
    seq: u64,
    ends: [u64; 3],
}

impl Talk {
    /// Stores more of one stream.
    pub(super) async fn say(
        &mut self,
        logs: &Logs,
        trial: &TrialId,
        stream: LogStream,
        text: &str,
    ) {
        self.seq += 1;
        let end = &mut self.ends[usize::from(stream.number())];
        let frame = LogFrame {
            seq: self.seq,
            stream,
            time_us: 1_800_000_000_000_000 + i64::try_from(self.seq).unwrap(),
            offset: *end,
            bytes: Bytes::copy_from_slice(text.as_bytes()),
        };
        *end += text.len() as u64;
        let lease = LeaseId::new(format!("lease-{trial}")).unwrap();
        logs.append(trial, &lease, vec![frame]).await.unwrap();
    }
}
