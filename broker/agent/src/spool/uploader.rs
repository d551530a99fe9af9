//! The task that sends what the writer has written.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use runwhere_failpoint::failpoint;
use tokio::sync::watch;
use tokio::time::Instant;

use super::shared::{Spool, read_body, read_header};
use crate::journal::Journal;
use crate::link::{Link, LinkError, Pause};
use crate::protocol::MAX_BATCH_BYTES;

// One request: large enough to be worth an fsync at the broker, small enough to be held in memory.
const BODY_BYTES: usize = 4 << 20;
// Room for two full batches of the writer, which end a little above their limit.
const BODY_RAW_BYTES: usize = 10 << 20;

// In a flood of small batches, posts follow each other no faster; larger ones go at once.
const LARGE_RAW_BYTES: usize = 2 << 20;
const GATHER: Duration = Duration::from_millis(25);

#[derive(Debug, Default)]
struct Body {
    first_seq: u64,
    last_seq: u64,
    bytes: Vec<u8>,
    // Before compression.
    raw: usize,
}

// Place after the last record that was read.
#[derive(Debug, Default)]
struct Cursor {
    path: Option<PathBuf>,
    place: u64,
    sent: u64,
}

/// Sends frames until the session ends. What happened before them is told first, so that a reader
/// never sees a program's output before it is said to run.
pub(crate) async fn upload(
    spool: Arc<Spool>,
    link: Arc<Link>,
    journal: Arc<Journal>,
    mut acked_events: watch::Receiver<u64>,
) {
    let mut changes = spool.written.subscribe();
    let mut cursor = Cursor { sent: spool.state().acked, ..Cursor::default() };
    let mut pause = Pause::default();
    let mut last_post = Instant::now();
    loop {
        changes.borrow_and_update();
        let reader = Arc::clone(&spool);
        let read = tokio::task::spawn_blocking(move || {
            let body = next_body(&reader, &mut cursor);
            (cursor, body)
        });
        let Ok((moved, body)) = read.await else { return };
        cursor = moved;
        let body = match body {
            Ok(Some(body)) => body,
            Ok(None) => {
                if changes.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Err(error) => {
                tracing::error!(%error, "cannot read the log spool");
                tokio::time::sleep(pause.next()).await;
                cursor = Cursor { sent: spool.state().acked, ..Cursor::default() };
                continue;
            }
        };
        let happened = journal.last_seq();
        if acked_events.wait_for(|acked| *acked >= happened).await.is_err() {
            return;
        }
        let last_seq = body.last_seq;
        let large = body.raw >= LARGE_RAW_BYTES;
        failpoint!("agent.log.before_post");
        match link.post_logs(body.first_seq, Bytes::from(body.bytes)).await {
            Ok(Ok(durable)) => {
                failpoint!("agent.log.acked");
                pause = Pause::default();
                spool.acknowledge(durable);
                if !large && last_post.elapsed() < GATHER * 2 {
                    tokio::time::sleep(GATHER).await;
                }
                last_post = Instant::now();
                if durable < last_seq {
                    cursor = Cursor { sent: durable, ..Cursor::default() };
                }
            }
            // The broker misses frames before this batch.
            Ok(Err(durable)) => {
                if durable < spool.state().acked {
                    tracing::error!(durable, "the broker lost log frames that it had acknowledged");
                    return spool.give_up();
                }
                spool.acknowledge(durable);
                cursor = Cursor { sent: durable, ..Cursor::default() };
                tokio::time::sleep(pause.next()).await;
            }
            Err(LinkError::Closed(_)) => return,
            Err(error) => {
                tracing::error!(%error, "the broker does not take the log");
                tokio::time::sleep(pause.next()).await;
                cursor = Cursor { sent: spool.state().acked, ..Cursor::default() };
            }
        }
    }
}

// The next records after the cursor, joined; None where everything has been read.
fn next_body(spool: &Spool, cursor: &mut Cursor) -> io::Result<Option<Body>> {
    let mut body = Body::default();
    loop {
        let (segment, held) = {
            let state = spool.state();
            let here = cursor
                .path
                .as_ref()
                .and_then(|path| state.segments.iter().position(|segment| segment.path == *path));
            let index = match here {
                Some(index) if cursor.place < state.segments[index].len => Some(index),
                Some(index) => Some(index + 1),
                None => state.segments.iter().position(|segment| segment.last_seq > cursor.sent),
            };
            let segment = index.and_then(|index| state.segments.get(index)).cloned();
            let held = state.held.clone().filter(|held| held.header.last_seq > cursor.sent);
            (segment.filter(|segment| segment.len > 0), held)
        };
        let Some(segment) = segment else {
            if body.bytes.is_empty()
                && let Some(held) = held
            {
                cursor.sent = held.header.last_seq;
                body.first_seq = held.header.first_seq;
                body.last_seq = held.header.last_seq;
                body.bytes = held.body.to_vec();
                body.raw = held.header.raw as usize;
            }
            break;
        };
        if cursor.path.as_ref() != Some(&segment.path) {
            cursor.path = Some(segment.path.clone());
            cursor.place = 0;
        }
        let mut file = File::open(&segment.path)?;
        while cursor.place < segment.len {
            let header = read_header(&mut file, cursor.place)?
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "damaged record"))?;
            if header.last_seq > cursor.sent {
                let follows = body.bytes.is_empty() || header.first_seq == body.last_seq + 1;
                let fits = body.bytes.is_empty()
                    || (body.bytes.len() + header.compressed as usize <= BODY_BYTES
                        && body.raw + header.raw as usize <= BODY_RAW_BYTES.min(MAX_BATCH_BYTES));
                if !follows || !fits {
                    return Ok(Some(body));
                }
                if body.bytes.is_empty() {
                    body.first_seq = header.first_seq;
                }
                read_body(&mut file, cursor.place, &header, &mut body.bytes)?;
                body.raw += header.raw as usize;
                body.last_seq = header.last_seq;
                cursor.sent = header.last_seq;
            }
            cursor.place += header.record_bytes();
        }
    }
    Ok((!body.bytes.is_empty()).then_some(body))
}
