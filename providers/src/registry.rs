//! The connected providers of one server.

use std::collections::BTreeMap;
use std::sync::Arc;

use runwhere_model::ProviderId;

use crate::provider::Provider;

/// Providers by id. Passed in, never global.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    providers: BTreeMap<ProviderId, Arc<dyn Provider>>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider; returns the one that had its id, if any.
    pub fn add(&mut self, provider: Arc<dyn Provider>) -> Option<Arc<dyn Provider>> {
        self.providers.insert(provider.id().clone(), provider)
    }

    /// The provider of an id.
    pub fn get(&self, id: &ProviderId) -> Option<&Arc<dyn Provider>> {
        self.providers.get(id)
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.providers.values()
    }
}
