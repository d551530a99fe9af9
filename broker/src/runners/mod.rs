//! Published runners: their registry, the images they run in, and jobs that run them.
//!
//! A [`Definition`] is read from the two files of a Git commit, whose objects prove that they are
//! that commit's. A [`Request`] is what a user asks for; [`Training`] holds it against
//! permissions, runner, image, hardware and budget, in this order, and freezes all of it in a job.

mod canonical;
mod content;
mod definition;
mod example;
mod git;
mod image;
mod refusal;
mod registry;
mod request;
mod strict;
mod tags;
mod training;

pub use canonical::canonical;
pub use content::{ContentKind, ContentRef, NewContent, Profile};
pub(crate) use content::{MOST_FILES, address, approval_of, declaration_of, manifest_of};
pub use definition::{Defaults, Definition};
pub use example::publish_examples;
#[cfg(test)]
pub(crate) use git::synthetic;
pub use git::{GitProof, GitProofError};
pub use image::{ImageProblem, Images, OciImages, OciSettings, ResolvedImage};
pub use refusal::{Code, Refused};
pub use registry::{NewRevision, Publisher, Registry, RunnerRef};
pub use request::{Request, Resources, TrialRequest};
pub use strict::{JsonFault, parse_strict};
pub(crate) use training::request_id_of;
pub use training::{Accepted, Training};
