//! Kinds of clouds, as data.

use std::time::Duration;

use jiff::SignedDuration;
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

/// How listings are read: in pages, one after the other, while the world goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Paging {
    /// Rows of a page.
    pub rows: usize,
    /// From one page to the next.
    pub pause: Duration,
}

/// How one kind of cloud behaves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SimProfile {
    /// A name for messages.
    pub name: &'static str,
    /// What it promises; it keeps that, unless scripted otherwise or said below.
    pub capabilities: Capabilities,
    /// How far its reads lie behind the truth.
    pub read_lag: Duration,
    /// How long the lists name a new node without the label of its lease.
    pub label_lag: Duration,
    /// How long things take.
    pub delays: BootDelays,
    /// How long an ended node is still shown; after that, and after the lag, it is unknown.
    pub shown_after_end: Duration,
    /// Whether want of capacity shows only after the launch was accepted.
    pub capacity_shows_later: bool,
    /// Whether a launch refused for want of capacity leaves a stopped node, which the error names.
    pub refusal_makes_node: bool,
    /// Whether a node says when it was made.
    pub states_created: bool,
    /// Whether the bill runs until the node is gone, not just until its end was accepted.
    pub bills_shutdown: bool,
    /// Whether a reclaimed node is stopped instead of ended.
    pub reclaim_stops: bool,
    /// Promised, but not kept: the token of a launch is not looked at.
    pub ignores_token: bool,
    /// Promised, but not kept: an end time is accepted and forgotten.
    pub ignores_end_time: bool,
    /// How far the cloud's clock is ahead of ours; its stated times are by that clock.
    pub clock_ahead: SignedDuration,
    /// How its listings are read; `None` = in one piece.
    pub paging: Option<Paging>,
}

