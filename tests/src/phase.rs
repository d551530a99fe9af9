//! The phases of a task, seen from outside.

use crate::api::Api;
use crate::meter::meters;
use crate::project::Control;
use crate::server::Server;
use crate::wait::eventually;
use std::fs;

/// How far a task has come. Each is reached by waiting for something that is visible from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The submit was answered: trial and lease are durable intents.
    Submitted,
    /// The provider has made the node's folder: the launch is under way.
    Launching,
    /// The node's meter runs: the agent boots.
    Booting,
    /// The node is ready and prepares the task.
    Preparing,
    /// The program has started.
    Running,
    /// The program has ended: its log is sealed, its outputs are collected.
    Collecting,
    /// The task has ended and its node is being released.
    Releasing,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Phase; 7] = [
        Phase::Submitted,
        Phase::Launching,
        Phase::Booting,
        Phase::Preparing,
        Phase::Running,
        Phase::Collecting,
        Phase::Releasing,
    ];

    /// Waits until `job`, whose nodes come after the first `earlier` ones of the data folder, is in this phase.
    /// A later phase may have come before this returns: phases can be short.
    pub fn wait(self, server: &Server, api: &Api, job: &str, control: &Control, earlier: usize) {
        let what = format!("{job} is {self:?}");
        let nodes = || {
            let entries = fs::read_dir(server.data_dir().join("local")).into_iter().flatten();
            let nodes = entries
                .flatten()
                .filter(|entry| entry.file_name().to_string_lossy().starts_with("node-"));
            nodes.count()
        };
        match self {
            Phase::Submitted => {}
            Phase::Launching => eventually(&what, || (nodes() > earlier).then_some(())),
            Phase::Booting => {
                eventually(&what, || (meters(server.data_dir()).len() > earlier).then_some(()))
            }
            Phase::Preparing => eventually(&what, || {
                let lines = api.logs(job);
                lines.iter().any(|line| line.contains("GPU 就绪")).then_some(())
            }),
            Phase::Running => control.wait_started(),
            Phase::Collecting => {
                control.wait_started();
                control.go(0);
                eventually(&what, || control.read("ended").map(|_| ()));
            }
            Phase::Releasing => {
                control.wait_started();
                control.go(0);
                api.wait_end(job);
            }
        }
    }

    /// Whether the program was let go to reach this phase.
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Collecting | Phase::Releasing)
    }
}
