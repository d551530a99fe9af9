//! The runner that ships with the program, published at the first start.

use runwhere_engine::Visibility;
use runwhere_model::{PrincipalId, ProjectId, WorkspaceId};

use super::git::synthetic;
use super::refusal::Refused;
use super::registry::{NewRevision, Publisher, Registry};

/// Its name.
const EXAMPLE: &str = "envloop/bash";
const MADE_AT: i64 = 1_790_000_000;

fn files() -> Vec<(String, Vec<u8>)> {
    vec![
        ("main.sh".to_owned(), include_bytes!("example/main.sh").to_vec()),
        ("runner.toml".to_owned(), include_bytes!("example/runner.toml").to_vec()),
    ]
}

/// Publishes the example runner, readable by everybody; a repeat is harmless. Its revision is a
/// real Git commit of the two files, the same on every installation of this version.
///
/// # Errors
/// The store's.
pub async fn publish_example(registry: &Registry) -> Result<String, Refused> {
    let files = files();
    let (revision, proof) = synthetic(&files, "The example runner", MADE_AT);
    let id = "default";
    let publisher = Publisher {
        workspace: WorkspaceId::new(id).map_err(Refused::internal)?,
        project: ProjectId::new(id).map_err(Refused::internal)?,
        principal: PrincipalId::new("admin").map_err(Refused::internal)?,
    };
    let new = NewRevision {
        name: EXAMPLE.to_owned(),
        revision: revision.clone(),
        files,
        proof,
        visibility: Visibility::Public,
        source_ref: "shipped".to_owned(),
    };
    registry.publish(&publisher, new).await?;
    Ok(revision)
}
