//! Named points at which a test makes a process of runwhere die, as `kill -9` would.
//!
//! In every build that people use, [`failpoint!`] expands to nothing. The feature `armed`, which
//! only the test build switches on and which a build without debug assertions refuses, makes each
//! point a call of `reached`. What it does is decided by the environment:
//!
//! | variable | meaning |
//! | --- | --- |
//! | [`ARMED_VARIABLE`] | points to die at: `name` or `name:nth`, separated by commas |
//! | [`FOLDER_VARIABLE`] | a folder: `trace` in it gets a line for each point that a process comes by; a point that was died at leaves a file of its name, and no process dies at it again |
//!
//! The names that a binary has lie in it as text, each between [`MARK`] and a semicolon: a test
//! finds them there, so that a new point needs no list.

#[cfg(all(feature = "armed", not(debug_assertions)))]
compile_error!("points to die at are for tests: no build without debug assertions has them");

#[cfg(feature = "armed")]
mod armed;

#[cfg(feature = "armed")]
pub use armed::reached;

/// What stands before each name in an armed binary.
pub const MARK: &str = concat!("runwhere-", "failpoint:");
/// Names the points to die at.
pub const ARMED_VARIABLE: &str = "RUNWHERE_FAILPOINT";
/// Names the folder for traces and marks.
pub const FOLDER_VARIABLE: &str = "RUNWHERE_FAILPOINT_DIR";

/// The variables that a process hands on to those that it starts; none where nothing is armed.
pub const PASSED_ON: &[&str] =
    if cfg!(feature = "armed") { &[ARMED_VARIABLE, FOLDER_VARIABLE] } else { &[] };

/// A point of this name.
#[cfg(not(feature = "armed"))]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {{}};
}

/// A point of this name.
#[cfg(feature = "armed")]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        $crate::reached(concat!("runwhere-failpoint:", $name, ";"))
    };
}
