//! The `runwhere` command.
fn main() {}
