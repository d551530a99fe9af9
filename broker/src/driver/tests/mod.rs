//! The driver and its sweeper on virtual time, over a simulated cloud and the memory store.

mod ceilings;
mod heard;
mod lines;
mod promises;
mod recovery;
mod settling;
mod site;
mod sweeping;
