//! Every source against a server that plays its cloud, well and badly.

mod chinese_clouds;
mod complaints;
mod faults;
mod pages;
mod told;
mod values;

pub(crate) use crate::testing::clouds::fixture;
