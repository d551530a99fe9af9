//! The logs of one data folder.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use runwhere_agent::protocol::{BatchPart, LogFrame, LogStream};
use runwhere_engine::{Unit, sabotage};
use runwhere_model::{Lang, LeaseId, TrialId};
use runwhere_providers::Clock;
use tokio::sync::watch;

use super::LogError;
use super::cursor::Cursor;
use super::note::NoteRecord;
use super::observe::observe;
use super::reader::{self, Export, Follower, Tail, TailLimits};
use super::trial::{LogState, TrialLog};
use crate::agents::DurableFrames;
use crate::disk;
use crate::ports::PlatformLog;

/// Logs kept open although nobody uses them now.
const KEPT_OPEN: usize = 128;
/// Room beside the program's output for what agent and broker say.
const SYSTEM_ROOM: u64 = 64 << 20;

/// The store of logs. Only one process may have a data folder open.
#[derive(Clone, Debug)]
pub struct Logs {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    limit: u64,
    clock: Arc<dyn Clock>,
    // On the caller's thread instead of one for blocking work.
    inline: bool,
    // With the number of the last use, for closing the one that rested longest.
    open: Mutex<(u64, HashMap<TrialId, Open>)>,
}

#[derive(Debug)]
struct Open {
    log: Arc<TrialLog>,
    used: u64,
}

impl Logs {
    /// Opens (or makes) the folder. `max_bytes` is what one trial's program may write.
    pub fn open(
        root: impl Into<PathBuf>,
        max_bytes: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LogError> {
        Self::make(root.into(), max_bytes, clock, false)
    }

    /// The same for use on the caller's thread: every write is done when it returns and nothing
    /// runs beside it, as a simulation needs.
    pub fn open_inline(
        root: impl Into<PathBuf>,
        max_bytes: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LogError> {
        Self::make(root.into(), max_bytes, clock, true)
    }

    fn make(
        root: PathBuf,
        max_bytes: u64,
        clock: Arc<dyn Clock>,
        inline: bool,
    ) -> Result<Self, LogError> {
        disk::make_folder(&root)?;
        let limit = max_bytes.saturating_add(SYSTEM_ROOM);
        let open = Mutex::new((0, HashMap::new()));
        Ok(Self { shared: Arc::new(Shared { root, limit, clock, inline, open }) })
    }

    /// Appends frames of the agent of a lease, in order; those that are stored already are left
    /// out. Returns the number of its last durable frame. After an error nothing of this append
    /// counts. The caller makes sure that the agent of an earlier lease does not come back.
    pub async fn append(
        &self,
        trial: &TrialId,
        lease: &LeaseId,
        frames: Vec<LogFrame>,
    ) -> Result<u64, LogError> {
        if sabotage!(LogAcknowledgedEarly)
            && let Some(last) = frames.last()
        {
            return Ok(last.seq);
        }
        self.append_batch(trial, lease, vec![frames.into()]).await
    }

    /// As [`Logs::append`], for what an agent sent: what is packed well is stored as it came.
    pub async fn append_batch(
        &self,
        trial: &TrialId,
        lease: &LeaseId,
        parts: Vec<BatchPart>,
    ) -> Result<u64, LogError> {
        let lease = lease.clone();
        self.with(trial, move |log| log.append(lease.as_str(), &parts)).await
    }

    /// Appends a note, once for each key.
    pub async fn note(&self, trial: &TrialId, record: NoteRecord) -> Result<(), LogError> {
        self.with(trial, move |log| log.note(record)).await
    }

    /// Says that nothing will follow; repeats are harmless.
    pub async fn seal(&self, trial: &TrialId) -> Result<(), LogError> {
        self.with(trial, |log| log.seal()).await
    }

    /// What is durable.
    pub async fn state(&self, trial: &TrialId) -> Result<LogState, LogError> {
        self.with(trial, |log| Ok(log.state())).await
    }

    /// A number that changes when more is durable.
    pub async fn subscribe(&self, trial: &TrialId) -> Result<watch::Receiver<u64>, LogError> {
        self.with(trial, |log| Ok(log.subscribe())).await
    }

    /// The last lines.
    pub async fn tail(
        &self,
        trial: &TrialId,
        limits: TailLimits,
        lang: Lang,
    ) -> Result<Tail, LogError> {
        reader::tail(self.log(trial).await?, limits, lang).await
    }

    /// Reads from a cursor on; the default cursor is the beginning.
    pub async fn follow(
        &self,
        trial: &TrialId,
        from: Cursor,
        lang: Lang,
    ) -> Result<Follower, LogError> {
        Ok(Follower::new(self.log(trial).await?, from, lang))
    }

    /// The raw bytes of one stream.
    pub async fn export(&self, trial: &TrialId, stream: LogStream) -> Result<Export, LogError> {
        Ok(Export::new(self.log(trial).await?, stream))
    }

    /// The trials that have logs, in the order of their ids.
    async fn trials(&self) -> Result<Vec<TrialId>, LogError> {
        let shared = Arc::clone(&self.shared);
        let list = move || -> Result<Vec<TrialId>, LogError> {
            let mut trials = Vec::new();
            for entry in std::fs::read_dir(&shared.root)? {
                let name = entry?.file_name();
                let id = name.to_str().and_then(|name| name.strip_prefix("t-"));
                trials.extend(id.and_then(|id| TrialId::new(id).ok()));
            }
            trials.sort();
            Ok(trials)
        };
        if self.shared.inline { list() } else { disk::blocking(list).await? }
    }

    async fn with<T: Send + 'static>(
        &self,
        trial: &TrialId,
        work: impl FnOnce(&TrialLog) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        if self.shared.inline {
            return work(&*self.shared.log(trial)?);
        }
        let shared = Arc::clone(&self.shared);
        let trial = trial.clone();
        disk::blocking(move || work(&*shared.log(&trial)?)).await?
    }

    async fn log(&self, trial: &TrialId) -> Result<Arc<TrialLog>, LogError> {
        let shared = Arc::clone(&self.shared);
        let trial = trial.clone();
        disk::blocking(move || shared.log(&trial)).await?
    }
}

impl Shared {
    /// The prefix keeps the ids `.` and `..` from being folders of another meaning.
    fn folder(&self, trial: &TrialId) -> PathBuf {
        self.root.join(format!("t-{trial}"))
    }

