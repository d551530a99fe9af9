//! A broker in this process that behaves as badly as a test wants.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use runwhere_agent::protocol::{
    Assignment, Desired, Digest, EPOCH_HEADER, Event, EventsReply, EventsRequest, LogStream,
    LogsReply, PollReply, PollRequest, RedeemReply, RedeemRequest, StoredOutput, decode_batch,
};
use tokio::sync::Notify;

pub(crate) const TOKEN: &str = "token-1";
const EPOCH: u64 = 7;

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Answered with this status, nothing done.
    Status(u16),
    /// Done, but the connection breaks before the reply.
    LoseReply,
    /// Done twice.
    Twice,
}

type FaultPlan = Box<dyn Fn(&str, usize) -> Fault + Send>;

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) assignment: Option<Assignment>,
    pub(crate) key: Option<Digest>,
    pub(crate) events: Vec<Event>,
    pub(crate) logs: [Vec<u8>; 3],
    pub(crate) durable_seq: u64,
    pub(crate) log_posts: usize,
    pub(crate) blobs: HashMap<Digest, Vec<u8>>,
    pub(crate) outputs: HashMap<Digest, Vec<u8>>,
    pub(crate) desired: Option<(Desired, String)>,
    pub(crate) keep_logs: bool,
    pub(crate) calls: BTreeMap<String, usize>,
    blob_delay: Duration,
}

struct Shared {
    lease: String,
    seen: Mutex<Seen>,
    changed: Notify,
    faults: Mutex<FaultPlan>,
}

