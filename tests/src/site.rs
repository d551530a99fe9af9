//! A whole EnvLoop site: server, containers, registry, both clients.

use crate::command::{Finished, Runner};
use crate::containers::{Containers, our_el, published_el};
use crate::server::{Server, ServerOptions};
use crate::wait::eventually_within;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// The longest that a flow of these suites takes.
pub const LONG: Duration = Duration::from_secs(120);

/// A server on containers, and both clients with a key of their own. Needs root.
#[derive(Debug)]
pub struct Site {
    /// The server.
    pub server: Server,
    /// Its container engine and registry.
    pub containers: Containers,
    /// Home of the clients.
    pub home: TempDir,
    /// Their key.
    pub key: String,
}

impl Site {
    /// A site with these GPUs.
    pub fn new(gpus: &str) -> Self {
        Self::with(gpus, "")
    }

    /// The same with more settings.
    pub fn with(gpus: &str, settings: &str) -> Self {
        Self::on(Containers::start(), gpus, settings)
    }

    /// The same on a container engine and registry that are there.
    ///
    /// # Panics
    /// When the server does not start.
    pub fn on(containers: Containers, gpus: &str, settings: &str) -> Self {
        let server = Server::start_with(ServerOptions {
            try_locally: false,
            config: Some(format!("{}\n{settings}", containers.config(gpus))),
            env: containers.env(),
            ..ServerOptions::default()
        });
        let home = tempfile::tempdir().expect("the site was set up");
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700))
            .expect("the site was set up");
        let site = Site { server, containers, home, key: String::new() };
        let key = site.new_key(&[]);
        Site { key, ..site }
    }

    /// Another key.
    pub fn new_key(&self, more: &[&str]) -> String {
        let data = self.server.data_dir().to_string_lossy().into_owned();
        let words = ["token", "create", "--envloop", "--data-dir", &data];
        let made = self.server.beside(&[&words, more].concat()).expect_code(0);
        let key = made.stdout.trim().to_owned();
        assert!(key.starts_with("epk_"), "{made}");
        key
    }

    /// A client with this site's environment.
    pub fn client(&self, program: &Path) -> Runner {
        let mut runner = Runner::new(program, self.home.path(), self.home.path());
        runner.limit = LONG;
        for (name, value) in [
            ("ENVLOOP_HOME", self.home.path().to_str().expect("the site was set up")),
            ("ENVLOOP_BASE_URL", &self.server.url()),
            ("ENVLOOP_API_KEY", &self.key),
            ("ENVLOOP_WORKSPACE_ID", "default"),
            ("ENVLOOP_PROJECT_ID", "default"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ] {
            runner.set(name, value);
        }
        runner
    }

    /// Runs the published `el`.
    pub fn published(&self, words: &[&str]) -> Finished {
        self.client(&published_el()).run(words)
    }

    /// Runs our `el`.
    pub fn ours(&self, words: &[&str]) -> Finished {
        self.client(&our_el()).run(words)
    }

    /// Runs a script with the published SDK.
    pub fn python(&self, script: &str, arguments: &[&str]) -> Finished {
        let python = published_el().with_file_name("python");
        let words = [&["-c", script], arguments].concat();
        self.client(&python).run(&words)
    }

    /// Writes a file into the home.
    pub fn file(&self, name: &str, content: &Value) -> String {
        let path = self.home.path().join(name);
        fs::write(&path, content.to_string()).expect("the site was set up");
        path.to_string_lossy().into_owned()
    }

    /// The example runner's selector.
    pub fn runner(&self) -> String {
        let page = self.ours(&["runner", "list", "--json"]).expect_code(0).json();
        page["items"][0]["selector"].as_str().expect("the site was set up").to_owned()
    }

    /// A trial's spec for the example runner.
    pub fn spec(&self, gpus: u32, command: &str) -> Value {
        json!({
            "runner": self.runner(), "image": self.containers.image(), "command": command,
            "resources": { "gpu_type": "H100", "gpus": gpus }, "timeout_seconds": 600,
        })
    }

    /// The job now.
    pub fn job(&self, id: &str) -> Value {
        let got = self.ours(&["job", "get", id]);
        assert!(matches!(got.code, Some(0 | 1)), "{got}");
        got.json()
    }

    /// The job once it has ended and is cleaned up.
    pub fn wait(&self, id: &str) -> Value {
        eventually_within(LONG, "the job ends and is cleaned up", || {
            let job = self.job(id);
            let ended =
                matches!(job["status"].as_str(), Some("completed" | "failed" | "cancelled"));
            (ended && job["cleanup_confirmed"] == true).then_some(job)
        })
    }

    /// The job once it has completed and is cleaned up.
    ///
    /// # Panics
    /// When it ends otherwise, with all that is known of it.
    pub fn completed(&self, id: &str) -> Value {
        let job = self.wait(id);
        if job["status"] != "completed" {
            let events = self.ours(&["job", "event", id]).stdout;
            let log = self.ours(&["job", "log", id, "--tail", "200"]).stdout;
            panic!("the job has not completed: {job}\n{events}\n{log}");
        }
        job
    }

    /// Submits a request with our client; the job's id.
    pub fn submit(&self, request: &Value) -> String {
        let path = self.file("request.json", request);
        let made = self.ours(&["job", "submit", "--type", "train", "--spec", &path]).expect_code(0);
        made.json()["job_id"].as_str().expect("the site was set up").to_owned()
    }

    /// The code that the published client is refused with.
    pub fn refused(&self, request: &Value) -> String {
        let path = self.file("refused.json", request);
        let refused = self.published(&["job", "submit", "--type", "train", "--file", &path]);
        let refused = refused.expect_code(1);
        refused.stderr.split(':').next().unwrap_or_default().to_owned()
    }
}

/// A member that must be a string.
///
/// # Panics
/// When it is none.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}
