//! Launching, finding and counting allocations; all of it blocking, all of it under the lock.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_failpoint::failpoint;
use runwhere_model::{
    DeploymentId, ErrorKind, Found, HourlyPrice, LaunchRequest, Launched, LeaseId, Metering,
    NodeId, NodeList, NodePhase, NodeState, OfferSheet, Period, SeenNode, UsageRecords,
};

use super::archive::{self, Remains};
use super::config::DockerRuntime;
use super::failure::Failure;
use super::folder::{self, Allocation, Grant};
use super::offers::{Kind, Machine};
use super::process;
use super::spawn::AgentProgram;
use super::store::{Scan, Store};
use super::work::{self, Users};
use crate::clock::Clock;
use crate::metered::Span;

/// How long an ended allocation is listed; by its id it is known for longer.
const LISTED_AFTER_END: Duration = Duration::from_secs(3600);

/// The machine with its allocations.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) machine: Machine,
    pub(super) store: Store,
    pub(super) agent: AgentProgram,
    pub(super) deployment: DeploymentId,
    pub(super) users: Option<Users>,
    pub(super) docker: Option<DockerRuntime>,
    pub(super) retention: Duration,
    /// Ended allocations have left something that is not removed yet.
    pub(super) rests: AtomicBool,
}

type Result<T> = std::result::Result<T, Failure>;

impl Host {
    pub(super) fn offers(&self, now: Timestamp) -> Result<OfferSheet> {
        let scan = self.scan()?;
        let pretended = scan.live().filter(|allocation| allocation.record.pretended).count();
        let offers = self.machine.offers(&scan.taken_slots(), pretended, now);
        Ok(OfferSheet::complete(offers, self.machine.inventory.rejected.clone(), now))
    }

    /// Tells our live allocations where the broker is.
    pub(super) fn take_up(&self, broker_url: Option<&str>) -> io::Result<()> {
        let _lock = self.store.lock()?;
        let scan = self.store.scan()?;
        if let Some(url) = broker_url {
            self.tell_agents(&scan, url);
        }
        Ok(())
    }

    /// Removes what ended allocations have left, however long that takes: one, or all of them.
    pub(super) fn clear(&self, node: Option<&NodeId>) -> io::Result<()> {
        let allocations = match node {
            Some(node) => self.store.read(node)?.into_iter().collect(),
            None => {
                let _lock = self.store.lock_shared()?;
                self.store.scan()?.allocations
            }
        };
        for ended in allocations.iter().filter(|allocation| allocation.ended()) {
            self.store.clear(ended);
        }
        self.store.empty_trash();
        Ok(())
    }

    fn tell_agents(&self, scan: &Scan, broker_url: &str) {
        for allocation in scan.live().filter(|live| live.record.deployment == self.deployment) {
            let node = &allocation.record.node;
            match folder::rewrite_url(&self.store.folder(node), broker_url) {
                Ok(true) => tracing::info!(%node, "told the agent that the broker has moved"),
                Ok(false) => {}
                // One agent that hears nothing must not keep all others from being served.
                Err(error) => {
                    tracing::warn!(%node, %error, "cannot tell an agent where the broker is");
                }
            }
        }
    }

