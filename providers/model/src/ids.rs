//! A type for each identifier, so that mixing them up does not compile.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        // Shared: an id is copied into everything that belongs to what it names.
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The identifier, if its characters and length allow it.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                let good = !text.is_empty()
                    && text.len() <= $max
                    && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:+-".contains(&b));
                if good { Ok(Self(text.into())) } else { Err(IdError { what: $what }) }
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

/// The text cannot be this kind of identifier.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a valid {what}: expected ASCII letters, digits and . _ : + -")]
pub struct IdError {
    /// Which identifier was wanted.
    pub what: &'static str,
}

id!(
    /// One account with one cloud, cluster or machine, for example `aws` or `local`.
    ProviderId, "provider id", 64
);
id!(
    /// This installation; every node carries it, foreign nodes are never touched.
    DeploymentId, "deployment id", 64
);
id!(
    /// A tenant.
    WorkspaceId, "workspace id", 128
);
id!(
    /// A part of a workspace; every row carries it.
    ProjectId, "project id", 128
);
id!(
    /// A person or program that acts.
    PrincipalId, "principal id", 128
);
id!(
    /// A credential (its name, not its secret).
    KeyId, "key id", 64
);
id!(
    /// A job: `job-` and 8 hexadecimal digits.
    JobId, "job id", 64
);
id!(
    /// A trial of a job.
    TrialId, "trial id", 64
);
id!(
    /// Our hold on one node for one attempt of one trial.
    LeaseId, "lease id", 64
);
id!(
    /// The provider's own name of a node.
    NodeId, "node id", 256
);
id!(
    /// An immutable manifest of a work directory's files.
    SyncId, "sync id", 64
);
