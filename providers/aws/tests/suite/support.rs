//! A price host on loopback: files with an `ETag`, and what was asked.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use runwhere_model::{Offer, OfferSheet, ProviderId};
use runwhere_providers::http::{HttpClient, PageCache};
use runwhere_providers::sources::{SourceContext, SourceSettings, sources};
use runwhere_providers::{OfferSource, SystemClock};

pub(crate) fn fixture(path: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/aws").join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Answers with what `body` gives for a path; `None` = 404. An equal `ETag` is answered with 304.
pub(crate) struct Files {
    pub(crate) base: String,
    pub(crate) answers: Arc<Mutex<Vec<(String, u16)>>>,
}

type Body = dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync;

impl Files {
    pub(crate) fn start(body: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let answers = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&answers);
        let body: Arc<Body> = Arc::new(body);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, body) = (Arc::clone(&seen), Arc::clone(&body));
                thread::spawn(move || serve(stream, &seen, &*body));
            }
        });
        Self { base, answers }
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<(String, u16)>>, body: &Body) {
    let mut head = Vec::new();
    let mut byte = [0u8; 1];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let found = body(&path);
    let status = match &found {
        None => 404,
        Some(_) if head.contains("if-none-match: \"v1\"") => 304,
        Some(_) => 200,
    };
    seen.lock().unwrap().push((path, status));
    let body = found.filter(|_| status == 200).unwrap_or_default();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\netag: \"v1\"\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&body);
}

/// The source of settings in JSON.
pub(crate) fn source(
    settings: &str,
    cache: Arc<dyn PageCache>,
) -> Result<Arc<dyn OfferSource>, String> {
    let settings: SourceSettings = serde_json::from_str(settings).unwrap();
    let client = HttpClient::loopback().unwrap();
    let context =
        SourceContext { client: &client, clock: Arc::new(SystemClock), cache, env: &|_| None };
    let all = [(ProviderId::new("aws").unwrap(), settings)].into_iter().collect();
    sources(&all, &context, &runwhere_aws::foreign)
        .map(|mut all| all.remove(0))
        .map_err(|error| error.to_string())
}

pub(crate) fn offer<'a>(sheet: &'a OfferSheet, key: &str) -> &'a Offer {
    sheet.offers.iter().find(|offer| offer.key.to_string() == key).unwrap_or_else(|| {
        let keys: Vec<_> = sheet.offers.iter().map(|offer| offer.key.to_string()).collect();
        panic!("no {key} among {keys:#?}")
    })
}

pub(crate) fn told(offer: &Offer) -> String {
    let model = offer.gpu.map_or("-", |gpu| gpu.as_str());
    let price = offer.price.state.known().map_or("unknown".to_owned(), |p| p.to_string());
    format!("{model} {} {price}", offer.gpu_count)
}
