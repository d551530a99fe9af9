//! The real agent process against a broker that misbehaves.

mod broker;
mod ending;
mod faults;
mod hostile;
mod node;
mod plain;
