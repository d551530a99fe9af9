//! Tokens of a data folder, beside a running server.

use std::path::Path;
use std::sync::Arc;

use runwhere_engine::ApiKey;
use runwhere_model::{KeyId, Secret};
use runwhere_providers::SystemClock;

use crate::accounts::{AccountError, Accounts, NewKey};
use crate::ports::SystemIds;
use crate::store::{OpenError, SqliteStore};

/// Why tokens cannot be managed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// There is no database yet.
    #[error("{0} is no data folder of a server that has been started; run `runwhere serve` first")]
    NoServer(String),
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The key.
    #[error(transparent)]
    Account(#[from] AccountError),
}

/// The tokens of a data folder. The database may be in use by its server at the same time.
#[derive(Debug)]
pub struct Tokens {
    accounts: Accounts,
}

impl Tokens {
    /// Opens the folder's database.
    pub fn open(data_dir: &Path) -> Result<Self, TokenError> {
        let database = data_dir.join("broker.db");
        if !database.is_file() {
            return Err(TokenError::NoServer(data_dir.display().to_string()));
        }
        let store = SqliteStore::open(&database)?;
        let accounts = Accounts::new(Arc::new(store), Arc::new(SystemClock), Arc::new(SystemIds));
        Ok(Self { accounts })
    }

    /// Makes a token; it is shown once.
    pub async fn create(&self, new: NewKey) -> Result<(ApiKey, Secret), TokenError> {
        Ok(self.accounts.create(new).await?)
    }

    /// All tokens, oldest first.
    pub async fn list(&self) -> Result<Vec<ApiKey>, TokenError> {
        Ok(self.accounts.list().await?)
    }

    /// Ends a token's validity.
    pub async fn revoke(&self, id: &KeyId) -> Result<ApiKey, TokenError> {
        Ok(self.accounts.revoke(id).await?)
    }
}
