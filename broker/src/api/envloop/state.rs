//! What the routes share, and who calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::http::request::Parts;
use runwhere_engine::Permission;
use runwhere_model::Secret;
use runwhere_providers::Clock;

use super::answer::Error;
use super::login::Grants;
use super::lora::{Lora, Unfit};
use super::replies::Replies;
use crate::accounts::{Accounts, Caller};
use crate::api::state::bearer;
use crate::api::text::words;
use crate::blobs::Blobs;
use crate::driver::Core;
use crate::logs::Logs;
use crate::runners::{Code, Refused, Registry, Training};
use crate::store::Store;

/// The broker as these routes see it.
#[derive(Debug)]
pub struct EnvloopParts {
    /// Jobs.
    pub training: Arc<Training>,
    /// Rows.
    pub store: Arc<dyn Store>,
    /// File contents.
    pub blobs: Blobs,
    /// Logs.
    pub logs: Logs,
    /// Keys.
    pub accounts: Accounts,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The server's key, for download addresses.
    pub key: Secret,
    /// How clients reach the server; the address they used without.
    pub public_url: Option<String>,
    /// The server speaks TLS.
    pub secure: bool,
}

#[derive(Debug)]
pub(super) struct El {
    pub(super) parts: EnvloopParts,
    pub(super) grants: Grants,
    pub(super) replies: Replies,
    /// What was found in outputs that may be adapters, by checkpoint.
    pub(super) adapters: Mutex<HashMap<String, Result<Lora, Unfit>>>,
}

impl El {
    pub(super) fn new(parts: EnvloopParts) -> Self {
        Self {
            parts,
            grants: Grants::default(),
            replies: Replies::default(),
            adapters: Mutex::default(),
        }
    }

    pub(super) fn registry(&self) -> &Registry {
        self.parts.training.registry()
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        self.parts.training.core()
    }

    /// The base of our own addresses, without a slash at its end.
    pub(super) fn base_url(&self, headers: &HeaderMap) -> String {
        if let Some(url) = &self.parts.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        let scheme = if self.parts.secure { "https" } else { "http" };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let plain =
            |host: &&str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
        format!("{scheme}://{}", host.filter(plain).unwrap_or("127.0.0.1"))
    }
}

/// The key is of another workspace than is named.
pub(super) fn other_workspace() -> Error {
    let why = words!("此 key 不属于该工作区", "the key is not of this workspace");
    Error::new(Code::WorkspaceDenied, why)
}

/// The key is of another project than is named.
pub(super) fn other_project() -> Error {
    let why = words!("此 key 不属于该项目", "the key is not of this project");
    Error::new(Code::ProjectDenied, why)
}

/// The caller of a route.
#[derive(Clone, Debug)]
pub(super) struct Signed(pub(super) Caller);

impl Signed {
    /// The caller, if the key allows one of these.
    pub(super) fn any(self, permissions: &[Permission]) -> Result<Caller, Error> {
        if permissions.iter().any(|permission| self.0.allows(*permission)) {
            return Ok(self.0);
        }
        let first = permissions.first().copied().unwrap_or(Permission::Admin);
        Err(Error(Refused::lacking(first)))
    }

    /// The caller, if it may see jobs.
    pub(super) fn reads_jobs(self) -> Result<Caller, Error> {
        self.any(&[Permission::JobRead, Permission::TrainingRun, Permission::TrainingStop])
    }
}

impl FromRequestParts<Arc<El>> for Signed {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, el: &Arc<El>) -> Result<Self, Error> {
        let missing = || {
            Error::new(Code::Unauthenticated, words!("请求没有带 API key", "no API key was sent"))
        };
        let token = bearer(&parts.headers).ok_or_else(missing)?;
        let caller = el.parts.accounts.authenticate_envloop(token).await?;
        let named = |name: &str| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .filter(|id| !id.is_empty())
        };
        if named("x-workspace-id").is_some_and(|id| id != caller.workspace.as_str()) {
            return Err(other_workspace());
        }
        if named("x-project-id").is_some_and(|id| id != caller.project.as_str()) {
            return Err(other_project());
        }
        Ok(Self(caller))
    }
}