    pub(super) fn launch(&self, request: &LaunchRequest, clock: &dyn Clock) -> Result<Launched> {
        if request.deployment != self.deployment {
            return Err(invalid("the launch is for another installation than this provider's"));
        }
        let _lock = self.store.lock()?;
        let scan = self.store.scan()?;
        // First of all, whatever has changed since: this launch may have been made already.
        if let Some(first) = scan.launched(request) {
            return self.launched_before(first, request);
        }
        if let Some(ended) = self.archived(&request.lease)? {
            return Ok(Launched {
                node: ended.node,
                surplus: Vec::new(),
                started_at: ended.started_at,
                billed_price: Some(ended.price),
            });
        }
        if scan.damaged > 0 {
            // It might be this lease's, and it might hold any GPU.
            let what = "an allocation's folder is damaged (the log names it): end what still runs \
                        of it, then remove the folder";
            return Err(Failure::new(ErrorKind::Conflict, what).possible());
        }
        let (kind, price) = self.admit(request)?;
        // Read under the lock: waiting for it is nobody's time.
        let now = clock.now();
        if !self.store.prune(&scan, now, self.retention) {
            self.rests.store(true, Ordering::Relaxed);
        }
        // Until the work folder shows who has the user id.
        let _ids = self.users.as_ref().map(Users::lock).transpose()?;
        let grant = self.grant(kind, price, &scan, now)?;
        let folder = match self.store.create(request, &grant) {
            Ok(folder) => folder,
            Err(error) => return Err(self.undone(&grant.node, error.into())),
        };
        if let (Some(uid), Some(work_dir)) = (grant.uid, &grant.work_dir)
            && let Err(error) = work::make(work_dir, uid)
        {
            return Err(self.undone(&grant.node, error.into()));
        }
        failpoint!("local.launch.made");
        match self.agent.start(&folder, grant.node.as_str()) {
            Ok(process) => note(&folder, process),
            Err(error) => return Err(self.not_started(&grant.node, error)),
        }
        failpoint!("local.launch.agent_noted");
        self.store.keep_record(&grant.node);
        failpoint!("local.launch.recorded");
        Ok(Launched {
            node: grant.node,
            surplus: Vec::new(),
            started_at: Some(now),
            billed_price: Some(price),
        })
    }

    /// Whether the request is for something that is offered, at a price that it allows.
    fn admit(&self, request: &LaunchRequest) -> Result<(Kind, HourlyPrice)> {
        let kind = self
            .machine
            .kind(&request.offer)
            .ok_or_else(|| invalid("the offer is none of this machine's"))?;
        if request.gpus.as_whole() != Some(kind.count)
            || request.gpu_model.is_some_and(|model| model != kind.model)
        {
            return Err(invalid("the GPUs asked for are not those of the offer"));
        }
        let price = self.machine.price(kind).ok_or_else(|| {
            invalid("the price is unknown: set [local] price_per_hour, the price of one GPU")
        })?;
        let ceiling = request.ceiling;
        if price.currency != ceiling.currency {
            return Err(invalid(&format!(
                "the price ceiling is in {}, the price in {}",
                ceiling.currency, price.currency
            )));
        }
        if price.amount > ceiling.amount {
            return Err(invalid(&format!("the price {price} is above the ceiling {ceiling}")));
        }
        Ok((kind, price))
    }

    fn grant(&self, kind: Kind, price: HourlyPrice, scan: &Scan, now: Timestamp) -> Result<Grant> {
        let full = |what: &str| Failure::new(ErrorKind::Capacity, what.to_owned());
        let slots = if kind.pretended {
            let live = scan.live().filter(|allocation| allocation.record.pretended).count();
            if live >= self.machine.pretended_slots {
                return Err(full("this machine carries no more pretended allocations"));
            }
            Vec::new()
        } else {
            self.machine
                .free_slots(kind, &scan.taken_slots())
                .ok_or_else(|| full("not enough of this machine's GPUs are free"))?
        };
        let uid = match &self.users {
            None => None,
            Some(users) => {
                // Everything that runs as this user is killed at the end: it must be nobody's.
                let mut taken = scan.taken_uids();
                taken.extend(process::users()?);
                taken.extend(users.in_use()?);
                let free = users.choose(&taken)?;
                Some(free.ok_or_else(|| full("no user id is free for another allocation"))?)
            }
        };
        let inventory = &self.machine.inventory;
        let gpus = &inventory.gpus;
        let devices = slots.iter().map(|slot| gpus[*slot as usize].device.clone()).collect();
        let node = self.store.new_node_id()?;
        let work_dir = self.users.as_ref().map(|users| users.folder(&node));
        Ok(Grant {
            node,
            price,
            slots,
            devices,
            stated: inventory.stated && !kind.pretended,
            pretended: kind.pretended,
            uid,
            work_dir,
            docker: self.docker.clone().map(|runtime| (runtime, self.store.images())),
            at: now,
        })
    }

