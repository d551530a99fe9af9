//! The environment variables that the command line reads. Nothing else in this package reads the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Endpoint of the server; wins over the configuration file.
pub(super) const ENDPOINT: &str = "RUNW_ENDPOINT";
/// Token; wins over the configuration file.
pub(super) const TOKEN: &str = "RUNW_TOKEN";
/// Same as `--json`.
pub(super) const JSON: &str = "RUNWHERE_JSON";
/// Language of texts, `zh` or `en`.
pub(super) const LANGUAGE: &str = "RUNWHERE_LANG";
/// Replaces `~/.runwhere`.
pub(super) const HOME: &str = "RUNWHERE_HOME";

/// A snapshot of the process's environment.
#[derive(Clone, Debug, Default)]
pub struct Env {
    vars: BTreeMap<OsString, OsString>,
}

impl Env {
    /// The process's own environment.
    #[must_use]
    pub fn of_process() -> Self {
        Self { vars: std::env::vars_os().collect() }
    }

    /// An environment for tests.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self { vars: pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect() }
    }

    /// The value of `name`; an empty one counts as unset, as in the published client.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.vars
            .get(OsString::from(name).as_os_str())
            .and_then(|value| value.to_str())
            .filter(|value| !value.is_empty())
    }

    /// The locale that decides the language of messages.
    #[must_use]
    pub fn locale(&self) -> Option<&str> {
        ["LC_ALL", "LC_MESSAGES", "LANG"].iter().find_map(|name| self.get(name))
    }

    /// The user's folder of runwhere: `RUNWHERE_HOME`, else `~/.runwhere`.
    #[must_use]
    pub fn runwhere_home(&self) -> Option<PathBuf> {
        let path = |name: &str| {
            self.vars
                .get(OsString::from(name).as_os_str())
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        path(HOME).or_else(|| path("HOME").map(|home| home.join(".runwhere")))
    }
}
