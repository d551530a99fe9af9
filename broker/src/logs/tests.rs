use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use proptest::prelude::*;
use runwhere_agent::protocol::{BatchPart, LogFrame, LogStream, decode_parts, encode_batch};
use runwhere_engine::PlatformLine;
use runwhere_model::{Lang, LeaseId, TrialId};
use runwhere_providers::SystemClock;
use tempfile::TempDir;

use super::*;
use crate::ports::PlatformLog;

const ALL: TailLimits = TailLimits { lines: usize::MAX - 8, bytes: usize::MAX, ended: true };

fn trial() -> TrialId {
    TrialId::new("job-1.0").unwrap()
}

fn lease() -> LeaseId {
    LeaseId::new("lease-1").unwrap()
}

fn open(folder: &Path) -> Logs {
    Logs::open(folder, 1 << 30, Arc::new(SystemClock)).unwrap()
}

fn file(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("t-job-1.0/log")
}

/// Frames from `first` on over the given state of the streams.
fn frames(first: u64, ends: &mut [u64; 3], parts: &[(LogStream, &[u8])]) -> Vec<LogFrame> {
    let mut out = Vec::new();
    for (seq, (stream, bytes)) in (first..).zip(parts) {
        let end = &mut ends[usize::from(stream.number())];
        let bytes = Bytes::copy_from_slice(bytes);
        let offset = *end;
        *end += bytes.len() as u64;
        out.push(LogFrame { seq, stream: *stream, time_us: 1_000_000, offset, bytes });
    }
    out
}

fn stdout(first: u64, offset: u64, text: &[u8]) -> Vec<LogFrame> {
    frames(first, &mut [0, offset, 0], &[(LogStream::Stdout, text)])
}

fn phase(key: &str, line: PlatformLine) -> NoteRecord {
    NoteRecord { key: key.to_owned(), at: Timestamp::UNIX_EPOCH, note: Note::Phase { line } }
}

async fn texts(logs: &Logs, limits: TailLimits) -> Vec<String> {
    let tail = logs.tail(&trial(), limits, Lang::Zh).await.unwrap();
    tail.lines.into_iter().map(|line| line.text).collect()
}

async fn raw(logs: &Logs, stream: LogStream) -> Vec<u8> {
    let mut export = logs.export(&trial(), stream).await.unwrap();
    let mut out = Vec::new();
    while let Some(bytes) = export.next().await.unwrap() {
        out.extend_from_slice(&bytes);
    }
    assert_eq!(out.len() as u64, export.size());
    out
}

fn packed(frames: &[LogFrame]) -> (Bytes, Vec<BatchPart>) {
    let batch = Bytes::from(encode_batch(frames).unwrap());
    let parts = decode_parts(batch.clone(), 1).unwrap();
    assert_eq!((parts.len(), parts[0].packed.as_ref()), (1, Some(&batch)));
    (batch, parts)
}

fn stored(folder: &TempDir, bytes: &[u8]) -> bool {
    std::fs::read(file(folder)).unwrap().windows(bytes.len()).any(|window| window == bytes)
}

#[tokio::test]
async fn what_an_agent_packed_is_stored_as_it_came_where_its_numbers_are_the_logs() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    let second = LeaseId::new("lease-2").unwrap();
    let mut ends = [0; 3];
    let parts = |texts: [&'static str; 2]| texts.map(|text| (LogStream::Stdout, text.as_bytes()));
    let first = frames(1, &mut ends, &parts(["one\ntw", "o\n"]));
    let next = frames(3, &mut ends, &parts(["three\n", "four\n"]));
    let (first_bytes, first_parts) = packed(&first);
    assert_eq!(logs.append_batch(&trial(), &lease(), first_parts.clone()).await.unwrap(), 2);
    assert!(stored(&folder, &first_bytes));
    // Repeated whole, and together with something new.
    let size = std::fs::metadata(file(&folder)).unwrap().len();
    assert_eq!(logs.append_batch(&trial(), &lease(), first_parts.clone()).await.unwrap(), 2);
    assert_eq!(std::fs::metadata(file(&folder)).unwrap().len(), size);
    let (both_bytes, both) = packed(&[&first[1..], &next[..1]].concat());
    assert_eq!(logs.append_batch(&trial(), &lease(), both).await.unwrap(), 3);
    assert!(!stored(&folder, &both_bytes));
    // A gap, and an offset that does not follow, are refused in every form.
    let (_, gap) = packed(&stdout(5, ends[1], b"x"));
    assert!(matches!(
        logs.append_batch(&trial(), &lease(), gap).await,
        Err(LogError::Gap { durable_seq: 3 })
    ));
    let (_, offset) = packed(&stdout(4, 1, b"x"));
    assert!(matches!(
        logs.append_batch(&trial(), &lease(), offset).await,
        Err(LogError::Offset { seq: 4, .. })
    ));
    let (_, last) = packed(&next[1..]);
    assert_eq!(logs.append_batch(&trial(), &lease(), last).await.unwrap(), 4);
    // Another lease's agent counts from 1 again.
    assert_eq!(logs.append_batch(&trial(), &second, first_parts).await.unwrap(), 2);
    assert_eq!(raw(&logs, LogStream::Stdout).await, b"one\ntwo\nthree\nfour\none\ntwo\n");
    let expected = ["one", "two", "three", "four", "one", "two"];
    assert_eq!(texts(&logs, ALL).await, expected);
    drop(logs);
    assert_eq!(texts(&open(folder.path()), ALL).await, expected);
}

