//! Price lists that are read without launching anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use runwhere_model::ProviderId;
use runwhere_providers::http::{FolderCache, HttpClient};
use runwhere_providers::sources::{
    ForeignFn, SourceContext, SourceSettings, public_settings, sources,
};
use runwhere_providers::{Clock, OfferSource};

use super::config::{ConfigError, ServerConfig};

/// The sources that the settings name. Pages that were read before lie in `prices/pages` below `data`.
pub fn listed(
    config: &ServerConfig,
    path: &Path,
    data: &Path,
    clock: &Arc<dyn Clock>,
    foreign: ForeignFn,
) -> Result<Vec<Arc<dyn OfferSource>>, ConfigError> {
    let refused = |field: String, message: String| ConfigError::Field {
        path: path.to_owned(),
        field,
        message,
    };
    let mut settings: BTreeMap<ProviderId, SourceSettings> =
        if config.prices.public { public_settings() } else { BTreeMap::new() };
    for (id, source) in &config.providers {
        let provider = ProviderId::new(id)
            .map_err(|error| refused(format!("providers.{id}"), error.to_string()))?;
        settings.insert(provider, source.clone());
    }
    if settings.is_empty() {
        return Ok(Vec::new());
    }
    let client = HttpClient::new().map_err(|error| refused("providers".to_owned(), error))?;
    let context = SourceContext {
        client: &client,
        clock: Arc::clone(clock),
        cache: Arc::new(FolderCache::new(data.join("prices").join("pages"))),
        env: &|name| std::env::var(name).ok(),
    };
    sources(&settings, &context, &foreign)
        .map_err(|error| refused(error.field.clone(), error.reason.clone()))
}
