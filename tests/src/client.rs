//! The published client and ours, each in a home of its own.

use crate::command::{Finished, Runner, Running};
use crate::server::{Server, path_from, runwhere_bin};
use std::path::Path;
use tempfile::TempDir;

/// The published client 0.2.9, unchanged, in a sealed home.
#[derive(Debug)]
pub struct PublishedClient {
    home: TempDir,
    runner: Runner,
}

impl PublishedClient {
    /// A client that is not logged in anywhere and works in `folder`.
    ///
    /// # Panics
    /// When `RUNWHERE_PUBLISHED_CLIENT` does not name it; `tests/run` sets it.
    pub fn new(folder: &Path) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder");
        let mut runner = Runner::new(&path_from("RUNWHERE_PUBLISHED_CLIENT"), home.path(), folder);
        runner.set("PYTHONDONTWRITEBYTECODE", "1");
        PublishedClient { home, runner }
    }

    /// A client in `folder` that is logged in to `server`, as its first user did it.
    pub fn logged_in(folder: &Path, server: &Server) -> Self {
        let client = Self::new(folder);
        let token = server.first_token();
        let login =
            client.runner.run_with_input(&["login", "--endpoint", &server.url()], token.as_bytes());
        login.expect_code(0);
        client
    }

    /// Its home folder.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its sealed environment.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Runs one command to its end.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        self.runner.run(arguments)
    }

    /// Runs one command to its end, which must be a success.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> Finished {
        self.runner.run(arguments).expect_code(0)
    }

    /// Starts one command.
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.runner.start(arguments)
    }
}

/// Our own client, in a sealed home.
#[derive(Debug)]
pub struct OurClient {
    home: TempDir,
    /// Its sealed environment; a test may set more.
    pub runner: Runner,
}

impl OurClient {
    /// A client that is not logged in anywhere and works in `folder`, in Chinese.
    pub fn new(folder: &Path) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder");
        let runner = Runner::new(&runwhere_bin(), home.path(), folder);
        OurClient { home, runner }
    }

    /// A client in `folder` that is logged in to `server`.
    #[track_caller]
    pub fn logged_in(folder: &Path, server: &Server) -> Self {
        let client = Self::new(folder);
        let token = server.first_token();
        client
            .runner
            .run_with_input(&["login", "--endpoint", &server.url()], token.as_bytes())
            .expect_code(0);
        client
    }

    /// Its home folder.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs one command to its end.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        self.runner.run(arguments)
    }

    /// Runs one command to its end, which must be a success.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> Finished {
        self.runner.run(arguments).expect_code(0)
    }
}
