//! The real agent process against a broker that misbehaves.

mod broker;
mod ending;
mod faults;
mod gpus;
mod hostile;
mod local;
mod node;
mod plain;
