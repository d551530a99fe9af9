//! What the sources of prices share: settings, the sheet they fill, and the making of all of them.

mod amount;
mod build;
mod keys;
mod regions;
mod secret;
mod settings;
mod sheet;

pub(crate) use amount::state as amount_state;
pub use amount::{count, gib_to_mib, hourly, one_gpu_mib, whole};
pub use build::{Foreign, ForeignFn, SourceContext, no_foreign, public_settings, sources};
pub use keys::{AccessKeys, KeyPart};
pub use regions::{RegionsRead, wanted};
pub use secret::SecretSetting;
pub use settings::{AwsSettings, SettingError, SourceSettings, base_url};
pub use sheet::{Listing, SheetBuilder};

#[cfg(test)]
pub(crate) mod tests;
