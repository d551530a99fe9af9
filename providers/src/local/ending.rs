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
use super::spawn::AgentProgram;
use crate::clock::Clock;

/// Times that processes are stopped before they are killed; new ones may turn up each time.
const STOP_ROUNDS: u32 = 5;
/// Looks in a row that must find nobody where an allocation has no user of its own: a single one
/// misses what goes on as its own child meanwhile.
const EMPTY_LOOKS: u32 = 3;

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
    /// Ends everything of its user; `None` where it has none of its own.
    user: Option<(AgentProgram, u32)>,
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
        let mut left = self.kill_found()?;
        if let Some((program, uid)) = &self.user {
            // Once that has worked, nobody of this user can be born any more, unless of an agent
            // that the look before has found: so the look after it misses nobody.
            left += usize::from(!program.end_user(*uid)?);
            left += self.kill_found()?;
        }
        Ok(left)
    }

    /// Looks in a row that must find nobody before nobody is left.
    pub(super) fn empty_looks(&self) -> u32 {
        if self.user.is_some() { 1 } else { EMPTY_LOOKS }
    }

    /// Kills what a look at all processes finds. They are stopped first: of killed ones the
    /// children would no longer be known by their parents.
    fn kill_found(&self) -> Result<usize, Failure> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut members = self.belongings.members(&known)?;
        let mut stopped = BTreeSet::new();
        for _ in 0..STOP_ROUNDS {
            let new: Vec<Member> = members.difference(&stopped).copied().collect();
            if new.is_empty() {
                break;
            }
            new.iter().for_each(|member| member.stop());
            stopped.extend(new);
            known.extend(&members);
            members = self.belongings.members(&known)?;
        }
        stopped.extend(members);
        stopped.iter().for_each(|member| member.kill());
        known.extend(&stopped);
        Ok(stopped.len())
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
        let user = belongings.uid.map(|uid| (self.agent.clone(), uid));
        Ok(Ended::Not(Box::new(Ending { node: node.clone(), agent, belongings, user, known })))
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
        if ending.kill_found()? > 0 {
            return Ok(None);
        }
        failpoint!("local.end.nothing_left");
        match self.store.read(&ending.node)? {
            Some(allocation) => Ok(Some(self.store.stop(&allocation, clock.now())?)),
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
