//! Amazon Web Services as a source of offers. See `README.md` of this package.
//!
//! List prices come from the public price files, read through and cut to the rows of accelerators;
//! types, zones and spot prices from EC2, where an account is connected. Its own package, as the SDK
//! takes minutes to build.

#![deny(clippy::disallowed_types, clippy::float_arithmetic)]

mod csv;
mod ec2;
mod families;
mod file;
mod map;
mod source;

pub use source::{Aws, foreign};
