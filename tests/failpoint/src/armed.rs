//! What a point does where points are armed.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Signal, getpid, kill_process};

use crate::{ARMED_VARIABLE, FOLDER_VARIABLE, MARK};

struct Plan {
    /// Name and which time.
    points: Vec<(String, u32)>,
    folder: Option<PathBuf>,
    seen: Mutex<HashMap<&'static str, u32>>,
}

fn plan() -> Option<&'static Plan> {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    PLAN.get_or_init(read).as_ref()
}

fn read() -> Option<Plan> {
    let folder = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    let text = std::env::var(ARMED_VARIABLE).unwrap_or_default();
    let points: Vec<(String, u32)> = text
        .split(',')
        .filter(|word| !word.is_empty())
        .map(|word| match word.split_once(':') {
            Some((name, nth)) => (name.to_owned(), nth.parse().unwrap_or(1)),
            None => (word.to_owned(), 1),
        })
        .collect();
    (folder.is_some() || !points.is_empty()).then(|| Plan {
        points,
        folder,
        seen: Mutex::default(),
    })
}

/// A point was reached: dies here if that is the plan. `text` is the name between its marks.
pub fn reached(text: &'static str) {
    let Some(plan) = plan() else { return };
    let name = text.strip_prefix(MARK).unwrap_or(text).trim_end_matches(';');
    let time = {
        let mut seen = plan.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let time = seen.entry(name).or_default();
        *time += 1;
        *time
    };
    if let Some(folder) = &plan.folder {
        let trace = OpenOptions::new().append(true).create(true).open(folder.join("trace"));
        if let Ok(mut trace) = trace {
            // One write, so that lines of several processes do not mix.
            let _ = trace.write_all(format!("{name}\n").as_bytes());
        }
    }
    let wanted = plan.points.iter().any(|(point, nth)| point == name && *nth == time);
    if !wanted {
        return;
    }
    if let Some(folder) = &plan.folder {
        let mark = folder.join(format!("{name}:{time}"));
        if OpenOptions::new().write(true).create_new(true).open(mark).is_err() {
            // Another process died here before this one.
            return;
        }
    }
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        // The signal is on its way to this thread too.
        std::thread::park();
    }
}
