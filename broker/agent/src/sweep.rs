//! Finding and ending every process of a trial: its session, and everything that carries the
//! lease marker or runs as the lease's own user.

use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::protocol::LEASE_MARKER;
use crate::user::have_user_ended;

const KILL_LIMIT: Duration = Duration::from_secs(10);
const KILL_TICK: Duration = Duration::from_millis(10);
/// Looks in a row that must find nobody where the trial has no user of its own: one look misses
/// what goes on as its own child meanwhile.
const EMPTY_LOOKS: u32 = 3;

/// Which processes belong to a trial.
#[derive(Debug, Clone)]
pub(crate) struct Members {
    marker: Vec<u8>,
    session: Option<u32>,
    uid: Option<u32>,
    /// Program that ends everything of a user.
    ender: OsString,
}

impl Members {
    /// `session` only where it is known to be of this boot: numbers are used again.
    pub(crate) fn new(
        lease_id: &str,
        session: Option<u32>,
        uid: Option<u32>,
        ender: OsString,
    ) -> Self {
        let marker = format!("{LEASE_MARKER}={lease_id}").into_bytes();
        // The kernel's own threads are in session 0.
        let session = session.filter(|session| *session != 0);
        Self { marker, session, uid: uid.filter(|uid| *uid != 0), ender }
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
        if self.uid.is_some() && user(pid) == self.uid {
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

    /// Ends all members; blocks for a bounded time. False where some may still be there.
    pub(crate) fn kill(&self) -> bool {
        let since = Instant::now();
        let mut empty = 0;
        loop {
            let ended = self.end_user();
            let found = self.find();
            empty = if found.is_empty() { empty + 1 } else { 0 };
            // With a user of its own, nobody can have been born since it was ended.
            if empty > 0 && ended.unwrap_or(empty >= EMPTY_LOOKS) {
                return true;
            }
            for pid in found {
                self.signal(pid, Signal::KILL);
            }
            if since.elapsed() > KILL_LIMIT {
                return false;
            }
            std::thread::sleep(KILL_TICK);
        }
    }

    /// Whether everything of the trial's user was ended; `None` where it has none of its own.
    fn end_user(&self) -> Option<bool> {
        let ended = have_user_ended(&self.ender, self.uid?);
        Some(ended.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot end the programs of the trial's user");
            false
        }))
    }
}

/// The real user id. The owner of the folder in `/proc` is another one where a program wants it so.
fn user(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_is_taken_for_ended_before_the_user_is() {
        let folder = tempfile::tempdir().unwrap();
        let (ender, runs) = (folder.path().join("ender"), folder.path().join("runs"));
        // Stands for a helper that the user's programs have killed twice.
        let script = format!(
            "#!/bin/sh\necho \"$*\" >>{0}\n[ $(wc -l <{0}) -gt 2 ] || kill -9 $$\n",
            runs.display()
        );
        fs::write(&ender, script).unwrap();
        fs::set_permissions(&ender, fs::Permissions::from_mode(0o755)).unwrap();
        // A look finds nobody of this user from the beginning.
        let members = Members::new("none", None, Some(391_777), ender.into());
        assert!(members.find().is_empty());
        assert!(members.kill());
        let expected = "agent-end --uid 391777\n".repeat(3);
        assert_eq!(fs::read_to_string(runs).unwrap(), expected);
    }
}
