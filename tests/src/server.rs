//! A server of one's own, on a free loopback port and a fresh data folder.

use crate::api::Api;
use crate::command::{Finished, Runner, Running};
use crate::processes::Processes;
use crate::wait::eventually_within;
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The binary under test, as a user builds it.
///
/// # Panics
/// When `RUNWHERE_BIN` does not name it; `tests/run` sets it.
pub fn runwhere_bin() -> PathBuf {
    path_from("RUNWHERE_BIN")
}

/// The same program with points to die at, which only the test build has.
///
/// # Panics
/// When `RUNWHERE_FAILPOINT_BIN` does not name it; `tests/run` sets it.
pub fn failpoint_bin() -> PathBuf {
    path_from("RUNWHERE_FAILPOINT_BIN")
}

pub(crate) fn path_from(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).map(PathBuf::from).unwrap_or_default();
    assert!(path.is_file(), "{variable} names no file: run tests/run, or set it to the program");
    path
}

/// What a test server is started with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// `--try-locally`: the local machine pretends to have the wanted GPUs.
    pub try_locally: bool,
    /// The data folder; a fresh one without.
    pub data_dir: Option<PathBuf>,
    /// Further arguments of `serve`.
    pub arguments: Vec<String>,
    /// The text of `config.toml` in the data folder.
    pub config: Option<String>,
    /// Another program than [`runwhere_bin`].
    pub program: Option<PathBuf>,
    /// Further variables of its environment.
    pub env: Vec<(String, OsString)>,
    /// It may die at its start, and is then started again.
    pub may_die: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            try_locally: true,
            data_dir: None,
            arguments: Vec::new(),
            config: None,
            program: None,
            env: Vec::new(),
            may_die: false,
        }
    }
}

/// A running `runwhere serve`. Dropping it kills it and everything that it started on this machine.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    port: u16,
    folder: TempDir,
    data_dir: PathBuf,
    process: Option<Running>,
}

impl Server {
    /// Starts `serve --try-locally` and waits until it is ready.
    pub fn start() -> Self {
        Self::start_with(ServerOptions::default())
    }

    /// Starts a server and waits until it is ready.
    ///
    /// # Panics
    /// When it is not ready within a minute, or ends.
    pub fn start_with(options: ServerOptions) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("runwhere-test-")
            .tempdir()
            .expect("a temporary folder");
        open_to_all(folder.path());
        let data_dir = options.data_dir.clone().unwrap_or_else(|| folder.path().join("data"));
        if let Some(config) = &options.config {
            fs::create_dir_all(&data_dir).expect("the data folder");
            fs::write(data_dir.join("config.toml"), config).expect("config.toml");
        }
        fs::create_dir_all(folder.path().join("home")).expect("a home");
        let mut server = Server { options, port: free_port(), folder, data_dir, process: None };
        server.launch();
        server
    }

    fn runner(&self) -> Runner {
        let program = self.options.program.clone().unwrap_or_else(runwhere_bin);
        let mut runner =
            Runner::new(&program, &self.folder.path().join("home"), self.folder.path());
        for (name, value) in &self.options.env {
            runner.set(name, value);
        }
        runner
    }

    fn launch(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        let data_dir = self.data_dir.to_string_lossy().into_owned();
        let mut arguments = vec!["serve", "--listen", &listen, "--data-dir", &data_dir];
        if self.options.try_locally {
            arguments.push("--try-locally");
        }
        arguments.extend(self.options.arguments.iter().map(String::as_str));
        let mut process = self.runner().start(&arguments);
        let probe = Api::new(&self.url(), "");
        eventually_within(Duration::from_secs(60), "the server is ready", || {
            if process.ended() {
                let said = format!("{}\n{}", process.stdout(), process.stderr());
                assert!(self.options.may_die, "serve ended: {said}");
                process = self.runner().start(&arguments);
            }
            probe.try_get("/readyz").filter(|reply| reply.status == 200)
        });
        self.process = Some(process);
    }

    /// `http://127.0.0.1:PORT`; the same after a restart.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The data folder.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The server's process id.
    ///
    /// # Panics
    /// While it is down.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server runs").pid()
    }

    /// What the server said on standard error since its last start.
    pub fn stderr(&self) -> String {
        self.process.as_ref().map(Running::stderr).unwrap_or_default()
    }

    /// The token that the first start wrote.
    ///
    /// # Panics
    /// When it wrote none.
    pub fn first_token(&self) -> String {
        let path = self.data_dir.join("first-token");
        let token =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        token.trim().to_owned()
    }

    /// A caller with the first token.
    pub fn api(&self) -> Api {
        Api::new(&self.url(), &self.first_token())
    }

    /// Runs another command of the binary on the same data folder, such as `token create`.
    pub fn beside(&self, arguments: &[&str]) -> Finished {
        self.runner().run(arguments)
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal(Signal::KILL);
            process.finish(Duration::from_secs(10));
        }
    }

    /// Starts the server again on the same port and data folder.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    /// Starts the server again if it has died; true where it had.
    pub fn keep_up(&mut self) -> bool {
        let dead = self.process.as_mut().is_none_or(Running::ended);
        if dead {
            self.restart();
        }
        dead
    }

    /// Asks the server to end, as a service manager does, and waits for it.
    pub fn stop(&mut self) -> Option<Finished> {
        let process = self.process.take()?;
        process.signal(Signal::TERM);
        Some(process.finish(Duration::from_secs(30)))
    }

    /// What this server's jobs have running on this machine, without the server itself.
    pub fn leftovers(&self) -> Processes {
        let mut found = Processes::of(&self.data_dir);
        if let Some(process) = &self.process {
            found.0.remove(&i32::try_from(process.pid()).expect("process ids are small"));
        }
        found
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            if std::thread::panicking() {
                eprintln!("--- the server's standard error\n{}", process.stderr());
            }
            drop(process);
        }
        Processes::end_all(&self.data_dir);
    }
}

/// Jobs may run under other users' ids, which must be able to pass through.
pub(crate) fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("the folder is ours");
}

/// A port below the range that outgoing connections use, so that it is still free when a killed server comes back.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Spread by process, since the runner starts one for each test.
    let spread = u16::try_from(std::process::id() % 997).expect("below 997") * 11;
    for _ in 0..2000 {
        let port = 20_000 + (spread + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        // The published client treats `:8000` in an address specially, as a text.
        if !port.to_string().starts_with("8000") && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between 20000 and 32000");
}
