//! Tokens and the first tenant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use jiff::Timestamp;
use runwhere_engine::{ApiKey, KeyKind, Permission, Principal, Project, Quota, Workspace};
use runwhere_failpoint::failpoint;
use runwhere_model::{KeyId, PrincipalId, ProjectId, Secret, WorkspaceId};
use runwhere_providers::Clock;
use sha2::{Digest as _, Sha256};

use super::caller::Caller;
use crate::ports::Ids;
use crate::store::{Row, Store, StoreError, Transition};

/// Beginning of every RunWhere token.
const PREFIX: &str = "rw_";
/// Beginning of every EnvLoop key.
const ENVLOOP_PREFIX: &str = "epk_";
/// Longer than any token.
const MAX_TOKEN_BYTES: usize = 256;
/// Keys that are remembered.
const MOST_KNOWN: usize = 4096;
/// The id of the first workspace, project and principal.
pub(super) const DEFAULT_ID: &str = "default";
const FIRST_PRINCIPAL: &str = "admin";

/// Why a credential is refused or not made.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No token, not one of ours, revoked or expired.
    #[error("the token is missing, unknown, expired or revoked")]
    Unauthorized,
    /// No such project.
    #[error("there is no project {0}")]
    NoSuchProject(ProjectId),
    /// No such key.
    #[error("there is no token {0}")]
    NoSuchKey(KeyId),
    /// The time of expiry is out of range.
    #[error("the time of expiry is out of range")]
    Expiry,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The first token could not be written.
    #[error("the first token could not be written: {0}")]
    Write(#[from] io::Error),
}

/// A key to be made.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// What people call it.
    pub name: String,
    /// What it allows.
    pub permissions: Vec<Permission>,
    /// How long it is valid.
    pub expires_in: Option<Duration>,
}

/// Tenants, principals and their keys.
#[derive(Clone, Debug)]
pub struct Accounts {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    known: Arc<Known>,
}

/// Keys by the hash of their secret, each with the version of the store that it was read from.
#[derive(Default)]
struct Known(Mutex<HashMap<String, (u64, ApiKey)>>);

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

