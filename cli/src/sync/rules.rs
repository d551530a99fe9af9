//! What is never synced: built-in patterns, then the lines of `.runwignore`. `.gitignore` does not count.

use std::fs;
use std::io;
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::failure::Failure;
use crate::texts;

/// Patterns in the syntax of `.gitignore`.
const BUILT_IN: &[&str] = &[
    ".git/",
    ".runwhere/",
    "__pycache__/",
    ".venv/",
    "venv/",
    "node_modules/",
    ".DS_Store",
    "*.pyc",
    "*.egg-info/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".cache/",
    ".ipynb_checkpoints/",
    ".tox/",
    "wandb/",
    ".runwignore",
    ".env",
    ".env.*",
];

/// The rules of one sync root.
#[derive(Clone, Debug)]
pub struct Rules {
    matcher: Gitignore,
}

impl Rules {
    /// The built-in patterns, then those of `.runwignore` in `root`, which may take some back with `!`.
    ///
    /// # Errors
    /// Exit code 2 for a line that is no pattern, 1 when the file cannot be read.
    pub fn read(root: &Path) -> Result<Self, Failure> {
        let invalid = |error: ignore::Error| {
            Failure::usage("runwignore_invalid", texts::runwignore_invalid(error))
        };
        let mut builder = GitignoreBuilder::new(root);
        for pattern in BUILT_IN {
            builder.add_line(None, pattern).map_err(invalid)?;
        }
        let path = root.join(".runwignore");
        match fs::read(&path) {
            Ok(bytes) => {
                for line in String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').lines() {
                    builder.add_line(None, line.trim()).map_err(invalid)?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Failure::other(
                    "runwignore_unreadable",
                    texts::file_unreadable(path.display(), error),
                ));
            }
        }
        Ok(Self { matcher: builder.build().map_err(invalid)? })
    }

    /// Whether `relative` (to the root) stays out.
    #[must_use]
    pub fn excludes(&self, relative: &Path, is_dir: bool) -> bool {
        self.matcher.matched(relative, is_dir).is_ignore()
    }
}
