//! What the provider is made of.

use std::path::PathBuf;

use runwhere_providers::model::{DeploymentId, ProviderId};
use serde::Deserialize;

/// One account with Harbour.
#[derive(Clone, Debug)]
pub struct HarbourConfig {
    /// Its name; the first part of its offers' keys.
    pub id: ProviderId,
    /// Our installation, set as a label on every machine.
    pub deployment: DeploymentId,
    /// The folder that is the cloud.
    pub folder: PathBuf,
}

/// As an operator writes it. Unknown fields are errors: a typo must not be a default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    id: String,
    folder: PathBuf,
}

/// Why settings are refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON, a field is missing, unknown or of a wrong type.
    #[error("harbour: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The id cannot be the first part of an offer key.
    #[error("harbour: id: expected ASCII letters, digits and . _ : + -, such as harbour-team")]
    Id,
    /// A relative folder would depend on where the server was started.
    #[error("harbour: folder: expected an absolute path")]
    Folder,
}

impl HarbourConfig {
    /// Reads `{"id": …, "folder": …}`.
    pub fn read(text: &str, deployment: DeploymentId) -> Result<Self, ConfigError> {
        let settings: Settings = serde_json::from_str(text)?;
        let id = ProviderId::new(settings.id).map_err(|_| ConfigError::Id)?;
        if !settings.folder.is_absolute() {
            return Err(ConfigError::Folder);
        }
        Ok(Self { id, deployment, folder: settings.folder })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_refused_and_named() {
        let read = |text: &str| {
            HarbourConfig::read(text, DeploymentId::new("ours").unwrap())
                .map(|config| config.id)
                .map_err(|error| error.to_string())
        };
        assert_eq!(read(r#"{"id":"harbour","folder":"/x"}"#).unwrap().as_str(), "harbour");
        assert!(read(r#"{"id":"harbour","foldr":"/x"}"#).unwrap_err().contains("foldr"));
        assert!(read(r#"{"id":"a/b","folder":"/x"}"#).unwrap_err().contains("id"));
        assert!(read(r#"{"id":"harbour","folder":"x"}"#).unwrap_err().contains("absolute"));
    }
}
