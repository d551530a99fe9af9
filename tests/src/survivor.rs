//! A server that may die at any moment, and a caller that does not mind.

use crate::api::{Api, Reply, sha256_of};
use crate::server::{Server, ServerOptions};
use crate::wait::eventually_within;
use serde_json::{Value, json};
use std::time::Duration;

/// How long any one thing may take, with all deaths and restarts in it.
const LIMIT: Duration = Duration::from_secs(120);

/// A server that is started again whenever it has died, with a caller whose every request is repeated until an answer
/// comes.
#[derive(Debug)]
pub struct Survivor {
    server: Server,
    api: Api,
    /// How often the server had died before it was asked something.
    pub deaths: u32,
}

impl Survivor {
    /// Starts it; it may die during that as well.
    pub fn start(options: ServerOptions) -> Self {
        let server = Server::start_with(ServerOptions { may_die: true, ..options });
        let api = server.api();
        Survivor { server, api, deaths: 0 }
    }

    /// The server as it is now.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A caller of the server, for requests that must be answered at once.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Starts the server again if it has died.
    pub fn keep_up(&mut self) {
        self.deaths += u32::from(self.server.keep_up());
    }

    /// Sends one request again and again until it is answered.
    #[track_caller]
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Reply {
        eventually_within(LIMIT, &format!("an answer to {method} {path}"), || {
            self.keep_up();
            self.api.try_send(method, path, headers, body.map(<[u8]>::to_vec))
        })
    }

    #[track_caller]
    fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
        let headers: Vec<_> =
            [("Content-Type", "application/json")].iter().chain(headers).copied().collect();
        self.send("POST", path, &headers, Some(body.to_string().as_bytes()))
    }

    /// Syncs `files` for `job`.
    #[track_caller]
    pub fn sync(&mut self, job: &str, yaml: &str, files: &[(&str, &[u8])]) {
        let manifest: Vec<Value> = files
            .iter()
            .map(|(path, content)| json!({"path": path, "hash": sha256_of(content), "size": content.len()}))
            .collect();
        let diff = json!({"job_name": job, "files": manifest, "yaml_content": yaml});
        let diff = self.post("/api/v1/sync/diff", &[], &diff).expect(200);
        for wanted in diff["files_to_upload"].as_array().into_iter().flatten() {
            let path = wanted["path"].as_str().expect("a path");
            let url = wanted["presigned_url"].as_str().expect("an address");
            let (_, content) = files.iter().find(|(known, _)| *known == path).expect("is known");
            let kind = [("Content-Type", "application/octet-stream")];
            self.send("PUT", url, &kind, Some(content)).expect(200);
        }
        let complete = json!({"job_name": job, "files": manifest, "files_count": files.len()});
        self.post("/api/v1/sync/complete", &[], &complete).expect(200);
    }

    /// Submits `yaml` on the best offer under an idempotency key; the job's id.
    #[track_caller]
    pub fn submit(&mut self, yaml: &str, key: &str) -> String {
        let quote = json!({"gpu_model": "NVIDIA A100-80GB", "gpu_count": 1, "task_type": "training", "spot_allowed": true, "top_n": 1});
        let quote = self.post("/api/v1/comparison/quote", &[], &quote).expect(200);
        let offer = &quote["recommendations"][0]["offer"]["offer_key"];
        let body = json!({"yaml_content": yaml, "offer_key": offer});
        let made = self.post("/api/v1/jobs/submit", &[("Idempotency-Key", key)], &body);
        made.expect(200)["job_id"].as_str().expect("a job id").to_owned()
    }

    /// The job.
    #[track_caller]
    pub fn job(&mut self, id: &str) -> Value {
        self.send("GET", &format!("/api/v1/jobs/{id}"), &[], None).expect(200)
    }

    /// Waits until `probe` of the job gives a value; the server is kept up meanwhile.
    #[track_caller]
    pub fn wait_job<T>(
        &mut self,
        id: &str,
        what: &str,
        mut probe: impl FnMut(&Value) -> Option<T>,
    ) -> T {
        eventually_within(LIMIT, what, || {
            let found = probe(&self.job(id));
            if found.is_none() {
                // A busy machine has better things to do than to answer the same question.
                std::thread::sleep(Duration::from_millis(80));
            }
            found
        })
    }

    /// Waits until the job has ended and the release of its node is confirmed.
    #[track_caller]
    pub fn wait_over(&mut self, id: &str) -> Value {
        self.wait_job(id, &format!("{id} ends and its node is released"), |job| {
            let ended = matches!(job["status"].as_str(), Some("succeeded" | "failed" | "stopped"));
            (ended && job["cleanup_confirmed"] == true).then(|| job.clone())
        })
    }

    /// Waits for something outside; the server is kept up meanwhile.
    #[track_caller]
    pub fn wait_for<T>(&mut self, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
        eventually_within(LIMIT, what, || {
            self.keep_up();
            probe()
        })
    }
}
