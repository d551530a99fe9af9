//! Runs the binary in a sealed environment.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A user: a home, a project folder, a server.
pub(crate) struct User {
    home: TempDir,
    project: TempDir,
    endpoint: Option<String>,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Fails with everything that was printed.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.stdout.trim()).unwrap()
    }

    /// The one JSON object on standard error.
    pub(crate) fn error(&self) -> serde_json::Value {
        let lines: Vec<_> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{}", self.stderr);
        serde_json::from_str::<serde_json::Value>(lines[0]).unwrap()["error"].clone()
    }
}

impl User {
    pub(crate) fn new(endpoint: Option<&str>) -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            project: tempfile::tempdir().unwrap(),
            endpoint: endpoint.map(str::to_owned),
        }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.project.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runwhere"));
        command
            .args(arguments)
            .current_dir(self.project.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::null());
        if let Some(endpoint) = &self.endpoint {
            command.env("RUNW_ENDPOINT", endpoint).env("RUNW_TOKEN", "rw-token-1");
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.command(arguments).output().unwrap())
    }

    pub(crate) fn run_with_stdin(&self, arguments: &[&str], stdin: &str) -> Done {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        Done::of(child.wait_with_output().unwrap())
    }
}

pub(crate) const TASK: &str = "\
version: v1
kind: Training
job:
  name: llama-finetune
environment:
  command: \"python train.py\"
resources:
  gpuNum: 1
  gpuType: a100-80g
storage:
  workdirs:
    - path: \".\"
";