#[tokio::test]
async fn repeats_and_overlaps_are_harmless_and_gaps_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    assert_eq!(logs.append(&trial(), &lease(), stdout(1, 0, b"one\n")).await.unwrap(), 1);
    assert_eq!(logs.append(&trial(), &lease(), stdout(1, 0, b"one\n")).await.unwrap(), 1);
    let mut ends = [0; 3];
    let both =
        frames(1, &mut ends, &[(LogStream::Stdout, b"one\n"), (LogStream::Stdout, b"two\n")]);
    assert_eq!(logs.append(&trial(), &lease(), both).await.unwrap(), 2);
    assert!(matches!(
        logs.append(&trial(), &lease(), stdout(4, 8, b"four\n")).await,
        Err(LogError::Gap { durable_seq: 2 })
    ));
    assert!(matches!(
        logs.append(&trial(), &lease(), stdout(3, 7, b"x")).await,
        Err(LogError::Offset { seq: 3, expected: 8, found: 7 })
    ));
    assert_eq!(raw(&logs, LogStream::Stdout).await, b"one\ntwo\n");
    assert_eq!(logs.append(&trial(), &lease(), Vec::new()).await.unwrap(), 2);
}

#[tokio::test]
async fn notes_are_said_once_in_place_in_the_readers_language() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    logs.note(&trial(), phase("a", PlatformLine::CreatingNode)).await.unwrap();
    logs.append(&trial(), &lease(), stdout(1, 0, b"Epoch 1\n")).await.unwrap();
    logs.note(&trial(), phase("b", PlatformLine::Running)).await.unwrap();
    let logs = open(folder.path());
    logs.note(&trial(), phase("a", PlatformLine::CreatingNode)).await.unwrap();
    logs.note(&trial(), phase("b", PlatformLine::Running)).await.unwrap();
    assert_eq!(
        texts(&logs, ALL).await,
        ["[runwhere] 正在创建 GPU 节点...", "Epoch 1", "[runwhere] 任务运行中"]
    );
    let english = logs.tail(&trial(), ALL, Lang::En).await.unwrap();
    assert_eq!(english.lines[2].text, "[runwhere] The task is running");
    logs.seal(&trial()).await.unwrap();
    logs.seal(&trial()).await.unwrap();
    logs.note(&trial(), phase("b", PlatformLine::Running)).await.unwrap();
    assert!(matches!(
        logs.note(&trial(), phase("c", PlatformLine::Running)).await,
        Err(LogError::Sealed)
    ));
    assert!(matches!(
        logs.append(&trial(), &lease(), stdout(2, 8, b"x")).await,
        Err(LogError::Sealed)
    ));
    assert_eq!(logs.append(&trial(), &lease(), stdout(1, 0, b"Epoch 1\n")).await.unwrap(), 1);
    assert!(open(folder.path()).state(&trial()).await.unwrap().sealed);
}

