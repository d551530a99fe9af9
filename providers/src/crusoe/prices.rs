//! Crusoe's prices. It has no interface for them. This table was typed in from a report that quoted
//! its price page, crusoe.ai/cloud/pricing; the day on which the page said so was not written down.
//! So these prices count as read on the day they were typed in, are marked, and are stale a day later.
//! GPUs that are not in it have an unknown price until the settings state one.

/// When the table was typed in.
pub(super) const TYPED_ON: &str = "2026-11-29T00:00:00Z";

/// Name of the GPU, US dollars for one of them and an hour.
pub(super) const PRICES: &[(&str, &str)] = &[("A100-PCIe-80GB", "2.00"), ("A100-SXM-80GB", "2.30")];