    fn launched_before(&self, first: &Allocation, request: &LaunchRequest) -> Result<Launched> {
        let node = first.record.node.clone();
        if !first.record.answers(request) {
            let what = "the lease or its token was already used for a different launch";
            return Err(Failure::new(ErrorKind::Conflict, what).with_node(node));
        }
        if let Err(error) = self.finish_launch(first) {
            return Err(self.not_started(&node, error));
        }
        Ok(Launched {
            node,
            surplus: Vec::new(),
            started_at: first.meter.started_at,
            billed_price: Some(first.record.price),
        })
    }

    /// A crash came between an allocation and its agent: the launch is finished now. An agent that
    /// ran after all and was never noted tells so by its journal.
    fn finish_launch(&self, allocation: &Allocation) -> io::Result<()> {
        let node = &allocation.record.node;
        let folder = self.store.folder(node);
        if !allocation.ended()
            && !allocation.ending
            && allocation.agent.is_none()
            && !allocation.agent_alive()?
            && folder::has_bootstrap(&folder)
        {
            if let (Some(uid), Some(work_dir)) =
                (allocation.record.uid, &allocation.record.work_dir)
            {
                work::make(work_dir, uid)?;
            }
            failpoint!("local.finish_launch.before");
            note(&folder, self.agent.start(&folder, node.as_str())?);
            failpoint!("local.finish_launch.after");
        }
        Ok(())
    }

    /// Makes up for what a crash of the server kept from the live allocations.
    pub(super) fn catch_up(&self) -> io::Result<()> {
        let _lock = self.store.lock()?;
        let scan = self.store.scan()?;
        for allocation in scan.live().filter(|live| live.record.deployment == self.deployment) {
            let node = &allocation.record.node;
            self.store.keep_record(node);
            if let Err(error) = self.finish_launch(allocation) {
                tracing::warn!(%node, %error, "cannot start the agent of an unfinished launch");
            }
        }
        Ok(())
    }

