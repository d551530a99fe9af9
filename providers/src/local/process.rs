//! Processes of an allocation: who belongs to it, and how they are ended.
//!
//! A process id alone says nothing: it is reused. A process is ours only if its start time is the
//! one that was written down, or if it carries the allocation's mark, and a signal goes through a
//! descriptor that was opened before that was checked.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::process::PidfdFlags;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// Set by the broker for user code: every process of a lease inherits it.
pub(super) const LEASE_MARK: &str = "RUNWHERE_LEASE_ID";
/// Set for the agent itself, which must not carry the mark of what it kills.
pub(super) const NODE_MARK: &str = "RUNWHERE_NODE_ID";

/// A process as written down: never mistaken for a later one with the same id.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentProcess {
    pub(super) pid: u32,
    /// Start time in clock ticks since boot.
    pub(super) start_ticks: u64,
    /// The boot that these ticks count from.
    pub(super) boot_id: String,
    /// The session it was started in, which belongs to whoever started the broker.
    pub(super) session: u32,
}

/// One line of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stat {
    dead: bool,
    parent: u32,
    group: u32,
    session: u32,
    start_ticks: u64,
}

/// A process at one moment.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Member {
    pub(super) pid: u32,
    start_ticks: u64,
}

/// By what an allocation's processes are known.
#[derive(Clone, Debug)]
pub(super) struct Belongings {
    pub(super) agent: Option<AgentProcess>,
    pub(super) lease: String,
    pub(super) node: String,
    /// A user id that no other allocation has.
    pub(super) uid: Option<u32>,
}

impl AgentProcess {
    /// Writes down a running process; `None` if it has already gone.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = stat(pid)?;
        let boot_id = boot_id();
        Some(Self { pid, start_ticks: stat.start_ticks, boot_id, session: stat.session })
    }

    /// Whether it still runs. One that ended but was not yet collected does not.
    pub(super) fn alive(&self) -> bool {
        self.boot_id == boot_id()
            && stat(self.pid).is_some_and(|s| !s.dead && s.start_ticks == self.start_ticks)
    }

    pub(super) fn member(&self) -> Member {
        Member { pid: self.pid, start_ticks: self.start_ticks }
    }
}

impl Belongings {
    /// The agent, found by its mark: for a crash between its start and the note about it.
    pub(super) fn unrecorded_agent(&self) -> io::Result<Option<Member>> {
        let mark = format!("{NODE_MARK}={}", self.node);
        let found = table()?.into_iter().find(|(pid, s)| !s.dead && carries(*pid, &[&mark]));
        Ok(found.map(|(pid, stat)| Member { pid, start_ticks: stat.start_ticks }))
    }

    /// Every live process of the allocation: marked, run by its user id, in the agent's group, in a
    /// session that one of these leads or shares, or descended from one of these. `known` are
    /// members of an earlier look: they stay members when what made them so has ended.
    pub(super) fn members(&self, known: &BTreeSet<Member>) -> io::Result<BTreeSet<Member>> {
        let table = table()?;
        let untouchable = untouchable(&table);
        let marks = [format!("{LEASE_MARK}={}", self.lease), format!("{NODE_MARK}={}", self.node)];
        let marks: Vec<&str> = marks.iter().map(String::as_str).collect();
        let agent = self.agent.as_ref().filter(|agent| agent.boot_id == boot_id());

        let mut ours = BTreeSet::new();
        for (pid, stat) in &table {
            if untouchable.contains(pid) {
                continue;
            }
            let is_agent =
                agent.is_some_and(|a| *pid == a.pid && stat.start_ticks == a.start_ticks);
            let its_user = self.uid.is_some() && user(*pid) == self.uid;
            let known = known.contains(&Member { pid: *pid, start_ticks: stat.start_ticks });
            if is_agent || its_user || known || carries(*pid, &marks) {
                ours.insert(*pid);
            }
        }
        // Sessions that people or the broker work in are not the allocation's, whoever joins them.
        let shared_sessions: BTreeSet<u32> = untouchable
            .iter()
            .filter_map(|pid| table.get(pid).map(|stat| stat.session))
            .chain(agent.map(|agent| agent.session))
            .chain([0])
            .collect();
        loop {
            let sessions: BTreeSet<u32> = ours
                .iter()
                .filter_map(|pid| table.get(pid).map(|stat| stat.session))
                .filter(|session| !shared_sessions.contains(session))
                // One that somebody else leads was only joined.
                .filter(|session| ours.contains(session) || !table.contains_key(session))
                .collect();
            // A group is the allocation's when its leader is.
            let joined: Vec<u32> = table
                .iter()
                .filter(|(pid, stat)| {
                    !ours.contains(pid)
                        && !untouchable.contains(pid)
                        && (ours.contains(&stat.parent)
                            || ours.contains(&stat.group)
                            || sessions.contains(&stat.session))
                })
                .map(|(pid, _)| *pid)
                .collect();
            if joined.is_empty() {
                break;
            }
            ours.extend(joined);
        }
        Ok(ours
            .into_iter()
            .filter(|pid| !untouchable.contains(pid))
            .filter_map(|pid| {
                let stat = table.get(&pid)?;
                (!stat.dead).then_some(Member { pid, start_ticks: stat.start_ticks })
            })
            .collect())
    }
}

