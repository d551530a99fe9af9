//! The price service as its users see it: in process and over HTTP.

mod bad_days;
mod bytes;
mod complaints;
mod defects;
mod documents;
mod folder;
mod imports;
mod properties;
mod quotes;
mod refresh;
mod routes;
mod support;
mod told;
