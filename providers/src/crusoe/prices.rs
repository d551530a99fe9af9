//! Crusoe's prices. It has no interface for them: this table was typed in from its price page,
//! crusoe.ai/cloud/pricing, as far as a dated reading exists. GPUs that are not in it have an unknown
//! price until the settings state one.

/// When the page said so.
pub(super) const READ_ON: &str = "2026-09-25T00:00:00Z";

/// Name of the GPU, US dollars for one of them and an hour.
pub(super) const PRICES: &[(&str, &str)] = &[("A100-PCIe-80GB", "2.00"), ("A100-SXM-80GB", "2.30")];
