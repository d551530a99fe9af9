//! Finding and ending every process of a trial: its session, and everything that carries the
//! lease marker or runs as the lease's own user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::protocol::LEASE_MARKER;

const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Which processes belong to a trial.
#[derive(Debug, Clone)]
pub(crate) struct Members {
    marker: Vec<u8>,
    session: Option<u32>,
    uid: Option<u32>,
}

impl Members {
    /// `session` only where it is known to be of this boot: numbers are used again.
    pub(crate) fn new(lease_id: &str, session: Option<u32>, uid: Option<u32>) -> Self {
        let marker = format!("{LEASE_MARKER}={lease_id}").into_bytes();
        // The kernel's own threads are in session 0.
        let session = session.filter(|session| *session != 0);
        Self { marker, session, uid: uid.filter(|uid| *uid != 0) }
    }

    /// Living members, without this process and its threads.
    pub(crate) fn find(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let own = std::process::id();
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| *pid != own && self.contains(*pid))
            .collect()
    }

    fn contains(&self, pid: u32) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        // The name in brackets may itself contain brackets and blanks.
        let Some((_, rest)) = stat.rsplit_once(')') else { return false };
        let mut fields = rest.split_ascii_whitespace();
        if matches!(fields.next(), None | Some("Z" | "X")) {
            return false;
        }
        // After the state: parent, process group, session.
        let session = fields.nth(2).and_then(|field| field.parse::<u32>().ok());
        if self.session.is_some() && session == self.session {
            return true;
        }
        if self.uid.is_some()
            && fs::metadata(format!("/proc/{pid}")).is_ok_and(|data| Some(data.uid()) == self.uid)
        {
            return true;
        }
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|env| env.split(|byte| *byte == 0).any(|entry| entry == self.marker))
    }

    fn signal(&self, pid: u32, signal: Signal) {
        let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(handle) = pidfd_open(id, PidfdFlags::empty()) else { return };
        // Between the search and the handle the number may have gone to somebody else.
        if self.contains(pid) {
            let _ = pidfd_send_signal(&handle, signal);
        }
    }

    /// Asks all members to end.
    pub(crate) fn terminate(&self) {
        for pid in self.find() {
            self.signal(pid, Signal::TERM);
        }
    }

    /// Ends all members; blocks for a bounded time. False where some are still there.
    pub(crate) fn kill(&self) -> bool {
        let since = Instant::now();
        loop {
            let found = self.find();
            if found.is_empty() {
                return true;
            }
            for pid in found {
                self.signal(pid, Signal::KILL);
            }
            if since.elapsed() > KILL_LIMIT {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
