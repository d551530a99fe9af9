//! Bringing outputs home: the checkpoint first, then everything new or changed.

mod collector;
mod stream;
mod walk;

pub(crate) use collector::Collector;
