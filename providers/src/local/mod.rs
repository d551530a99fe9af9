//! The provider `local`: this machine as a host of allocations.
//!
//! A node is an allocation: some of the machine's GPUs, a folder below the root folder, and one
//! agent process that outlives the broker. Everything the provider knows is in those folders, so a
//! crash between any two steps leaves either nothing or an allocation that `find` and `nodes` show
//! and `terminate` ends. It keeps its own meter, apart from broker and agent. See the `README.md`
//! beside this file for the layout and the rules.

mod allocate;
mod archive;
mod config;
mod ending;
mod failure;
mod folder;
mod gpus;
mod meter;
mod offers;
mod process;
mod provider;
mod shared;
mod spawn;
mod store;
#[cfg(test)]
mod tests;
mod tree;
mod work;

pub use config::{
    DockerRuntime, GpuList, GpuListError, LocalConfig, LocalError, SAMPLE_PRICE, UidRange,
};
pub use provider::Local;
