//! Image references and the digests that they stand for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::ImageIndexEntry;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use runwhere_engine::FrozenImage;

/// Longest reference.
const REFERENCE_BYTES: usize = 512;
/// A registry that takes longer has no image for us.
const LIMIT: Duration = Duration::from_secs(25);
/// Images by digest that are remembered: what a digest stands for never changes.
const REMEMBERED: usize = 4096;

/// An image for linux/amd64, with what its configuration says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResolvedImage {
    /// What is frozen.
    pub frozen: FrozenImage,
}

/// Why an image cannot be used; the text names the image and the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ImageProblem {
    /// Not a reference.
    #[error("`{0}` is no image reference such as docker.io/library/python:3.12")]
    Malformed(String),
    /// The registry has no such image, or not for everybody.
    #[error(
        "the image {0} is not publicly pullable: the registry does not have it or wants a login"
    )]
    NotPublic(String),
    /// Not for Linux on amd64.
    #[error("the image {0} has no variant for linux/amd64")]
    Platform(String),
    /// The registry does not answer as one should.
    #[error("the registry of {image} cannot be used now: {reason}")]
    Registry {
        /// The image.
        image: String,
        /// Without URLs of redirects, which may hold secrets.
        reason: String,
    },
}

/// Resolves references to digests.
#[async_trait]
pub trait Images: fmt::Debug + Send + Sync + 'static {
    /// The image for linux/amd64 that a reference stands for now.
    async fn resolve(&self, reference: &str) -> Result<ResolvedImage, ImageProblem>;
}

/// How registries are reached.
#[derive(Clone, Debug, Default)]
pub struct OciSettings {
    /// Hosts (`name` or `name:port`) that speak plain HTTP. Those on this machine are tried in
    /// both ways.
    pub plain_http: Vec<String>,
    /// Certificates to trust in addition, PEM.
    pub ca_pem: Option<Vec<u8>>,
}

/// Images of OCI registries, read anonymously.
pub struct OciImages {
    settings: OciSettings,
    plain: Client,
    secure: Client,
    known: Mutex<HashMap<String, ResolvedImage>>,
}

impl fmt::Debug for OciImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OciImages").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl OciImages {
    /// Makes the clients.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn new(settings: OciSettings) -> Result<Self, String> {
        // A second installation is refused and harmless: the first one stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = |protocol| {
            let roots = settings
                .ca_pem
                .iter()
                .map(|pem| Certificate { encoding: CertificateEncoding::Pem, data: pem.clone() });
            let config = ClientConfig {
                protocol,
                extra_root_certificates: roots.collect(),
                platform_resolver: Some(Box::new(linux_amd64)),
                connect_timeout: Some(Duration::from_secs(10)),
                read_timeout: Some(Duration::from_secs(15)),
                user_agent: concat!("runwhere/", env!("CARGO_PKG_VERSION")),
                ..ClientConfig::default()
            };
            Client::try_from(config).map_err(|error| error.to_string())
        };
        Ok(Self {
            plain: client(ClientProtocol::Http)?,
            secure: client(ClientProtocol::Https)?,
            settings,
            known: Mutex::default(),
        })
    }

    fn clients(&self, registry: &str) -> Vec<&Client> {
        let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
        let named = |known: &String| known == registry || known == host;
        if self.settings.plain_http.iter().any(named) {
            return vec![&self.plain];
        }
        match host {
            "localhost" | "127.0.0.1" | "[::1]" => vec![&self.plain, &self.secure],
            _ => vec![&self.secure],
        }
    }

    async fn read(&self, reference: &Reference, shown: &str) -> Result<String, ImageProblem> {
        let mut last = None;
        for client in self.clients(reference.registry()) {
            let pulled = client.pull_manifest_and_config(reference, &RegistryAuth::Anonymous);
            match tokio::time::timeout(LIMIT, pulled).await {
                Ok(Ok((_, digest, config))) => {
                    if !is_linux_amd64(&config) {
                        return Err(ImageProblem::Platform(shown.to_owned()));
                    }
                    return Ok(digest);
                }
                Ok(Err(error)) => last = Some(problem(&error, shown)),
                Err(_) => {
                    let reason = format!("no answer within {} s", LIMIT.as_secs());
                    last = Some(ImageProblem::Registry { image: shown.to_owned(), reason });
                }
            }
            if matches!(last, Some(ImageProblem::NotPublic(_) | ImageProblem::Platform(_))) {
                break;
            }
        }
        Err(last.unwrap_or_else(|| ImageProblem::NotPublic(shown.to_owned())))
    }
}

