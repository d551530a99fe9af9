//! The wire, spoken directly: for what no client would send.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body as JSON, or as a JSON string where it is none.
    pub body: Value,
}

impl Reply {
    /// The body, after checking the status.
    ///
    /// # Panics
    /// When the status is another one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    /// The error envelope's message.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// A caller with one token. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Api {
    url: String,
    token: String,
    client: reqwest::Client,
    runtime: Arc<Runtime>,
}

impl Api {
    /// A caller of the server at `url`.
    pub fn new(url: &str, token: &str) -> Self {
        // Which provider is installed first does not matter: there is only this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(60))
            .build()
            .expect("a client without files or proxies");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        Api { url: url.to_owned(), token: token.to_owned(), client, runtime: Arc::new(runtime) }
    }

    /// The same server, another caller.
    pub fn with_token(&self, token: &str) -> Self {
        Api { token: token.to_owned(), ..self.clone() }
    }

    /// Sends one request; `None` where no answer came.
    pub fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Option<Reply> {
        let url =
            if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.url) };
        let method = method.parse().expect("a method");
        let mut request = self.client.request(method, url);
        if !self.token.is_empty() && !path.starts_with("http") {
            request = request.bearer_auth(&self.token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        self.runtime.block_on(async {
            let answer = request.send().await.ok()?;
            let status = answer.status().as_u16();
            let bytes = answer.bytes().await.ok()?;
            let body = serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
            Some(Reply { status, body })
        })
    }

    /// Sends one request.
    ///
    /// # Panics
    /// When no answer comes.
    #[track_caller]
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Reply {
        let reply = self.try_send(method, path, headers, body);
        reply.unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    /// GET.
    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], None)
    }

    /// GET; `None` where no answer came.
    pub fn try_get(&self, path: &str) -> Option<Reply> {
        self.try_send("GET", path, &[], None)
    }

    /// POST of a JSON body.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_with(path, &[], body)
    }

    /// POST of a JSON body with further headers.
    #[track_caller]
    pub fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
        let headers: Vec<_> =
            [("Content-Type", "application/json")].iter().chain(headers).copied().collect();
        self.send("POST", path, &headers, Some(body.to_string().into_bytes()))
    }

    /// DELETE.
    #[track_caller]
    pub fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], None)
    }

    /// The best offer for one A100 (80 GB), as a submit would choose it.
    #[track_caller]
    pub fn offer(&self) -> String {
        let quote = json!({"gpu_model": "NVIDIA A100-80GB", "gpu_count": 1, "task_type": "training", "spot_allowed": true, "top_n": 1});
        let body = self.post("/api/v1/comparison/quote", &quote).expect(200);
        let key = body["recommendations"][0]["offer"]["offer_key"].as_str();
        key.unwrap_or_else(|| panic!("no offer in {body}")).to_owned()
    }

    /// Syncs `files` for `job` as a client does and returns the sync's id.
    #[track_caller]
    pub fn sync(&self, job: &str, yaml: &str, files: &[(&str, &[u8])]) -> String {
        let manifest: Vec<Value> = files
            .iter()
            .map(|(path, content)| json!({"path": path, "hash": sha256_of(content), "size": content.len()}))
            .collect();
        let diff = json!({"job_name": job, "files": manifest, "yaml_content": yaml});
        let diff = self.post("/api/v1/sync/diff", &diff).expect(200);
        let mut sent = 0;
        for wanted in diff["files_to_upload"].as_array().into_iter().flatten() {
            let path = wanted["path"].as_str().expect("a path");
            let url = wanted["presigned_url"].as_str().expect("an address");
            let (_, content) =
                files.iter().find(|(known, _)| *known == path).expect("a path of the manifest");
            let reply = self.send(
                "PUT",
                url,
                &[("Content-Type", "application/octet-stream")],
                Some(content.to_vec()),
            );
            assert!(
                (200..300).contains(&reply.status),
                "upload of {path}: {} {}",
                reply.status,
                reply.body
            );
            sent += content.len();
        }
        let complete = json!({"job_name": job, "files": manifest, "files_count": files.len(), "bytes_total": sent});
        let complete = self.post("/api/v1/sync/complete", &complete).expect(200);
        complete["sync_id"].as_str().expect("a sync id").to_owned()
    }

    /// Submits `yaml` on the best offer and returns the whole answer.
    #[track_caller]
    pub fn try_submit(&self, yaml: &str, headers: &[(&str, &str)]) -> Reply {
        let body = json!({"yaml_content": yaml, "offer_key": self.offer()});
        self.post_with("/api/v1/jobs/submit", headers, &body)
    }

    /// Submits `yaml` on the best offer and returns the job's id.
    #[track_caller]
    pub fn submit(&self, yaml: &str) -> String {
        let body = self.try_submit(yaml, &[]).expect(200);
        body["job_id"].as_str().expect("a job id").to_owned()
    }

    /// A job, by name or id.
    #[track_caller]
    pub fn job(&self, job: &str) -> Value {
        self.get(&format!("/api/v1/jobs/{job}")).expect(200)
    }

    /// A job's newest 5000 log lines.
    #[track_caller]
    pub fn logs(&self, job: &str) -> Vec<String> {
        let body = self.get(&format!("/api/v1/jobs/{job}/logs?tail=5000")).expect(200);
        let lines = body["lines"].as_array().cloned().unwrap_or_default();
        lines.into_iter().map(|line| line.as_str().expect("lines are text").to_owned()).collect()
    }

    /// A job's newest lines without those of the platform.
    #[track_caller]
    pub fn program_lines(&self, job: &str) -> Vec<String> {
        self.logs(job).into_iter().filter(|line| !line.starts_with("[runwhere]")).collect()
    }

    /// Waits until the job has a status that is an end.
    #[track_caller]
    pub fn wait_end(&self, job: &str) -> Value {
        crate::eventually_within(Duration::from_secs(60), &format!("{job} ends"), || {
            let found = self.job(job);
            matches!(found["status"].as_str(), Some("succeeded" | "failed" | "stopped"))
                .then_some(found)
        })
    }

    /// Waits until the job has `status`.
    #[track_caller]
    pub fn wait_status(&self, job: &str, status: &str) -> Value {
        crate::eventually_within(Duration::from_secs(60), &format!("{job} is {status}"), || {
            let found = self.job(job);
            (found["status"] == status).then_some(found)
        })
    }

    /// Waits until the release of the job's node is confirmed.
    #[track_caller]
    pub fn wait_released(&self, job: &str) -> Value {
        crate::eventually_within(
            Duration::from_secs(60),
            &format!("the node of {job} is released"),
            || {
                let found = self.job(job);
                (found["cleanup_confirmed"] == true).then_some(found)
            },
        )
    }
}

/// A hash as manifests carry it.
pub(crate) fn sha256_of(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}
