//! What an operator sets for the local machine.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use runwhere_model::{DeploymentId, GpuModel, GpuModelId, Money, ProviderId};

/// The price of one pretended GPU per hour where none is configured: the figure of the product's
/// own documentation, so that a first run shows the numbers people have read there.
pub const SAMPLE_PRICE: &str = "36.44 CNY";

/// More GPUs than this in one machine is taken for a typing error.
const MOST_GPUS: u32 = 1024;

/// How the local machine is offered and where its allocations live.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The provider's name, normally `local`.
    pub id: ProviderId,
    /// Our installation; allocations of others in the same folder are counted, never touched.
    pub deployment: DeploymentId,
    /// Holds one folder per allocation; created with mode 0700.
    pub root_dir: PathBuf,
    /// The agent's program.
    pub agent_program: PathBuf,
    /// Its arguments before the allocation's folder.
    pub agent_args: Vec<OsString>,
    /// Its arguments, before the folder, to remove what a dead agent left in the container engine.
    pub clear_args: Vec<OsString>,
    /// Its arguments, before the user id, for ending everything that runs as that user. It is
    /// started as root and must exit with 0 only when the kernel has signalled all of them.
    pub end_user_args: Vec<OsString>,
    /// The machine's GPUs; `None` asks `nvidia-smi`.
    pub gpus: Option<GpuList>,
    /// Price of **one GPU** for one hour, above 0; an allocation of n GPUs costs n times as much.
    /// `None` = unknown: such offers are shown, but not launchable.
    pub price_per_hour: Option<Money>,
    /// Pretend to have every known model (`--try-locally`).
    pub pretend: bool,
    /// User ids for user code, one per live allocation; only of use where the server is root.
    pub drop_to: Option<UidRange>,
    /// Holds the work folders of user code that runs as a user of its own: a folder that every
    /// user can reach, made with mode 0711. `None` is `/var/tmp/runwhere-<deployment>`. Servers of
    /// one machine that name a folder here need ranges of user ids of their own.
    pub work_root: Option<PathBuf>,
    /// Where the agents reach this broker now, where that may differ from what running agents were
    /// told: opening the provider writes it into the bootstrap of each live allocation of this
    /// deployment, and their agents go on there. `None` leaves them as they are.
    pub broker_url: Option<String>,
    /// Where jobs with a frozen image run in containers; `None` runs plain processes.
    pub docker: Option<DockerRuntime>,
    /// How long the agent may take to end by itself before everything is killed.
    pub stop_grace: Duration,
    /// How long an ended allocation is still shown; its meter is kept in the archive after that.
    pub retention: Duration,
}

impl LocalConfig {
    /// The defaults: GPUs detected, price unknown, nothing pretended.
    pub fn new(deployment: DeploymentId, root_dir: PathBuf, agent_program: PathBuf) -> Self {
        Self {
            id: ProviderId::new("local").expect("a valid constant"),
            deployment,
            root_dir,
            agent_program,
            agent_args: vec!["agent".into(), "--node-dir".into()],
            clear_args: vec!["agent-clear".into(), "--node-dir".into()],
            end_user_args: vec!["agent-end".into(), "--uid".into()],
            gpus: None,
            price_per_hour: None,
            pretend: false,
            drop_to: None,
            work_root: None,
            broker_url: None,
            docker: None,
            stop_grace: Duration::from_secs(5),
            retention: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// A container engine of this machine, Docker or Podman.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DockerRuntime {
    /// Socket of its API.
    pub socket: PathBuf,
    /// Network of containers; the engine's own choice when absent.
    pub network: Option<String>,
}

/// User ids (each with the group id of the same number) that belong to allocations alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UidRange {
    /// The first id; at least 1000, so that no account of the system is taken.
    pub first: u32,
    /// How many there are: no more allocations than these live at a time.
    pub count: u32,
}

impl UidRange {
    /// The ids that systemd gives to services without an account: 61184 to 65519. No account is
    /// ever made with one of these, and one that runs already is passed over.
    pub const DYNAMIC: Self = Self { first: 61_184, count: 65_519 - 61_184 + 1 };
}

/// Why the local machine cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The folder of the allocations cannot be used.
    #[error("cannot use the folder {path}: {source}")]
    Root {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Processes cannot be told apart here, so their end could not be proved.
    #[error("the local provider needs Linux with /proc mounted")]
    Processes,
    /// A price of nothing or less.
    #[error(
        "[local] price_per_hour must be above 0 (it is the price of one GPU for one hour); \
         leave it out where the price is unknown"
    )]
    Price,
    /// User ids that belong to the system, or none.
    #[error("[local] run_as_uids needs at least one user id, all of them 1000 or above")]
    Uids,
    /// User code cannot work as users of its own here.
    #[error(
        "[local] cannot let jobs run as users of their own in the folder {path}: {source}; set \
         work_root to a folder that every user can reach and run_as_uids to user ids that exist \
         here, or run_as = \"server\" to run jobs with this server's rights"
    )]
    WorkRoot {
        /// The folder for their work.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl LocalConfig {
    pub(super) fn check(&self) -> Result<(), LocalError> {
        if self.price_per_hour.is_some_and(|p| p.amount <= rust_decimal::Decimal::ZERO) {
            return Err(LocalError::Price);
        }
        match self.drop_to {
            Some(UidRange { first, count })
                if first < 1000 || count == 0 || first.checked_add(count).is_none() =>
            {
                Err(LocalError::Uids)
            }
            _ => Ok(()),
        }
    }
}

