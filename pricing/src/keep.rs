//! What a price service keeps on disk: shards, the present state, states that quotes refer to, code
//! book, changes.
//!
//! ```text
//! <folder>/current.json          the present state, sources, decisions, codes
//! <folder>/shards/<reads>.rwp    offers of one provider, named by their content
//! <folder>/states/<id>.json      a state that a quote refers to: which shards, rates, troubles
//! <folder>/changes/<provider>.jsonl   prices that changed
//! <folder>/lock                  held while the present state is changed
//! ```
//!
//! Files are written whole and renamed, so that a crash leaves the last good one. Several processes (servers, imports,
//! decisions) may share a folder: each takes over what the others wrote before it writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use jiff::Timestamp;
use runwhere_model::{OfferCode, OfferKey, ProviderId};
use serde::{Deserialize, Serialize};

use crate::catalogue::{Catalogue, Trouble};
use crate::codes::CodeBook;
use crate::fx::{FxRate, FxTable};
use crate::history::Change;
use crate::refresh::SourceState;
use crate::shard::Shard;

/// States that are kept for quotes.
const MOST_STATES: usize = 400;
/// A file of changes is begun anew beyond this size; one older is kept.
const MOST_CHANGES: u64 = 16 * 1024 * 1024;

/// A folder that holds prices.
#[derive(Debug)]
pub struct PriceFolder {
    root: PathBuf,
    saves: AtomicU64,
    /// The present state as this process last read or wrote it: what differs from it is the work of others.
    seen: Mutex<Seen>,
    /// Files of shards that were read or written whole: what lies there under another name may be cut off.
    whole: Mutex<BTreeSet<String>>,
}

/// When the present state was written, in which file, and its size: each is a new file, so two that a disk's clock
/// does not tell apart are still two.
type Written = (SystemTime, u64, u64);

/// What stood in the present state.
#[derive(Debug, Default)]
struct Seen {
    shards: BTreeMap<ProviderId, Held>,
    sources: BTreeMap<ProviderId, SourceState>,
    written: Option<Written>,
}

/// What other processes wrote into the present state.
#[derive(Debug)]
pub(crate) struct News {
    /// Shards that are others' than were seen.
    pub(crate) shards: Vec<Arc<Shard>>,
    /// What is wrong with sources.
    pub(crate) troubles: BTreeMap<ProviderId, Trouble>,
    /// How sources stand, with how they were seen last.
    pub(crate) sources: Vec<(ProviderId, SourceState, SourceState)>,
    /// Codes that must stay taken.
    pub(crate) codes: CodeBook,
}

/// A shard's place in a state.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Held {
    provider: ProviderId,
    file: String,
    observed_at: Option<Timestamp>,
    complete: bool,
    validator: Option<String>,
}

/// A whole state.
#[derive(Debug, Deserialize, Serialize)]
struct State {
    version: u32,
    shards: Vec<Held>,
    troubles: BTreeMap<ProviderId, Trouble>,
    rates: Vec<FxRate>,
    max_age_days: u32,
}

impl State {
    /// The shards that were read or imported.
    fn live(&self) -> impl Iterator<Item = &Held> {
        self.shards.iter().filter(|held| held.observed_at.is_some())
    }
}

/// The present state with what stands around it, in one object.
#[derive(Debug, Serialize)]
struct Current<'a> {
    #[serde(flatten)]
    state: &'a State,
    sources: &'a BTreeMap<ProviderId, SourceState>,
    codes: Vec<(OfferKey, OfferCode)>,
}

/// What stands around the state. Read on its own: numbers of flattened fields would pass through
/// floats.
#[derive(Debug, Deserialize)]
struct Around {
    #[serde(default)]
    sources: BTreeMap<ProviderId, SourceState>,
    #[serde(default)]
    codes: Vec<(OfferKey, OfferCode)>,
}

/// What was found in a folder.
#[derive(Debug, Default)]
pub struct Kept {
    /// Shards of connected or imported providers.
    pub shards: Vec<Arc<Shard>>,
    /// What was wrong with sources.
    pub troubles: BTreeMap<ProviderId, Trouble>,
    /// How the sources stood.
    pub sources: BTreeMap<ProviderId, SourceState>,
    /// Codes that must stay taken.
    pub codes: CodeBook,
    /// What could not be read: providers, or the file of the present state.
    pub damaged: Vec<String>,
}

