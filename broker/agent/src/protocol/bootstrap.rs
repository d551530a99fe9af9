//! What a node knows before its first call.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Content of `bootstrap.json` in the node folder, written 0600 by the provider.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// [`super::PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Lease this node belongs to.
    pub lease_id: String,
    /// The provider's id of this node, as in its answers to the broker; empty where whoever wrote
    /// this did not know it.
    pub node_id: String,
    /// Base of the broker's URL, without a trailing slash, e.g. `https://gpu.example.com`.
    /// The one field that may change: the agent reads it again when the broker cannot be reached.
    pub broker_url: String,
    /// Redeemed once for a session key; of no use afterwards to anybody who has not that key.
    pub lease_token: String,
    /// The agent ends the work once the broker has been silent for this long.
    pub agent_ttl_seconds: u64,
    /// Extra root certificates (PEM) to trust for the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
    /// How user code runs.
    #[serde(default)]
    pub runtime: Runtime,
    /// The container engine, where `runtime` needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker: Option<DockerPlace>,
    /// User and group that the user's program runs as, where the agent is root. The user id belongs
    /// to this lease alone: everything that still runs as it is killed at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_to: Option<DropTo>,
    /// Folder in which the agent makes `work`, `home` and `tmp` of the user's program, instead of
    /// the node folder: absolute, made by the provider, changed by nobody but the agent's user and
    /// passable for the program's, who cannot enter the node folder then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_dir: Option<PathBuf>,
    /// GPUs of this allocation (indices or UUIDs); absent means all of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_devices: Option<Vec<String>>,
    /// A person has stated which GPUs these are, because the driver names them in no known way:
    /// only their number is checked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gpus_stated: bool,
}

impl fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bootstrap")
            .field("protocol", &self.protocol)
            .field("lease_id", &self.lease_id)
            .field("node_id", &self.node_id)
            .field("broker_url", &self.broker_url)
            .field("agent_ttl_seconds", &self.agent_ttl_seconds)
            .field("runtime", &self.runtime)
            .field("drop_to", &self.drop_to)
            .field("work_dir", &self.work_dir)
            .field("gpu_devices", &self.gpu_devices)
            .finish_non_exhaustive()
    }
}

/// How user code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// A plain process group in the work folder; the image is not used.
    #[default]
    Process,
    /// Jobs that have a frozen image run in a container of it; others as with `Process`.
    Docker,
}

/// How the container engine is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DockerPlace {
    /// Socket of its API.
    pub socket: PathBuf,
    /// Network of containers; the engine's own choice when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Folder in which the verdicts on images are kept, by digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdicts: Option<PathBuf>,
}

/// Unprivileged identity of the user's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropTo {
    /// User id, not 0.
    pub uid: u32,
    /// Group id, not 0.
    pub gid: u32,
}
