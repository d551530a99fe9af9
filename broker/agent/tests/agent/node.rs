//! A node folder and the agent processes in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use runwhere_agent::protocol::{
    Assignment, Bootstrap, CollectLimits, Digest, DropTo, Exec, Gpus, LEASE_MARKER,
    PROTOCOL_VERSION, Runtime, SyncFile,
};

use crate::broker::{Broker, TOKEN};

pub(crate) struct Node {
    temp: tempfile::TempDir,
    marker: String,
    agents: Vec<Child>,
}

pub(crate) struct Setup {
    pub(crate) ttl: u64,
    pub(crate) drop_to: Option<DropTo>,
    pub(crate) gpu_devices: Option<Vec<String>>,
    pub(crate) gpus_stated: bool,
    /// The program works outside the node folder.
    pub(crate) apart: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { ttl: 600, drop_to: None, gpu_devices: None, gpus_stated: false, apart: false }
    }
}

impl Node {
    pub(crate) fn new(broker: &Broker, setup: &Setup) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let node =
            Self { temp, marker: format!("{LEASE_MARKER}={}", broker.lease()), agents: Vec::new() };
        fs::create_dir(node.dir()).unwrap();
        if setup.apart {
            fs::create_dir(node.outside("apart")).unwrap();
        }
        let bootstrap = Bootstrap {
            protocol: PROTOCOL_VERSION,
            lease_id: broker.lease().to_owned(),
            node_id: "node-1".to_owned(),
            broker_url: format!("http://{}", broker.address),
            lease_token: TOKEN.to_owned(),
            agent_ttl_seconds: setup.ttl,
            ca_pem: None,
            docker: None,
            runtime: Runtime::Process,
            drop_to: setup.drop_to,
            work_dir: setup.apart.then(|| node.outside("apart")),
            gpu_devices: setup.gpu_devices.clone(),
            gpus_stated: setup.gpus_stated,
        };
        let text = serde_json::to_vec(&bootstrap).unwrap();
        fs::write(node.dir().join("bootstrap.json"), text).unwrap();
        node
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.temp.path().join("node")
    }

    /// Writes into the bootstrap where the broker is, as a provider does it.
    pub(crate) fn rewrite_url(&self, broker: &Broker) {
        let path = self.dir().join("bootstrap.json");
        let mut bootstrap: Bootstrap = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        bootstrap.broker_url = format!("http://{}/", broker.address);
        let new = self.dir().join(".bootstrap.json.new");
        fs::write(&new, serde_json::to_vec(&bootstrap).unwrap()).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// A file outside the node folder that the program may write.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Starts an agent; its index.
    pub(crate) fn agent(&mut self) -> usize {
        self.start(Command::new(env!("CARGO_BIN_EXE_runwhere-agent")))
    }

    /// Starts an agent whose disk takes no file beyond `blocks` of 512 bytes.
    pub(crate) fn agent_with_file_limit(&mut self, blocks: u32) -> usize {
        let mut command = Command::new("/bin/sh");
        let text = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        command.arg("-c").arg(text).arg(env!("CARGO_BIN_EXE_runwhere-agent"));
        self.start(command)
    }

    /// Starts an agent for which `nvidia-smi` is a script; `$*` are its arguments.
    pub(crate) fn agent_with_driver(&mut self, script: &str) -> usize {
        let bin = self.outside("bin");
        fs::create_dir_all(&bin).unwrap();
        let program = bin.join("nvidia-smi");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(env!("CARGO_BIN_EXE_runwhere-agent"));
        command.env("PATH", format!("{}:{path}", bin.display()));
        self.start(command)
    }

    fn start(&mut self, mut command: Command) -> usize {
        let child = command
            .args(["agent", "--node-dir"])
            .arg(self.dir())
            .env("RUST_LOG", "runwhere_agent=info")
            .env("SECRET_OF_THE_AGENT", "s3cret")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.agents.push(child);
        self.agents.len() - 1
    }

    pub(crate) fn pid(&self, agent: usize) -> u32 {
        self.agents[agent].id()
    }

    pub(crate) fn kill(&mut self, agent: usize) {
        self.agents[agent].kill().unwrap();
        self.agents[agent].wait().unwrap();
    }

    /// Exit code of an agent that ends within a minute.
    pub(crate) fn exit_code(&mut self, agent: usize) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.agents[agent].try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the agent does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Living processes that carry the marker of this node's trial.
    pub(crate) fn processes(&self) -> Vec<u32> {
        fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| {
                let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                env.split(|byte| *byte == 0).any(|entry| entry == self.marker.as_bytes())
            })
            .collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

/// The program of `chain.c`, for everybody to run, at a path.
pub(crate) fn make_chain(path: &Path) {
    let source = path.with_extension("c");
    fs::write(&source, include_str!("chain.c")).unwrap();
    let made = Command::new("cc").arg("-o").arg(path).arg(&source).status().unwrap();
    assert!(made.success());
}

/// A file that every user may lock, at a path.
pub(crate) fn make_lock(path: &Path) {
    fs::write(path, "").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
}

/// Whether nobody holds a lock on a file: no process that has inherited it is left.
pub(crate) fn is_free(path: &Path) -> bool {
    fs::File::open(path).unwrap().try_lock().is_ok()
}

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An assignment that runs a shell text.
pub(crate) fn shell(text: &str) -> Assignment {
    Assignment {
        protocol: PROTOCOL_VERSION,
        job_id: "job-1".to_owned(),
        trial_id: "trial-1".to_owned(),
        job_name: "test".to_owned(),
        command: Exec { argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), text.to_owned()] },
        env: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
        sync: Vec::new(),
        restore: Vec::new(),
        workdir: ".".to_owned(),
        checkpoint: None,
        gpus: Gpus { model: "a100-80g".to_owned(), ..Gpus::default() },
        max_log_bytes: 10 << 30,
        stop_grace_seconds: 1,
        collect: CollectLimits { max_bytes: 20 << 30, max_seconds: 60 },
        runner: None,
        image: None,
    }
}

/// A manifest entry.
pub(crate) fn file(path: &str, content: &[u8]) -> SyncFile {
    SyncFile {
        path: path.to_owned(),
        sha256: Digest::of(content),
        size: content.len() as u64,
        mode: None,
    }
}

/// Value of a line such as `VmHWM:` in `/proc/<pid>/status`, in KiB.
pub(crate) fn status_kib(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}