/// A fake broker; state survives `stop` and `start`.
pub(crate) struct Broker {
    shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Broker {
    pub(crate) fn start(assignment: Assignment, blobs: Vec<Vec<u8>>) -> Self {
        let seen = Seen {
            assignment: Some(assignment),
            blobs: blobs.into_iter().map(|blob| (Digest::of(&blob), blob)).collect(),
            keep_logs: true,
            ..Seen::default()
        };
        // Agents end whatever carries their lease's marker, so no two tests may share one.
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let shared = Shared {
            lease: format!("lease-{}-{number}", std::process::id()),
            seen: Mutex::new(seen),
            changed: Notify::new(),
            faults: Mutex::new(Box::new(|_, _| Fault::None)),
        };
        let mut broker = Self {
            shared: Arc::new(shared),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            runtime: None,
        };
        broker.resume();
        broker
    }

    /// Listens (again) on the same port.
    pub(crate) fn resume(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let listener = loop {
            match runtime.block_on(tokio::net::TcpListener::bind(self.address)) {
                Ok(listener) => break listener,
                Err(error) if std::time::Instant::now() > deadline => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        self.address = listener.local_addr().unwrap();
        let app = router(Arc::clone(&self.shared));
        runtime.spawn(async move { axum::serve(listener, app).await });
        self.runtime = Some(runtime);
    }

    /// Listens again on another port.
    pub(crate) fn resume_elsewhere(&mut self) {
        self.address.set_port(0);
        self.resume();
    }

    pub(crate) fn lease(&self) -> &str {
        &self.shared.lease
    }

    /// Gone, with all its connections, but not its state.
    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub(crate) fn faults(&self, plan: impl Fn(&str, usize) -> Fault + Send + 'static) {
        *self.shared.faults.lock().unwrap() = Box::new(plan);
    }

    pub(crate) fn delay_blobs(&self, delay: Duration) {
        self.seen(|seen| seen.blob_delay = delay);
    }

    pub(crate) fn want(&self, desired: Desired, reason: &str) {
        self.seen(|seen| seen.desired = Some((desired, reason.to_owned())));
        self.shared.changed.notify_waiters();
    }

    pub(crate) fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.shared.seen.lock().unwrap())
    }

    /// Waits until `look` gives something.
    pub(crate) fn wait<T>(&self, what: &str, look: impl Fn(&Seen) -> Option<T>) -> T {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = self.seen(|seen| look(seen)) {
                return found;
            }
            if std::time::Instant::now() > deadline {
                let events = self.seen(|seen| seen.events.clone());
                let calls = self.seen(|seen| seen.calls.clone());
                panic!("no {what} within a minute; events {events:#?}, calls {calls:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop();
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let open = Router::new().route("/agent/v1/redeem", post(redeem));
    let closed = Router::new()
        .route("/agent/v1/assignment", get(assignment))
        .route("/agent/v1/blobs/{sha256}", get(blob))
        .route("/agent/v1/events", post(events))
        .route("/agent/v1/logs", post(logs))
        .route("/agent/v1/outputs", post(store_any))
        .route("/agent/v1/outputs/{sha256}", put(store).get(stored))
        .route("/agent/v1/poll", post(poll))
        .layer(from_fn_with_state(Arc::clone(&shared), authorise));
    open.merge(closed)
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&shared), misbehave))
        .with_state(shared)
}

async fn misbehave(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let call = request.uri().path().split('/').nth(3).unwrap_or_default().to_owned();
    let number = {
        let mut seen = shared.seen.lock().unwrap();
        let count = seen.calls.entry(call.clone()).or_default();
        *count += 1;
        *count
    };
    let fault = (shared.faults.lock().unwrap())(&call, number);
    match fault {
        Fault::None => next.run(request).await,
        Fault::Status(status) => {
            // As the real one: a connection that is closed while its client still sends is reset,
            // and the reset can overtake the answer.
            let _ = axum::body::to_bytes(request.into_body(), usize::MAX).await;
            StatusCode::from_u16(status).unwrap().into_response()
        }
        Fault::LoseReply => {
            next.run(request).await;
            // Ends the connection's task and with it the connection, without a message.
            std::panic::resume_unwind(Box::new("lost reply"))
        }
        Fault::Twice => {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let again = Request::from_parts(head.clone(), body.clone().into());
            next.clone().run(again).await;
            next.run(Request::from_parts(head, body.into())).await
        }
    }
}

async fn authorise(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let fine = (|headers: &HeaderMap| {
        let bearer = headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")?;
        let (lease, key) = bearer.split_once('.')?;
        let epoch = headers.get(EPOCH_HEADER)?.to_str().ok()?;
        let key = Digest::of(&hex::decode(key).ok()?);
        let known = shared.seen.lock().unwrap().key;
        (lease == shared.lease && epoch == EPOCH.to_string() && known == Some(key)).then_some(())
    })(request.headers());
    match fine {
        Some(()) => next.run(request).await,
        None => StatusCode::UNAUTHORIZED.into_response(),
    }
}

async fn redeem(
    State(shared): State<Arc<Shared>>,
    axum::Json(request): axum::Json<RedeemRequest>,
) -> Response {
    let mut seen = shared.seen.lock().unwrap();
    if request.lease_id != shared.lease || request.lease_token != TOKEN {
        return StatusCode::FORBIDDEN.into_response();
    }
    if *seen.key.get_or_insert(request.session_key_sha256) != request.session_key_sha256 {
        return StatusCode::CONFLICT.into_response();
    }
    axum::Json(RedeemReply { epoch: EPOCH, trial_id: "trial-1".to_owned() }).into_response()
}

async fn assignment(State(shared): State<Arc<Shared>>) -> axum::Json<Assignment> {
    axum::Json(shared.seen.lock().unwrap().assignment.clone().unwrap())
}

async fn blob(State(shared): State<Arc<Shared>>, Path(sha256): Path<Digest>) -> Response {
    let (delay, blob) = {
        let seen = shared.seen.lock().unwrap();
        (seen.blob_delay, seen.blobs.get(&sha256).cloned())
    };
    tokio::time::sleep(delay).await;
    blob.map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}

async fn events(
    State(shared): State<Arc<Shared>>,
    axum::Json(request): axum::Json<EventsRequest>,
) -> Response {
    let mut seen = shared.seen.lock().unwrap();
    for event in request.events {
        let last = seen.events.len() as u64;
        if event.seq == last + 1 {
            seen.events.push(event);
        } else if event.seq <= last {
            assert_eq!(seen.events[event.seq as usize - 1], event, "an event changed");
        } else {
            return StatusCode::CONFLICT.into_response();
        }
    }
    axum::Json(EventsReply { acked_seq: seen.events.len() as u64 }).into_response()
}

async fn logs(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let frames = match decode_batch(body) {
        Ok(frames) => frames,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let mut seen = shared.seen.lock().unwrap();
    seen.log_posts += 1;
    for frame in frames {
        if frame.seq <= seen.durable_seq {
            continue;
        }
        if frame.seq > seen.durable_seq + 1 {
            let reply = LogsReply { durable_seq: seen.durable_seq };
            return (StatusCode::CONFLICT, axum::Json(reply)).into_response();
        }
        if seen.keep_logs {
            let stream = &mut seen.logs[usize::from(frame.stream.number())];
            assert_eq!(frame.offset, stream.len() as u64, "frame {}", frame.seq);
            stream.extend_from_slice(&frame.bytes);
        }
        seen.durable_seq = frame.seq;
    }
    axum::Json(LogsReply { durable_seq: seen.durable_seq }).into_response()
}

#[derive(serde::Deserialize)]
struct Size {
    size: u64,
}

async fn store(
    State(shared): State<Arc<Shared>>,
    Path(sha256): Path<Digest>,
    Query(Size { size }): Query<Size>,
    body: Bytes,
) -> StatusCode {
    if body.len() as u64 != size || Digest::of(&body) != sha256 {
        return StatusCode::BAD_REQUEST;
    }
    shared.seen.lock().unwrap().outputs.insert(sha256, body.to_vec());
    StatusCode::OK
}

async fn store_any(
    State(shared): State<Arc<Shared>>,
    Query(Size { size }): Query<Size>,
    body: Bytes,
) -> Response {
    if body.len() as u64 != size {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let sha256 = Digest::of(&body);
    shared.seen.lock().unwrap().outputs.insert(sha256, body.to_vec());
    axum::Json(StoredOutput { size, sha256 }).into_response()
}

async fn stored(State(shared): State<Arc<Shared>>, Path(sha256): Path<Digest>) -> Response {
    let seen = shared.seen.lock().unwrap();
    match seen.outputs.get(&sha256) {
        Some(body) => {
            let size = body.len() as u64;
            axum::Json(StoredOutput { size, sha256: Digest::of(body) }).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn poll(
    State(shared): State<Arc<Shared>>,
    axum::Json(request): axum::Json<PollRequest>,
) -> axum::Json<PollReply> {
    let deadline = tokio::time::Instant::now() + Duration::from_millis(request.wait_ms);
    loop {
        let changed = shared.changed.notified();
        let mut changed = std::pin::pin!(changed);
        changed.as_mut().enable();
        let reply = {
            let seen = shared.seen.lock().unwrap();
            let (desired, reason) = seen.desired.clone().unwrap_or((Desired::Run, String::new()));
            PollReply {
                desired,
                reason: Some(reason),
                deadline_at: None,
                acked_event_seq: seen.events.len() as u64,
                durable_log_seq: seen.durable_seq,
            }
        };
        if request.seen != Some(reply.desired) || tokio::time::Instant::now() >= deadline {
            return axum::Json(reply);
        }
        let _ = tokio::time::timeout_at(deadline, changed).await;
    }
}

/// The stored bytes of a stream.
pub(crate) fn log_of(broker: &Broker, stream: LogStream) -> Vec<u8> {
    broker.seen(|seen| seen.logs[usize::from(stream.number())].clone())
}
