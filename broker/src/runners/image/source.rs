//! One way of speaking to registries: plain or over TLS.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use oci_client::Reference;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, StatusCode, Url};
use runwhere_agent::protocol::Digest;
use serde::Deserialize;

use crate::api::text::{Words, words};

/// As much as registries themselves take for a manifest.
const MANIFEST_BYTES: usize = 4 << 20;
const CONFIG_BYTES: usize = 4 << 20;
const TOKEN_BYTES: usize = 64 << 10;
const REDIRECTS: usize = 5;
/// Longest wait that a registry may ask for.
const MOST_RETRY_SECONDS: u32 = 3600;
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// Why a registry gave no digest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// It does not have the image, or not for everybody.
    NotPublic,
    /// It has it for other platforms only.
    Platform,
    /// It says that it uses no GPUs.
    NoGpus,
    /// It was not reached, or speaks otherwise: the other way may work.
    Unreached(Words),
    /// It answered something that cannot be used.
    Unusable { reason: Words, retry_after: Option<u32> },
}

fn unusable(reason: Words) -> Failure {
    Failure::Unusable { reason, retry_after: None }
}

fn no_address() -> Failure {
    unusable(words!("它的名称不是地址", "its name is no address"))
}

fn no_manifest() -> Failure {
    unusable(words!("它返回的不是镜像 manifest", "it answered no image manifest"))
}

fn no_token() -> Failure {
    unusable(words!("它的登录没有返回 token", "its login answered no token"))
}

/// A manifest or an index of manifests, as far as it is needed.
#[derive(Debug, Deserialize)]
struct Manifest {
    manifests: Option<Vec<Entry>>,
    config: Option<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    digest: String,
}

#[derive(Debug, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// An image's configuration, as far as it is needed.
#[derive(Debug, Deserialize)]
struct Configuration {
    #[serde(flatten)]
    platform: Platform,
    config: Option<Defaults>,
}

/// What a container of it is started with.
#[derive(Debug, Deserialize)]
struct Defaults {
    #[serde(rename = "Env")]
    env: Option<Vec<String>>,
}

impl Configuration {
    /// What the image itself says against GPUs: the container toolkit's variable with a value that
    /// means none.
    fn denies_gpus(&self) -> bool {
        let env = self.config.iter().flat_map(|defaults| defaults.env.iter().flatten());
        let mut stated = env.filter_map(|entry| entry.strip_prefix("NVIDIA_VISIBLE_DEVICES="));
        // Of one that is there twice the last counts.
        stated.next_back().is_some_and(|devices| matches!(devices.trim(), "none" | "void"))
    }
}

#[derive(Debug, Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Speaks to registries without an account.
#[derive(Debug)]
pub(super) struct Source {
    client: reqwest::Client,
    scheme: &'static str,
}

/// One image's registry while it is asked.
struct Visit<'a> {
    source: &'a Source,
    base: Url,
    token: Option<HeaderValue>,
}

impl Source {
    pub(super) fn new(tls: bool, ca_pem: Option<&[u8]>) -> Result<Self, String> {
        // A second installation is refused and harmless: the first one stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let roots = match ca_pem {
            Some(pem) => Certificate::from_pem_bundle(pem).map_err(|error| error.to_string())?,
            None => Vec::new(),
        };
        if ca_pem.is_some() && roots.is_empty() {
            return Err("images.ca_file holds no certificate".to_owned());
        }
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(15))
            .user_agent(concat!("runwhere/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::custom(follow))
            .tls_certs_merge(roots)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, scheme: if tls { "https" } else { "http" } })
    }

    /// The digest of the manifest for linux/amd64 that a reference stands for.
    pub(super) async fn digest(&self, reference: &Reference) -> Result<String, Failure> {
        let address = format!("{}://{}/v2/", self.scheme, reference.resolve_registry());
        let base = Url::parse(&address).map_err(|_| no_address())?;
        let mut visit = Visit { source: self, base, token: None };
        let repository = reference.repository();
        let wanted = reference.digest().map(str::to_owned);
        let name = wanted.as_deref().or(reference.tag()).unwrap_or("latest");
        let (mut digest, mut manifest) =
            visit.manifest(repository, name, wanted.as_deref()).await?;
        if let Some(entries) = manifest.manifests {
            let fits = |platform: &Platform| is_linux_amd64(platform);
            let entry = entries.iter().find(|entry| entry.platform.as_ref().is_some_and(fits));
            let entry = entry.ok_or(Failure::Platform)?;
            let named = Some(entry.digest.as_str());
            (digest, manifest) = visit.manifest(repository, &entry.digest, named).await?;
        }
        let config = manifest.config.ok_or_else(no_manifest)?;
        let expected = sha256(&config.digest)?;
        let path = format!("{repository}/blobs/{}", config.digest);
        let text = visit.get(&path, "*/*", CONFIG_BYTES).await?;
        if Digest::of(&text) != expected {
            return Err(unusable(words!(
                "镜像的配置与其 digest 不符",
                "the image's configuration is not what its digest says"
            )));
        }
        let stated: Configuration = serde_json::from_slice(&text).map_err(|_| {
            unusable(words!("镜像的配置不是 JSON", "the image's configuration is not JSON"))
        })?;
        match is_linux_amd64(&stated.platform) {
            false => Err(Failure::Platform),
            true if stated.denies_gpus() => Err(Failure::NoGpus),
            true => Ok(digest),
        }
    }
}