#[tokio::test]
async fn the_agent_of_another_lease_counts_from_one_again() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    let second = LeaseId::new("lease-2").unwrap();
    logs.append(&trial(), &lease(), stdout(1, 0, b"one\n")).await.unwrap();
    logs.append(&trial(), &lease(), stdout(2, 4, b"two\n")).await.unwrap();
    assert_eq!(logs.append(&trial(), &second, stdout(1, 0, b"three\n")).await.unwrap(), 1);
    let logs = open(folder.path());
    assert_eq!(logs.append(&trial(), &second, stdout(1, 0, b"three\n")).await.unwrap(), 1);
    assert!(matches!(
        logs.append(&trial(), &second, stdout(3, 9, b"x")).await,
        Err(LogError::Gap { durable_seq: 1 })
    ));
    assert_eq!(logs.append(&trial(), &second, stdout(2, 6, b"four\n")).await.unwrap(), 2);
    let state = logs.state(&trial()).await.unwrap();
    assert_eq!((state.lease.as_str(), state.durable_seq), ("lease-2", 2));
    assert_eq!(raw(&logs, LogStream::Stdout).await, b"one\ntwo\nthree\nfour\n");
}

#[tokio::test]
async fn every_torn_end_is_cut_to_whole_blocks_and_appending_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    logs.append(&trial(), &lease(), stdout(1, 0, b"one\n")).await.unwrap();
    let first = std::fs::metadata(file(&folder)).unwrap().len();
    logs.append(&trial(), &lease(), stdout(2, 4, b"two\n")).await.unwrap();
    let whole = std::fs::read(file(&folder)).unwrap();
    drop(logs);
    for cut in first..whole.len() as u64 {
        std::fs::write(file(&folder), &whole[..cut as usize]).unwrap();
        let logs = open(folder.path());
        assert_eq!(logs.state(&trial()).await.unwrap().durable_seq, 1, "{cut}");
        assert_eq!(logs.append(&trial(), &lease(), stdout(2, 4, b"two\n")).await.unwrap(), 2);
        assert_eq!(std::fs::read(file(&folder)).unwrap(), whole);
    }
    // What a power cut leaves: a length without content.
    let torn = [whole.as_slice(), &[0; 5000]].concat();
    std::fs::write(file(&folder), torn).unwrap();
    let logs = open(folder.path());
    assert_eq!(raw(&logs, LogStream::Stdout).await, b"one\ntwo\n");
    assert_eq!(std::fs::read(file(&folder)).unwrap(), whole);
}

#[tokio::test]
async fn a_damaged_byte_in_the_middle_is_reported_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    logs.append(&trial(), &lease(), stdout(1, 0, b"one\n")).await.unwrap();
    let whole = std::fs::metadata(file(&folder)).unwrap().len();
    logs.append(&trial(), &lease(), stdout(2, 4, b"two\n")).await.unwrap();
    logs.append(&trial(), &lease(), stdout(3, 8, b"three\n")).await.unwrap();
    let damaged = std::fs::OpenOptions::new().write(true).open(file(&folder)).unwrap();
    damaged.write_all_at(b"X", whole + 90).unwrap();
    assert!(
        matches!(logs.tail(&trial(), ALL, Lang::Zh).await, Err(LogError::Damaged(at)) if at == whole)
    );
}

#[tokio::test]
async fn lines_end_as_terminals_and_windows_end_them() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    let mut ends = [0; 3];
    let parts: [(LogStream, &[u8]); 6] = [
        (LogStream::Stdout, b"a\r"),
        (LogStream::Stderr, b"err"),
        (LogStream::Stdout, b"\nb\r\n\r\n\r 1%"),
        (LogStream::Stdout, b"\r 2%\rc\xff\xe4\xb8"),
        (LogStream::Stderr, b"or\nend\r"),
        (LogStream::Stdout, b"\xad\n\nlast"),
    ];
    logs.append(&trial(), &lease(), frames(1, &mut ends, &parts)).await.unwrap();
    assert_eq!(
        texts(&logs, ALL).await,
        ["a", "b", "", " 1%", " 2%", "error", "c\u{fffd}中", "", "last", "end"]
    );
    let unfinished = TailLimits { ended: false, ..ALL };
    assert_eq!(texts(&logs, unfinished).await.len(), 8);
    assert_eq!(raw(&logs, LogStream::Stderr).await, b"error\nend\r");
}

