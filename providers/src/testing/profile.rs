//! Kinds of clouds, as data.

use std::time::Duration;

use runwhere_model::{
    Bootstrapping, Capabilities, Currency, Deadman, GpuModelId, HourlyPrice, Identity, MeterStart,
    Metering, StopEffect,
};
use rust_decimal::Decimal;

/// How long the stages of a node's life take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BootDelays {
    /// From the accepted launch until it runs.
    pub boot: Duration,
    /// From running until its health checks have passed.
    pub health: Duration,
    /// From the accepted termination until it is gone.
    pub shutdown: Duration,
}

/// Something that a simulated cloud sells.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SimOffer {
    /// Region.
    pub region: String,
    /// Zone.
    pub zone: Option<String>,
    /// The cloud's own name of the type.
    pub instance_type: String,
    /// GPU model.
    pub gpu: GpuModelId,
    /// GPUs.
    pub count: u32,
    /// Price per hour for all of it; `None` = listed without a price.
    pub price: Option<HourlyPrice>,
    /// How many of it can live at a time.
    pub stock: u32,
}

/// How one kind of cloud behaves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SimProfile {
    /// A name for messages.
    pub name: &'static str,
    /// What it promises; it keeps that, unless scripted otherwise.
    pub capabilities: Capabilities,
    /// How far its reads lie behind the truth.
    pub read_lag: Duration,
    /// How long things take.
    pub delays: BootDelays,
    /// How long an ended node is still shown; after that, and after the lag, it is unknown.
    pub shown_after_end: Duration,
    /// Whether want of capacity shows only after the launch was accepted.
    pub capacity_shows_later: bool,
    /// Whether a node says when it was made.
    pub states_created: bool,
    /// Whether the bill runs until the node is gone, not just until its end was accepted.
    pub bills_shutdown: bool,
}

impl SimProfile {
    /// Like EC2: a launch token, reads that lag, a minute's minimum, ended nodes shown for an hour.
    pub fn token() -> Self {
        Self {
            name: "token",
            capabilities: Capabilities {
                identity: Identity::Token,
                settle: Duration::from_secs(300),
                absent_reads: 3,
                tags: true,
                spot: true,
                reclaim_notice: Some(Duration::from_secs(120)),
                states_stock: false,
                states_times: true,
                states_usage: false,
                stop: StopEffect::EndsCompute,
                deadman: Deadman::PowerOffEndsBilling,
                bootstrapping: Bootstrapping::UserData,
                needs_public_url: true,
                metering: Metering { minimum: Duration::from_secs(60), ..Metering::PER_SECOND },
                boot_timeout: Duration::from_secs(600),
            },
            read_lag: Duration::from_secs(5),
            delays: BootDelays {
                boot: Duration::from_secs(20),
                health: Duration::from_secs(60),
                shutdown: Duration::from_secs(30),
            },
            shown_after_end: Duration::from_secs(3600),
            capacity_shows_later: false,
            states_created: true,
            bills_shutdown: false,
        }
    }

    /// Like GCP: unique names, capacity that fails after the call, a server-side end, and nodes
    /// that vanish once gone.
    pub fn unique_name() -> Self {
        let base = Self::token();
        Self {
            name: "unique-name",
            capabilities: Capabilities {
                identity: Identity::UniqueName,
                settle: Duration::from_secs(60),
                reclaim_notice: Some(Duration::from_secs(30)),
                deadman: Deadman::Cloud,
                ..base.capabilities
            },
            read_lag: Duration::from_secs(2),
            shown_after_end: Duration::ZERO,
            capacity_shows_later: true,
            ..base
        }
    }

    /// Like Lambda: only a label tells, minutes are billed from the first healthy one until the
    /// node is gone, nothing ends a node but we, and no times are stated.
    pub fn label_only() -> Self {
        let base = Self::token();
        Self {
            name: "label-only",
            capabilities: Capabilities {
                identity: Identity::LabelOnly,
                settle: Duration::from_secs(120),
                spot: false,
                reclaim_notice: None,
                states_stock: true,
                states_times: false,
                states_usage: true,
                stop: StopEffect::None,
                deadman: Deadman::None,
                metering: Metering {
                    granularity: Duration::from_secs(60),
                    start: MeterStart::Healthy,
                    ..Metering::PER_SECOND
                },
                boot_timeout: Duration::from_secs(1200),
                ..base.capabilities
            },
            read_lag: Duration::from_secs(10),
            delays: BootDelays {
                boot: Duration::from_secs(90),
                health: Duration::from_secs(30),
                shutdown: Duration::from_secs(45),
            },
            shown_after_end: Duration::from_secs(300),
            capacity_shows_later: false,
            states_created: false,
            bills_shutdown: true,
        }
    }

    /// All of them.
    pub fn all() -> Vec<Self> {
        vec![Self::token(), Self::unique_name(), Self::label_only()]
    }
}

impl SimOffer {
    /// Offers to begin with: three types in two regions, in US dollars, one without a price.
    pub fn samples() -> Vec<Self> {
        let offer = |region: &str, kind: &str, gpu: &str, count, cents: Option<i64>, stock| Self {
            region: region.to_owned(),
            zone: Some(format!("{region}-a")),
            instance_type: kind.to_owned(),
            gpu: runwhere_model::GpuModel::resolve(gpu).expect("a model of the table").id,
            count,
            price: cents.map(|cents| HourlyPrice {
                amount: Decimal::new(cents, 2),
                currency: Currency::USD,
            }),
            stock,
        };
        vec![
            offer("sim-east", "big.8", "a100-80g", 8, Some(2_400), 2),
            offer("sim-east", "small.1", "a100-80g", 1, Some(310), 8),
            offer("sim-west", "small.1", "a100-80g", 1, Some(330), 8),
            offer("sim-west", "tiny.1", "t4", 1, None, 8),
        ]
    }
}
