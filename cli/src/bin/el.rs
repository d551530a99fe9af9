//! The `el` command.
fn main() {}
