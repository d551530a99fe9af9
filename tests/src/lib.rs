//! What the suites of `tests/tests/` share: a server of their own, the two kinds of clients, and exact comparison of texts.
//!
//! Every suite sees the product as a user does, through its binary. `tests/run` builds it and hands its path over in
//! `RUNWHERE_BIN`, and the published client's in `RUNWHERE_PUBLISHED_CLIENT`. Nothing here sleeps for luck: all waiting is
//! polling with a deadline. What a test started it ends by process id, also when it fails.

mod api;
mod bill;
mod client;
mod command;
mod containers;
mod meter;
mod phase;
mod processes;
mod project;
mod server;
mod site;
mod survivor;
mod terminal;
mod text;
mod wait;

pub use api::{Api, Reply};
pub use bill::billed_microseconds;
pub use client::{OurClient, PublishedClient};
pub use command::{Finished, Runner, Running};
pub use containers::{Containers, gpu_driver, our_el, published_el};
pub use meter::{LocalMeter, meters};
pub use phase::Phase;
pub use processes::Processes;
pub use project::{Control, Project, STEADY_PROGRAM};
pub use server::{Server, ServerOptions, failpoint_bin, runwhere_bin};
pub use site::{LONG, Site, text};
pub use survivor::Survivor;
pub use terminal::Terminal;
pub use text::{Template, plain_terminal, table_cells, without_pretence};
pub use wait::{eventually, eventually_within};
