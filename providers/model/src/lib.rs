//! Placeholder.

pub mod lang;

pub use lang::Lang;
