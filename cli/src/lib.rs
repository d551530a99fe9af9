//! The command line of runwhere.
//!
//! Four places, in this order: [`args`] parses, [`settings`] resolves arguments, environment and configuration file once,
//! [`commands`] runs, [`printer`] prints. Data goes to standard output, diagnostics go to standard error. Every sentence a person
//! reads is in [`texts`], in Chinese and in English.

pub mod api;
pub mod args;
pub mod clock;
pub mod commands;
pub mod diagnostics;
pub mod download;
pub mod el;
pub mod entry;
pub mod failure;
pub mod follow;
pub mod printer;
pub mod progress;
pub mod seams;
pub mod settings;
pub mod sync;
pub mod table;
pub mod terminal;
pub mod texts;
pub mod usage_error;
