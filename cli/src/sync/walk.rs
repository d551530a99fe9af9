//! Goes through a tree of folders on all cores.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Has `list` look at `start` and at every folder that it adds to its second argument, and returns what the threads made of
/// that, one part for each. A tree of any depth takes no more than a list of the folders not looked at yet.
pub(super) fn walk<T: Default + Send>(
    start: PathBuf,
    list: impl Fn(PathBuf, &mut Vec<PathBuf>, &mut T) + Sync,
    end: impl Fn(&mut T) + Sync,
) -> Vec<T> {
    let queue = Queue::default();
    queue.state().waiting.push(start);
    let work = || {
        let mut part = T::default();
        while let Some((folder, mut turn)) = queue.next() {
            list(folder, &mut turn.more, &mut part);
        }
        end(&mut part);
        part
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        let own = work();
        let mut parts = vec![own];
        for other in others {
            parts.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        parts
    })
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<PathBuf>,
    // Threads that look at a folder and may find more.
    busy: usize,
}

/// One folder's turn; its end hands over the folders found in it.
struct Turn<'a> {
    queue: &'a Queue,
    more: Vec<PathBuf>,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next folder; `None` once there will be none.
    fn next(&self) -> Option<(PathBuf, Turn<'_>)> {
        let mut state = self.state();
        loop {
            if let Some(folder) = state.waiting.pop() {
                state.busy += 1;
                return Some((folder, Turn { queue: self, more: Vec::new() }));
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.busy -= 1;
        state.waiting.append(&mut self.more);
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_has_one_turn_however_wide_and_deep() {
        let list = |folder: PathBuf, more: &mut Vec<PathBuf>, seen: &mut Vec<PathBuf>| {
            let depth = folder.components().count();
            if depth < 2 {
                more.extend((0..20).map(|number| folder.join(number.to_string())));
            } else if depth < 50 && folder.ends_with("0") {
                more.push(folder.join("0"));
            }
            seen.push(folder);
        };
        let mut seen = walk(PathBuf::new(), list, |_| {}).concat();
        // Two full levels, and below each of the 20 folders `*/0` a chain of 48.
        let expected = 1 + 20 + 400 + 20 * 48;
        assert_eq!(seen.len(), expected);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), expected);
    }
}
