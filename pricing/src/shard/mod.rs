//! One provider's offers in a compact form: interned texts, fixed-size rows, an index in price
//! order, and the file they are kept in.
//!
//! A shard is immutable. A new sheet of a provider makes a new shard and touches no other, so that
//! questions go on while a provider is read again.

mod build;
mod class;
mod codec;
mod index;
mod row;
mod strings;

pub use build::{Limits, ShardParts, Taken};
pub(crate) use class::{Bucket, Candidate};
pub use codec::ShardFileError;
pub use row::{KeyParts, Shard};
pub(crate) use row::{PriceStateTag, Row};