fn linux_amd64(entries: &[ImageIndexEntry]) -> Option<String> {
    let fits = |entry: &&ImageIndexEntry| {
        entry.platform.as_ref().is_some_and(|platform| {
            platform.os.to_string() == "linux" && platform.architecture.to_string() == "amd64"
        })
    };
    entries.iter().find(fits).map(|entry| entry.digest.clone())
}

fn is_linux_amd64(config: &str) -> bool {
    let config: serde_json::Value = serde_json::from_str(config).unwrap_or_default();
    config["os"] == "linux" && config["architecture"] == "amd64"
}

fn problem(error: &OciDistributionError, image: &str) -> ImageProblem {
    use OciDistributionError as E;
    let image = image.to_owned();
    match error {
        E::ImageManifestNotFoundError(_) | E::ImageIndexParsingNoPlatformResolverError => {
            ImageProblem::Platform(image)
        }
        E::UnauthorizedError { .. } | E::AuthenticationFailure(_) | E::RegistryError { .. } => {
            ImageProblem::NotPublic(image)
        }
        E::ServerError { code: 401 | 403 | 404, .. } => ImageProblem::NotPublic(image),
        E::ServerError { code, .. } => {
            ImageProblem::Registry { image, reason: format!("it answered {code}") }
        }
        E::RequestError(error) => {
            let reason = match (error.is_timeout(), error.is_connect()) {
                (true, _) => "it does not answer",
                (_, true) => "it cannot be reached",
                _ => "the connection broke",
            };
            ImageProblem::Registry { image, reason: reason.to_owned() }
        }
        _ => ImageProblem::Registry { image, reason: "it answered something else".to_owned() },
    }
}

/// Whether a text may be a reference; the registry's own rules are stricter.
pub(super) fn reference(text: &str) -> Result<Reference, ImageProblem> {
    let shown = || text.chars().filter(|c| !c.is_control()).take(100).collect::<String>();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@[]".contains(&b);
    let malformed = text.is_empty() || text.len() > REFERENCE_BYTES || !text.bytes().all(plain);
    if malformed {
        return Err(ImageProblem::Malformed(shown()));
    }
    text.parse().map_err(|_| ImageProblem::Malformed(shown()))
}

#[async_trait]
impl Images for OciImages {
    async fn resolve(&self, text: &str) -> Result<ResolvedImage, ImageProblem> {
        let parsed = reference(text)?;
        // Only what is named by its digest can never mean something else.
        let fixed = parsed.digest().is_some();
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if fixed && let Some(known) = lock().get(text).cloned() {
            return Ok(known);
        }
        let digest = self.read(&parsed, text).await?;
        let resolved = ResolvedImage {
            frozen: FrozenImage {
                requested: text.to_owned(),
                repository: format!("{}/{}", parsed.registry(), parsed.repository()),
                digest,
            },
        };
        if fixed {
            let mut known = lock();
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(text.to_owned(), resolved.clone());
        }
        Ok(resolved)
    }
}

/// Resolves each reference once for one request.
pub(super) async fn resolve_all(
    images: &Arc<dyn Images>,
    references: Vec<String>,
) -> Result<HashMap<String, ResolvedImage>, ImageProblem> {
    let mut resolved = HashMap::new();
    for text in references {
        if let Entry::Vacant(free) = resolved.entry(text) {
            let image = images.resolve(free.key()).await?;
            free.insert(image);
        }
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_checked_before_anybody_is_asked() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for good in [
            "python",
            "pytorch/pytorch:2.4.1",
            "127.0.0.1:5000/a/b:1",
            &format!("ghcr.io/x/y@{digest}"),
        ] {
            assert!(reference(good).is_ok(), "{good}");
        }
        let long = "a".repeat(513);
        for bad in
            ["", "A B", "docker.io/UPPER:1", "http://x/y", "x\n", "user:pw@host/x:1:2", &long]
        {
            assert!(reference(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_linux_on_amd64_is_taken() {
        assert!(is_linux_amd64(r#"{"os":"linux","architecture":"amd64"}"#));
        for other in [
            r#"{"os":"windows","architecture":"amd64"}"#,
            r#"{"os":"linux","architecture":"arm64"}"#,
            "{}",
            "x",
        ] {
            assert!(!is_linux_amd64(other), "{other}");
        }
    }
}
