//! Follows a job to its end: live events, resumed without gaps or duplicates after a lost connection.

mod follower;
mod history;

pub use follower::{Ended, Follower, is_terminal, line_text};
pub use history::unseen;
