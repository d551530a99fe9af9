//! Ending everything that runs as one user, at one stroke.
//!
//! Looking through `/proc` and killing what is found misses a program that goes on as its own child
//! over and over, faster than anybody looks. The kernel misses nothing: it signals every process of
//! a user in one step, in which none can be born, and one that was killed makes no child any more.
//! It does so for a process of that user only, so there is one of our own for it. It becomes the
//! user without becoming another program: so that user can neither trace it nor answer for it.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process_group};
use rustix::thread::set_thread_res_uid;

/// A stopped helper is given up: its user can do that in the instant in which it is its own.
const LIMIT: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(2);

/// Ends every process of a user and comes back with an exit code: 0 where the system has done it.
/// This process becomes that user for it and must end.
///
/// Call it first thing in a fresh process of root, with no other threads.
#[must_use]
pub fn end_user(uid: u32) -> u8 {
    // As root or as nobody in particular it would end the whole machine.
    if uid == 0 || uid == u32::MAX {
        return 1;
    }
    let user = rustix::fs::Uid::from_raw(uid);
    if set_thread_res_uid(user, user, user).is_err() {
        return 1;
    }
    if getuid() != user || rustix::process::geteuid() != user {
        return 1;
    }
    // The group of the first process stands for all processes that may be signalled.
    match kill_process_group(Pid::INIT, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => 0,
        Err(_) => 1,
    }
}

/// Has every process of a user ended by `program`, which calls [`end_user`] for the arguments
/// `agent-end --uid <uid>`. False where that user's programs have kept it from it.
pub(crate) fn have_user_ended(program: &OsStr, uid: u32) -> io::Result<bool> {
    let mut helper = Command::new(program)
        .args(["agent-end", "--uid", &uid.to_string()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let since = Instant::now();
    loop {
        match helper.try_wait()? {
            Some(status) => return outcome(status),
            None if since.elapsed() > LIMIT => {
                helper.kill()?;
                helper.wait()?;
                return Ok(false);
            }
            None => std::thread::sleep(TICK),
        }
    }
}

fn outcome(status: ExitStatus) -> io::Result<bool> {
    match status.code() {
        Some(0) => Ok(true),
        // Killed.
        None => Ok(false),
        Some(code) => Err(io::Error::other(format!("ending a user has failed with {code}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_root_nor_everybody_is_ended() {
        assert_eq!(end_user(0), 1);
        assert_eq!(end_user(u32::MAX), 1);
    }
}
