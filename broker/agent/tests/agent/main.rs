//! The real agent process against a broker that misbehaves.

mod broker;
mod ending;
mod faults;
mod gpus;
mod hostile;
mod node;
mod plain;
