//! A credential in the settings: the text itself, or where it stands.

use std::fmt;
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::settings::SettingError;

/// `"text"`, `{ env = "NAME" }` or `{ file = "/path" }`. Its `Debug` never shows the text.
#[derive(Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum SecretSetting {
    /// The credential itself.
    Text(SecretString),
    /// In a variable of the environment.
    Env {
        /// The variable.
        env: String,
    },
    /// In a file; blanks and line ends around it are dropped.
    File {
        /// The file.
        file: PathBuf,
    },
}

impl fmt::Debug for SecretSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("\"…\""),
            Self::Env { env } => write!(f, "env {env}"),
            Self::File { file } => write!(f, "file {}", file.display()),
        }
    }
}

impl SecretSetting {
    /// The credential of a setting, else of the first set variable of `variables`.
    pub fn find(
        setting: Option<&Self>,
        field: &'static str,
        variables: &[&str],
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<SecretString>, SettingError> {
        let Some(setting) = setting else {
            let found = variables.iter().find_map(|name| env(name).filter(|text| !text.is_empty()));
            return Ok(found.map(|text| SecretString::from(text.trim().to_owned())));
        };
        let text = match setting {
            Self::Text(text) => text.expose_secret().to_owned(),
            Self::Env { env: name } => env(name).ok_or_else(|| {
                SettingError::new(field, format!("the variable {name} is not set"))
            })?,
            Self::File { file } => std::fs::read_to_string(file).map_err(|error| {
                SettingError::new(field, format!("{} cannot be read: {error}", file.display()))
            })?,
        };
        match text.trim() {
            "" => Err(SettingError::new(field, "is empty")),
            text => Ok(Some(SecretString::from(text.to_owned()))),
        }
    }

    /// As [`find`](Self::find); a missing credential is an error that names where to put it.
    pub fn need(
        setting: Option<&Self>,
        field: &'static str,
        variables: &[&str],
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<SecretString, SettingError> {
        Self::find(setting, field, variables, env)?.ok_or_else(|| {
            let or = match variables {
                [] => String::new(),
                names => format!(", or the variable {}", names.join(" or ")),
            };
            SettingError::new(field, format!("is missing: set it in the settings{or}"))
        })
    }
}
