//! What every provider must do, whatever it is: one suite, cases chosen by capability.
//!
//! A provider under test comes as a [`Subject`], which also knows how time passes for it. Run
//! [`assert_conforms`] in a test; it names every case that fails, and what was skipped and why is
//! in the [`Report`].

mod cases;
mod support;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_model::{Capabilities, LaunchRequest};
use std::time::Duration;

use crate::provider::Provider;

/// A provider under test.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The provider.
    fn provider(&self) -> &dyn Provider;

    /// A launch that works, of a lease of its own per number. The same number is the same request.
    fn request(&self, number: u32) -> LaunchRequest;

    /// The time by the provider's clock.
    fn now(&self) -> Timestamp;

    /// Lets time pass.
    async fn pass(&self, span: Duration);

    /// Whether time passes at once, so that cases of hours can be played.
    fn time_is_free(&self) -> bool {
        false
    }

    /// How far the provider's clock may be off ours.
    fn clock_error(&self) -> Duration {
        Duration::ZERO
    }

    /// Launches a node in the same account for another installation; `false` where the test cannot.
    async fn launch_foreign(&self, number: u32) -> bool;
}

/// One case's result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// As it must be.
    Passed,
    /// Does not apply, and why.
    Skipped(&'static str),
    /// What is wrong.
    Failed(String),
}

/// Every case with its result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// In the order in which they ran.
    pub cases: Vec<(&'static str, Verdict)>,
}

impl Report {
    /// The failed cases, a line each.
    pub fn failures(&self) -> Vec<String> {
        let failed = self.cases.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Failed(why) => Some(format!("{name}: {why}")),
            Verdict::Passed | Verdict::Skipped(_) => None,
        });
        failed.collect()
    }

    /// The names of the skipped cases.
    pub fn skipped(&self) -> Vec<&'static str> {
        let skipped =
            self.cases.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Skipped(_)));
        skipped.map(|(name, _)| *name).collect()
    }
}

type Applies = fn(&Capabilities) -> Result<(), &'static str>;

/// Runs every case that applies. Each cleans up after itself.
pub async fn check(subject: &dyn Subject) -> Report {
    let mut report = Report { cases: Vec::new() };
    for case in cases::ALL {
        let verdict = match (case.applies)(subject.provider().capabilities()) {
            Err(why) => Verdict::Skipped(why),
            Ok(()) if case.takes_hours && !subject.time_is_free() => {
                Verdict::Skipped("it takes hours")
            }
            Ok(()) => match (case.run)(subject).await {
                Ok(()) => Verdict::Passed,
                Err(why) => Verdict::Failed(why),
            },
        };
        report.cases.push((case.name, verdict));
    }
    report
}

/// Runs every case that applies.
///
/// # Panics
///
/// When one fails, with all that failed.
pub async fn assert_conforms(subject: &dyn Subject) -> Report {
    let report = check(subject).await;
    let failures = report.failures();
    assert!(
        failures.is_empty(),
        "{} does not conform:\n{}",
        subject.provider().id(),
        failures.join("\n")
    );
    report
}
