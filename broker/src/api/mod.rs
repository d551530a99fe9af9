//! HTTP: routes, envelopes, languages. Handlers translate; decisions are made elsewhere.

pub mod agent;
pub mod problem;
pub mod runwhere;
pub mod text;