impl Accounts {
    /// Accounts of a store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { store, clock, ids, known: Arc::default() }
    }

    /// Who a token belongs to.
    pub async fn authenticate(&self, token: &str) -> Result<Caller, AccountError> {
        self.caller_of(token, PREFIX, KeyKind::Runwhere).await
    }

    /// Who an EnvLoop key belongs to.
    pub async fn authenticate_envloop(&self, token: &str) -> Result<Caller, AccountError> {
        self.caller_of(token, ENVLOOP_PREFIX, KeyKind::Envloop).await
    }

    async fn caller_of(
        &self,
        token: &str,
        prefix: &str,
        kind: KeyKind,
    ) -> Result<Caller, AccountError> {
        if !token.starts_with(prefix) || token.len() > MAX_TOKEN_BYTES {
            return Err(AccountError::Unauthorized);
        }
        let seen_in = self.store.version();
        let key = self.key_of(hash(token), seen_in).await?;
        let key = key.filter(|key| key.kind == kind && key.is_valid(self.clock.now()));
        let key = key.ok_or(AccountError::Unauthorized)?;
        Ok(Caller {
            workspace: key.workspace,
            project: key.project,
            principal: key.principal,
            key: key.id,
            permissions: key.permissions,
            seen_in,
        })
    }

    /// The key of a secret. Read once for each version of the store: waiting clients call many times
    /// a second.
    async fn key_of(
        &self,
        secret_sha256: String,
        version: Option<u64>,
    ) -> Result<Option<ApiKey>, AccountError> {
        {
            let known = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((of, key)) = known.get(&secret_sha256)
                && Some(*of) == version
            {
                return Ok(Some(key.clone()));
            }
        }
        let key = self.store.key_by_secret(&secret_sha256).await?;
        if let (Some(version), Some(key)) = (version, &key) {
            let mut known = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(secret_sha256, (version, key.clone()));
        }
        Ok(key)
    }

    /// Makes an EnvLoop key for a caller whose secret only its owner knows; with the caller's own
    /// permissions. A repeat with the same secret is harmless.
    pub async fn adopt(
        &self,
        caller: &Caller,
        name: &str,
        secret_sha256: &str,
        expires_in: Option<Duration>,
    ) -> Result<(), AccountError> {
        if self.store.key_by_secret(secret_sha256).await?.is_some() {
            return Ok(());
        }
        let owner = Owner {
            workspace: caller.workspace.clone(),
            project: caller.project.clone(),
            principal: caller.principal.clone(),
        };
        let new =
            NewKey { name: name.to_owned(), permissions: caller.permissions.clone(), expires_in };
        let (key, _) = self.make(new, &owner, self.clock.now(), KeyKind::Envloop)?;
        let key = ApiKey { secret_sha256: secret_sha256.to_owned(), ..key };
        let rows = vec![Row::ApiKey(key)];
        self.store.commit(Transition { rows, events: Vec::new() }).await?;
        Ok(())
    }

    /// Makes what a first start needs: the first tenant and a token with every permission. `keep`
    /// writes the token where its owner finds it, before it becomes valid, so that it cannot be
    /// lost. `None` when there is a tenant already.
    pub async fn first_start(
        &self,
        keep: impl FnOnce(&Secret) -> io::Result<()>,
    ) -> Result<Option<Secret>, AccountError> {
        let workspace = WorkspaceId::new(DEFAULT_ID).expect("letters are a valid id");
        if self.store.workspace(&workspace).await?.is_some() {
            return Ok(None);
        }
        let project = ProjectId::new(DEFAULT_ID).expect("letters are a valid id");
        let principal = PrincipalId::new(FIRST_PRINCIPAL).expect("letters are a valid id");
        let now = self.clock.now();
        let new = NewKey {
            name: "first-token".to_owned(),
            permissions: vec![Permission::Admin],
            expires_in: None,
        };
        let owner = Owner { workspace, project, principal };
        let (key, token) = self.make(new, &owner, now, KeyKind::Runwhere)?;
        keep(&token)?;
        failpoint!("start.token.kept");
        let Owner { workspace, project, principal } = owner;
        let rows = vec![
            Row::Workspace(Workspace {
                id: workspace.clone(),
                name: DEFAULT_ID.to_owned(),
                created_at: now,
            }),
            Row::Project(Project {
                id: project,
                version: 0,
                workspace: workspace.clone(),
                name: DEFAULT_ID.to_owned(),
                quota: Quota::default(),
                consents_no_deadman: false,
                approved_plugins: std::collections::BTreeSet::new(),
                created_at: now,
            }),
            Row::Principal(Principal {
                id: principal,
                workspace,
                name: FIRST_PRINCIPAL.to_owned(),
                created_at: now,
            }),
            Row::ApiKey(key),
        ];
        self.store.commit(Transition { rows, events: Vec::new() }).await?;
        Ok(Some(token))
    }

    /// Makes a project with its workspace (the first one without) where they are new, and who acts for it.
    pub async fn make_project(
        &self,
        id: ProjectId,
        workspace: Option<WorkspaceId>,
    ) -> Result<Project, AccountError> {
        let workspace = workspace
            .unwrap_or_else(|| WorkspaceId::new(DEFAULT_ID).expect("letters are a valid id"));
        let now = self.clock.now();
        let mut rows = Vec::new();
        if self.store.workspace(&workspace).await?.is_none() {
            rows.push(Row::Workspace(Workspace {
                id: workspace.clone(),
                name: workspace.to_string(),
                created_at: now,
            }));
            rows.push(Row::Principal(Principal {
                id: owner_of(&workspace),
                workspace: workspace.clone(),
                name: FIRST_PRINCIPAL.to_owned(),
                created_at: now,
            }));
        }
        rows.push(Row::Project(Project {
            id: id.clone(),
            version: 0,
            workspace,
            name: id.to_string(),
            quota: Quota::default(),
            consents_no_deadman: false,
            approved_plugins: std::collections::BTreeSet::new(),
            created_at: now,
        }));
        self.store.commit(Transition { rows, events: Vec::new() }).await?;
        let made = self.store.project(&id).await?;
        made.ok_or(AccountError::NoSuchProject(id))
    }

    /// Makes a key of a project, the first one without. The token is shown once; only its hash is
    /// kept.
    pub async fn create(
        &self,
        new: NewKey,
        project: Option<&ProjectId>,
    ) -> Result<(ApiKey, Secret), AccountError> {
        self.create_kind(new, project, KeyKind::Runwhere).await
    }

    /// The same, for either client.
    pub async fn create_kind(
        &self,
        new: NewKey,
        project: Option<&ProjectId>,
        kind: KeyKind,
    ) -> Result<(ApiKey, Secret), AccountError> {
        let first = ProjectId::new(DEFAULT_ID).expect("letters are a valid id");
        let id = project.unwrap_or(&first);
        let project = self.store.project(id).await?;
        let project = project.ok_or_else(|| AccountError::NoSuchProject(id.clone()))?;
        let owner = owner_of(&project.workspace);
        let owner = Owner { workspace: project.workspace, project: project.id, principal: owner };
        self.create_owned(new, &owner, kind).await
    }

    /// Makes a key of any tenant.
    pub async fn create_for(
        &self,
        new: NewKey,
        workspace: WorkspaceId,
        project: ProjectId,
        principal: PrincipalId,
    ) -> Result<(ApiKey, Secret), AccountError> {
        let owner = Owner { workspace, project, principal };
        self.create_owned(new, &owner, KeyKind::Runwhere).await
    }

    async fn create_owned(
        &self,
        new: NewKey,
        owner: &Owner,
        kind: KeyKind,
    ) -> Result<(ApiKey, Secret), AccountError> {
        let (key, token) = self.make(new, owner, self.clock.now(), kind)?;
        let rows = vec![Row::ApiKey(key.clone())];
        self.store.commit(Transition { rows, events: Vec::new() }).await?;
        Ok((key, token))
    }

    /// All keys, oldest first.
    pub async fn list(&self) -> Result<Vec<ApiKey>, AccountError> {
        Ok(self.store.keys().await?)
    }

    /// Ends a key's validity; repeats are harmless.
    pub async fn revoke(&self, id: &KeyId) -> Result<ApiKey, AccountError> {
        loop {
            let found = self.store.key(id).await?;
            let mut key = found.ok_or_else(|| AccountError::NoSuchKey(id.clone()))?;
            if key.revoked_at.is_some() {
                return Ok(key);
            }
            key.revoked_at = Some(self.clock.now());
            let rows = vec![Row::ApiKey(key.clone())];
            match self.store.commit(Transition { rows, events: Vec::new() }).await {
                Ok(()) => return Ok(key),
                Err(StoreError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn make(
        &self,
        new: NewKey,
        owner: &Owner,
        now: Timestamp,
        kind: KeyKind,
    ) -> Result<(ApiKey, Secret), AccountError> {
        use base64::Engine as _;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let random = hex::decode(self.ids.hex(32)).unwrap_or_default();
        let prefix = match kind {
            KeyKind::Runwhere => PREFIX,
            KeyKind::Envloop => ENVLOOP_PREFIX,
        };
        let token = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(random));
        let expires_at = match new.expires_in {
            Some(span) => Some(now.checked_add(span).map_err(|_| AccountError::Expiry)?),
            None => None,
        };
        let key = ApiKey {
            id: KeyId::new(format!("key-{}", self.ids.hex(4))).expect("hexadecimal is a valid id"),
            version: 0,
            kind,
            name: new.name,
            secret_sha256: hash(&token),
            principal: owner.principal.clone(),
            workspace: owner.workspace.clone(),
            project: owner.project.clone(),
            permissions: new.permissions,
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        Ok((key, Secret::new(token)))
    }
}

/// Who acts for a workspace before it has people of its own.
fn owner_of(workspace: &WorkspaceId) -> PrincipalId {
    let id = match workspace.as_str() {
        DEFAULT_ID => FIRST_PRINCIPAL.to_owned(),
        // Long names meet the length limit by their digest.
        other => format!("{FIRST_PRINCIPAL}:{}", &hash(other)[..16]),
    };
    PrincipalId::new(id).expect("letters and digits are a valid id")
}

struct Owner {
    workspace: WorkspaceId,
    project: ProjectId,
    principal: PrincipalId,
}

fn hash(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::ports::SystemIds;
    use crate::store::MemoryStore;

    #[derive(Debug)]
    struct SetClock(Mutex<Timestamp>);

    impl SetClock {
        fn advance(&self, span: Duration) {
            *self.0.lock().unwrap() += span;
        }
    }

    #[async_trait]
    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            *self.0.lock().unwrap()
        }

        async fn sleep_until(&self, _deadline: Timestamp) {}
    }

    fn accounts() -> (Accounts, Arc<SetClock>) {
        let clock = Arc::new(SetClock(Mutex::new(Timestamp::UNIX_EPOCH)));
        let store = Arc::new(MemoryStore::new());
        (Accounts::new(store, clock.clone(), Arc::new(SystemIds)), clock)
    }

    #[tokio::test]
    async fn the_first_start_makes_one_token_that_works_and_is_stored_hashed() {
        let (accounts, _) = accounts();
        let mut kept = String::new();
        let keep = |token: &Secret| {
            kept = token.expose().to_owned();
            Ok(())
        };
        let token = accounts.first_start(keep).await.unwrap().unwrap();
        assert_eq!(token.expose(), kept);
        assert_eq!(kept.len(), 3 + 43);
        let caller = accounts.authenticate(&kept).await.unwrap();
        assert!(caller.allows(Permission::BillingRead));
        assert!(accounts.first_start(|_| Ok(())).await.unwrap().is_none());
        let keys = format!("{:?}", accounts.list().await.unwrap());
        assert!(!keys.contains(&kept[3..]));
        for bad in ["", "rw_", &kept[1..], &format!("{kept}x"), &"rw_a".repeat(100)] {
            let refused = accounts.authenticate(bad).await;
            assert!(matches!(refused, Err(AccountError::Unauthorized)), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_token_that_could_not_be_kept_is_not_made() {
        let (accounts, _) = accounts();
        let full = accounts.first_start(|_| Err(io::ErrorKind::StorageFull.into())).await;
        assert!(matches!(full, Err(AccountError::Write(_))));
        assert!(accounts.list().await.unwrap().is_empty());
        assert!(accounts.first_start(|_| Ok(())).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn revoked_and_expired_tokens_end() {
        let (accounts, clock) = accounts();
        accounts.first_start(|_| Ok(())).await.unwrap();
        let new = NewKey {
            name: "ci".to_owned(),
            permissions: vec![Permission::TrainingRun],
            expires_in: Some(Duration::from_secs(60)),
        };
        let (_, brief) = accounts.create(new.clone(), None).await.unwrap();
        let (key, other) = accounts.create(NewKey { expires_in: None, ..new }, None).await.unwrap();
        let caller = accounts.authenticate(brief.expose()).await.unwrap();
        assert!(caller.allows(Permission::TrainingRun) && !caller.allows(Permission::Admin));
        clock.advance(Duration::from_secs(60));
        assert!(accounts.authenticate(brief.expose()).await.is_err());
        accounts.revoke(&key.id).await.unwrap();
        accounts.revoke(&key.id).await.unwrap();
        assert!(accounts.authenticate(other.expose()).await.is_err());
        let unknown = KeyId::new("key-none").unwrap();
        assert!(matches!(accounts.revoke(&unknown).await, Err(AccountError::NoSuchKey(_))));
    }
}
