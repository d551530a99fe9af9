//! `/metrics`: Prometheus text, for a token with `metrics.read`.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use runwhere_engine::{LeaseState, Permission, StrayState, TrialState};
use runwhere_pricing::price_metrics;

use super::problem::Problem;
use super::state::{Api, Signed};
use crate::store::StrayQuery;

pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(State(api): State<Arc<Api>>, signed: Signed) -> Result<Response, Problem> {
    signed.with(Permission::MetricsRead)?;
    let (store, admin) = (&api.parts.store, &api.parts.admin);
    let now = api.parts.clock.now();
    let counts = store.counts().await?;
    let strays = store.strays(&StrayQuery { open: true, ..StrayQuery::default() }).await?;
    let sweepers = store.sweepers().await?;
    let counted = admin.counted();
    let mut page = Page::default();

    page.family("runwhere_leases", "gauge", "Leases that have not ended, by state.");
    for state in LeaseState::ALL.into_iter().filter(|state| !state.is_terminal()) {
        let count = counts.leases.iter().find(|(of, _)| *of == state).map_or(0, |(_, n)| *n);
        page.sample("runwhere_leases", &[("state", &state.as_str())], count);
    }
    page.family("runwhere_trials", "gauge", "Trials of jobs that have not ended, by state.");
    for state in TrialState::ALL {
        let count = counts.trials.iter().find(|(of, _)| *of == state).map_or(0, |(_, n)| *n);
        page.sample("runwhere_trials", &[("state", &state.as_str())], count);
    }
    let oldest = counts.releasing_since.map_or(0, |at| now.duration_since(at).as_secs().max(0));
    let name = "runwhere_oldest_release_seconds";
    page.family(name, "gauge", "Age of the release that takes longest; 0 without one.");
    page.sample(name, &[], oldest);
    let name = "runwhere_quarantined_trials";
    page.family(name, "gauge", "Trials that cannot be stepped and are left alone for a while.");
    page.sample(name, &[], admin.quarantined());
    let name = "runwhere_restore_unconfirmed";
    page.family(name, "gauge", "1 while a restored database waits for an operator.");
    page.sample(name, &[], u8::from(admin.restored().is_some()));

    let name = "runwhere_strays";
    page.family(name, "gauge", "Nodes without an owner, by provider and state.");
    for provider in admin.providers() {
        for state in [StrayState::Suspected, StrayState::Ending] {
            let of = |stray: &&runwhere_engine::Stray| {
                stray.provider == provider && stray.state == state
            };
            let count = strays.iter().filter(of).count();
            page.sample(name, &[("provider", &provider), ("state", &state.as_str())], count);
        }
    }
    let name = "runwhere_sweep_nodes";
    page.family(name, "gauge", "Nodes of the last sweep; foreign ones are only counted.");
    for row in &sweepers {
        let Some(last) = &row.last else { continue };
        for (kind, count) in [
            ("owned", last.owned),
            ("waiting", last.waiting),
            ("suspected", last.suspected),
            ("ending", last.ending),
            ("foreign", last.foreign),
        ] {
            page.sample(name, &[("provider", &row.provider), ("kind", &kind)], count);
        }
    }
    let name = "runwhere_sweep_failures";
    page.family(name, "gauge", "Sweeps in a row that could not list the provider's nodes.");
    for row in &sweepers {
        page.sample(name, &[("provider", &row.provider)], row.failures);
    }
    let name = "runwhere_sweep_age_seconds";
    page.family(name, "gauge", "Time since the last complete list of the provider's nodes.");
    for row in &sweepers {
        let Some(at) = row.complete_at else { continue };
        let age = now.duration_since(at).as_secs().max(0);
        page.sample(name, &[("provider", &row.provider)], age);
    }
    let name = "runwhere_provider_calls_total";
    page.family(name, "counter", "Provider calls since the server's start, by outcome.");
    for ((provider, operation, outcome), count) in &counted.calls {
        let labels: [(&str, &dyn Display); 3] =
            [("provider", provider), ("operation", operation), ("outcome", outcome)];
        page.sample(name, &labels, count);
    }
    let name = "runwhere_alerts_total";
    page.family(name, "counter", "Alerts since the server's start, by kind.");
    for (kind, count) in &counted.alerts {
        page.sample(name, &[("kind", kind)], count);
    }
    page.0.push_str(&price_metrics(&api.parts.price_sources.status()));
    let mut response = page.0.into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// The text of a page.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { "{" } else { "," };
            let text = text.to_string();
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.family("a_total", "counter", "A.");
        page.sample("a_total", &[("x", &"q\"\\\n"), ("y", &1)], 3);
        page.sample("b", &[], 4);
        let want = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"q\\\"\\\\\\n\",y=\"1\"} 3\nb 4\n";
        assert_eq!(page.0, want);
    }
}
