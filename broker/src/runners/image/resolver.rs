//! References to digests, with a memory.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use oci_client::Reference;
use runwhere_engine::FrozenImage;
use runwhere_providers::Clock;

use super::problem::{ImageProblem, Images, ResolvedImage, reference};
use super::source::{Failure, Source};
use crate::api::text::words;

/// A registry that takes longer has no image for us.
const LIMIT: Duration = Duration::from_secs(25);
/// How long a tag is taken for what it stood for: a burst of jobs asks its registry once.
const TAG_SECONDS: i64 = 60;
/// References that are remembered.
const REMEMBERED: usize = 4096;

/// How registries are reached.
#[derive(Clone, Debug, Default)]
pub struct OciSettings {
    /// Hosts (`name` or `name:port`) that speak plain HTTP. Those on this machine are tried in
    /// both ways.
    pub plain_http: Vec<String>,
    /// Certificates to trust in addition, PEM.
    pub ca_pem: Option<Vec<u8>>,
}

/// Images of OCI registries, read anonymously. A digest is remembered for good, what a tag stands
/// for only for a minute.
pub struct OciImages {
    plain_http: Vec<String>,
    plain: Source,
    secure: Source,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    image: ResolvedImage,
    /// Of a tag.
    until: Option<Timestamp>,
}

impl fmt::Debug for OciImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OciImages").field("plain_http", &self.plain_http).finish_non_exhaustive()
    }
}

impl OciImages {
    /// Makes the clients.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn new(settings: OciSettings, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let OciSettings { plain_http, ca_pem } = settings;
        Ok(Self {
            plain: Source::new(false, ca_pem.as_deref())?,
            secure: Source::new(true, ca_pem.as_deref())?,
            plain_http,
            clock,
            known: Mutex::default(),
        })
    }

    fn sources(&self, registry: &str) -> Vec<&Source> {
        let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
        let named = |known: &String| known == registry || known == host;
        if self.plain_http.iter().any(named) {
            return vec![&self.plain];
        }
        match host {
            "localhost" | "127.0.0.1" | "[::1]" => vec![&self.plain, &self.secure],
            _ => vec![&self.secure],
        }
    }

    async fn read(&self, reference: &Reference) -> Result<String, Failure> {
        let mut last = Failure::NotPublic;
        for source in self.sources(reference.registry()) {
            match source.digest(reference).await {
                Err(failure @ Failure::Unreached(_)) => last = failure,
                found => return found,
            }
        }
        Err(last)
    }

    fn remembered(&self, text: &str) -> Option<ResolvedImage> {
        let now = self.clock.now();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(text)?;
        // A clock that was set back does not make it last.
        let lasts = SignedDuration::from_secs(TAG_SECONDS);
        let fresh = found.until.is_none_or(|until| now < until && until - lasts <= now);
        fresh.then(|| found.image.clone())
    }

    fn remember(&self, text: &str, image: &ResolvedImage, for_good: bool) {
        let lasts = SignedDuration::from_secs(TAG_SECONDS);
        let until = (!for_good).then(|| self.clock.now() + lasts);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(text.to_owned(), Known { image: image.clone(), until });
    }
}

fn problem(failure: Failure, image: &str) -> ImageProblem {
    let image = image.to_owned();
    match failure {
        Failure::NotPublic => ImageProblem::NotPublic(image),
        Failure::Platform => ImageProblem::Platform(image),
        Failure::NoGpus => ImageProblem::NoGpus(image),
        Failure::Unreached(reason) => ImageProblem::Registry { image, reason, retry_after: None },
        Failure::Unusable { reason, retry_after } => {
            ImageProblem::Registry { image, reason, retry_after }
        }
    }
}

#[async_trait]
impl Images for OciImages {
    async fn resolve(&self, text: &str) -> Result<ResolvedImage, ImageProblem> {
        let parsed = reference(text)?;
        if let Some(known) = self.remembered(text) {
            return Ok(known);
        }
        let read = tokio::time::timeout(LIMIT, self.read(&parsed)).await;
        let digest = match read {
            Ok(read) => read.map_err(|failure| problem(failure, text))?,
            Err(_) => {
                let seconds = LIMIT.as_secs();
                let reason = words!("{seconds} 秒内没有应答", "no answer within {seconds} s");
                return Err(problem(Failure::Unreached(reason), text));
            }
        };
        let resolved = ResolvedImage {
            frozen: FrozenImage {
                requested: text.to_owned(),
                repository: format!("{}/{}", parsed.registry(), parsed.repository()),
                digest,
            },
        };
        // Only what is named by its digest can never mean something else.
        self.remember(text, &resolved, parsed.digest().is_some());
        Ok(resolved)
    }
}
