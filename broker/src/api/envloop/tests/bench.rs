use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use runwhere_agent::protocol::Digest;
use runwhere_engine::{FrozenImage, Permission, Policy, Project, Quota};
use runwhere_model::{DeploymentId, ProjectId, Secret, WorkspaceId};
use runwhere_providers::testing::{ManualClock, SimCloud, SimProfile};
use runwhere_providers::{Clock, Registry};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::super::{EnvloopParts, router};
use crate::accounts::{Accounts, Caller, NewKey};
use crate::api::text::words;
use crate::blobs::Blobs;
use crate::driver::{Core, CoreParts};
use crate::jobs::Jobs;
use crate::jobs::tests::{Sheet, offer};
use crate::logs::Logs;
use crate::ports::{NoPlatformLog, SystemIds, Unbounded};
use crate::runners::{
    GitProof, ImageProblem, Images, NewRevision, Publisher, Registry as Runners, ResolvedImage,
    Training,
};
use crate::store::{MemoryStore, Row, Store, Transition, sample};

/// Every image is there, but for those of two registries.
#[derive(Debug)]
struct AllImages;

#[async_trait]
impl Images for AllImages {
    async fn resolve(&self, reference: &str) -> Result<ResolvedImage, ImageProblem> {
        let image = reference.to_owned();
        if image.starts_with("private.example/") {
            return Err(ImageProblem::NotPublic(image));
        }
        if image.starts_with("busy.example/") {
            let reason = words!("它返回了 503", "it answered 503");
            return Err(ImageProblem::Registry { image, reason, retry_after: Some(7) });
        }
        let frozen = FrozenImage {
            requested: reference.to_owned(),
            repository: "registry/image".to_owned(),
            digest: format!("sha256:{}", Digest::of(reference.as_bytes())),
        };
        Ok(ResolvedImage { frozen })
    }
}

/// A server without listening, with the tenants `default` and `acme` (project `other`).
pub(super) struct Bench {
    pub(super) app: Router,
    pub(super) accounts: Accounts,
    pub(super) store: Arc<MemoryStore>,
    pub(super) jobs: Arc<Jobs>,
    pub(super) runners: Runners,
    pub(super) logs: Logs,
    /// A key with all permissions of the project `default`.
    pub(super) key: String,
    clock: Arc<ManualClock>,
    folder: TempDir,
}

/// A reply, read.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Value,
    pub(super) bytes: Vec<u8>,
}

impl Reply {
    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.bytes));
        self.body
    }

    /// The code of a refusal with this status and its sentence.
    #[track_caller]
    pub(super) fn refused(self, status: u16, code: &str) -> String {
        let body = self.expect(status);
        let message = body["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(body["code"], code, "{message}");
        assert!(!message.is_empty() && !message.contains(['[', ']']), "{message}");
        message
    }
}

fn serve(
    store: &Arc<MemoryStore>,
    clock: &Arc<ManualClock>,
    folder: &Path,
) -> (Router, Arc<Jobs>, Runners, Logs) {
    let ids = Arc::new(SystemIds);
    let accounts = Accounts::new(store.clone(), clock.clone(), ids.clone());
    let mut registry = Registry::new();
    let deployment = DeploymentId::new("rw-test").unwrap();
    let cloud = SimCloud::new(SimProfile::token(), deployment.clone(), clock.clone());
    registry.add(Arc::new(cloud.named("sim".parse().unwrap())));
    let sheet = Sheet(vec![offer("sim/-/-/on_demand/h100", 1, "20", true)]);
    let core = Core::new(CoreParts {
        store: store.clone(),
        registry,
        prices: Arc::new(sheet),
        clock: clock.clone(),
        ids,
        log: Arc::new(NoPlatformLog),
        policy: Policy::default(),
        deployment,
        broker_url: "http://127.0.0.1:1".to_owned(),
        ca_pem: None,
        token_key: Secret::new("key"),
    });
    let blobs = Blobs::open(folder.join("blobs")).unwrap();
    let clock: Arc<dyn Clock> = clock.clone();
    let logs = Logs::open(folder.join("logs"), 1 << 20, clock.clone()).unwrap();
    let runners = Runners::new(store.clone(), blobs.clone(), clock.clone());
    let jobs = Arc::new(Jobs::new(core.clone(), true));
    let training =
        Training::new(core, runners.clone(), Arc::new(AllImages), Arc::new(Unbounded), true);
    let app = router(EnvloopParts {
        training: Arc::new(training),
        store: store.clone(),
        blobs,
        logs: logs.clone(),
        accounts,
        clock,
        key: Secret::new("server key"),
        public_url: None,
        secure: false,
    });
    (app, jobs, runners, logs)
}