impl Member {
    /// Whether it still runs.
    pub(super) fn alive(&self) -> bool {
        stat(self.pid).is_some_and(|s| !s.dead && s.start_ticks == self.start_ticks)
    }

    /// Asks it to end.
    pub(super) fn ask(self) {
        self.signal(Signal::TERM);
    }

    /// Stops it where it is: it makes no child and loses none.
    pub(super) fn stop(self) {
        self.signal(Signal::STOP);
    }

    /// Ends it.
    pub(super) fn kill(self) {
        self.signal(Signal::KILL);
    }

    fn signal(self, signal: Signal) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        // Opened first, checked then: the descriptor cannot come to mean another process.
        #[cfg(target_os = "linux")]
        if let Ok(descriptor) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            if self.alive() {
                // A failure means that it has just ended, or shows as a member in the next look.
                let _ = rustix::process::pidfd_send_signal(&descriptor, signal);
            }
            return;
        }
        // Kernels without such descriptors leave a gap of microseconds.
        if self.alive() {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Whether this machine shows its processes.
pub(super) fn visible() -> bool {
    AgentProcess::of(std::process::id()).is_some()
}

/// User ids that somebody has: an account, or a process that runs now.
pub(super) fn users() -> io::Result<BTreeSet<u32>> {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users: BTreeSet<u32> =
        accounts.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok()).collect();
    users.extend(table()?.keys().filter_map(|pid| user(*pid)));
    Ok(users)
}

/// This process, those it descends from, and the first one.
fn untouchable(table: &BTreeMap<u32, Stat>) -> BTreeSet<u32> {
    let mut pids = BTreeSet::from([1]);
    let mut pid = std::process::id();
    while pid != 0 && pids.insert(pid) {
        pid = table.get(&pid).map_or(0, |stat| stat.parent);
    }
    pids
}

fn table() -> io::Result<BTreeMap<u32, Stat>> {
    let mut table = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(stat) = stat(pid) {
            table.insert(pid, stat);
        }
    }
    Ok(table)
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in parentheses is the process's own choice and may hold anything, `)` included.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
    Some(Stat {
        dead: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

fn carries(pid: u32, marks: &[&str]) -> bool {
    // Not readable: another user's process, and none of ours.
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|byte| *byte == 0).any(|entry| marks.iter().any(|m| entry == m.as_bytes()))
}

/// The real user id.
fn user(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    let status = status.ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_process_name_moves_no_field() {
        let line = b"42 (a) R 1 1 1) S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 113341 1 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.parent, stat.group, stat.session), (7, 8, 9));
        assert_eq!(stat.start_ticks, 113_341);
        assert!(!stat.dead);
        assert_eq!(parse_stat(b"42 (cat"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn a_reused_pid_is_not_mistaken() {
        let me = AgentProcess::of(std::process::id()).unwrap();
        assert!(me.alive());
        assert!(!AgentProcess { start_ticks: me.start_ticks + 1, ..me.clone() }.alive());
        assert!(!AgentProcess { boot_id: "another".to_owned(), ..me }.alive());
    }

    #[test]
    fn the_broker_itself_and_its_parents_are_never_members() {
        let me = AgentProcess::of(std::process::id()).unwrap();
        let parent = stat(me.pid).unwrap().parent;
        let belongings = Belongings {
            agent: Some(me.clone()),
            lease: "none".to_owned(),
            node: "none".to_owned(),
            uid: None,
        };
        let members = belongings.members(&BTreeSet::new()).unwrap();
        assert!(members.iter().all(|m| m.pid != me.pid && m.pid != parent && m.pid != 1));
    }
}