#[tokio::test]
async fn the_last_lines_are_found_from_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    let mut ends = [0; 3];
    for batch in 0..200_u64 {
        let text: String = (0..50).map(|n| format!("line {}\n", batch * 50 + n)).collect();
        let half = text.len() / 2 + 3;
        let parts = [
            (LogStream::Stdout, &text.as_bytes()[..half]),
            (LogStream::Stderr, b"e".as_slice()),
            (LogStream::Stdout, &text.as_bytes()[half..]),
        ];
        logs.append(&trial(), &lease(), frames(1 + batch * 3, &mut ends, &parts)).await.unwrap();
    }
    for lines in [1, 2, 49, 50, 51, 1234, 10_000] {
        let limits = TailLimits { lines, bytes: usize::MAX, ended: false };
        let tail = logs.tail(&trial(), limits, Lang::Zh).await.unwrap();
        let texts: Vec<_> = tail.lines.into_iter().map(|line| line.text).collect();
        let want: Vec<_> = (10_000 - lines..10_000).map(|n| format!("line {n}")).collect();
        assert_eq!(texts, want);
        assert_eq!(tail.truncated, lines < 10_000, "{lines}");
    }
    let few = TailLimits { lines: 5000, bytes: 30, ended: false };
    assert_eq!(texts(&logs, few).await, ["line 9997", "line 9998", "line 9999"]);
}

#[tokio::test]
async fn a_50_mb_line_comes_in_pieces_that_join_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    let long = "中".repeat((50 << 20) / 3);
    let mut ends = [0; 3];
    let mut next = 1;
    for chunk in long.as_bytes().chunks(900_001).collect::<Vec<_>>().chunks(15) {
        let parts: Vec<_> = chunk.iter().map(|chunk| (LogStream::Stdout, *chunk)).collect();
        logs.append(&trial(), &lease(), frames(next, &mut ends, &parts)).await.unwrap();
        next += parts.len() as u64;
    }
    logs.append(&trial(), &lease(), stdout(next, ends[1], b"\nafter\n")).await.unwrap();
    let mut follower = logs.follow(&trial(), Cursor::default(), Lang::Zh).await.unwrap();
    let mut joined = String::new();
    let mut lines = Vec::new();
    while let Some(fresh) = follower.next().await.unwrap() {
        lines.extend(fresh);
    }
    assert_eq!(lines.pop().unwrap().text, "after");
    let last = lines.len() - 1;
    for (index, line) in lines.into_iter().enumerate() {
        assert!(line.text.len() <= MAX_LINE_BYTES);
        assert_eq!(line.continues, index != last);
        joined.push_str(&line.text);
    }
    assert!(joined == long);
    let limits = TailLimits { lines: 3, bytes: 1 << 20, ended: false };
    let tail = logs.tail(&trial(), limits, Lang::Zh).await.unwrap();
    assert_eq!(tail.lines.len(), 3);
    assert!(tail.truncated);
}

#[tokio::test]
async fn a_follower_waits_and_a_made_up_cursor_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    let mut follower = logs.follow(&trial(), Cursor::default(), Lang::Zh).await.unwrap();
    assert!(follower.next().await.unwrap().is_none());
    let appending = logs.clone();
    let append = tokio::spawn(async move {
        appending.append(&trial(), &lease(), stdout(1, 0, b"one\ntw")).await.unwrap();
    });
    let mut lines = Vec::new();
    while lines.is_empty() {
        match follower.next().await.unwrap() {
            Some(fresh) => lines = fresh,
            None => follower.changed().await,
        }
    }
    assert_eq!(lines[0].text, "one");
    append.await.unwrap();
    assert_eq!(follower.flush()[0].text, "tw");
    for block in [3, 1 << 40, u64::MAX] {
        let from = Cursor { block, ..Cursor::default() };
        let mut follower = logs.follow(&trial(), from, Lang::Zh).await.unwrap();
        assert!(matches!(follower.next().await, Err(LogError::Damaged(_))), "{block}");
    }
    for text in ["", "AAAA", "\u{0}", &"A".repeat(10_000)] {
        assert!(text.parse::<Cursor>().is_err());
    }
}

#[tokio::test]
async fn a_disk_without_room_keeps_what_was_acknowledged_and_recovers() {
    // The limit stands for the disk: a file size limit is an error of the same class, but a
    // process-wide one would hit other tests.
    let folder = tempfile::tempdir().unwrap();
    let logs = Logs::open(folder.path(), 0, Arc::new(SystemClock)).unwrap();
    let noise: Vec<u8> =
        (0..1_000_000_u32).flat_map(|n| n.wrapping_mul(2654435761).to_le_bytes()).collect();
    let mut ends = [0; 3];
    let mut next = 1;
    let durable = loop {
        let parts: Vec<_> = noise.chunks(1_000_000).map(|c| (LogStream::Stdout, c)).collect();
        let before = ends;
        match logs.append(&trial(), &lease(), frames(next, &mut ends, &parts)).await {
            Ok(durable) => next = durable + 1,
            Err(LogError::TooLarge { .. }) => break (next - 1, before[1]),
            Err(other) => panic!("{other}"),
        }
    };
    let state = logs.state(&trial()).await.unwrap();
    assert_eq!((state.durable_seq, state.bytes[1]), durable);
    assert_eq!(raw(&logs, LogStream::Stdout).await.len() as u64, durable.1);
}

