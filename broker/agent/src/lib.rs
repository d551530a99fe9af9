//! The program of runwhere on a node, and the protocol between it and the broker.
//!
//! [`protocol`] holds the wire types of both sides; a broker needs nothing else of this package.
//! The agent itself dials the broker, prepares the work folder, runs one trial, spools its log to
//! disk, brings the outputs home and ends when it is told to.

pub mod protocol;
