//! The binary as users run it, against a scripted server on the loopback interface.

mod calls;
mod client;
mod help;
mod live;
mod local;
mod offline;
mod server;
mod strict;
mod submit;
mod sync;
