//! What every HTTP cloud shares: one client, one place that retries, one parser of prices.
//!
//! A cloud describes a call as a [`Request`] made anew for each attempt (so that it is signed with
//! the time of the attempt) and reads it in a [`Session`], which retries safe calls within one
//! budget on the injected clock, obeys `Retry-After`, caps what it reads and turns everything that
//! can go wrong into a [`ProviderError`](runwhere_model::ProviderError) without a secret in it.
//! Nothing that costs money goes through a session.

mod cache;
mod canonical;
mod client;
mod digest;
mod encode;
mod extract;
mod failure;
mod pages;
mod policy;
mod refusal;
mod request;
mod rows;
mod session;

pub use cache::{CachedPage, FolderCache, NoCache, PageCache};
pub use canonical::{CanonicalCall, CanonicalHash};
pub use client::{Http, HttpClient};
pub use digest::{hmac_sha256, hmac_sha256_hex, sha256_hex};
pub use encode::{encode_component, query_text};
pub use extract::Extract;
pub use failure::Failure;
pub use pages::Pages;
pub use policy::Policy;
pub use refusal::{Refusal, no_refusal};
pub use request::{InvalidRequest, Request};
pub use rows::Row;
pub use session::Session;
