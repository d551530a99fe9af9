//! The meter of one allocation: a file of two lines, written by the provider alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The file's name in the allocation's folder.
pub(super) const METER_FILE: &str = "meter.jsonl";

/// What a meter says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Meter {
    pub(super) started_at: Option<Timestamp>,
    pub(super) stopped_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reading {
    Start,
    Stop,
}

#[derive(Serialize, Deserialize)]
struct Line {
    event: Reading,
    at: Timestamp,
}

/// RFC 3339 in UTC, always with microseconds.
pub(super) fn rfc3339(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// Appends a reading; on return it is on disk.
pub(super) fn append(folder: &Path, reading: Reading, at: Timestamp) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(folder.join(METER_FILE))?;
    // A line torn by a crash stays what it is; the next one starts on its own.
    let torn = file.seek(SeekFrom::End(0))? > 0 && {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        last != *b"\n"
    };
    let event = match reading {
        Reading::Start => "start",
        Reading::Stop => "stop",
    };
    let line = format!(
        "{}{{\"event\":\"{event}\",\"at\":\"{}\"}}\n",
        if torn { "\n" } else { "" },
        rfc3339(at)
    );
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Reads the meter. The first start and the first stop count, whatever else the file holds.
pub(super) fn read(folder: &Path) -> io::Result<Meter> {
    let text = match std::fs::read(folder.join(METER_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Meter::default()),
        Err(error) => return Err(error),
    };
    let mut meter = Meter::default();
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(Line { event, at }) = serde_json::from_slice(line) else { continue };
        let slot = match event {
            Reading::Start => &mut meter.started_at,
            Reading::Stop => &mut meter.stopped_at,
        };
        slot.get_or_insert(at);
    }
    Ok(meter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_hides_nothing_that_follows() {
        let folder = tempfile::tempdir().unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(read(folder.path()).unwrap(), Meter::default());
        append(folder.path(), Reading::Start, at("2026-07-25T00:24:38Z")).unwrap();
        let mut file =
            OpenOptions::new().append(true).open(folder.path().join(METER_FILE)).unwrap();
        file.write_all(br#"{"event":"stop","at":"2026-07"#).unwrap();
        append(folder.path(), Reading::Stop, at("2026-07-25T00:27:45.5Z")).unwrap();
        append(folder.path(), Reading::Stop, at("2027-01-01T00:00:00Z")).unwrap();
        let meter = read(folder.path()).unwrap();
        assert_eq!(meter.started_at, Some(at("2026-07-25T00:24:38Z")));
        assert_eq!(meter.stopped_at, Some(at("2026-07-25T00:27:45.5Z")));
        let text = std::fs::read_to_string(folder.path().join(METER_FILE)).unwrap();
        assert!(text.starts_with("{\"event\":\"start\",\"at\":\"2026-07-25T00:24:38.000000Z\"}\n"));
    }
}
