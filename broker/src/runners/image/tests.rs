use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use runwhere_agent::protocol::Digest;
use runwhere_providers::testing::ManualClock;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

const PIECE: usize = 64 << 10;

#[derive(Clone, Debug)]
enum Reply {
    Body(Vec<u8>),
    Status(u16, Vec<(&'static str, String)>),
    /// Bytes without an end.
    Endless,
}

/// What a registry has, by path, and what it was asked for.
#[derive(Debug, Default)]
struct Shelf {
    replies: Mutex<HashMap<String, Reply>>,
    /// Wanted at every path but those of `/token`.
    token: Mutex<Option<(String, &'static str)>>,
    asked: Mutex<Vec<(String, bool)>>,
    sent: AtomicU64,
}

#[derive(Clone, Debug)]
struct Shop {
    shelf: Arc<Shelf>,
    address: SocketAddr,
}

async fn serve(State(shelf): State<Arc<Shelf>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let authorization = request.headers().get("authorization").cloned();
    shelf.asked.lock().unwrap().push((path.clone(), authorization.is_some()));
    let wanted = shelf.token.lock().unwrap().clone();
    if let Some((challenge, token)) = wanted.filter(|_| !path.starts_with("/token"))
        && authorization
            .is_none_or(|given| given.as_bytes() != format!("Bearer {token}").as_bytes())
    {
        return answer(401, &[("www-authenticate", challenge)], Body::empty());
    }
    let reply = shelf.replies.lock().unwrap().get(&path).cloned();
    match reply {
        None => answer(404, &[], Body::empty()),
        Some(Reply::Body(bytes)) => answer(200, &[], Body::from(bytes)),
        Some(Reply::Status(status, headers)) => answer(status, &headers, Body::empty()),
        Some(Reply::Endless) => {
            let pieces = stream::unfold((), move |()| {
                shelf.sent.fetch_add(PIECE as u64, Ordering::Relaxed);
                async { Some((Ok::<_, std::io::Error>(Bytes::from(vec![b' '; PIECE])), ())) }
            });
            answer(200, &[], Body::from_stream(pieces))
        }
    }
}

fn answer(status: u16, headers: &[(&'static str, String)], body: Body) -> Response {
    let mut builder = Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, value);
    }
    builder.body(body).unwrap()
}

impl Shop {
    async fn open() -> Self {
        let shelf = Arc::new(Shelf::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(serve).with_state(Arc::clone(&shelf));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { shelf, address }
    }

    /// Over TLS; also the PEM of its authority.
    async fn open_tls() -> (Self, String) {
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = rcgen::CertifiedIssuer::self_signed(params, authority_key).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let shelf = Arc::new(Shelf::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(serve).with_state(Arc::clone(&shelf));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = TowerToHyperService::new(router);
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        (Self { shelf, address }, authority.pem())
    }

    fn put(&self, path: &str, reply: Reply) {
        self.shelf.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    fn blob(&self, bytes: Vec<u8>) -> String {
        let digest = format!("sha256:{}", Digest::of(&bytes));
        self.put(&format!("/v2/a/b/blobs/{digest}"), Reply::Body(bytes));
        digest
    }

    fn manifest(&self, tag: &str, manifest: &Value) -> String {
        let bytes = manifest.to_string().into_bytes();
        let digest = format!("sha256:{}", Digest::of(&bytes));
        for name in [tag, &digest] {
            self.put(&format!("/v2/a/b/manifests/{name}"), Reply::Body(bytes.clone()));
        }
        digest
    }

    fn image(&self, tag: &str, config: &Value) -> String {
        let config = self.blob(config.to_string().into_bytes());
        self.manifest(
            tag,
            &json!({ "schemaVersion": 2, "config": { "digest": config }, "layers": [] }),
        )
    }

    fn amd64(&self, tag: &str) -> String {
        // Neither labels nor variables: most images of GPU programs say nothing about GPUs.
        self.image(tag, &json!({ "os": "linux", "architecture": "amd64", "tag": tag }))
    }

    fn index(&self, tag: &str, entries: &[(&str, &str, &str)]) -> String {
        let entries: Vec<Value> = entries
            .iter()
            .map(|(digest, os, architecture)| {
                json!({ "digest": digest, "platform": { "os": os, "architecture": architecture } })
            })
            .collect();
        self.manifest(tag, &json!({ "schemaVersion": 2, "manifests": entries }))
    }

    fn name(&self, rest: &str) -> String {
        format!("{}/a/b{rest}", self.address)
    }

    fn asked(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.shelf.asked.lock().unwrap())
    }
}

fn images(settings: OciSettings) -> (OciImages, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (OciImages::new(settings, clock.clone()).unwrap(), clock)
}

/// What the registry of this shop makes of a name.
async fn resolve(shop: &Shop, rest: &str) -> Result<String, ImageProblem> {
    let (images, _) = images(OciSettings::default());
    images.resolve(&shop.name(rest)).await.map(|image| image.frozen.digest)
}

#[track_caller]
fn reason(resolved: Result<String, ImageProblem>) -> String {
    match resolved {
        Err(ImageProblem::Registry { reason, .. }) => reason.en,
        other => panic!("{other:?}"),
    }
}

fn is_platform(resolved: &Result<String, ImageProblem>) -> bool {
    matches!(resolved, Err(ImageProblem::Platform(_)))
}

fn is_not_public(resolved: &Result<String, ImageProblem>) -> bool {
    matches!(resolved, Err(ImageProblem::NotPublic(_)))
}

#[test]
fn references_are_checked_before_anybody_is_asked() {
    let digest = format!("sha256:{}", "a".repeat(64));
    for good in [
        "python",
        "pytorch/pytorch:2.4.1",
        "127.0.0.1:5000/a/b:1",
        &format!("ghcr.io/x/y@{digest}"),
    ] {
        assert!(problem::reference(good).is_ok(), "{good}");
    }
    let long = "a".repeat(513);
    for bad in ["", "A B", "docker.io/UPPER:1", "http://x/y", "x\n", "user:pw@host/x:1:2", &long] {
        assert!(problem::reference(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn tags_digests_and_indexes_stand_for_the_manifest_of_linux_on_amd64() {
    let shop = Shop::open().await;
    let plain = shop.amd64("plain");
    let inner = shop.amd64("inner");
    let arm = shop.image("arm", &json!({ "os": "linux", "architecture": "arm64" }));
    let index = shop.index(
        "many",
        &[(&arm, "linux", "arm64"), (&arm, "unknown", "unknown"), (&inner, "linux", "amd64")],
    );
    assert_eq!(resolve(&shop, ":plain").await.unwrap(), plain);
    assert_eq!(resolve(&shop, &format!("@{plain}")).await.unwrap(), plain);
    assert_eq!(resolve(&shop, ":many").await.unwrap(), inner);
    assert_eq!(resolve(&shop, &format!("@{index}")).await.unwrap(), inner);
    // The digest counts where both are there.
    assert_eq!(resolve(&shop, &format!(":none@{plain}")).await.unwrap(), plain);
    let (images, _) = images(OciSettings::default());
    let frozen = images.resolve(&shop.name(":many")).await.unwrap().frozen;
    assert_eq!(frozen.repository, format!("{}/a/b", shop.address));
    assert_eq!(frozen.requested, shop.name(":many"));
    assert!(is_not_public(&resolve(&shop, ":missing").await));
}

#[tokio::test]
async fn other_platforms_are_refused_wherever_they_are_told() {
    let shop = Shop::open().await;
    let arm = shop.image("arm", &json!({ "os": "linux", "architecture": "arm64" }));
    shop.image("windows", &json!({ "os": "windows", "architecture": "amd64" }));
    shop.image("silent", &json!({}));
    shop.index("other", &[(&arm, "linux", "arm64")]);
    shop.index("empty", &[]);
    // The index says one thing, the image itself another.
    shop.index("lies", &[(&arm, "linux", "amd64")]);
    for tag in [":arm", ":windows", ":silent", ":other", ":empty", ":lies"] {
        assert!(is_platform(&resolve(&shop, tag).await), "{tag}");
    }
}

#[tokio::test]
async fn an_image_that_says_it_uses_no_gpus_is_refused() {
    let shop = Shop::open().await;
    for (tag, env, denied) in [
        ("none", json!(["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=none"]), true),
        ("void", json!(["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"]), true),
        ("all", json!(["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=12"]), false),
        ("other", json!(["MY_NVIDIA_VISIBLE_DEVICES=none"]), false),
        ("silent", json!(null), false),
    ] {
        let config = json!({ "os": "linux", "architecture": "amd64", "config": { "Env": env } });
        shop.image(tag, &config);
        let resolved = resolve(&shop, &format!(":{tag}")).await;
        let refused = matches!(resolved, Err(ImageProblem::NoGpus(_)));
        assert_eq!((refused, resolved.is_ok()), (denied, !denied), "{tag}: {resolved:?}");
    }
}

#[tokio::test]
async fn registries_that_are_down_or_busy_are_told_apart() {
    let shop = Shop::open().await;
    let path = |tag: &str| format!("/v2/a/b/manifests/{tag}");
    for status in [500, 502, 503, 418] {
        shop.put(&path("x"), Reply::Status(status, Vec::new()));
        assert_eq!(reason(resolve(&shop, ":x").await), format!("it answered {status}"));
    }
    for (said, retry_after) in [("7", Some(7)), ("999999", Some(3600)), ("soon", None)] {
        let headers = vec![("retry-after", said.to_owned())];
        shop.put(&path("x"), Reply::Status(429, headers));
        let Err(ImageProblem::Registry { reason, retry_after: found, .. }) =
            resolve(&shop, ":x").await
        else {
            panic!("429 is no image")
        };
        assert_eq!(found, retry_after, "{reason:?}");
        assert!(reason.zh.contains("429") && reason.en.contains("429"), "{reason:?}");
    }
    for status in [401, 403, 404] {
        shop.put(&path("x"), Reply::Status(status, Vec::new()));
        assert!(is_not_public(&resolve(&shop, ":x").await), "{status}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = Shop { shelf: Arc::default(), address: closed.local_addr().unwrap() };
    drop(closed);
    assert_eq!(reason(resolve(&gone, ":x").await), "it cannot be reached");
}

#[tokio::test]
async fn what_is_not_an_image_or_has_another_digest_is_refused() {
    let shop = Shop::open().await;
    let good = shop.amd64("good");
    let other = format!("sha256:{}", "0".repeat(64));
    let path = |name: &str| format!("/v2/a/b/manifests/{name}");
    for bytes in ["", "[]", "{}", "not json", r#"{"config":{"digest":"md5:1"}}"#] {
        shop.put(&path("bad"), Reply::Body(bytes.as_bytes().to_vec()));
        reason(resolve(&shop, ":bad").await);
    }
    // Another's manifest under a digest, directly and behind an index.
    let swapped = shop.shelf.replies.lock().unwrap()[&path("good")].clone();
    shop.put(&path(&other), swapped);
    reason(resolve(&shop, &format!("@{other}")).await);
    shop.index("swapped", &[(&other, "linux", "amd64")]);
    reason(resolve(&shop, ":swapped").await);
    // Another's configuration.
    let config = json!({ "os": "linux", "architecture": "amd64" }).to_string().into_bytes();
    shop.put(&format!("/v2/a/b/blobs/{other}"), Reply::Body(config));
    shop.manifest("config", &json!({ "config": { "digest": other } }));
    reason(resolve(&shop, ":config").await);
    // An index of itself ends.
    let inner = shop.index("inner", &[(&good, "linux", "amd64")]);
    shop.index("nested", &[(&inner, "linux", "amd64")]);
    reason(resolve(&shop, ":nested").await);
}

#[tokio::test]
async fn endless_answers_are_cut_off() {
    let shop = Shop::open().await;
    shop.put("/v2/a/b/manifests/manifest", Reply::Endless);
    let config = format!("sha256:{}", "1".repeat(64));
    shop.put(&format!("/v2/a/b/blobs/{config}"), Reply::Endless);
    shop.manifest("config", &json!({ "config": { "digest": config } }));
    for tag in [":manifest", ":config"] {
        let reason = reason(resolve(&shop, tag).await);
        assert!(reason.contains("more than 4 MiB"), "{reason}");
    }
    shop.put("/token", Reply::Endless);
    let challenge = format!("Bearer realm=\"http://{}/token\"", shop.address);
    *shop.shelf.token.lock().unwrap() = Some((challenge, "t"));
    let reason = reason(resolve(&shop, ":manifest").await);
    assert!(reason.contains("more than 1 MiB"), "{reason}");
    // What the sockets took beyond that is small change.
    let sent = shop.shelf.sent.load(Ordering::Relaxed);
    assert!(sent < 40 << 20, "{sent} bytes were taken");
}

#[tokio::test]
async fn a_login_as_nobody_is_made_where_it_is_wanted() {
    let shop = Shop::open().await;
    let digest = shop.amd64("x");
    let challenge = format!("Bearer realm=\"http://{}/token\",service=\"s\"", shop.address);
    *shop.shelf.token.lock().unwrap() = Some((challenge, "t"));
    for key in ["token", "access_token"] {
        shop.put("/token", Reply::Body(json!({ key: "t" }).to_string().into_bytes()));
        assert_eq!(resolve(&shop, ":x").await.unwrap(), digest);
    }
    shop.put("/token", Reply::Body(json!({ "token": "wrong" }).to_string().into_bytes()));
    assert!(is_not_public(&resolve(&shop, ":x").await));
    shop.put("/token", Reply::Body(json!({ "token": "a\nb" }).to_string().into_bytes()));
    reason(resolve(&shop, ":x").await);
    *shop.shelf.token.lock().unwrap() = Some(("Basic realm=\"x\"".to_owned(), "t"));
    assert!(is_not_public(&resolve(&shop, ":x").await));
    *shop.shelf.token.lock().unwrap() =
        Some(("Bearer realm=\"file:///etc/passwd\"".to_owned(), "t"));
    reason(resolve(&shop, ":x").await);
}

#[tokio::test]
async fn content_may_lie_elsewhere_where_no_token_is_sent() {
    let (shop, store) = (Shop::open().await, Shop::open().await);
    let digest = shop.amd64("x");
    let config = json!({ "os": "linux", "architecture": "amd64", "tag": "x" }).to_string();
    let blob = shop.blob(config.clone().into_bytes());
    store.put("/kept", Reply::Body(config.into_bytes()));
    let to = |address: String| Reply::Status(307, vec![("location", address)]);
    let path = format!("/v2/a/b/blobs/{blob}");
    shop.put(&path, to(format!("http://{}/kept?signature=secret", store.address)));
    let challenge = format!("Bearer realm=\"http://{}/token\"", shop.address);
    *shop.shelf.token.lock().unwrap() = Some((challenge, "t"));
    shop.put("/token", Reply::Body(br#"{"token":"t"}"#.to_vec()));
    assert_eq!(resolve(&shop, ":x").await.unwrap(), digest);
    assert_eq!(store.asked(), [("/kept".to_owned(), false)]);
    // Round and round.
    shop.put(&path, to(format!("http://{}{path}", shop.address)));
    let round = reason(resolve(&shop, ":x").await);
    assert!(round.contains("redirects"), "{round}");
}

#[tokio::test]
async fn registries_with_their_own_authority_are_read_where_it_is_named() {
    let (shop, pem) = Shop::open_tls().await;
    let digest = shop.amd64("x");
    let settings = OciSettings { ca_pem: Some(pem.into_bytes()), ..OciSettings::default() };
    let (trusting, _) = images(settings);
    assert_eq!(trusting.resolve(&shop.name(":x")).await.unwrap().frozen.digest, digest);
    let told = reason(resolve(&shop, ":x").await);
    assert!(told.contains("images.ca_file"), "{told}");
    // Not from TLS to plain text.
    let plain = Shop::open().await;
    let elsewhere = format!("http://{}/x", plain.address);
    shop.put("/v2/a/b/manifests/x", Reply::Status(302, vec![("location", elsewhere)]));
    let settings = OciSettings::default();
    let refused = trusting.resolve(&shop.name(":other")).await;
    assert!(matches!(refused, Err(ImageProblem::NotPublic(_))), "{refused:?}");
    assert_eq!(plain.asked(), []);
    let (fresh, _) = images(settings);
    assert!(fresh.resolve(&shop.name(":x")).await.is_err());
    assert_eq!(plain.asked(), []);
    for bad in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let settings = OciSettings { ca_pem: Some(bad.into()), ..OciSettings::default() };
        let clock = Arc::new(ManualClock::default());
        assert!(OciImages::new(settings, clock).is_err(), "{bad:?}");
    }
}

#[tokio::test]
async fn a_tag_is_remembered_for_a_minute_and_a_digest_for_good() {
    let shop = Shop::open().await;
    let (images, clock) = images(OciSettings::default());
    let first = shop.amd64("x");
    let by_tag = || async { images.resolve(&shop.name(":x")).await.unwrap().frozen.digest };
    assert_eq!(by_tag().await, first);
    assert!(!shop.asked().is_empty());
    let second = shop.image("x", &json!({ "os": "linux", "architecture": "amd64", "moved": true }));
    clock.advance(Duration::from_secs(59)).await;
    assert_eq!(by_tag().await, first);
    assert_eq!(shop.asked(), []);
    clock.advance(Duration::from_secs(1)).await;
    assert_eq!(by_tag().await, second);
    let by_digest = shop.name(&format!("@{first}"));
    images.resolve(&by_digest).await.unwrap();
    shop.asked();
    clock.advance(Duration::from_secs(1_000_000)).await;
    assert_eq!(images.resolve(&by_digest).await.unwrap().frozen.digest, first);
    assert_eq!(shop.asked(), []);
    // What could not be read is asked for again.
    shop.put("/v2/a/b/manifests/late", Reply::Status(503, Vec::new()));
    assert!(images.resolve(&shop.name(":late")).await.is_err());
    shop.amd64("late");
    assert!(images.resolve(&shop.name(":late")).await.is_ok());
}
