//! Every source against a server that plays its cloud, well and badly.

mod complaints;
mod faults;
mod values;

pub(crate) use crate::testing::clouds::fixture;