impl Bench {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(sample::at(7200)));
        let store = Arc::new(MemoryStore::new());
        let ids = Arc::new(SystemIds);
        let accounts = Accounts::new(store.clone(), clock.clone(), ids.clone());
        accounts.first_start(|_| Ok(())).await.unwrap();
        let other = ProjectId::new("other").unwrap();
        let acme = WorkspaceId::new("acme").unwrap();
        accounts.make_project(other, Some(acme)).await.unwrap();
        let (app, jobs, runners, logs) = serve(&store, &clock, folder.path());
        let key = String::new();
        let bench = Self { app, accounts, store, jobs, runners, logs, key, clock, folder };
        let key = bench.new_key("default", &[Permission::Admin]).await;
        Self { key, ..bench }
    }

    /// What the server stores files in.
    pub(super) fn blobs(&self) -> Blobs {
        Blobs::open(self.folder.path().join("blobs")).unwrap()
    }

    /// Another server on what is stored.
    pub(super) fn restart(&mut self) {
        let started = serve(&self.store, &self.clock, self.folder.path());
        (self.app, self.jobs, self.runners, self.logs) = started;
    }

    pub(super) async fn new_key(&self, project: &str, permissions: &[Permission]) -> String {
        let new =
            NewKey { name: "test".into(), permissions: permissions.to_vec(), expires_in: None };
        let project = ProjectId::new(project).unwrap();
        let kind = runwhere_engine::KeyKind::Envloop;
        let made = self.accounts.create_kind(new, Some(&project), kind).await.unwrap();
        made.1.expose().to_owned()
    }

    pub(super) async fn caller(&self, key: &str) -> Caller {
        self.accounts.authenticate_envloop(key).await.unwrap()
    }

    pub(super) async fn limit_gpus(&self, project: &str, limit: u32) {
        let id = ProjectId::new(project).unwrap();
        let row = self.store.project(&id).await.unwrap().unwrap();
        let quota = Quota { hard_limit: Some(limit), ..row.quota.clone() };
        let rows = vec![Row::Project(Project { quota, ..row })];
        self.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
    }

    /// As a client that asks for English.
    pub(super) async fn call(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> Reply {
        self.call_in(Some("en"), key, method, path, body).await
    }

    /// As a client that asks for a language, or for none.
    pub(super) async fn call_in(
        &self,
        language: Option<&str>,
        key: &str,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        if !key.is_empty() {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        if let Some(language) = language {
            request = request.header("accept-language", language);
        }
        let request = request.body(body.into()).unwrap();
        let response = self.app.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Reply { status, body, bytes }
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.call(&self.key, "GET", path, Body::empty()).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call(&self.key, "POST", path, body.to_string()).await
    }

    pub(super) async fn submit(&self, spec: Value) -> Reply {
        self.post("/v1/jobs", &json!({ "spec": spec })).await
    }

    /// Uploads files and publishes them.
    pub(super) async fn publish_as(
        &self,
        key: &str,
        path: &str,
        version: Option<&str>,
        files: &[(&str, &str)],
        visibility: &str,
    ) -> Reply {
        let mut listed = Vec::new();
        for (name, content) in files {
            let sha256 = Digest::of(content.as_bytes()).to_string();
            let place = format!("/v1/content/files/{sha256}?size={}", content.len());
            self.call(key, "PUT", &place, (*content).to_owned()).await.expect(200);
            listed.push(json!({ "path": name, "sha256": sha256, "size": content.len() }));
        }
        let body = json!({ "version": version, "files": listed, "visibility": visibility });
        self.call(key, "POST", &format!("/v1/content/{path}/versions"), body.to_string()).await
    }

    pub(super) async fn publish(
        &self,
        path: &str,
        version: Option<&str>,
        files: &[(&str, &str)],
    ) -> Value {
        self.publish_as(&self.key, path, version, files, "workspace").await.expect(201)
    }

    /// A runner of the project `default`; its selector.
    pub(super) async fn runner(&self, name: &str, more: &str) -> String {
        let config = format!(
            "[execution]\nentrypoint = \"main.sh\"\nimage = \"image:1\"\nparameters = [\"run_command\"]\n{more}\n\
             [resources]\ngpu_type = \"H100\"\ngpus = 1\n"
        );
        let files = vec![
            ("main.sh".to_owned(), b"true\n".to_vec()),
            ("runner.toml".to_owned(), config.into_bytes()),
        ];
        let (revision, proof): (String, GitProof) =
            crate::runners::synthetic(&files, "test", 1_790_000_000);
        let publisher = Publisher::from(&self.caller(&self.key).await);
        let new = NewRevision {
            name: name.to_owned(),
            revision: revision.clone(),
            files,
            proof,
            visibility: runwhere_engine::Visibility::Public,
            source_ref: String::new(),
        };
        self.runners.publish(&publisher, new).await.unwrap();
        format!("{name}@{revision}")
    }
}
