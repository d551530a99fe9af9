//! Harbour against the suite that every provider must pass, and what the suite cannot know of.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harbour_provider::{Harbour, HarbourConfig};
use jiff::Timestamp;
use runwhere_providers::model::{
    Bootstrap, DeploymentId, Effect, ErrorKind, GpuCount, LaunchRequest, LeaseId, Money, NodePhase,
    ProjectId, ProviderId, Secret, TrialId,
};
use runwhere_providers::testing::ManualClock;
use runwhere_providers::testing::conformance::{Subject, assert_conforms};
use runwhere_providers::{Clock, Provider};

struct Account {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    harbour: Harbour,
}

fn open(folder: PathBuf, deployment: &str, clock: Arc<ManualClock>) -> Harbour {
    let config = HarbourConfig {
        id: ProviderId::new("harbour").unwrap(),
        deployment: DeploymentId::new(deployment).unwrap(),
        folder,
    };
    Harbour::open(config, clock).unwrap()
}

fn account() -> Account {
    let folder = tempfile::tempdir().unwrap();
    let flavors = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/flavors.json");
    std::fs::copy(flavors, folder.path().join("flavors.json")).unwrap();
    let clock = Arc::new(ManualClock::default());
    let harbour = open(folder.path().to_owned(), "ours", clock.clone());
    Account { folder, clock, harbour }
}

#[async_trait]
impl Subject for Account {
    fn provider(&self) -> &dyn Provider {
        &self.harbour
    }

    fn request(&self, number: u32) -> LaunchRequest {
        LaunchRequest {
            deployment: DeploymentId::new("ours").unwrap(),
            lease: LeaseId::new(format!("lease-{number}")).unwrap(),
            project: ProjectId::new("project").unwrap(),
            trial: TrialId::new("trial").unwrap(),
            token: format!("token-{number}"),
            offer: "harbour/north/-/on_demand/skiff.1".parse().unwrap(),
            gpus: GpuCount::whole(1).unwrap(),
            gpu_model: None,
            ceiling: "2 EUR".parse::<Money>().unwrap().into(),
            end_by: None,
            labels: [("purpose".to_owned(), "test".to_owned())].into(),
            bootstrap: Bootstrap {
                broker_url: "https://broker.invalid".to_owned(),
                lease_token: Secret::new("the-secret-token"),
                agent_sha256: None,
                ca_pem: None,
                agent_ttl_seconds: 3600,
            },
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span).await;
    }

    fn time_is_free(&self) -> bool {
        true
    }

    async fn launch_foreign(&self, number: u32) -> bool {
        let theirs = open(self.folder.path().to_owned(), "theirs", self.clock.clone());
        let deployment = DeploymentId::new("theirs").unwrap();
        theirs.launch(&LaunchRequest { deployment, ..self.request(number) }).await.is_ok()
    }
}

#[tokio::test]
async fn harbour_conforms() {
    let report = assert_conforms(&account()).await;
    // The other kinds of identity or of a bill, and nothing else.
    let skipped = [
        "a_token_launches_once",
        "a_token_with_other_parameters_is_refused",
        "find_shows_every_node_of_a_lease",
        "a_refused_end_says_until_when",
        "usage_is_the_providers_bill",
    ];
    assert_eq!(report.skipped(), skipped);
}

#[tokio::test]
async fn two_launches_at_once_make_one_machine() {
    let account = account();
    let request = account.request(1);
    let (one, two) =
        tokio::join!(account.harbour.launch(&request), account.harbour.launch(&request));
    let mut results = [one, two];
    results.sort_by_key(Result::is_err);
    let [Ok(launched), Err(error)] = results else { panic!("{results:?}") };
    assert_eq!((error.kind, error.effect), (ErrorKind::Conflict, Effect::None));
    let found = account.harbour.find(&request.lease).await.unwrap();
    assert_eq!(found.nodes.len(), 1);
    assert_eq!(found.nodes[0].node, launched.node);
}

#[tokio::test]
async fn the_cloud_ends_what_is_forgotten() {
    let account = account();
    let end_by = Some(account.now().checked_add(Duration::from_secs(60)).unwrap());
    let request = LaunchRequest { end_by, ..account.request(1) };
    let node = account.harbour.launch(&request).await.unwrap().node;
    account.pass(Duration::from_secs(59)).await;
    assert_eq!(account.harbour.describe(&node).await.unwrap().phase, NodePhase::Running);
    account.pass(Duration::from_secs(3)).await;
    let state = account.harbour.describe(&node).await.unwrap();
    assert_eq!((state.phase, state.stopped_at), (NodePhase::Gone, end_by));
}

#[tokio::test]
async fn a_machine_that_cannot_be_read_makes_absence_prove_nothing() {
    let account = account();
    std::fs::write(account.folder.path().join("orders/torn.json"), "{").unwrap();
    let request = account.request(1);
    let found = account.harbour.find(&request.lease).await.unwrap();
    assert!(found.nodes.is_empty() && !found.complete);
}

#[tokio::test]
async fn no_secret_is_shown() {
    let account = account();
    let request = account.request(1);
    account.harbour.launch(&request).await.unwrap();
    let error = account.harbour.launch(&request).await.unwrap_err();
    for text in [format!("{:?}", account.harbour), format!("{error:?}"), error.to_string()] {
        assert!(!text.contains("the-secret-token"), "{text}");
    }
}
