//! The price service as its users see it: in process and over HTTP.

mod quotes;
mod routes;
mod support;
