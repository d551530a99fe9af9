//! Every source against a server that plays its cloud, well and badly.

mod clouds;
mod faults;
mod server;
mod values;

pub(crate) use server::fixture;
