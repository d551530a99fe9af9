//! A container engine and an image registry of one's own.

use crate::command::{Runner, Running};
use crate::server::{free_port, path_from};
use crate::wait::eventually_within;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A driver that shows as many GPUs as it is asked about.
const DRIVER: &str = r#"#!/bin/sh
for word in "$@"; do case $before in -i) list=$word ;; esac; before=$word; done
count=$(printf '%s' "$list" | tr ',' '\n' | grep -c .)
while [ "$count" -gt 0 ]; do echo "NVIDIA H100 80GB HBM3, 81559"; count=$((count - 1)); done
"#;

/// Podman's Docker API on a socket, and a loopback registry with an image. Needs root. Dropping it ends both.
#[derive(Debug)]
pub struct Containers {
    folder: TempDir,
    registry: u16,
    tls: bool,
    processes: Vec<Running>,
}

impl Containers {
    /// Starts both.
    ///
    /// # Panics
    /// When the registry's folder was not made; `tests/run` makes it.
    pub fn start() -> Self {
        Self::start_with(false)
    }

    /// The same with a registry that speaks TLS with a certificate of its own authority.
    ///
    /// # Panics
    /// As [`Containers::start`].
    pub fn start_with_tls() -> Self {
        Self::start_with(true)
    }

    fn start_with(tls: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("runwhere-pod-").tempdir().expect("a folder");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("the folder is ours");
        let registry = free_port();
        let kept = std::env::var_os("RUNWHERE_REGISTRY").map(PathBuf::from).unwrap_or_default();
        assert!(kept.is_dir(), "RUNWHERE_REGISTRY names no folder: run tests/run");
        let mut site = Containers { folder, registry, tls, processes: Vec::new() };
        let tls = if tls { site.certificate() } else { String::new() };
        site.write(
            "registry.yml",
            &format!(
                "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n  \
                 maintenance: {{readonly: {{enabled: true}}}}\nhttp: {{addr: 127.0.0.1:{registry}{tls}}}\n",
                kept.display()
            ),
        );
        site.write(
            "registries.conf",
            &format!("[[registry]]\nlocation = \"127.0.0.1:{registry}\"\ninsecure = true\n"),
        );
        site.write(
            "containers.conf",
            "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\ncgroupns = \"host\"\n\
             [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
        );
        gpu_driver(&site.path("bin"));
        let config = site.text("registry.yml");
        let registry = site.runner("docker-registry").start(&["serve", &config]);
        site.processes = vec![registry, site.engine()];
        let address = format!("127.0.0.1:{}", site.registry);
        eventually_within(Duration::from_secs(30), "the registry listens", || {
            std::net::TcpStream::connect(&address).ok()
        });
        site
    }

    /// Starts the container engine.
    fn engine(&self) -> Running {
        let (store, run, socket) = (self.text("store"), self.text("run"), self.socket());
        let address = format!("unix://{}", socket.display());
        let _ = fs::remove_file(&socket);
        let service = ["system", "service", "-t", "0", &address];
        let words = [&["--root", &store, "--runroot", &run][..], &service].concat();
        let service = self.runner("podman").start(&words);
        eventually_within(Duration::from_secs(30), "the container engine listens", || {
            socket.exists().then_some(())
        });
        service
    }

    /// Kills the container engine and starts it again after a while; its containers run on.
    pub fn restart_engine(&mut self, away: Duration) {
        self.processes[1].signal(Signal::KILL);
        std::thread::sleep(away);
        self.processes[1] = self.engine();
    }

    /// Makes an authority and the registry's certificate; returns the registry's settings for it.
    fn certificate(&self) -> String {
        let new_key = || rcgen::KeyPair::generate().expect("a key");
        let params = |names: Vec<String>| rcgen::CertificateParams::new(names).expect("names");
        let mut authority = params(Vec::new());
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = rcgen::CertifiedIssuer::self_signed(authority, new_key()).expect("signs");
        let key = new_key();
        let names = params(vec!["127.0.0.1".to_owned()]);
        let certificate = names.signed_by(&key, &authority).expect("signs");
        self.write("ca.pem", &authority.pem());
        self.write("registry.pem", &certificate.pem());
        self.write("registry.key", &key.serialize_pem());
        let (certificate, key) = (self.text("registry.pem"), self.text("registry.key"));
        format!(", tls: {{certificate: {certificate}, key: {key}}}")
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("is in the folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    fn runner(&self, program: &str) -> Runner {
        let program = Path::new("/usr/bin").join(program);
        let mut runner = Runner::new(&program, self.folder.path(), self.folder.path());
        runner.set("CONTAINERS_CONF", self.path("containers.conf"));
        runner.set("CONTAINERS_REGISTRIES_CONF", self.path("registries.conf"));
        runner
    }

    fn socket(&self) -> PathBuf {
        self.path("podman.sock")
    }

    /// A reference of the image with Bash and Python.
    pub fn image(&self) -> String {
        self.reference("1")
    }

    /// A reference with a tag in the registry.
    pub fn reference(&self, tag: &str) -> String {
        format!("127.0.0.1:{}/test/gpu:{tag}", self.registry)
    }

    /// `config.toml` of a server that runs containers here on so many GPUs.
    pub fn config(&self, gpus: &str) -> String {
        let images = match self.tls {
            true => format!("[images]\nca_file = \"{}\"\n", self.text("ca.pem")),
            false => String::new(),
        };
        format!(
            "{images}[local]\ngpus = \"{gpus}\"\nprice_per_hour = \"10 CNY\"\nruntime = \"docker\"\n\
             docker_socket = \"{}\"\ndocker_network = \"host\"\n",
            self.socket().display()
        )
    }

    /// The environment of a server: the driver that shows GPUs.
    pub fn env(&self) -> Vec<(String, std::ffi::OsString)> {
        gpu_driver(&self.path("bin"))
    }

    /// Names of all containers, running or not.
    pub fn containers(&self) -> String {
        let (store, run) = (self.text("store"), self.text("run"));
        let listed = self.runner("podman").run(&[
            "--root",
            &store,
            "--runroot",
            &run,
            "ps",
            "-a",
            "--format",
            "{{.Names}}",
        ]);
        listed.expect_code(0).stdout
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        let (store, run) = (self.text("store"), self.text("run"));
        let all = ["--root", &store, "--runroot", &run, "rm", "-fa", "-t", "0"];
        let _ = self.runner("podman").run(&all);
        for process in &self.processes {
            process.signal(Signal::KILL);
        }
        // Podman leaves its folder mounted on itself.
        let _ = Command::new("umount").arg(self.path("store/overlay")).status();
    }
}

/// Makes a driver in a folder that shows as many GPUs as it is asked about; gives the environment of a server that
/// finds it there.
///
/// # Panics
/// When the folder cannot be written.
pub fn gpu_driver(folder: &Path) -> Vec<(String, std::ffi::OsString)> {
    fs::create_dir_all(folder).expect("a folder");
    let driver = folder.join("nvidia-smi");
    fs::write(&driver, DRIVER).expect("a file");
    fs::set_permissions(driver, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", folder.display());
    vec![("PATH".to_owned(), path.into())]
}

/// The published `el` and its Python.
pub fn published_el() -> PathBuf {
    path_from("RUNWHERE_PUBLISHED_EL")
}

/// Our `el`.
pub fn our_el() -> PathBuf {
    path_from("RUNWHERE_EL_BIN")
}
