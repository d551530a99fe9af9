//! What an image is, and why one cannot be used.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use oci_client::Reference;
use runwhere_engine::FrozenImage;

use crate::api::text::{Words, words};

/// Longest reference.
const REFERENCE_BYTES: usize = 512;
/// Registries that one request asks at a time.
const PARALLEL: usize = 8;

/// An image for linux/amd64.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResolvedImage {
    /// What is frozen.
    pub frozen: FrozenImage,
}

/// Why an image cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ImageProblem {
    /// Not a reference.
    Malformed(String),
    /// The registry has no such image, or not for everybody.
    NotPublic(String),
    /// Not for Linux on amd64.
    Platform(String),
    /// It says of itself that it uses no GPUs.
    NoGpus(String),
    /// The registry does not answer as one should; it may later.
    Registry {
        /// The image.
        image: String,
        /// Without addresses of redirects, which may hold secrets.
        reason: Words,
        /// Seconds after which the registry wants to be asked again.
        retry_after: Option<u32>,
    },
}

impl ImageProblem {
    /// The sentence; it names the image and the remedy.
    pub fn words(&self) -> Words {
        match self {
            Self::Malformed(text) => words!(
                "`{text}` 不是镜像引用，例如 docker.io/library/python:3.12",
                "`{text}` is no image reference such as docker.io/library/python:3.12"
            ),
            Self::NotPublic(image) => words!(
                "镜像 {image} 无法公开拉取：镜像仓库里没有它，或需要登录",
                "the image {image} is not publicly pullable: the registry does not have it or wants \
                 a login"
            ),
            Self::Platform(image) => words!(
                "镜像 {image} 没有 linux/amd64 版本",
                "the image {image} has no variant for linux/amd64"
            ),
            Self::NoGpus(image) => words!(
                "镜像 {image} 设置为不使用 GPU（NVIDIA_VISIBLE_DEVICES 为 none 或 void）；请用支持 GPU 的镜像",
                "the image {image} is set to use no GPUs (NVIDIA_VISIBLE_DEVICES is none or void); \
                 use one that supports GPUs"
            ),
            Self::Registry { image, reason, .. } => words!(
                "暂时无法使用 {image} 的镜像仓库：",
                "the registry of {image} cannot be used now: "
            )
            .then(reason),
        }
    }
}

/// Resolves references to digests.
#[async_trait]
pub trait Images: fmt::Debug + Send + Sync + 'static {
    /// The image for linux/amd64 that a reference stands for now.
    async fn resolve(&self, reference: &str) -> Result<ResolvedImage, ImageProblem>;
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

/// Resolves each reference once for one request.
pub(in crate::runners) async fn resolve_all(
    images: &Arc<dyn Images>,
    references: Vec<String>,
) -> Result<HashMap<String, ResolvedImage>, ImageProblem> {
    let distinct: BTreeSet<String> = references.into_iter().collect();
    stream::iter(distinct)
        .map(|text| async move {
            let image = images.resolve(&text).await?;
            Ok((text, image))
        })
        .buffered(PARALLEL)
        .try_collect()
        .await
}
