//! The runners that ship with the program, published at the first start.

use runwhere_engine::Visibility;
use runwhere_model::{PrincipalId, ProjectId, WorkspaceId};

use super::git::synthetic;
use super::refusal::Refused;
use super::registry::{NewRevision, Publisher, Registry};

const MADE_AT: i64 = 1_790_000_000;

/// A shipped runner.
struct Example {
    name: &'static str,
    files: [(&'static str, &'static [u8]); 2],
}

/// Later ones are listed first: the one for everybody is last.
const EXAMPLES: [Example; 2] = [
    Example {
        name: "envloop/recipe",
        files: [
            ("main.py", include_bytes!("example/recipe/main.py")),
            ("runner.toml", include_bytes!("example/recipe/runner.toml")),
        ],
    },
    Example {
        name: "envloop/bash",
        files: [
            ("main.sh", include_bytes!("example/bash/main.sh")),
            ("runner.toml", include_bytes!("example/bash/runner.toml")),
        ],
    },
];

/// Publishes the example runners, readable by everybody; a repeat is harmless. Their revisions are
/// real Git commits of their two files, the same on every installation of this version.
///
/// # Errors
/// The store's.
pub async fn publish_examples(registry: &Registry) -> Result<(), Refused> {
    let id = "default";
    let publisher = Publisher {
        workspace: WorkspaceId::new(id).map_err(Refused::internal)?,
        project: ProjectId::new(id).map_err(Refused::internal)?,
        principal: PrincipalId::new("admin").map_err(Refused::internal)?,
    };
    for example in EXAMPLES {
        let files: Vec<(String, Vec<u8>)> = example
            .files
            .into_iter()
            .map(|(name, content)| (name.to_owned(), content.to_vec()))
            .collect();
        let (revision, proof) = synthetic(&files, "The example runner", MADE_AT);
        let new = NewRevision {
            name: example.name.to_owned(),
            revision,
            files,
            proof,
            visibility: Visibility::Public,
            source_ref: "shipped".to_owned(),
        };
        registry.publish(&publisher, new).await?;
    }
    Ok(())
}
