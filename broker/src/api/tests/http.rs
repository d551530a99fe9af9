use std::time::Duration;

use axum::body::Body;
use runwhere_engine::Permission;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Site;
use crate::server::{Listen, Server};

#[tokio::test]
async fn every_refusal_is_an_envelope_in_the_callers_language() {
    let site = Site::new().await;
    let token = format!("Bearer {}", site.token);
    let cases = [
        ("GET", "/nowhere", 404, "地址不存在"),
        ("PUT", "/api/v1/jobs", 405, "该地址不支持此请求方法"),
        ("GET", "/panic", 500, "服务器内部错误"),
        ("GET", "/api/v1/jobs/none", 404, "任务不存在或无权访问"),
        ("GET", "/api/v1/jobs/a%00b%1b", 404, "任务不存在或无权访问"),
        ("GET", "/ws/jobs?job_id=x", 400, "请求无效"),
        ("GET", "/api/v1/sync/none/status", 404, "同步记录不存在或无权访问"),
    ];
    for (method, path, status, message) in cases {
        let answer = site.call(method, path, &[("authorization", &token)], Body::empty()).await;
        assert_eq!(answer.expect(status)["message"], message, "{path}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    let english = [("authorization", token.as_str()), ("accept-language", "en-US,en;q=0.9")];
    let answer = site.call("GET", "/api/v1/jobs/none", &english, Body::empty()).await;
    assert_eq!(answer.expect(404)["message"], "there is no such job, or it is not yours");
}

#[tokio::test]
async fn without_a_valid_token_nothing_is_told() {
    let site = Site::new().await;
    for authorization in ["", "Bearer", "Bearer x", "Basic eDp4", "Bearer rw_AAAA", "bearer  "] {
        for path in ["/api/v1/auth/me", "/api/v1/jobs", "/api/v1/billing/segments"] {
            let headers = [("authorization", authorization)];
            site.call("GET", path, &headers, Body::empty()).await.expect(401);
        }
    }
    let reader = format!("Bearer {}", site.stranger(Permission::JobRead).await);
    let headers = [("authorization", reader.as_str())];
    site.call("GET", "/api/v1/jobs", &headers, Body::empty()).await.expect(200);
    site.call("GET", "/api/v1/usage", &headers, Body::empty()).await.expect(403);
    site.call("POST", "/api/v1/jobs/x/stop", &headers, Body::empty()).await.expect(403);
    site.call("POST", "/api/v1/jobs/submit", &headers, "{}").await.expect(403);
}

#[tokio::test]
async fn a_leading_double_slash_is_folded_and_ids_are_echoed_when_harmless() {
    let site = Site::new().await;
    let me = site.get("//api/v1/auth/me").await;
    assert_eq!(me.expect(200)["username"], "admin");
    for (given, echoed) in [("abc-1", true), ("a b", false), (&"x".repeat(65), false)] {
        let headers = [("x-request-id", given)];
        let answer = site.call("GET", "/healthz", &headers, Body::empty()).await;
        assert_eq!(answer.headers["x-request-id"] == given, echoed);
        answer.expect(200);
    }
    site.get("/readyz").await.expect(200);
    site.closing.send_replace(true);
    site.get("/readyz").await.expect(503);
}

async fn raw(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

#[tokio::test]
async fn a_refusal_is_heard_by_who_still_sends() {
    let site = Site::new().await;
    let listen = Listen { address: ([127, 0, 0, 1], 0).into(), tls: None };
    let server = Server::bind(&listen).await.unwrap();
    let address = server.address();
    let running = tokio::spawn(server.run(site.app.clone(), site.closing.subscribe()));
    let refused = "PUT /api/v1/uploads/none HTTP/1.1\r\nhost: x\r\n";
    let body = vec![b'x'; 16 << 20];
    let head = format!("{refused}content-length: {}\r\n\r\n", body.len());
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Twice on one connection: what was left is not taken for the next request.
    for _ in 0..2 {
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut said = vec![0; length.unwrap().parse().unwrap()];
        stream.read_exact(&mut said).await.unwrap();
    }
    // Who asks first is refused without being told to send.
    let asks =
        format!("{refused}connection: close\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n");
    assert!(raw(address, &asks).await.starts_with("HTTP/1.1 403"));
    site.closing.send_replace(true);
    tokio::time::timeout(Duration::from_secs(10), running).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_shutdown_answers_what_runs_and_ends_long_polls() {
    let site = Site::new().await;
    let listen = Listen { address: ([127, 0, 0, 1], 0).into(), tls: None };
    let server = Server::bind(&listen).await.unwrap();
    let address = server.address();
    let running = tokio::spawn(server.run(site.app.clone(), site.closing.subscribe()));
    let reply = raw(address, "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(reply.await.starts_with("HTTP/1.1 200"));
    let (key, lease) = super::node::session(&site).await;
    let body = r#"{"state":"running","last_event_seq":0,"last_log_seq":0,"wait_ms":20000}"#;
    let request = format!(
        "POST /agent/v1/poll HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {lease}.{key}\r\n\
         x-runwhere-epoch: 1\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    // An idle connection must not hold the shutdown up.
    let idle = TcpStream::connect(address).await.unwrap();
    let mut byte = [0; 1];
    let waiting = stream.read(&mut byte);
    assert!(tokio::time::timeout(Duration::from_millis(300), waiting).await.is_err());
    site.closing.send_replace(true);
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");
    tokio::time::timeout(Duration::from_secs(10), running).await.unwrap().unwrap();
    drop(idle);
    assert!(TcpStream::connect(address).await.is_err());
}
