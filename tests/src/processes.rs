//! Finding and ending what a server under test left on this machine.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The processes that belong to one data folder: node agents and the programs that they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processes(pub BTreeSet<i32>);

impl Processes {
    /// All living processes that work in `folder`, or name it in their command line or environment. Where `folder` is
    /// a server's data folder or holds an embedded server's, its jobs' work folders count as well.
    pub fn of(folder: &Path) -> Self {
        let mut places = vec![folder.to_owned()];
        places.extend(work_roots(folder));
        let me = i32::try_from(std::process::id()).expect("process ids are small");
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids =
            entries.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
        Processes(
            ids.filter(|&id| {
                id != me && places.iter().any(|place| belongs(id, place)) && alive(id)
            })
            .collect(),
        )
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The command lines, for messages.
    pub fn describe(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|id| {
                let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                format!("{id}: {}", String::from_utf8_lossy(&line).replace('\0', " "))
            })
            .collect()
    }

    /// Kills everything that belongs to `folder`, by process id, until nothing is left; then removes its jobs' work
    /// folders.
    pub fn end_all(folder: &Path) {
        for _ in 0..100 {
            let found = Processes::of(folder);
            if found.is_empty() {
                for root in work_roots(folder) {
                    let _ = fs::remove_dir_all(root);
                }
                return;
            }
            for id in found.0 {
                if let Some(pid) = Pid::from_raw(id) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Where jobs work that run as users of their own.
fn work_roots(folder: &Path) -> Vec<PathBuf> {
    [folder.to_owned(), folder.join(".runwhere/server")]
        .iter()
        .filter_map(|data| fs::read_to_string(data.join("deployment")).ok())
        .map(|deployment| Path::new("/var/tmp").join(format!("runwhere-{}", deployment.trim())))
        .collect()
}

fn belongs(id: i32, folder: &Path) -> bool {
    let mark = folder.as_os_str().as_encoded_bytes();
    let inside = fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
    let named = |file: &str| {
        fs::read(format!("/proc/{id}/{file}"))
            .is_ok_and(|text| text.windows(mark.len()).any(|part| part == mark))
    };
    inside || named("cmdline") || named("environ")
}

/// A zombie is already dead; its parent has not looked yet.
fn alive(id: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else {
        return false;
    };
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.starts_with(['Z', 'X'])
}
