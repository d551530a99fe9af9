//! The price service as its users see it: in process and over HTTP.

mod complaints;
mod defects;
mod imports;
mod quotes;
mod refresh;
mod routes;
mod support;
