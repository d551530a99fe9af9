//! Image references and the digests that they stand for, read from OCI registries.
//!
//! Registries are strangers: what they send is bounded, and counts only where it has the digest that it is asked for by.

mod problem;
mod resolver;
mod source;

#[cfg(test)]
mod tests;

pub(super) use problem::resolve_all;
pub use problem::{ImageProblem, Images, ResolvedImage};
pub use resolver::{OciImages, OciSettings};
