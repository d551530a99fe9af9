//! The tokens in a server's data folder. Works beside a running server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runwhere_broker::accounts::{AccountError, Accounts, KeyKind, NewKey};
use runwhere_broker::ports::SystemIds;
use runwhere_broker::store::SqliteStore;
use runwhere_model::{KeyId, ProjectId};
use runwhere_providers::SystemClock;
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::settings::Token;
use crate::texts;

/// A token that was just made.
#[derive(Debug)]
pub struct MadeToken {
    /// Its id.
    pub id: String,
    /// The secret, shown once.
    pub token: Token,
}

/// A token as it is listed.
#[derive(Clone, Debug, Serialize)]
pub struct TokenRow {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The project that it is for.
    pub project: String,
    /// Its permissions.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: String,
    /// When it ends.
    pub expires_at: Option<String>,
    /// When it was revoked.
    pub revoked_at: Option<String>,
}

/// The tokens of one data folder.
#[derive(Debug)]
pub struct Tokens(Accounts);

impl Tokens {
    /// Opens the data folder `dir` of a server.
    ///
    /// # Errors
    /// Exit code 1 when no server has used that folder, or its database cannot be read.
    pub fn open(dir: &Path) -> Outcome<Self> {
        let database = dir.join("broker.db");
        // Opening would make an empty one, for a mistyped folder too.
        if !database.is_file() {
            return Err(Failure::other("no_data_dir", texts::no_data_dir(dir.display()))
                .hint(texts::no_data_dir_hint()));
        }
        let store = SqliteStore::open_inline(&database)
            .map_err(|error| Failure::other("data_dir", texts::serve_failed(error)))?;
        Ok(Self(Accounts::new(Arc::new(store), Arc::new(SystemClock), Arc::new(SystemIds))))
    }

    /// Makes a token, or an API key of EnvLoop; with no scopes it may do everything, without a
    /// project it is one of the first.
    ///
    /// # Errors
    /// Exit code 2 for an unknown scope or project or a wrong time.
    pub async fn create(
        &self,
        name: Option<&str>,
        scopes: &[String],
        project: Option<&str>,
        expires_in: Option<&str>,
        envloop: bool,
    ) -> Outcome<MadeToken> {
        let scopes = if scopes.is_empty() { json!(["admin"]) } else { json!(scopes) };
        let shown = scopes.as_array().into_iter().flatten().filter_map(Value::as_str);
        let shown = shown.collect::<Vec<_>>().join(", ");
        let unknown = |_| Failure::usage("scope_unknown", texts::scope_unknown(&shown));
        let new = NewKey {
            name: name.unwrap_or("cli").to_owned(),
            permissions: serde_json::from_value(scopes.clone()).map_err(unknown)?,
            expires_in: expires_in.map(span).transpose()?,
        };
        let project =
            project.map(|id| ProjectId::new(id).map_err(|_| no_project(id))).transpose()?;
        let kind = if envloop { KeyKind::Envloop } else { KeyKind::Runwhere };
        let made = self.0.create_kind(new, project.as_ref(), kind).await;
        let (key, secret) = made.map_err(failure)?;
        let token = Token::new(secret.expose());
        let token = token.ok_or_else(|| Failure::other("token_empty", texts::token_empty()))?;
        Ok(MadeToken { id: key.id.to_string(), token })
    }

    /// Lists all tokens, oldest first.
    ///
    /// # Errors
    /// Exit code 1 when the database cannot be read.
    pub async fn list(&self) -> Outcome<Vec<TokenRow>> {
        let keys = self.0.list().await.map_err(failure)?;
        let rows = keys.into_iter().map(|key| TokenRow {
            id: key.id.to_string(),
            name: key.name,
            project: key.project.to_string(),
            scopes: match serde_json::to_value(&key.permissions) {
                Ok(Value::Array(scopes)) => {
                    scopes.iter().filter_map(|scope| scope.as_str().map(str::to_owned)).collect()
                }
                _ => Vec::new(),
            },
            created_at: key.created_at.to_string(),
            expires_at: key.expires_at.map(|at| at.to_string()),
            revoked_at: key.revoked_at.map(|at| at.to_string()),
        });
        Ok(rows.collect())
    }

    /// Revokes a token; twice is once.
    ///
    /// # Errors
    /// Exit code 2 when there is no such token.
    pub async fn revoke(&self, id: &str) -> Outcome {
        let unknown = || {
            Failure::usage("token_unknown", texts::token_unknown(id))
                .hint(texts::token_unknown_hint())
        };
        let key = KeyId::new(id).map_err(|_| unknown())?;
        match self.0.revoke(&key).await {
            Ok(_) => Ok(()),
            Err(AccountError::NoSuchKey(_)) => Err(unknown()),
            Err(error) => Err(failure(error)),
        }
    }
}

fn no_project(id: &str) -> Failure {
    Failure::usage("project_unknown", texts::project_unknown(id))
        .hint(texts::project_unknown_hint())
}

fn failure(error: AccountError) -> Failure {
    match error {
        AccountError::NoSuchProject(id) => no_project(id.as_str()),
        AccountError::Expiry => Failure::usage("expiry", texts::duration_invalid(error)),
        other => Failure::other("accounts", texts::serve_failed(other)),
    }
}

/// Reads `90s`, `30m`, `12h` or `30d`.
fn span(text: &str) -> Outcome<Duration> {
    let invalid = || Failure::usage("duration_invalid", texts::duration_invalid(text));
    let unit = text.chars().last().ok_or_else(invalid)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(invalid()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| invalid())?;
    let seconds = count.checked_mul(seconds).filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_one_unit() {
        assert_eq!(span("30d").unwrap(), Duration::from_secs(30 * 86_400));
        for text in ["", "d", "0h", "5", "1h30m", "-1h", "1.5h", "1天", "99999999999999999999d"] {
            assert!(span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_folder_without_a_server_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Tokens::open(folder.path()).unwrap_err().code, "no_data_dir");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn tokens_are_made_listed_and_revoked_without_their_secrets() {
        let folder = tempfile::tempdir().unwrap();
        drop(SqliteStore::open_inline(&folder.path().join("broker.db")).unwrap());
        let tokens = Tokens::open(folder.path()).unwrap();
        tokens.0.first_start(|_| Ok(())).await.unwrap();
        let scopes = ["training.run".to_owned()];
        let made = tokens.create(Some("ci"), &scopes, None, Some("30d"), false).await.unwrap();
        assert!(tokens.create(None, &["fly".to_owned()], None, None, false).await.is_err());
        for unknown in ["other", "../x", ""] {
            let refused = tokens.create(None, &[], Some(unknown), None, false).await;
            assert_eq!(refused.unwrap_err().code, "project_unknown");
        }
        let rows = tokens.list().await.unwrap();
        let row = rows.iter().find(|row| row.id == made.id).unwrap();
        assert_eq!((row.name.as_str(), row.scopes.as_slice()), ("ci", scopes.as_slice()));
        assert!(row.expires_at.is_some() && row.revoked_at.is_none());
        assert!(!format!("{rows:?}").contains(made.token.reveal()));
        tokens.revoke(&made.id).await.unwrap();
        tokens.revoke(&made.id).await.unwrap();
        assert_eq!(tokens.revoke("key-none").await.unwrap_err().code, "token_unknown");
        let rows = tokens.list().await.unwrap();
        assert!(rows.iter().any(|row| row.id == made.id && row.revoked_at.is_some()));
    }
}
