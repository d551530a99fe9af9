//! Paging that ends.

use std::collections::HashSet;

/// Guards a loop over pages: a page that was there already, or too many of them, ends it with a
/// reason instead of never.
#[derive(Debug)]
pub struct Pages {
    seen: HashSet<String>,
    most: usize,
}

impl Pages {
    /// At most this many pages.
    pub fn at_most(most: usize) -> Self {
        Self { seen: HashSet::new(), most }
    }

    /// Whether to read the page that `token` names; the reason otherwise.
    pub fn turn_to(&mut self, token: &str) -> Result<(), String> {
        if self.seen.len() >= self.most {
            return Err(format!("more than {} pages", self.most));
        }
        if !self.seen.insert(token.to_owned()) {
            return Err("a page names an earlier page as its next".to_owned());
        }
        Ok(())
    }
}
