//! Running programs with a deadline and a sealed environment.

use crate::text::plain_terminal;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a program ended and what it said.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The command line, for messages.
    pub command: String,
    /// The exit code; `None` when a signal ended the program.
    pub code: Option<i32>,
    /// Standard output, invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error, invalid UTF-8 replaced.
    pub stderr: String,
}

impl Finished {
    /// This result, after checking the exit code.
    ///
    /// # Panics
    /// When the exit code is another one.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "exit code of {self}");
        self
    }

    /// Standard output as one JSON value.
    ///
    /// # Panics
    /// When it is not exactly that.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is not JSON ({error}): {self}"))
    }

    /// Standard output without colours and cursor movements.
    pub fn screen(&self) -> String {
        plain_terminal(&self.stdout)
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`{}` (exit {:?})\n--- stdout\n{}\n--- stderr\n{}\n---",
            self.command, self.code, self.stdout, self.stderr
        )
    }
}

/// A sealed place to run programs in: only the variables given here, one folder, one `HOME`.
#[derive(Debug, Clone)]
pub struct Runner {
    /// The program.
    pub program: PathBuf,
    /// Where it runs.
    pub folder: PathBuf,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The longest time that one run may take.
    pub limit: Duration,
}

impl Runner {
    /// A runner with `HOME`, `PATH`, a wide screen, a UTF-8 locale and no proxies.
    pub fn new(program: &Path, home: &Path, folder: &Path) -> Self {
        let mut runner = Runner {
            program: program.to_path_buf(),
            folder: folder.to_path_buf(),
            env: Vec::new(),
            limit: Duration::from_secs(60),
        };
        runner.set("HOME", home);
        runner.set("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        runner.set("NO_PROXY", "127.0.0.1,localhost");
        runner.set("COLUMNS", "200");
        runner.set("LANG", "C.UTF-8");
        runner.set("TERM", "xterm-256color");
        runner
    }

    /// Sets a variable, replacing an earlier value.
    pub fn set(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        let name = name.as_ref().to_os_string();
        self.env.retain(|(known, _)| *known != name);
        self.env.push((name, value.as_ref().to_os_string()));
        self
    }

    /// Runs to the end without standard input.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        self.run_with_input(arguments, b"")
    }

    /// Runs to the end; standard input is `input`, then its end.
    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Finished {
        let mut running = self.start(arguments);
        running.write(input);
        running.close_input();
        running.finish(self.limit)
    }

    /// Starts the program; its standard input stays open.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        Running::start(command, self, describe(&self.program, arguments))
    }

    /// Starts the program on a terminal of its own. What it shows is standard output of the result.
    pub fn start_in_terminal(&self, arguments: &[&str]) -> Running {
        let line = std::iter::once(quoted(&self.program.to_string_lossy()))
            .chain(arguments.iter().map(|argument| quoted(argument)))
            .collect::<Vec<_>>()
            .join(" ");
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]);
        let mut place = self.clone();
        place.set("SHELL", "/bin/sh");
        Running::start(command, &place, line)
    }

    /// Runs to the end on a terminal of its own.
    pub fn run_in_terminal(&self, arguments: &[&str]) -> Finished {
        self.start_in_terminal(arguments).finish(self.limit)
    }
}

fn describe(program: &Path, arguments: &[&str]) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    format!("{name} {}", arguments.join(" "))
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A program under way. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Running {
    command: String,
    child: Child,
    stdout: Pipe,
    stderr: Pipe,
}

impl Running {
    fn start(mut command: Command, place: &Runner, line: String) -> Self {
        command
            .current_dir(&place.folder)
            .env_clear()
            .envs(place.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start `{line}`: {error}"));
        let stdout = Pipe::read(child.stdout.take().expect("is piped"));
        let stderr = Pipe::read(child.stderr.take().expect("is piped"));
        Running { command: line, child, stdout, stderr }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Writes to standard input; an ended program is no error.
    pub fn write(&mut self, bytes: &[u8]) {
        if let Some(input) = self.child.stdin.as_mut() {
            let _ = input.write_all(bytes).and_then(|()| input.flush());
        }
    }

    /// Ends standard input.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, signal);
    }

    /// Whether the program has ended.
    pub fn ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// The exit code of a program that has ended by itself.
    pub fn code(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten().and_then(|status| status.code())
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When it does not come within `limit`.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Finished {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                break Some(status);
            }
            if Instant::now() >= end {
                break None;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        if status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // A left-over grandchild may hold the pipes open: do not wait for it longer than a moment.
        self.stdout.settle();
        self.stderr.settle();
        let finished = Finished {
            command: self.command.clone(),
            code: status.and_then(|status| status.code()),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        };
        assert!(status.is_some(), "did not end within {limit:?}: {finished}");
        finished
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[derive(Debug)]
struct Pipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Pipe {
    fn read(mut source: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut part = [0; 16 * 1024];
            while let Ok(count @ 1..) = source.read(&mut part) {
                kept.lock().expect("no reader panics").extend_from_slice(&part[..count]);
            }
        });
        Pipe { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no reader panics")).into_owned()
    }

    fn settle(&mut self) {
        let end = Instant::now() + Duration::from_secs(2);
        if let Some(reader) = self.reader.take() {
            while !reader.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
