//! The agent's memory: every event, durable before it is sent, one JSON line each.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runwhere_failpoint::failpoint;
use tokio::sync::watch;

use crate::clock;
use crate::files::{Reserve, is_full, sync_folder_of};
use crate::protocol::{Event, EventKind};

const FULL_DISK_TRIES: u32 = 60;

/// Append-only list of events.
#[derive(Debug)]
pub(crate) struct Journal {
    inner: Mutex<Inner>,
    last: watch::Sender<u64>,
    reserve: Arc<Reserve>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    len: u64,
    events: Vec<Event>,
}

/// How far an earlier agent process of this node came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) started: Option<u32>,
    pub(crate) boot_id: Option<String>,
    pub(crate) ended: bool,
    pub(crate) sealed: bool,
    pub(crate) collected: bool,
    pub(crate) done: bool,
    pub(crate) outputs: Vec<(String, u64)>,
}

impl Journal {
    /// Opens or creates the journal; a line that a crash left unfinished is cut off.
    pub(crate) fn open(path: &Path, reserve: Arc<Reserve>) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let mut events: Vec<Event> = Vec::new();
        let mut len = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let whole = line.ends_with(b"\n");
            let event = serde_json::from_slice::<Event>(line).ok().filter(|event| {
                whole && event.seq == events.last().map_or(0, |event| event.seq) + 1
            });
            match event {
                Some(event) => {
                    events.push(event);
                    len += line.len() as u64;
                }
                // Only the last line can be unfinished; anything else is damage nobody may guess at.
                None if len + line.len() as u64 == text.len() as u64 => break,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("line {} is damaged", events.len() + 1),
                    ));
                }
            }
        }
        file.set_len(len)?;
        file.seek(SeekFrom::End(0))?;
        file.sync_all()?;
        sync_folder_of(path)?;
        let (last, _) = watch::channel(events.len() as u64);
        Ok(Self { inner: Mutex::new(Inner { file, len, events }), last, reserve })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, durable when this returns. On a disk that stays full it is kept in memory
    /// only, so that a live broker still learns the result.
    pub(crate) async fn append(&self, kind: EventKind) -> u64 {
        self.append_all(vec![kind]).await
    }

    /// Adds several events with one write; the number of the last.
    pub(crate) async fn append_all(&self, kinds: Vec<EventKind>) -> u64 {
        let at = clock::now();
        for attempt in 1.. {
            match self.try_append(at, &kinds, attempt > FULL_DISK_TRIES) {
                Ok(seq) => {
                    self.last.send_replace(seq);
                    return seq;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot write the journal");
                    if !(is_full(&error) && self.reserve.release()) {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                }
            }
        }
        unreachable!("the loop ends by returning")
    }

    fn try_append(
        &self,
        at: jiff::Timestamp,
        kinds: &[EventKind],
        memory_only: bool,
    ) -> io::Result<u64> {
        let mut inner = self.inner();
        let first = inner.events.len() as u64 + 1;
        let events: Vec<Event> =
            (first..).zip(kinds).map(|(seq, kind)| Event { seq, at, kind: kind.clone() }).collect();
        if !memory_only {
            let mut line = Vec::new();
            for event in &events {
                serde_json::to_writer(&mut line, event).map_err(io::Error::other)?;
                line.push(b'\n');
            }
            let len = inner.len;
            failpoint!("agent.journal.before_write");
            let written = inner.file.write_all(&line).and_then(|()| {
                failpoint!("agent.journal.written");
                inner.file.sync_data()
            });
            if let Err(error) = written {
                inner.file.set_len(len)?;
                inner.file.seek(SeekFrom::Start(len))?;
                return Err(error);
            }
            failpoint!("agent.journal.synced");
            inner.len += line.len() as u64;
        }
        inner.events.extend(events);
        Ok(inner.events.len() as u64)
    }

    /// Number of the last event, 0 for none.
    pub(crate) fn last_seq(&self) -> u64 {
        *self.last.borrow()
    }

    /// Follows [`Self::last_seq`].
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// At most `max` events after `seq`.
    pub(crate) fn after(&self, seq: u64, max: usize) -> Vec<Event> {
        let inner = self.inner();
        let from = usize::try_from(seq).unwrap_or(usize::MAX).min(inner.events.len());
        inner.events[from..].iter().take(max).cloned().collect()
    }

    /// What the events say about earlier agent processes.
    pub(crate) fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        for event in &self.inner().events {
            match &event.kind {
                EventKind::Booted { boot_id, .. } => progress.boot_id = Some(boot_id.clone()),
                EventKind::Started { pid } => progress.started = Some(*pid),
                EventKind::Exited { .. } | EventKind::Failed { .. } | EventKind::Lost { .. } => {
                    progress.ended = true;
                }
                EventKind::LogSealed { .. } => progress.sealed = true,
                EventKind::Output { path, size, .. } => {
                    progress.outputs.push((path.clone(), *size));
                }
                EventKind::Collected { .. } => progress.collected = true,
                EventKind::Done => progress.done = true,
                EventKind::GpusReady { .. }
                | EventKind::Preparing
                | EventKind::Collecting
                | EventKind::ReclaimNotice { .. }
                | EventKind::Unknown => {}
            }
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> io::Result<Journal> {
        Journal::open(&dir.join("journal.jsonl"), Arc::new(Reserve::set_aside(dir)))
    }

    #[tokio::test]
    async fn events_survive_and_a_torn_line_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path()).unwrap();
        journal.append(EventKind::Preparing).await;
        journal.append(EventKind::Started { pid: 7 }).await;
        drop(journal);
        let path = dir.path().join("journal.jsonl");
        let whole = std::fs::read(&path).unwrap();
        let torn = &whole[..whole.len() - 5];
        std::fs::write(&path, torn).unwrap();
        let journal = open(dir.path()).unwrap();
        assert_eq!(journal.last_seq(), 1);
        assert_eq!(journal.progress().started, None);
        assert_eq!(journal.append(EventKind::Started { pid: 8 }).await, 2);
        drop(journal);
        let journal = open(dir.path()).unwrap();
        assert_eq!(journal.progress().started, Some(8));
        assert_eq!(journal.after(1, 10).len(), 1);
        assert_eq!(journal.after(9, 10).len(), 0);
    }

    #[tokio::test]
    async fn damage_inside_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path()).unwrap();
        journal.append(EventKind::Preparing).await;
        journal.append(EventKind::Done).await;
        drop(journal);
        let path = dir.path().join("journal.jsonl");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3] = b'#';
        std::fs::write(&path, bytes).unwrap();
        assert!(open(dir.path()).unwrap_err().to_string().contains("line 1"));
    }
}
