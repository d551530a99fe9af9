//! Opening the file: what it must be, the settings of a connection, the migrations.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

/// Marks the file as ours (`RUNW`).
const APPLICATION_ID: i32 = 0x5255_4e57;

/// How long a connection waits for another process (`token create` beside a server).
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The write-ahead log is cut back to this size after a checkpoint.
const WAL_BYTES: i64 = 4 << 20;

/// Each brings the file from the format of its place to the next one. Never edit a released one.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
];

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A later version wrote it.
    #[error(
        "{} has data format {found}, this version of runwhere knows formats up to {known}: \
         use the version that wrote it, or a newer one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// It is not a database of this program.
    #[error("{} is not a runwhere database: choose another data folder", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be made or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// SQLite cannot use it.
    #[error("{}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The file system lacks what the write-ahead log needs.
    #[error(
        "{} cannot use a write-ahead log on this file system (SQLite chose {mode}): \
         put the data folder on a local disk",
        path.display()
    )]
    NoWal {
        /// The file.
        path: PathBuf,
        /// The journal SQLite uses instead.
        mode: String,
    },
}

/// The newest format known here.
pub(super) fn known_format() -> i64 {
    i64::try_from(MIGRATIONS.len()).expect("there are few migrations")
}

/// Opens the writing connection; makes the file, readable by its owner only, or brings it to the
/// newest format.
pub(super) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|source| OpenError::Io { path: path.into(), source })?;
    let database = |source| unusable(path, source);
    let mut connection = connect(path).map_err(database)?;
    check(&connection, path)?;
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(database)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(OpenError::NoWal { path: path.into(), mode });
    }
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES).map_err(database)?;
    migrate(&mut connection).map_err(database)?;
    // Another process may have migrated further between the check and the lock.
    check(&connection, path)?;
    Ok(connection)
}

/// Opens a connection that cannot write; the file must have been opened for writing before.
pub(super) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let open = || {
        let connection = connect(path)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    open().map_err(|source| unusable(path, source))
}

fn unusable(path: &Path, source: rusqlite::Error) -> OpenError {
    match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => OpenError::Foreign { path: path.into() },
        _ => OpenError::Database { path: path.into(), source },
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // Without URI: a data folder may have any name.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(128);
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Sorting must not need a temporary file: reads go on while the disk is full.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

fn check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let read = || -> rusqlite::Result<(i32, i64, i64)> {
        Ok((
            connection.pragma_query_value(None, "application_id", |row| row.get(0))?,
            format_of(connection)?,
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
        ))
    };
    let (application, found, objects) =
        read().map_err(|source| match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => OpenError::Foreign { path: path.into() },
            _ => OpenError::Database { path: path.into(), source },
        })?;
    let fresh = application == 0 && found == 0 && objects == 0;
    if !fresh && application != APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.into() });
    }
    if found > known_format() {
        return Err(OpenError::Newer { path: path.into(), found, known: known_format() });
    }
    Ok(())
}

fn format_of(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// All missing migrations in one transaction.
fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    if format_of(connection)? >= known_format() {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let done = usize::try_from(format_of(&transaction)?).unwrap_or_default();
    for migration in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(migration)?;
    }
    if done < MIGRATIONS.len() {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", known_format())?;
    }
    transaction.commit()
}
