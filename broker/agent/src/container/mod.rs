//! Trials in containers, through the Docker Engine API (Docker or Podman).
//!
//! The image is pulled by its digest and looked at once: Bash and a supported Python must be in
//! it. The container gets the work folder, the runner's folder read-only, and limits; its two
//! streams are taken raw. What the engine cannot limit everywhere, the disk, is watched.

mod disk;
mod engine;
mod program;
#[cfg(test)]
mod tests;
mod version;

pub use engine::clear;
pub(crate) use engine::{Engine, Unusable};
pub(crate) use program::{Container, Start};

/// The work folder inside.
pub(crate) const WORK: &str = "/workspace";
/// The runner's folder inside.
pub(crate) const RUNNER: &str = "/envloop";
/// The home folder inside.
pub(crate) const HOME: &str = "/home/envloop";