impl PriceFolder {
    /// Opens a folder, which is made where there is none.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        for part in ["shards", "states", "changes"] {
            fs::create_dir_all(root.join(part))?;
        }
        Ok(Self { root, saves: AtomicU64::new(0), seen: Mutex::default(), whole: Mutex::default() })
    }

    /// What an earlier service left. Files that are damaged or of another version are passed over
    /// with a warning: their sources are read again.
    pub fn load(&self) -> io::Result<Kept> {
        let written = self.written();
        let Some((state, around)) = self.current()? else {
            let damaged = written.map(|_| CURRENT.to_owned()).into_iter().collect();
            return Ok(Kept { damaged, ..Kept::default() });
        };
        self.see(&state, &around.sources, written);
        let mut damaged = Vec::new();
        let mut sources = around.sources;
        let mut shards = Vec::new();
        let wanted: Vec<&Held> = state.live().collect();
        for (held, read) in wanted.iter().zip(self.read_all(&wanted)) {
            match read {
                Ok(shard) => shards.push(Arc::new(shard)),
                Err(error) => {
                    tracing::warn!(provider = %held.provider, %error, "Kept prices cannot be read; they are read again");
                    // Nothing is there that "unchanged" could confirm.
                    sources.remove(&held.provider);
                    damaged.push(held.provider.to_string());
                }
            }
        }
        Ok(Kept {
            shards,
            troubles: state.troubles,
            sources,
            codes: CodeBook::restore(around.codes),
            damaged,
        })
    }

    /// The present state; `None` where there is none, or none that can be read.
    fn current(&self) -> io::Result<Option<(State, Around)>> {
        let bytes = match fs::read(self.root.join(CURRENT)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let read = serde_json::from_slice::<State>(&bytes)
            .and_then(|state| Ok((state, serde_json::from_slice::<Around>(&bytes)?)));
        Ok(read
            .inspect_err(|error| {
                tracing::warn!(%error, "The kept prices cannot be read; they are read again from their sources");
            })
            .ok())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> Option<Written> {
        let file = fs::metadata(self.root.join(CURRENT)).ok()?;
        Some((file.modified().ok()?, file.ino(), file.len()))
    }

    fn see(
        &self,
        state: &State,
        sources: &BTreeMap<ProviderId, SourceState>,
        written: Option<Written>,
    ) {
        let shards = state.live().map(|held| (held.provider.clone(), held.clone())).collect();
        *self.seen() = Seen { shards, sources: sources.clone(), written };
    }

    /// Waits until no other process changes the present state; until what is returned is dropped, none does.
    pub(crate) fn alone(&self) -> io::Result<fs::File> {
        let mut open = fs::OpenOptions::new();
        let file = open.create(true).truncate(false).write(true).open(self.root.join("lock"))?;
        match file.lock() {
            // A disk that has no locks serves one process.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
            _ => Ok(file),
        }
    }

    /// Whether the present state was written since this process last read or wrote it.
    pub(crate) fn is_new(&self) -> bool {
        self.written() != self.seen().written
    }

    /// What others wrote since this process last read or wrote the present state.
    pub(crate) fn news(&self) -> io::Result<Option<News>> {
        let written = self.written();
        let Some((state, around)) = self.current()? else {
            self.seen().written = written;
            return Ok(None);
        };
        let (new, sources) = {
            let seen = self.seen();
            let is_new = |held: &&Held| seen.shards.get(&held.provider) != Some(*held);
            let new: Vec<&Held> = state.live().filter(is_new).collect();
            let of = |(provider, state): (&ProviderId, &SourceState)| {
                let before = seen.sources.get(provider).cloned().unwrap_or_default();
                (before != *state).then(|| (provider.clone(), state.clone(), before))
            };
            (new, around.sources.iter().filter_map(of).collect())
        };
        let mut shards = Vec::with_capacity(new.len());
        for (held, read) in new.iter().zip(self.read_all(&new)) {
            match read {
                Ok(shard) => shards.push(Arc::new(shard)),
                Err(error) => {
                    tracing::warn!(provider = %held.provider, %error, "Prices of another process cannot be read");
                }
            }
        }
        self.see(&state, &around.sources, written);
        let codes = CodeBook::restore(around.codes);
        Ok(Some(News { shards, troubles: state.troubles, sources, codes }))
    }

    /// Reads files on all processors; what came of each, in their order.
    fn read_all(&self, wanted: &[&Held]) -> Vec<io::Result<Shard>> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
        let next = AtomicUsize::new(0);
        let work = || {
            let (mut done, mut buffer) = (Vec::new(), Vec::new());
            while let Some((at, held)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                wanted.get(at).map(|held| (at, held))
            } {
                done.push((at, self.shard(held, &mut buffer)));
            }
            done
        };
        let mut read: Vec<(usize, io::Result<Shard>)> = std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..threads.min(wanted.len())).map(|_| scope.spawn(work)).collect();
            let mut read = work();
            for other in others {
                match other.join() {
                    Ok(done) => read.extend(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            read
        });
        read.sort_by_key(|(at, _)| *at);
        read.into_iter().map(|(_, shard)| shard).collect()
    }

    /// Reads one file, through a buffer that is used again for the next.
    fn shard(&self, held: &Held, buffer: &mut Vec<u8>) -> io::Result<Shard> {
        // A name from a file must not lead elsewhere.
        if !held.file.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(io::Error::other("not the name of a price file"));
        }
        let path = self.root.join("shards").join(format!("{}.rwp", held.file));
        buffer.clear();
        fs::File::open(path)?.read_to_end(buffer)?;
        let shard = Shard::decode(buffer).map_err(io::Error::other)?;
        if *shard.provider() != held.provider {
            return Err(io::Error::other("the price file is another provider's"));
        }
        self.whole().insert(held.file.clone());
        Ok(shard.restored(held.observed_at, held.complete, held.validator.clone()))
    }

    fn whole(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a shard's file, where it is not there or is damaged; its name.
    pub(crate) fn hold_shard(&self, shard: &Shard) -> io::Result<String> {
        let file = hex::encode(&shard.reads()[..16]);
        let path = self.root.join("shards").join(format!("{file}.rwp"));
        let known = self.whole().contains(&file) && path.exists();
        let is_whole = || {
            let kept = Shard::decode(&fs::read(&path).ok()?).ok()?;
            (kept.reads() == shard.reads()).then_some(())
        };
        if !known {
            if is_whole().is_none() {
                write_whole(&path, &shard.encode())?;
            }
            self.whole().insert(file.clone());
        }
        Ok(file)
    }

    fn hold(&self, catalogue: &Catalogue) -> io::Result<State> {
        let mut shards = Vec::with_capacity(catalogue.shards().len());
        for shard in catalogue.shards() {
            shards.push(Held {
                provider: shard.provider().clone(),
                file: self.hold_shard(shard)?,
                observed_at: shard.observed_at(),
                complete: shard.complete(),
                validator: shard.validator().map(str::to_owned),
            });
        }
        Ok(State {
            version: 1,
            shards,
            troubles: catalogue.troubles().clone(),
            rates: catalogue.fx().rates().cloned().collect(),
            max_age_days: catalogue.fx().max_age_days(),
        })
    }

    /// Keeps the present state; the caller is [`Self::alone`] and has taken the [`Self::news`].
    pub(crate) fn save(
        &self,
        catalogue: &Catalogue,
        sources: &BTreeMap<ProviderId, SourceState>,
        codes: Vec<(OfferKey, OfferCode)>,
    ) -> io::Result<()> {
        let state = self.hold(catalogue)?;
        // Sources of other processes stay as they left them.
        let mut all = self.seen().sources.clone();
        all.extend(sources.iter().map(|(provider, state)| (provider.clone(), state.clone())));
        let current = Current { state: &state, sources: &all, codes };
        let bytes = serde_json::to_vec(&current).map_err(io::Error::other)?;
        write_whole(&self.root.join(CURRENT), &bytes)?;
        self.see(&state, &all, self.written());
        if self.saves.fetch_add(1, Ordering::Relaxed) % 64 == 63 {
            self.sweep(&state)?;
        }
        Ok(())
    }

    /// Keeps a state that a quote refers to.
    pub fn save_state(&self, catalogue: &Catalogue) -> io::Result<()> {
        let path = self.state_path(catalogue.state_id());
        if path.exists() {
            return Ok(());
        }
        let state = self.hold(catalogue)?;
        write_whole(&path, &serde_json::to_vec(&state).map_err(io::Error::other)?)
    }

    fn state_path(&self, id: &str) -> PathBuf {
        self.root.join("states").join(format!("{id}.json"))
    }

    /// A state of earlier; `None` when it is not kept (any more).
    pub fn state(&self, id: &str) -> io::Result<Option<Catalogue>> {
        if id.len() != 32 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let bytes = match fs::read(self.state_path(id)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let state: State = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        let fx = FxTable::restore(state.rates, state.max_age_days);
        let mut catalogue = Catalogue::empty(fx, false, &mut CodeBook::new());
        let held: Vec<&Held> = state.shards.iter().collect();
        for shard in self.read_all(&held) {
            catalogue.put(Arc::new(shard?));
        }
        for (provider, trouble) in state.troubles {
            catalogue.set_trouble(&provider, Some(trouble));
        }
        Ok(Some(catalogue).filter(|catalogue| catalogue.state_id() == id))
    }

    /// The ids of the kept states with the times at which they were kept, newest first.
    pub fn states(&self) -> io::Result<Vec<(String, Timestamp)>> {
        let mut states = Vec::new();
        for entry in fs::read_dir(self.root.join("states"))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            let kept =
                Timestamp::try_from(entry.metadata()?.modified()?).map_err(io::Error::other)?;
            states.push((id.to_owned(), kept));
        }
        states.sort_by(|a, b| (b.1, &b.0).cmp(&(a.1, &a.0)));
        Ok(states)
    }

    /// Removes the oldest states beyond the limit, and shards that nothing refers to.
    fn sweep(&self, current: &State) -> io::Result<()> {
        let mut used: BTreeSet<String> =
            current.shards.iter().map(|held| format!("{}.rwp", held.file)).collect();
        for (at, (id, _)) in self.states()?.into_iter().enumerate() {
            let path = self.state_path(&id);
            if at >= MOST_STATES {
                fs::remove_file(&path)?;
                continue;
            }
            let state: Option<State> = serde_json::from_slice(&fs::read(&path)?).ok();
            used.extend(
                state.into_iter().flat_map(|state| state.shards).map(|h| format!("{}.rwp", h.file)),
            );
        }
        self.whole().retain(|file| used.contains(&format!("{file}.rwp")));
        // The disk's own clock: this file was written a moment ago.
        let now = fs::metadata(self.root.join(CURRENT))?.modified()?;
        let shards = self.root.join("shards");
        for folder in [&self.root, &self.root.join("states"), &shards] {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                // What is this young may be about to be referred to.
                let age = now.duration_since(entry.metadata()?.modified()?).unwrap_or_default();
                let used = entry.file_name().to_str().is_some_and(|name| used.contains(name));
                let left = entry.path().extension().is_some_and(|end| end == TEMPORARY);
                if (left || folder == &shards && !used) && age > YOUNG {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(())
    }

    fn changes_path(&self, provider: &ProviderId) -> PathBuf {
        self.root.join("changes").join(format!("{provider}.jsonl"))
    }

    /// Adds changes of a provider's prices.
    pub fn note_changes(&self, provider: &ProviderId, changes: &[Change]) -> io::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let path = self.changes_path(provider);
        if fs::metadata(&path).is_ok_and(|file| file.len() > MOST_CHANGES) {
            fs::rename(&path, path.with_extension("jsonl.1"))?;
        }
        // The line before may have been cut off: it must not take this one with it.
        let mut lines = vec![b'\n'];
        for change in changes {
            serde_json::to_writer(&mut lines, change).map_err(io::Error::other)?;
            lines.push(b'\n');
        }
        fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(&lines)
    }

    /// The changes of a provider's prices, oldest first; a line that was cut off or is no text is passed over.
    pub fn changes(&self, provider: &ProviderId) -> io::Result<Vec<Change>> {
        let path = self.changes_path(provider);
        let mut changes = Vec::new();
        for path in [path.with_extension("jsonl.1"), path] {
            let file = match fs::File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for line in io::BufReader::new(file).split(b'\n') {
                changes.extend(serde_json::from_slice::<Change>(&line?).ok());
            }
        }
        Ok(changes)
    }
}

/// The file of the present state.
pub(crate) const CURRENT: &str = "current.json";
/// How the names of files end that are being written; what a crash left of them is swept up.
const TEMPORARY: &str = "tmp";
/// Files younger than this are left alone by the sweep.
const YOUNG: std::time::Duration = std::time::Duration::from_secs(600);

/// Writes a file so that it is there whole or not at all, whoever else writes it at the same time.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temporary, mut file) = (0..)
        .map(|number| path.with_extension(format!("{number}.{TEMPORARY}")))
        .find_map(|name| match fs::File::create_new(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            made => Some(made.map(|file| (name, file))),
        })
        .unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