fn is_linux_amd64(platform: &Platform) -> bool {
    platform.os == "linux" && platform.architecture == "amd64"
}

fn sha256(digest: &str) -> Result<Digest, Failure> {
    let parsed = digest.strip_prefix("sha256:").and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| {
        unusable(words!(
            "它标识内容所用的不是 SHA-256",
            "it names content by something else than SHA-256"
        ))
    })
}

impl Visit<'_> {
    async fn manifest(
        &mut self,
        repository: &str,
        name: &str,
        digest: Option<&str>,
    ) -> Result<(String, Manifest), Failure> {
        let expected = digest.map(sha256).transpose()?;
        let path = format!("{repository}/manifests/{name}");
        let text = self.get(&path, MANIFESTS, MANIFEST_BYTES).await?;
        let found = Digest::of(&text);
        if expected.is_some_and(|expected| expected != found) {
            return Err(unusable(words!(
                "它返回的 manifest 与 digest 不符",
                "it answered another manifest than that of the digest"
            )));
        }
        let manifest = serde_json::from_slice(&text).map_err(|_| no_manifest())?;
        Ok((format!("sha256:{found}"), manifest))
    }

    /// The whole of something, logging in as nobody where the registry wants that.
    async fn get(&mut self, path: &str, accept: &str, most: usize) -> Result<Vec<u8>, Failure> {
        let url = self.base.join(path).map_err(|_| no_address())?;
        let mut response = self.send(url.clone(), Some(accept), true).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.token.is_none() {
            let challenge = challenge(response.headers()).ok_or(Failure::NotPublic)?;
            self.token = Some(self.log_in(&challenge).await?);
            response = self.send(url, Some(accept), true).await?;
        }
        checked(&response)?;
        whole(response, most).await
    }

    async fn send(
        &self,
        url: Url,
        accept: Option<&str>,
        signed: bool,
    ) -> Result<reqwest::Response, Failure> {
        let mut request = self.source.client.get(url);
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        if let Some(token) = self.token.as_ref().filter(|_| signed) {
            request = request.header(AUTHORIZATION, token.clone());
        }
        request.send().await.map_err(|error| broken(&error))
    }

    /// A token for everybody.
    async fn log_in(&self, challenge: &Challenge) -> Result<HeaderValue, Failure> {
        let bad = || {
            unusable(words!(
                "它要求在一个不能使用的地址登录",
                "it wants a login at an address that cannot be used"
            ))
        };
        let mut url = Url::parse(&challenge.realm).map_err(|_| bad())?;
        let downgraded = url.scheme() != "https" && url.scheme() != self.base.scheme();
        if downgraded || goes_inside(&self.base, &url) {
            return Err(bad());
        }
        for (key, value) in [("service", &challenge.service), ("scope", &challenge.scope)] {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(key, value);
            }
        }
        let response = self.send(url, None, false).await?;
        checked(&response)?;
        let text = whole(response, TOKEN_BYTES).await?;
        let token: Token = serde_json::from_slice(&text).map_err(|_| no_token())?;
        let token = token.token.or(token.access_token).filter(|token| !token.is_empty());
        let token = token.ok_or_else(no_token)?;
        let mut value =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| no_token())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

fn checked(response: &reqwest::Response) -> Result<(), Failure> {
    let answered = |code: u16| words!("它返回了 {code}", "it answered {code}");
    match response.status().as_u16() {
        200..=299 => Ok(()),
        401 | 403 | 404 => Err(Failure::NotPublic),
        // What servers that speak TLS answer to those that do not.
        400 => Err(Failure::Unreached(answered(400))),
        429 => {
            let seconds = response.headers().get(RETRY_AFTER);
            let seconds = seconds.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            Err(Failure::Unusable {
                reason: words!("请求过多（429）", "it has had too many requests (429)"),
                retry_after: seconds.map(|seconds: u32| seconds.min(MOST_RETRY_SECONDS)),
            })
        }
        code => Err(unusable(answered(code))),
    }
}

/// Reads a reply, and no more of it than it may have.
async fn whole(mut response: reqwest::Response, most: usize) -> Result<Vec<u8>, Failure> {
    let too_large = || {
        let most = most.div_ceil(1 << 20);
        unusable(words!("它返回的内容超过 {most} MiB", "it answered more than {most} MiB"))
    };
    if response.content_length().is_some_and(|length| length > most as u64) {
        return Err(too_large());
    }
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken(&error))? {
        if text.len() + chunk.len() > most {
            return Err(too_large());
        }
        text.extend_from_slice(&chunk);
    }
    Ok(text)
}

