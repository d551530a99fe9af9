//! The calls: one function per call of the cloud, none of which decides anything.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::wire::{End, Machine, Order};

/// Why a call failed, and what is known of its effect: the provider needs both.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Definitely not done: the name is taken.
    #[error("the name is taken")]
    Taken,
    /// Definitely not done: it did not come so far.
    #[error("{0}")]
    NotDone(io::Error),
    /// Done or not: it failed after the point of no return.
    #[error("{0}")]
    Unclear(io::Error),
    /// The answer makes no sense.
    #[error("{0}")]
    Malformed(serde_json::Error),
}

/// A client of one folder.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    folder: PathBuf,
}

impl Client {
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        for part in ["orders", "ends", "incoming"] {
            fs::create_dir_all(folder.join(part))?;
        }
        Ok(Self { folder })
    }

    /// The price list, row by row, so that one bad row costs only itself.
    pub(crate) fn flavors(&self) -> Result<Vec<Box<RawValue>>, CallError> {
        read(&self.folder.join("flavors.json"))?
            .ok_or_else(|| CallError::NotDone(io::ErrorKind::NotFound.into()))
    }

    /// Orders a machine.
    pub(crate) fn order(&self, order: &Order) -> Result<(), CallError> {
        self.put_once("orders", &order.name, order)
    }

    /// Asks for a machine's end; the first asking counts.
    pub(crate) fn end(&self, name: &str, end: End) -> Result<(), CallError> {
        match self.put_once("ends", name, &end) {
            Err(CallError::Taken) => Ok(()),
            other => other,
        }
    }

    /// One machine; `None` where there is none of that name.
    pub(crate) fn machine(&self, name: &str) -> Result<Option<Machine>, CallError> {
        let Some(order) = read::<Order>(&self.file("orders", name))? else { return Ok(None) };
        Ok(Some(Machine { end: read(&self.file("ends", name))?, order }))
    }

    /// All machines, and whether every one could be read.
    pub(crate) fn machines(&self) -> Result<(Vec<Machine>, bool), CallError> {
        let (mut machines, mut complete) = (Vec::new(), true);
        for entry in fs::read_dir(self.folder.join("orders")).map_err(CallError::NotDone)? {
            let name = entry.map_err(CallError::NotDone)?.file_name();
            let machine = match name.to_str().and_then(|name| name.strip_suffix(".json")) {
                Some(name) => self.machine(name),
                None => Ok(None),
            };
            match machine {
                Ok(Some(machine)) => machines.push(machine),
                // Something is there that may be a machine: the list proves nothing.
                Ok(None) | Err(_) => complete = false,
            }
        }
        Ok((machines, complete))
    }

    fn file(&self, part: &str, name: &str) -> PathBuf {
        self.folder.join(part).join(format!("{name}.json"))
    }

    /// Writes a file whole and durably, unless there is one of that name.
    fn put_once(&self, part: &str, name: &str, content: &impl Serialize) -> Result<(), CallError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let partial = self.folder.join("incoming").join(format!("{}.{number}", std::process::id()));
        let text = serde_json::to_vec(content).map_err(CallError::Malformed)?;
        let result = write(&partial, &text).map_err(CallError::NotDone).and_then(|()| {
            match fs::hard_link(&partial, self.file(part, name)) {
                Ok(()) => sync_folder(&self.folder.join(part)).map_err(CallError::Unclear),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(CallError::Taken),
                Err(error) => Err(CallError::Unclear(error)),
            }
        });
        // Nobody looks at what is left there.
        let _ = fs::remove_file(&partial);
        result
    }
}

/// A file as JSON; `None` where there is no such file.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, CallError> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(CallError::Malformed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CallError::NotDone(error)),
    }
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
