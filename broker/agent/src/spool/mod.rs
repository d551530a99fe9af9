//! The log on its way: frames are batched, compressed and written to disk first, then sent, and
//! deleted once the broker has them on its own disk.
//!
//! [`Writer`] is a thread that owns the numbering and the newest segment. [`upload`] is a task that
//! reads behind it. They share only a [`Spool`]: which segments there are, how far they are written
//! and how far the broker has them. On a full disk one batch at a time goes straight from memory.

mod hasher;
mod record;
mod shared;
mod uploader;
mod writer;

pub(crate) use shared::Spool;
pub(crate) use uploader::upload;
pub(crate) use writer::{Input, Writer};