fn broken(error: &reqwest::Error) -> Failure {
    if error.is_redirect() {
        return unusable(words!(
            "它重定向到了不会读取镜像的地方",
            "it redirects to where images are not read from"
        ));
    }
    if untrusted(error) {
        return Failure::Unreached(words!(
            "它的证书不受信任；请在 images.ca_file 中指明其颁发机构",
            "its certificate is not trusted here; name its authority as images.ca_file"
        ));
    }
    Failure::Unreached(match (error.is_timeout(), error.is_connect()) {
        (true, _) => words!("它没有应答", "it does not answer"),
        (_, true) => words!("无法连接到它", "it cannot be reached"),
        _ => words!("连接中断", "the connection broke"),
    })
}

/// Whether a certificate was refused. What an I/O error holds is not among its sources.
fn untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return matches!(error, rustls::Error::InvalidCertificate(_));
    }
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match inner {
        Some(inner) => untrusted(inner),
        None => error.source().is_some_and(untrusted),
    }
}

/// Blobs often lie elsewhere, where the token is not sent.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let (first, last) = (attempt.previous().first(), attempt.previous().last());
    let downgraded =
        last.is_some_and(|last| last.scheme() == "https") && attempt.url().scheme() != "https";
    let inside = first.is_some_and(|first| goes_inside(first, attempt.url()));
    if downgraded || inside || attempt.previous().len() > REDIRECTS {
        return attempt.error("not followed");
    }
    attempt.follow()
}

/// Whether a registry elsewhere points at this machine or at its own network's services.
fn goes_inside(from: &Url, to: &Url) -> bool {
    let inside = |url: &Url| {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        match host.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_link_local() || ip.is_unspecified(),
            Ok(IpAddr::V6(ip)) => {
                ip.is_loopback()
                    || ip.is_unspecified()
                    || ip.is_unicast_link_local()
                    || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback() || ip.is_link_local())
            }
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        }
    };
    inside(to) && !inside(from)
}

/// What a registry wants of who is nobody yet.
#[derive(Debug, Default, Eq, PartialEq)]
struct Challenge {
    realm: String,
    service: Option<String>,
    scope: Option<String>,
}

fn challenge(headers: &HeaderMap) -> Option<Challenge> {
    let values = headers.get_all(WWW_AUTHENTICATE).into_iter();
    values.filter_map(|value| read_challenge(value.to_str().ok()?)).next()
}

fn read_challenge(text: &str) -> Option<Challenge> {
    let (scheme, mut rest) = text.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut found = Challenge::default();
    while let Some((key, after)) = rest.split_once('=') {
        let value;
        (value, rest) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        let place = match key.trim_matches([' ', ',']) {
            "realm" => {
                found.realm = value.to_owned();
                continue;
            }
            "service" => &mut found.service,
            "scope" => &mut found.scope,
            _ => continue,
        };
        *place = Some(value.to_owned());
    }
    (!found.realm.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_in_every_order_and_bad_ones_are_none() {
        let text = r#"Bearer realm="https://auth.example/token",service="reg",scope="repository:a/b:pull,push""#;
        let read = read_challenge(text).unwrap();
        assert_eq!(read.realm, "https://auth.example/token");
        assert_eq!(read.service.as_deref(), Some("reg"));
        assert_eq!(read.scope.as_deref(), Some("repository:a/b:pull,push"));
        let plain =
            read_challenge("bearer service=x, error=\"y\", realm=https://a.example").unwrap();
        assert_eq!(
            (plain.realm.as_str(), plain.service.as_deref()),
            ("https://a.example", Some("x"))
        );
        for bad in ["", "Basic realm=\"x\"", "Bearer", "Bearer realm=\"", "Bearer service=\"x\""] {
            assert_eq!(read_challenge(bad), None, "{bad}");
        }
    }

    #[test]
    fn registries_elsewhere_do_not_point_inside() {
        let url = |text: &str| Url::parse(text).unwrap();
        let far = url("https://registry.example/v2/");
        for inside in [
            "http://127.0.0.1/",
            "http://localhost:8080/",
            "http://a.localhost/",
            "http://[::1]/",
            "http://169.254.169.254/latest",
            "http://0.0.0.0/",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert!(goes_inside(&far, &url(inside)), "{inside}");
            assert!(!goes_inside(&url("http://127.0.0.1:5000/"), &url(inside)), "{inside}");
        }
        for outside in ["https://cdn.example/x", "https://10.0.0.1/", "https://8.8.8.8/"] {
            assert!(!goes_inside(&far, &url(outside)), "{outside}");
        }
    }
}
