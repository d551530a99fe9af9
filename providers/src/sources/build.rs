//! All configured sources.

use std::collections::BTreeMap;
use std::sync::Arc;

use runwhere_model::ProviderId;

use super::settings::{SettingError, SourceSettings};
use crate::clock::Clock;
use crate::http::{Http, HttpClient, PageCache};
use crate::provider::OfferSource;
use crate::{
    aliyun, azure, crusoe, digitalocean, gcp, huawei, lambda, oci, runpod, tencent, vast, verda,
    vultr,
};

/// What the sources are built with.
pub struct SourceContext<'a> {
    /// The shared client.
    pub client: &'a HttpClient,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Pages read before.
    pub cache: Arc<dyn PageCache>,
    /// The environment's variables.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

impl SourceContext<'_> {
    /// A provider's way to its API.
    pub fn http(&self, provider: &ProviderId) -> Http {
        Http::new(provider.clone(), self.client, Arc::clone(&self.clock))
            .with_cache(Arc::clone(&self.cache))
    }
}

/// Builds what other packages own; `None` where it does not know the kind.
pub type Foreign<'a> = dyn Fn(
        &ProviderId,
        &SourceSettings,
        &SourceContext<'_>,
    ) -> Option<Result<Arc<dyn OfferSource>, SettingError>>
    + 'a;

/// A [`Foreign`] that is passed on by value.
pub type ForeignFn = fn(
    &ProviderId,
    &SourceSettings,
    &SourceContext<'_>,
) -> Option<Result<Arc<dyn OfferSource>, SettingError>>;

/// Knows no other package.
pub fn no_foreign(
    _id: &ProviderId,
    _settings: &SourceSettings,
    _context: &SourceContext<'_>,
) -> Option<Result<Arc<dyn OfferSource>, SettingError>> {
    None
}

/// The sources of the settings, in the order of their ids.
pub fn sources(
    settings: &BTreeMap<ProviderId, SourceSettings>,
    context: &SourceContext<'_>,
    foreign: &Foreign<'_>,
) -> Result<Vec<Arc<dyn OfferSource>>, SettingError> {
    settings
        .iter()
        .map(|(id, settings)| {
            source(id, settings, context, foreign).map_err(|error| SettingError {
                field: format!("providers.{id}.{}", error.field),
                ..error
            })
        })
        .collect()
}

fn source(
    id: &ProviderId,
    settings: &SourceSettings,
    context: &SourceContext<'_>,
    foreign: &Foreign<'_>,
) -> Result<Arc<dyn OfferSource>, SettingError> {
    Ok(match settings {
        SourceSettings::Aliyun(settings) => Arc::new(aliyun::Aliyun::new(id, settings, context)?),
        SourceSettings::Aws(_) => match foreign(id, settings, context) {
            Some(built) => built?,
            None => {
                return Err(SettingError::new(
                    "kind",
                    "this program was built without AWS; build it with the feature aws",
                ));
            }
        },
        SourceSettings::Azure(settings) => Arc::new(azure::Azure::new(id, settings, context)?),
        SourceSettings::Crusoe(settings) => Arc::new(crusoe::Crusoe::new(id, settings, context)?),
        SourceSettings::DigitalOcean(settings) => {
            Arc::new(digitalocean::DigitalOcean::new(id, settings, context)?)
        }
        SourceSettings::Gcp(settings) => Arc::new(gcp::Gcp::new(id, settings, context)?),
        SourceSettings::Huawei(settings) => Arc::new(huawei::Huawei::new(id, settings, context)?),
        SourceSettings::Lambda(settings) => Arc::new(lambda::Lambda::new(id, settings, context)?),
        SourceSettings::Oci(settings) => Arc::new(oci::Oci::new(id, settings, context)?),
        SourceSettings::RunPod(settings) => Arc::new(runpod::RunPod::new(id, settings, context)?),
        SourceSettings::Tencent(settings) => {
            Arc::new(tencent::Tencent::new(id, settings, context)?)
        }
        SourceSettings::Vast(settings) => Arc::new(vast::Vast::new(id, settings, context)?),
        SourceSettings::Verda(settings) => Arc::new(verda::Verda::new(id, settings, context)?),
        SourceSettings::Vultr(settings) => Arc::new(vultr::Vultr::new(id, settings, context)?),
    })
}

/// The sources that need no account, with their defaults: what `price refresh` reads where nothing
/// is configured.
pub fn public_settings() -> BTreeMap<ProviderId, SourceSettings> {
    [
        ("azure", SourceSettings::Azure(azure::Settings::default())),
        ("oci", SourceSettings::Oci(oci::Settings::default())),
        ("runpod", SourceSettings::RunPod(runpod::Settings::default())),
        ("vast", SourceSettings::Vast(vast::Settings::default())),
        ("vultr", SourceSettings::Vultr(vultr::Settings::default())),
    ]
    .into_iter()
    .filter_map(|(id, settings)| Some((ProviderId::new(id).ok()?, settings)))
    .collect()
}
