//! The hidden truth of a simulated cloud.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runwhere_model::NodeId;

use super::life::SimNode;
use super::profile::SimOffer;
use super::script::Script;

/// Everything that is.
#[derive(Debug)]
pub(super) struct World {
    pub(super) offers: Vec<SimOffer>,
    pub(super) nodes: Vec<SimNode>,
    pub(super) launches: BTreeMap<String, u32>,
    pub(super) launched_at: Vec<Timestamp>,
    pub(super) touched_foreign: Vec<NodeId>,
    pub(super) script: Script,
    /// Where machines are made, whatever is asked for.
    pub(super) lands_in: Option<String>,
    made: u64,
}

impl World {
    pub(super) fn new(offers: Vec<SimOffer>) -> Self {
        Self {
            offers,
            nodes: Vec::new(),
            launches: BTreeMap::new(),
            launched_at: Vec::new(),
            touched_foreign: Vec::new(),
            script: Script::default(),
            lands_in: None,
            made: 0,
        }
    }

    pub(super) fn next_id(&mut self) -> NodeId {
        self.made += 1;
        NodeId::new(format!("sim-{:06}", self.made)).expect("a valid id")
    }
}