    fn log(&self, trial: &TrialId) -> Result<Arc<TrialLog>, LogError> {
        // Opening under the lock: a log must never be open twice.
        let mut guard = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (clock, open) = &mut *guard;
        *clock += 1;
        if let Some(entry) = open.get_mut(trial) {
            entry.used = *clock;
            return Ok(Arc::clone(&entry.log));
        }
        let log = Arc::new(TrialLog::open(self.folder(trial), self.limit)?);
        open.insert(trial.clone(), Open { log: Arc::clone(&log), used: *clock });
        if open.len() > KEPT_OPEN {
            let resting = open.iter().filter(|(_, entry)| Arc::strong_count(&entry.log) == 1);
            let longest = resting.min_by_key(|(_, entry)| entry.used).map(|(id, _)| id.clone());
            if let Some(id) = longest {
                open.remove(&id);
            }
        }
        Ok(log)
    }
}

#[async_trait]
impl PlatformLog for Logs {
    async fn observe(&self, unit: &Unit) {
        observe(self, self.shared.clock.as_ref(), unit).await;
    }

    async fn begin(&self, trial: &TrialId) {
        let folder = self.shared.folder(trial);
        let made = match self.shared.inline {
            true => disk::make_folder(&folder),
            false => disk::blocking(move || disk::make_folder(&folder)).await.and_then(|made| made),
        };
        if let Err(error) = made {
            tracing::warn!(trial.id = %trial, %error, "A log could not be begun");
        }
    }

    async fn unsealed(&self) -> Vec<TrialId> {
        let trials = match self.trials().await {
            Ok(trials) => trials,
            Err(error) => {
                tracing::warn!(%error, "The logs could not be listed");
                return Vec::new();
            }
        };
        let mut unsealed = Vec::new();
        for trial in trials {
            match self.state(&trial).await {
                Ok(state) if state.sealed => {}
                Ok(_) => unsealed.push(trial),
                Err(error) => {
                    tracing::warn!(trial.id = %trial, %error, "A log could not be read");
                }
            }
        }
        unsealed
    }
}

impl DurableFrames for Logs {
    fn durable_seq(&self, trial: &TrialId, lease: &LeaseId) -> u64 {
        // 0 is always true: the agent keeps what it is not told to be durable.
        let state = self.shared.log(trial).map(|log| log.state()).unwrap_or_default();
        if state.lease == lease.as_str() { state.durable_seq } else { 0 }
    }
}
