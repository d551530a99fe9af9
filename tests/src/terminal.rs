//! A terminal of one's own, whose keys can be pressed and whose window can be closed.

use crate::command::{Finished, Runner};
use crate::text::plain_terminal;
use crate::wait::eventually_within;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A program that is the leader of a terminal's session. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Terminal {
    command: String,
    child: Child,
    master: Option<Arc<OwnedFd>>,
    shown: Arc<Mutex<Vec<u8>>>,
    closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts the runner's program on a fresh terminal of 200 columns.
    ///
    /// # Panics
    /// Where the system has no terminal to give.
    pub fn start(runner: &Runner, arguments: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("the terminal is ours");
        let size = Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        let user = ioctl_tiocgptpeer(&master, flags).expect("its other side");
        tcsetwinsize(&user, size).expect("a size");
        let side = || Stdio::from(user.try_clone().expect("a descriptor"));
        // It becomes the program: the same process, with the terminal as its own.
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(&runner.program)
            .args(arguments)
            .current_dir(&runner.folder)
            .env_clear()
            .envs(runner.env.iter().map(|(name, value)| (name, value)))
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("setsid of util-linux");
        drop(user);
        let name = runner.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let master = Arc::new(master);
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let closing = Arc::<AtomicBool>::default();
        let reader = {
            let (master, shown, closing) =
                (Arc::clone(&master), Arc::clone(&shown), Arc::clone(&closing));
            std::thread::spawn(move || read(&master, &shown, &closing))
        };
        Terminal {
            command: format!("{name} {}", arguments.join(" ")),
            child,
            master: Some(master),
            shown,
            closing,
            reader: Some(reader),
        }
    }

    /// Presses keys; `\x03` is Ctrl-C.
    pub fn press(&self, keys: &[u8]) {
        if let Some(master) = &self.master {
            rustix::io::write(master, keys).expect("the terminal is open");
        }
    }

    /// What it shows, without colours and cursor movements.
    pub fn screen(&self) -> String {
        let shown = self.shown.lock().expect("no reader panics");
        plain_terminal(&String::from_utf8_lossy(&shown))
    }

    /// Waits until it shows `text`.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        eventually_within(Duration::from_secs(30), &format!("the terminal shows {text:?}"), || {
            self.screen().contains(text).then_some(())
        });
    }

    /// Closes the window: whoever reads or writes from now on finds no terminal any more.
    pub fn close(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no reader panics");
        }
        drop(self.master.take());
    }

    /// Waits for the program's end; what was shown is standard output of the result.
    ///
    /// # Panics
    /// When it does not come within `limit`.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Finished {
        let what = format!("`{}` ends", self.command);
        let status = eventually_within(limit, &what, || {
            self.child.try_wait().expect("the child can be waited for")
        });
        // Only the rest of what it wrote is still on its way.
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no reader panics");
        }
        Finished {
            command: self.command.clone(),
            code: status.code(),
            stdout: self.screen(),
            stderr: String::new(),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- the terminal\n{}", self.screen());
        }
    }
}

/// Takes in what is shown, to the end of the last program on the terminal or until the window is closed.
fn read(master: &OwnedFd, shown: &Mutex<Vec<u8>>, closing: &AtomicBool) {
    let mut part = [0; 16 * 1024];
    let tick = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    while !closing.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(master, PollFlags::IN)];
        match poll(&mut fds, Some(&tick)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        // Once nobody has the other side open, reading fails.
        match rustix::io::read(master, &mut part) {
            Ok(count @ 1..) => {
                shown.lock().expect("no reader panics").extend_from_slice(&part[..count]);
            }
            Ok(_) | Err(_) => return,
        }
    }
}
