use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use runwhere_agent::protocol::{LogFrame, LogStream};
use runwhere_engine::{EndReason, TrialState};
use runwhere_model::{Currency, Money, TrialId, parse_decimal};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::Site;
use crate::server::{Listen, Server};
use crate::store::sample;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn serve(site: &Site) -> String {
    let listen = Listen { address: ([127, 0, 0, 1], 0).into(), tls: None };
    let server = Server::bind(&listen).await.unwrap();
    let url = format!("ws://{}/ws/jobs", server.address());
    tokio::spawn(server.run(site.app.clone(), site.closing.subscribe()));
    url
}

async fn connect(url: &str, query: &str) -> Socket {
    connect_async(format!("{url}?{query}")).await.expect("never refused").0
}

/// The next event; `None` when the server has closed.
async fn event(socket: &mut Socket) -> Option<(String, Value)> {
    loop {
        let next = tokio::time::timeout(Duration::from_secs(20), socket.next());
        match next.await.expect("an event in time")? {
            Ok(Message::Text(text)) => {
                assert!(text.len() < 1 << 20);
                let mut frame: Value = serde_json::from_str(&text).unwrap();
                let kind = frame["type"].as_str().unwrap().to_owned();
                assert!(frame["payload"].is_object());
                return Some((kind, frame["payload"].take()));
            }
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

async fn line(socket: &mut Socket) -> (String, String) {
    let (kind, payload) = event(socket).await.unwrap();
    assert_eq!(kind, "log", "{payload}");
    let text = |key: &str| payload[key].as_str().unwrap().to_owned();
    (text("line"), text("cursor"))
}

async fn write(site: &Site, trial: &TrialId, seq: u64, offset: u64, text: &str) {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let frame = LogFrame { seq, stream: LogStream::Stdout, time_us: 0, offset, bytes };
    site.logs.append(trial, &sample::lease_id("lease-1"), vec![frame]).await.unwrap();
}

#[tokio::test]
async fn strangers_are_let_in_and_told_that_it_failed() {
    let site = Site::new().await;
    site.jobs.add(1, "llama", TrialState::Running);
    let url = serve(&site).await;
    let token = format!("token={}", site.token);
    for query in [
        String::new(),
        "job_id=llama".to_owned(),
        "job_id=llama&token=rw_x".to_owned(),
        format!("job_id=none&{token}"),
        format!("job_id=..%2Fx%00&{token}"),
        format!("job_id=llama&after=x&{token}"),
    ] {
        let mut socket = connect(&url, &query).await;
        let (kind, payload) = event(&mut socket).await.unwrap();
        assert_eq!(kind, "failed", "{query}");
        assert!(payload["error"].is_string());
        assert!(event(&mut socket).await.is_none());
    }
}

#[tokio::test]
async fn backlog_then_live_then_the_end_and_a_cursor_resumes_between_lines() {
    let site = Site::new().await;
    let report = site.jobs.add(1, "llama", TrialState::Running);
    let trial = report.view.trials[0].0.id.clone();
    write(&site, &trial, 1, 0, "one\ntwo\nthr").await;
    let url = serve(&site).await;
    let query = format!("job_id=llama&token={}", site.token);
    let mut socket = connect(&url, &query).await;
    assert_eq!(line(&mut socket).await.0, "one");
    let (two, cursor) = line(&mut socket).await;
    assert_eq!(two, "two");
    write(&site, &trial, 2, 11, "ee\nlast").await;
    assert_eq!(line(&mut socket).await.0, "three");
    let mut second = connect(&url, &format!("{query}&after={cursor}")).await;
    assert_eq!(line(&mut second).await.0, "three");
    let mut third = connect(&url, &format!("{query}&tail=1&events=1")).await;
    assert_eq!(line(&mut third).await.0, "three");
    site.jobs.change(|report| {
        let trial = &mut report.view.trials[0].0;
        trial.state = TrialState::Cancelled;
        trial.end_reason = Some(EndReason::Stopped);
    });
    // States are events of their own only for who asks; the log says the same.
    let (kind, payload) = event(&mut third).await.unwrap();
    assert_eq!((kind.as_str(), payload["status"].as_str()), ("status_changed", Some("stopped")));
    for socket in [&mut socket, &mut second, &mut third] {
        assert_eq!(line(socket).await.0, "last");
    }
    site.jobs.change(|report| {
        report.cost.settled = true;
        let amount = parse_decimal("1.5").unwrap();
        report.cost.amounts = vec![Money::new(amount, Currency::CNY)];
    });
    let (kind, payload) = event(&mut socket).await.unwrap();
    assert_eq!(kind, "completed");
    assert!(payload["total_cost"].is_number() && payload["duration"].is_number(), "{payload}");
    assert_eq!(payload["cost_is_final"], true);
    assert!(event(&mut socket).await.is_none());
}

#[tokio::test]
async fn a_finished_job_ends_at_once_and_a_long_line_fits_the_frames() {
    let site = Site::new().await;
    let report = site.jobs.add(1, "llama", TrialState::Failed);
    let trial = report.view.trials[0].0.id.clone();
    // Control characters need most room in JSON.
    write(&site, &trial, 1, 0, &"\u{1}".repeat(1 << 20)).await;
    let url = serve(&site).await;
    let mut socket = connect(&url, &format!("job_id=job-00000001&token={}", site.token)).await;
    let mut length = 0;
    loop {
        let (kind, payload) = event(&mut socket).await.unwrap();
        if kind != "log" {
            assert_eq!(kind, "failed");
            assert!(payload["error"].is_string());
            break;
        }
        length += payload["line"].as_str().unwrap().len();
    }
    assert_eq!(length, 1 << 20);
}

#[tokio::test]
async fn an_end_by_another_hand_than_the_programs_is_named() {
    let detail = || "seen".to_owned();
    for (state, reason, error) in [
        (TrialState::TimedOut, EndReason::MaxDurationExceeded, "任务达到 maxDuration，已停止"),
        (
            TrialState::Lost,
            EndReason::Lost { detail: detail() },
            "任务运行中断，不会自动重跑：seen",
        ),
        (TrialState::Failed, EndReason::StartFailed { detail: detail() }, "程序无法启动：seen"),
    ] {
        let site = Site::new().await;
        site.jobs.add(1, "llama", state);
        let code = reason.code();
        site.jobs.change(|report| {
            let trial = &mut report.view.trials[0].0;
            let cause = runwhere_engine::ExitCause::Stop;
            trial.exit = Some(runwhere_engine::Exit { code: None, signal: Some(15), cause });
            trial.end_reason = Some(reason.clone());
            report.cost.settled = true;
        });
        let url = serve(&site).await;
        let mut socket = connect(&url, &format!("job_id=llama&token={}", site.token)).await;
        let (kind, payload) = event(&mut socket).await.unwrap();
        assert_eq!((kind.as_str(), payload["error"].as_str()), ("failed", Some(error)));
        assert_eq!(payload["end_reason"], code);
    }
}

#[tokio::test]
async fn a_revoked_key_hears_nothing_more() {
    let site = Site::new().await;
    let trial = site.jobs.add(1, "llama", TrialState::Running).view.trials[0].0.id.clone();
    let url = serve(&site).await;
    let mut socket = connect(&url, &format!("job_id=llama&token={}", site.token)).await;
    write(&site, &trial, 1, 0, "before\n").await;
    assert_eq!(line(&mut socket).await.0, "before");
    let accounts = &site.accounts;
    let key = accounts.authenticate(&site.token).await.unwrap().key;
    accounts.revoke(&key).await.unwrap();
    write(&site, &trial, 2, 7, "after\n").await;
    let (kind, payload) = event(&mut socket).await.unwrap();
    assert_eq!((kind.as_str(), &payload["code"]), ("failed", &"unauthorized".into()), "{payload}");
    assert!(event(&mut socket).await.is_none());
}

#[tokio::test]
async fn a_revoked_key_hears_nothing_more_of_a_program_that_never_pauses() {
    let site = Site::new().await;
    let trial = site.jobs.add(1, "llama", TrialState::Running).view.trials[0].0.id.clone();
    let url = serve(&site).await;
    let mut socket = connect(&url, &format!("job_id=llama&token={}", site.token)).await;
    write(&site, &trial, 1, 0, "before\n").await;
    assert_eq!(line(&mut socket).await.0, "before");
    let key = site.accounts.authenticate(&site.token).await.unwrap().key;
    site.accounts.revoke(&key).await.unwrap();
    let text = "and on and on\n".repeat(1000);
    let chatter = async {
        let mut offset = 7;
        for seq in 2.. {
            write(&site, &trial, seq, offset, &text).await;
            offset += text.len() as u64;
            tokio::task::yield_now().await;
        }
    };
    let listening = async {
        loop {
            let (kind, payload) = event(&mut socket).await.unwrap();
            if kind != "log" {
                return (kind, payload);
            }
        }
    };
    let (kind, payload) = tokio::select! {
        end = tokio::time::timeout(Duration::from_secs(30), listening) => end.expect("an end"),
        () = chatter => unreachable!("it never ends"),
    };
    assert_eq!((kind.as_str(), &payload["code"]), ("failed", &"unauthorized".into()), "{payload}");
}

#[tokio::test]
async fn a_store_that_fails_makes_nobody_a_stranger() {
    let site = Site::new().await;
    let trial = site.jobs.add(1, "llama", TrialState::Running).view.trials[0].0.id.clone();
    let url = serve(&site).await;
    let query = format!("job_id=llama&token={}", site.token);
    let mut socket = connect(&url, &query).await;
    write(&site, &trial, 1, 0, "before\n").await;
    assert_eq!(line(&mut socket).await.0, "before");
    site.store.fail_keys(true);
    write(&site, &trial, 2, 7, "meanwhile\n").await;
    assert_eq!(line(&mut socket).await.0, "meanwhile");
    // Who comes now is neither let in nor called a stranger: the client tries again.
    let mut other = connect(&url, &query).await;
    assert!(event(&mut other).await.is_none());
    site.store.fail_keys(false);
    let key = site.accounts.authenticate(&site.token).await.unwrap().key;
    site.accounts.revoke(&key).await.unwrap();
    write(&site, &trial, 3, 17, "after\n").await;
    let (kind, payload) = event(&mut socket).await.unwrap();
    assert_eq!((kind.as_str(), &payload["code"]), ("failed", &"unauthorized".into()), "{payload}");
}

#[tokio::test]
async fn a_shutdown_closes_without_an_end() {
    let site = Site::new().await;
    site.jobs.add(1, "llama", TrialState::Running);
    let url = serve(&site).await;
    let mut socket = connect(&url, &format!("job_id=llama&token={}", site.token)).await;
    site.closing.send_replace(true);
    assert!(event(&mut socket).await.is_none());
}
