use axum::body::Body;
use bytes::Bytes;
use runwhere_agent::protocol::{Digest, LogFrame, LogStream, encode_batch};
use runwhere_engine::LeaseState;
use serde_json::json;

use super::{Answer, Site};
use crate::blobs::Encoding;
use crate::store::{Row, Store, Transition, sample};

/// A lease with a session; returns the key in hexadecimal and the lease's id.
pub(super) async fn session(site: &Site) -> (String, String) {
    let key = [7; 32];
    let mut job = sample::job("default", 1, "llama");
    job.active = false;
    let trial = sample::trial(&job, 0);
    let mut lease = sample::lease(&trial, "lease.1");
    lease.agent.session_key_sha256 = Some(Digest::of(&key).to_string());
    lease.state = LeaseState::Ready;
    let rows = vec![Row::Job(job), Row::Trial(trial), Row::Lease(lease)];
    site.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
    (hex::encode(key), "lease.1".to_owned())
}

struct Node<'a> {
    site: &'a Site,
    credential: String,
}

impl Node<'_> {
    async fn call(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        let headers = [("authorization", self.credential.as_str()), ("x-runwhere-epoch", "1")];
        self.site.call(method, path, &headers, body).await
    }

    async fn logs(&self, frames: &[LogFrame]) -> Answer {
        self.call("POST", "/agent/v1/logs?from_seq=1", encode_batch(frames).unwrap()).await
    }
}

async fn node(site: &Site) -> Node<'_> {
    let (key, lease) = session(site).await;
    Node { site, credential: format!("Bearer {lease}.{key}") }
}

fn frame(seq: u64, offset: u64, text: &'static str) -> LogFrame {
    let bytes = Bytes::from_static(text.as_bytes());
    LogFrame { seq, stream: LogStream::Stdout, time_us: 0, offset, bytes }
}

#[tokio::test]
async fn only_the_session_of_a_living_lease_gets_in() {
    let site = Site::new().await;
    let node = node(&site).await;
    node.call("GET", "/agent/v1/assignment", Body::empty()).await.expect(200);
    let wrong_key = format!("Bearer lease.1.{}", "00".repeat(32));
    let token = format!("Bearer {}", site.token);
    for credential in ["", "Bearer x", "Bearer lease.1.", &wrong_key, &token, "Bearer lease.2.00"] {
        let headers = [("authorization", credential), ("x-runwhere-epoch", "1")];
        let answer = site.call("GET", "/agent/v1/assignment", &headers, Body::empty()).await;
        answer.expect(401);
    }
    for epoch in ["0", "2", "x", ""] {
        let headers = [("authorization", node.credential.as_str()), ("x-runwhere-epoch", epoch)];
        let answer = site.call("GET", "/agent/v1/assignment", &headers, Body::empty()).await;
        answer.expect(410);
    }
    let mut lease = site.store.lease(&sample::lease_id("lease.1")).await.unwrap().unwrap();
    lease.state = LeaseState::Released;
    let rows = vec![Row::Lease(lease)];
    site.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
    node.call("GET", "/agent/v1/assignment", Body::empty()).await.expect(410);
    node.logs(&[frame(1, 0, "x")]).await.expect(410);
    let redeem = |token: &str| {
        let body = json!({
            "protocol": 1, "lease_id": "l", "lease_token": token, "agent_version": "1",
            "session_key_sha256": Digest::of(b"x"),
        });
        site.call("POST", "/agent/v1/redeem", &[], body.to_string())
    };
    assert_eq!(redeem("good").await.expect(200)["epoch"], 1);
    redeem("used").await.expect(409);
    redeem("bad").await.expect(401);
}

#[tokio::test]
async fn logs_are_acknowledged_once_durable_and_gaps_are_told() {
    let site = Site::new().await;
    let node = node(&site).await;
    assert_eq!(node.logs(&[frame(1, 0, "one\n")]).await.expect(200)["durable_seq"], 1);
    assert_eq!(node.logs(&[frame(1, 0, "one\n")]).await.expect(200)["durable_seq"], 1);
    let gap = node.logs(&[frame(3, 8, "x")]).await;
    assert_eq!((gap.status, gap.json()["durable_seq"].clone()), (409, json!(1)));
    node.logs(&[frame(2, 9, "x")]).await.expect(400);
    node.call("POST", "/agent/v1/logs", "garbage").await.expect(400);
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    node.call("POST", "/agent/v1/logs", bomb).await.expect(400);
    let empty = node.call("POST", "/agent/v1/logs", Body::empty()).await;
    assert_eq!(empty.expect(200)["durable_seq"], 1);
}

#[tokio::test]
async fn a_node_reads_its_own_files_only_and_leaves_no_more_than_it_may() {
    let site = Site::new().await;
    let node = node(&site).await;
    let project = sample::project_id("default");
    for content in [b"mine".as_slice(), b"others".as_slice()] {
        let size = content.len() as u64;
        let mut writer = site
            .blobs
            .begin(&project, Digest::of(content), size, Encoding::Identity)
            .await
            .unwrap();
        writer.write(Bytes::copy_from_slice(content)).await.unwrap();
        writer.finish().await.unwrap();
    }
    site.agents.files.lock().unwrap().insert(Digest::of(b"mine"), 4);
    let blob = |content: &[u8]| format!("/agent/v1/blobs/{}", Digest::of(content));
    let mine = node.call("GET", &blob(b"mine"), Body::empty()).await;
    assert_eq!((mine.status, mine.bytes.as_slice()), (200, b"mine".as_slice()));
    node.call("GET", &blob(b"others"), Body::empty()).await.expect(404);
    node.call("GET", "/agent/v1/blobs/..%2F..%2Fetc", Body::empty()).await.expect(400);
    let output = |content: &[u8]| format!("/agent/v1/outputs/{}", Digest::of(content));
    let put = |content: &'static [u8], size: usize| {
        let path = format!("{}?size={size}", output(content));
        let node = &node;
        async move { node.call("PUT", &path, content.to_vec()).await }
    };
    assert_eq!(put(b"weights", 7).await.expect(200)["size"], 7);
    put(b"weights", 7).await.expect(200);
    put(b"weights", 6).await.expect(400);
    let read = node.call("GET", &output(b"weights"), Body::empty()).await.expect(200);
    assert_eq!(read["sha256"], Digest::of(b"weights").to_string());
    node.call("GET", &output(b"none"), Body::empty()).await.expect(404);
    put(&[0; 94], 94).await.expect(400);
    put(&[0; 93], 93).await.expect(200);
    node.call("PUT", &output(b"x"), "x").await.expect(400);
}
