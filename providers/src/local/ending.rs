//! Ending an allocation: ask the agent, kill what is left, then stop the meter.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use runwhere_failpoint::failpoint;
use runwhere_model::NodeId;

use super::allocate::{Host, Known};
use super::failure::Failure;
use super::folder;
use super::process::{Belongings, Member};
use crate::clock::Clock;

/// What an end begins with.
#[derive(Debug)]
pub(super) enum Ended {
    Already(Timestamp),
    Not(Box<Ending>),
}

/// An allocation on its way out.
#[derive(Debug)]
pub(super) struct Ending {
    node: NodeId,
    agent: Option<Member>,
    belongings: Belongings,
    /// Seen so far: a child of the agent is still known when the agent has ended.
    known: Mutex<BTreeSet<Member>>,
}

impl Ending {
    /// Asks the agent to end; false where none runs.
    pub(super) fn ask_agent(&self) -> bool {
        let Some(agent) = self.agent else { return false };
        agent.ask();
        failpoint!("local.end.agent_asked");
        true
    }

    pub(super) fn agent_alive(&self) -> bool {
        self.agent.is_some_and(|agent| agent.alive())
    }

    /// Kills everything of the allocation and says how many there were.
    pub(super) fn kill_all(&self) -> Result<usize, Failure> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let members = self.belongings.members(&known)?;
        members.iter().for_each(|member| member.kill());
        known.extend(&members);
        Ok(members.len())
    }
}

impl Host {
    pub(super) fn begin_end(&self, node: &NodeId) -> Result<Ended, Failure> {
        let allocation = match self.known(node)? {
            Known::Archived(remains) => return Ok(Ended::Already(remains.stopped_at)),
            Known::Here(allocation) => allocation,
        };
        if let Some(at) = allocation.meter.stopped_at {
            return Ok(Ended::Already(at));
        }
        // On a full disk the end must go on; the note only makes reads say "stopping".
        if let Err(error) = folder::note_ending(&self.store.folder(node)) {
            tracing::warn!(%node, %error, "cannot note that a node is ending");
        }
        failpoint!("local.end.noted");
        let belongings = allocation.belongings();
        let agent = match &allocation.agent {
            Some(agent) if agent.alive() => Some(agent.member()),
            Some(_) | None => belongings.unrecorded_agent()?,
        };
        let known = Mutex::new(belongings.members(&BTreeSet::new())?);
        Ok(Ended::Not(Box::new(Ending { node: node.clone(), agent, belongings, known })))
    }

    /// Removes a container that the agent could not remove itself.
    pub(super) fn clear_container(&self, ending: &Ending) -> Result<(), Failure> {
        Ok(self.agent.clear(&self.store.folder(&ending.node))?)
    }

    /// Stops the meter once nothing is left; `None` when something turned up again.
    pub(super) fn finish_end(
        &self,
        ending: &Ending,
        clock: &dyn Clock,
    ) -> Result<Option<Timestamp>, Failure> {
        // Under the lock no launch can be about to start this allocation's agent.
        let _lock = self.store.lock()?;
        if ending.kill_all()? > 0 {
            return Ok(None);
        }
        failpoint!("local.end.nothing_left");
        match self.store.read(&ending.node)? {
            Some(allocation) => Ok(Some(self.store.end(&allocation, clock.now())?)),
            // Ended and archived by somebody else meanwhile.
            None => match self.known_end(&ending.node)? {
                Some(at) => Ok(Some(at)),
                None => Ok(Some(clock.now())),
            },
        }
    }

    fn known_end(&self, node: &NodeId) -> Result<Option<Timestamp>, Failure> {
        Ok(super::archive::of_node(self.store.root(), node)?.map(|remains| remains.stopped_at))
    }
}