/// The GPUs of a machine as configuration states them: `a100-80g:8`, several separated by commas.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GpuList(Vec<(GpuModelId, u32)>);

/// Why a list of GPUs was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GpuListError {
    /// Not `model:count`.
    #[error("gpus: expected <model>:<count>, for example \"a100-80g:8\", not {0:?}")]
    Syntax(String),
    /// Not a known model.
    #[error("gpus: {name:?} is not a known GPU model; known are {known}")]
    Model {
        /// What was written.
        name: String,
        /// What could be written.
        known: String,
    },
    /// No count between 1 and 1024.
    #[error("gpus: the count of {0:?} must be a whole number from 1 to 1024")]
    Count(String),
    /// A model is named twice.
    #[error("gpus: {0} is named twice; add the counts up")]
    Twice(GpuModelId),
}

impl GpuList {
    /// Models and how many of each, in the order of their slots.
    pub fn entries(&self) -> &[(GpuModelId, u32)] {
        &self.0
    }
}

impl FromStr for GpuList {
    type Err = GpuListError;

    fn from_str(text: &str) -> Result<Self, GpuListError> {
        let mut seen = BTreeSet::new();
        let mut entries = Vec::new();
        for entry in text.split(',') {
            // Whole words only: what is shown again stays short.
            let shown = || entry.trim().chars().take(40).collect::<String>();
            let Some((name, count)) = entry.split_once(':') else {
                return Err(GpuListError::Syntax(shown()));
            };
            let model = GpuModel::resolve(name.trim()).ok_or_else(|| GpuListError::Model {
                name: name.trim().chars().take(40).collect(),
                known: GpuModel::all().iter().map(|m| m.id.as_str()).collect::<Vec<_>>().join(", "),
            })?;
            let count = count
                .trim()
                .parse()
                .ok()
                .filter(|count| (1..=MOST_GPUS).contains(count))
                .ok_or_else(|| GpuListError::Count(shown()))?;
            if !seen.insert(model.id) {
                return Err(GpuListError::Twice(model.id));
            }
            entries.push((model.id, count));
        }
        Ok(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_and_names_what_is_wrong() {
        let list: GpuList = "a100-80g:8, NVIDIA T4:2".parse().unwrap();
        let shown: Vec<_> = list.entries().iter().map(|(m, n)| (m.as_str(), *n)).collect();
        assert_eq!(shown, [("a100-80g", 8), ("t4", 2)]);
        for (text, part) in [
            ("", "expected <model>:<count>"),
            ("a100-80g", "expected <model>:<count>"),
            ("a100:8", "\"a100\" is not a known GPU model"),
            ("a100-80g:0", "from 1 to 1024"),
            ("a100-80g:eight", "from 1 to 1024"),
            ("a100-80g:4294967296", "from 1 to 1024"),
            ("a100-80g:1,A100-80GB:1", "named twice"),
            ("a100-80g:1,", "expected <model>:<count>"),
        ] {
            let error = text.parse::<GpuList>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn refuses_a_price_of_nothing_and_system_users() {
        let deployment = DeploymentId::new("d").unwrap();
        let base = LocalConfig::new(deployment, "/nowhere".into(), "/bin/true".into());
        assert!(base.check().is_ok());
        for price in ["0 CNY", "-1 CNY"] {
            let config = LocalConfig { price_per_hour: price.parse().ok(), ..base.clone() };
            assert!(matches!(config.check(), Err(LocalError::Price)), "{price}");
        }
        for (first, count) in [(0, 1), (999, 4), (1000, 0), (u32::MAX, 1)] {
            let config = LocalConfig { drop_to: Some(UidRange { first, count }), ..base.clone() };
            assert!(matches!(config.check(), Err(LocalError::Uids)), "{first} {count}");
        }
    }
}
