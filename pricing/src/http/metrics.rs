//! Numbers of the sources for Prometheus.

use std::fmt::Write;

use crate::refresh::SourceStatus;

/// The sources in the text format of Prometheus: rows, age, troubles, quarantined prices, rejected rows
/// and unmapped names, by provider.
pub fn price_metrics(sources: &[SourceStatus]) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, of: &dyn Fn(&SourceStatus) -> Option<i64>| {
        let mut lines = String::new();
        for source in sources {
            if let Some(value) = of(source) {
                // Writing to a text does not fail. A provider's id holds nothing to escape.
                let _ = writeln!(lines, "{name}{{provider=\"{}\"}} {value}", source.provider);
            }
        }
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{lines}");
    };
    let count = |number: usize| i64::try_from(number).ok();
    gauge("runwhere_price_rows", "Offers that are served.", &|s| count(s.rows));
    gauge("runwhere_price_age_seconds", "Age of the served prices.", &|s| s.age);
    gauge("runwhere_price_stale", "1 where prices are older than they are good for.", &|s| {
        Some(i64::from(s.stale))
    });
    gauge(
        "runwhere_price_source_ok",
        "0 where the last reading failed or was refused or partial.",
        &|s| Some(i64::from(matches!(s.status.as_str(), "ok" | "bundled"))),
    );
    gauge("runwhere_price_quarantined", "Prices that wait for a decision.", &|s| {
        count(s.quarantined)
    });
    gauge("runwhere_price_rejected_rows", "Rows that did not fit.", &|s| count(s.rejected));
    gauge("runwhere_price_unmapped_names", "GPU names that no model is known for.", &|s| {
        count(s.unmapped.len())
    });
    text
}