#[tokio::test]
async fn appends_at_once_all_become_durable() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    let notes =
        (0..40).map(|n| {
            let logs = logs.clone();
            async move {
                logs.note(&trial(), phase(&format!("k{}", n % 20), PlatformLine::Running)).await
            }
        });
    let (trial, lease) = (trial(), lease());
    let frames = logs.append(&trial, &lease, stdout(1, 0, b"x\n"));
    let notes = futures_util::future::join_all(notes);
    let (notes, frames) = futures_util::future::join(notes, frames).await;
    assert!(notes.iter().all(Result::is_ok) && frames.is_ok());
    let logs = open(folder.path());
    assert_eq!(texts(&logs, ALL).await.len(), 21);
}

fn parts() -> impl Strategy<Value = Vec<Vec<(u8, Vec<u8>)>>> {
    let bytes =
        prop::collection::vec(prop::sample::select(b"ab\r\n\xe4\xb8\xad\xff".to_vec()), 0..12);
    let frame = (0_u8..3, bytes);
    prop::collection::vec(prop::collection::vec(frame, 1..5), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// From the cursor of any line on, exactly the lines after it follow; and any number of last
    /// lines is the end of all lines.
    #[test]
    fn cursors_and_tails_agree_with_reading_everything(batches in parts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let logs = open(folder.path());
            let (mut next, mut ends) = (1, [0; 3]);
            for (number, batch) in batches.iter().enumerate() {
                let parts: Vec<_> = batch
                    .iter()
                    .map(|(s, b)| (LogStream::from_number(*s).unwrap(), b.as_slice()))
                    .collect();
                logs.append(&trial(), &lease(), frames(next, &mut ends, &parts)).await.unwrap();
                next += parts.len() as u64;
                let key = number.to_string();
                logs.note(&trial(), phase(&key, PlatformLine::Running)).await.unwrap();
            }
            let all = read(&logs, Cursor::default()).await;
            for (index, line) in all.iter().enumerate() {
                let cursor = line.cursor.to_string().parse().unwrap();
                assert_eq!(said(&read(&logs, cursor).await), said(&all[index + 1..]));
            }
            // A line that never ended may have begun before the window of the last lines.
            let ended = TailLimits { ended: false, ..ALL };
            let all = logs.tail(&trial(), ended, Lang::Zh).await.unwrap().lines;
            for lines in 1..=all.len() {
                let limits = TailLimits { lines, ..ended };
                let tail = logs.tail(&trial(), limits, Lang::Zh).await.unwrap();
                let texts: Vec<_> = tail.lines.iter().map(|line| &line.text).collect();
                let want: Vec<_> = all[all.len() - lines..].iter().map(|line| &line.text).collect();
                assert_eq!(texts, want);
            }
        });
    }
}

/// Everything of lines but their cursors, of which there may be several for one position.
fn said(lines: &[Line]) -> Vec<(Source, &str, bool)> {
    lines.iter().map(|line| (line.source, line.text.as_str(), line.continues)).collect()
}

async fn read(logs: &Logs, from: Cursor) -> Vec<Line> {
    let mut follower = logs.follow(&trial(), from, Lang::Zh).await.unwrap();
    let mut lines = Vec::new();
    while let Some(fresh) = follower.next().await.unwrap() {
        lines.extend(fresh);
    }
    lines.extend(follower.flush());
    lines
}

#[tokio::test]
async fn a_log_that_was_only_begun_is_named_until_it_is_closed() {
    let folder = TempDir::new().unwrap();
    let logs = open(folder.path());
    assert!(PlatformLog::unsealed(&logs).await.is_empty());
    PlatformLog::begin(&logs, &trial()).await;
    // As after the end of the process, before a line was written.
    let logs = open(folder.path());
    assert_eq!(PlatformLog::unsealed(&logs).await, [trial()]);
    assert!(texts(&logs, ALL).await.is_empty());
    PlatformLog::begin(&logs, &trial()).await;
    logs.seal(&trial()).await.unwrap();
    assert!(PlatformLog::unsealed(&logs).await.is_empty());
}