impl SimProfile {
    /// Like EC2: a launch token, reads that lag, a minute's minimum, ended nodes shown for an hour,
    /// spot with notice.
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
                minimum_reservation: None,
                deadman: Deadman::PowerOffEndsBilling,
                bootstrapping: Bootstrapping::UserData,
                needs_public_url: true,
                metering: Metering { minimum: Duration::from_secs(60), ..Metering::PER_SECOND },
                boot_timeout: Duration::from_secs(600),
            },
            read_lag: Duration::from_secs(5),
            label_lag: Duration::ZERO,
            delays: BootDelays {
                boot: Duration::from_secs(20),
                health: Duration::from_secs(60),
                shutdown: Duration::from_secs(30),
            },
            shown_after_end: Duration::from_secs(3600),
            capacity_shows_later: false,
            refusal_makes_node: false,
            states_created: true,
            bills_shutdown: false,
            reclaim_stops: false,
            ignores_token: false,
            ignores_end_time: false,
            clock_ahead: SignedDuration::ZERO,
            paging: None,
        }
    }

    /// Like Aliyun: a launch token, a bill from the launch until the node is gone, a stop that
    /// keeps billing, a server-side end, long notices, times and usage records both stated.
    pub fn token_billed_stop() -> Self {
        let base = Self::token();
        Self {
            name: "token-billed-stop",
            capabilities: Capabilities {
                settle: Duration::from_secs(120),
                reclaim_notice: Some(Duration::from_secs(300)),
                states_stock: true,
                states_usage: true,
                stop: StopEffect::KeepsBilling,
                deadman: Deadman::Cloud,
                metering: Metering { start: MeterStart::Requested, ..Metering::PER_SECOND },
                ..base.capabilities
            },
            read_lag: Duration::from_secs(3),
            delays: BootDelays {
                boot: Duration::from_secs(40),
                health: Duration::from_secs(20),
                shutdown: Duration::from_secs(10),
            },
            shown_after_end: Duration::from_secs(60),
            bills_shutdown: true,
            ..base
        }
    }

    /// Like GCP: unique names, capacity that fails after the call, a server-side end, nodes that
    /// vanish once gone, and listings in pages.
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
            paging: Some(Paging { rows: 2, pause: Duration::from_secs(1) }),
            ..base
        }
    }

    /// Like Lambda: only a label tells, and lists show it late; minutes are billed from the first
    /// healthy one until the node is gone, nothing ends a node but we, and no times are stated.
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
            label_lag: Duration::from_secs(45),
            delays: BootDelays {
                boot: Duration::from_secs(90),
                health: Duration::from_secs(30),
                shutdown: Duration::from_secs(45),
            },
            shown_after_end: Duration::from_secs(300),
            states_created: false,
            bills_shutdown: true,
            ..base
        }
    }

    /// Like RunPod: only a label tells, a bill from the launch on, spot without notice, and an end
    /// time that is accepted and not kept.
    pub fn forgotten_end() -> Self {
        let base = Self::label_only();
        Self {
            name: "forgotten-end",
            capabilities: Capabilities {
                settle: Duration::from_secs(60),
                spot: true,
                stop: StopEffect::EndsCompute,
                deadman: Deadman::Cloud,
                bootstrapping: Bootstrapping::Container,
                metering: Metering { start: MeterStart::Requested, ..Metering::PER_SECOND },
                boot_timeout: Duration::from_secs(900),
                ..base.capabilities
            },
            read_lag: Duration::from_secs(4),
            delays: BootDelays {
                boot: Duration::from_secs(30),
                health: Duration::from_secs(10),
                shutdown: Duration::from_secs(5),
            },
            shown_after_end: Duration::ZERO,
            states_created: true,
            bills_shutdown: false,
            ignores_end_time: true,
            ..base
        }
    }

    /// Like Vast: only a label tells, a refusal leaves a stopped node behind, outbid nodes are
    /// stopped without notice and still billed, neither times nor usage records are stated.
    pub fn error_with_node() -> Self {
        let base = Self::forgotten_end();
        Self {
            name: "error-with-node",
            capabilities: Capabilities {
                states_usage: false,
                stop: StopEffect::KeepsBilling,
                deadman: Deadman::None,
                metering: Metering { start: MeterStart::Running, ..Metering::PER_SECOND },
                ..base.capabilities
            },
            refusal_makes_node: true,
            reclaim_stops: true,
            ignores_end_time: false,
            ..base
        }
    }

    /// Like an emulator of EC2: it promises a launch token and does not look at it.
    pub fn ignored_token() -> Self {
        let base = Self::token();
        Self { name: "ignored-token", read_lag: Duration::ZERO, ignores_token: true, ..base }
    }

    /// Like the sellers of whole hours: a node's end is refused until an hour has passed.
    pub fn minimum_reservation() -> Self {
        let base = Self::token_billed_stop();
        Self {
            name: "minimum-reservation",
            capabilities: Capabilities {
                minimum_reservation: Some(Duration::from_secs(3600)),
                deadman: Deadman::None,
                ..base.capabilities
            },
            ..base
        }
    }

    /// Like the first, with a clock that is 90 seconds ahead of ours.
    pub fn fast_clock() -> Self {
        let clock_ahead = SignedDuration::from_secs(90);
        Self { name: "fast-clock", clock_ahead, ..Self::token() }
    }

    /// Like the first, with a clock that is 45 seconds behind ours.
    pub fn slow_clock() -> Self {
        let clock_ahead = SignedDuration::from_secs(-45);
        Self { name: "slow-clock", clock_ahead, ..Self::token() }
    }

    /// All of them.
    pub fn all() -> Vec<Self> {
        vec![
            Self::token(),
            Self::token_billed_stop(),
            Self::unique_name(),
            Self::label_only(),
            Self::forgotten_end(),
            Self::error_with_node(),
            Self::ignored_token(),
            Self::minimum_reservation(),
            Self::fast_clock(),
            Self::slow_clock(),
        ]
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
