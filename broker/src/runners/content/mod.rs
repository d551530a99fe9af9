//! Content of profiles: recipes, datasets and plugins, and the profiles that name them.
//!
//! Content is a folder of files with a declaration, known by the SHA-256 of its manifest and
//! immutable. A [`Profile`] is what a request states; [`freeze`](freeze::freeze) holds it against
//! the runner, the permission for each reference and the parameters' schema, and makes of it what
//! the program finds in its folder.

mod declaration;
mod freeze;
mod profile;
mod reference;
mod schema;
mod shelf;

use super::canonical::canonical;
pub(crate) use freeze::{FrozenProfile, freeze};
pub use profile::Profile;
pub use reference::{ContentKind, ContentRef};
pub use shelf::NewContent;
pub(crate) use shelf::{MOST_FILES, address, approval_of, declaration_of, manifest_of};