    /// Takes the allocation back whose agent could not be started.
    fn not_started(&self, node: &NodeId, error: io::Error) -> Failure {
        let kind = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => ErrorKind::Invalid,
            _ => ErrorKind::Transient,
        };
        let what = format!("cannot start the agent {}: {error}", self.agent.program.display());
        self.undone(node, Failure::new(kind, what))
    }

    /// Takes back what a failed launch may have left; only if that works did nothing happen.
    fn undone(&self, node: &NodeId, failure: Failure) -> Failure {
        match self.store.discard(node) {
            Ok(()) => failure,
            Err(_) => failure.possible().with_node(node.clone()),
        }
    }

    pub(super) fn find(&self, lease: &LeaseId) -> Result<Found> {
        let scan = self.scan()?;
        let ours = scan.of_lease(lease).filter(|a| a.record.deployment == self.deployment);
        let mut nodes = ours.map(state).collect::<io::Result<Vec<_>>>()?;
        if nodes.is_empty() {
            nodes.extend(self.archived(lease)?.map(Remains::state));
        }
        Ok(Found { nodes, complete: scan.damaged == 0 })
    }

    pub(super) fn nodes(&self, now: Timestamp) -> Result<NodeList> {
        let scan = self.scan()?;
        let horizon = now.checked_sub(LISTED_AFTER_END).unwrap_or(Timestamp::MIN);
        let mut list = NodeList { nodes: Vec::new(), foreign: 0, complete: scan.damaged == 0 };
        for allocation in &scan.allocations {
            if allocation.record.deployment != self.deployment {
                list.foreign += u64::from(!allocation.ended());
            } else if allocation.meter.stopped_at.is_none_or(|at| at >= horizon) {
                list.nodes.push(SeenNode {
                    state: state(allocation)?,
                    deployment: Some(allocation.record.deployment.clone()),
                    lease: Some(allocation.record.lease.clone()),
                    created_at: Some(allocation.record.created_at),
                });
            }
        }
        Ok(list)
    }

    pub(super) fn describe(&self, node: &NodeId) -> Result<NodeState> {
        match self.known(node)? {
            Known::Here(allocation) => Ok(state(&allocation)?),
            Known::Archived(remains) => Ok(remains.state()),
        }
    }

    /// Looks a node up, also among those whose folders are gone. Another installation's are none.
    pub(super) fn known(&self, node: &NodeId) -> Result<Known> {
        let unknown = || Failure::new(ErrorKind::NotFound, "no such allocation on this machine");
        let here = {
            let _lock = self.store.lock_shared()?;
            self.store.read(node)?
        };
        if let Some(allocation) = here {
            return match allocation.record.deployment == self.deployment {
                true => Ok(Known::Here(Box::new(allocation))),
                false => Err(unknown()),
            };
        }
        archive::of_node(self.store.root(), node)?
            .filter(|remains| remains.deployment == self.deployment)
            .map(Known::Archived)
            .ok_or_else(unknown)
    }

    /// The bill by the meters. Each node's time runs as one total, rounded once: adjoining periods
    /// add up to the whole.
    pub(super) fn usage(
        &self,
        period: &Period,
        metering: &Metering,
        now: Timestamp,
    ) -> Result<UsageRecords> {
        let scan = self.scan()?;
        let mut spans = std::collections::BTreeMap::new();
        archive::each(self.store.root(), |remains| {
            if remains.deployment == self.deployment {
                let (from, to) = (remains.started_at, remains.stopped_at);
                spans.extend(
                    from.map(|from| (remains.node, Span { from, to, price: remains.price })),
                );
            }
        })?;
        for allocation in &scan.allocations {
            let record = &allocation.record;
            if record.deployment == self.deployment {
                let to = allocation.meter.stopped_at.unwrap_or(now);
                spans.extend(
                    allocation
                        .meter
                        .started_at
                        .map(|from| (record.node.clone(), Span { from, to, price: record.price })),
                );
            }
        }
        let records = spans
            .into_iter()
            .filter_map(|(node, span)| span.record(node, period, metering))
            .collect();
        Ok(UsageRecords { records, complete: period.end <= now && scan.damaged == 0 })
    }

    fn archived(&self, lease: &LeaseId) -> Result<Option<Remains>> {
        Ok(archive::of_lease(self.store.root(), &self.deployment, lease)?)
    }

    fn scan(&self) -> Result<Scan> {
        let _lock = self.store.lock_shared()?;
        Ok(self.store.scan()?)
    }
}

/// Where something is known of a node.
#[derive(Debug)]
pub(super) enum Known {
    Here(Box<Allocation>),
    Archived(Remains),
}

fn invalid(what: &str) -> Failure {
    Failure::new(ErrorKind::Invalid, what.to_owned())
}

fn note(folder: &std::path::Path, process: Option<super::process::AgentProcess>) {
    // Without the note the agent is still found by its mark.
    if let Some(Err(error)) = process.map(|process| folder::note_agent(folder, &process)) {
        tracing::warn!(folder = %folder.display(), %error, "cannot note an agent's process");
    }
}

fn state(allocation: &Allocation) -> io::Result<NodeState> {
    let (phase, reason) = if allocation.ended() {
        (NodePhase::Gone, None)
    } else if allocation.ending {
        (NodePhase::Stopping, None)
    } else if allocation.agent_alive()? {
        (NodePhase::Running, None)
    } else if allocation.agent.is_some() {
        (NodePhase::Stopped, Some("its agent is not running any more"))
    } else {
        (NodePhase::Stopped, Some("its agent was never started"))
    };
    Ok(NodeState {
        node: allocation.record.node.clone(),
        phase,
        started_at: allocation.meter.started_at,
        stopped_at: allocation.meter.stopped_at,
        reason: reason.map(str::to_owned),
        cause: None,
        billed_price: Some(allocation.record.price),
        region: None,
        zone: None,
    })
}
