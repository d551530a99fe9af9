//! Where the other packages plug in: each of these modules is the only one that knows its package.

pub mod agent;
pub mod broker;
pub mod prices;
pub mod sources;
pub mod task;
pub mod tokens;
