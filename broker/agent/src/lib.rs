//! The program of runwhere on a node, and the protocol between it and the broker.
//!
//! [`protocol`] holds the wire types of both sides, and [`glob`] the patterns of files; a broker
//! needs nothing else of this package.
//!
//! [`run`] is the agent: it dials the broker, prepares the work folder, runs one trial, spools its
//! log to disk, brings the outputs home and ends when it is told to. Everything it must remember
//! lies in the node folder:
//!
//! | name | content |
//! | --- | --- |
//! | `bootstrap.json` | [`protocol::Bootstrap`], written by the provider |
//! | `session.key` | secret of this session |
//! | `agent.lock` | locked while an agent works here |
//! | `journal.jsonl` | one [`protocol::Event`] a line, durable before it is sent |
//! | `spool/` | segments of compressed log frames that the broker does not have yet |
//! | `reserve` | space that is given back when the disk is full |
//! | `work/`, `home/`, `tmp/` | the user's folders; only `work/` is collected |
//! | `runner/` | a published runner's files, which user code reads |
//! | `container` | there while the container engine may hold a container of this node |
//!
//! [`clear_containers`] removes the latter where an agent died with it.
//!
//! [`exec_shim`] is the small step between agent and user code, [`end_user`] the end of everything
//! that runs as one user. Linux only.

mod agent;
mod capture;
mod clock;
mod container;
mod error;
mod files;
pub mod glob;
mod gpu;
mod heartbeat;
mod inherited;
mod journal;
mod link;
mod outputs;
mod program;
pub mod protocol;
mod session;
mod shim;
mod spool;
mod sweep;
mod texts;
mod tls;
mod trial;
mod user;
mod workfolder;

pub use agent::{AgentExit, AgentOptions, run};
pub use container::clear as clear_containers;
pub use error::AgentError;
pub use inherited::close as close_inherited;
pub use shim::exec_shim;
pub use user::end_user;
