//! The price service inside this process, for price commands without a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use runwhere_broker::serve::{ConfigError, ServerConfig, listed};
use runwhere_model::{Lang, OfferKey, ProviderId};
use runwhere_pricing::{
    Audience, Change, FxTable, ImportOptions, ListRequest, Policy, PriceFolder, PriceOptions,
    PriceService, Query, Refresher, TaskType,
};
use runwhere_providers::{Clock, OfferSource, SystemClock};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::texts::{self, Text};

/// What is asked of a quote, here or on a server.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// GPU type, any model without.
    pub gpu_model: Option<String>,
    /// GPUs.
    pub gpu_count: u32,
    /// `training`, `inference` or `notebook`.
    pub task_type: String,
    /// Spot offers count.
    pub spot_allowed: bool,
    /// Highest price per hour in CNY.
    pub max_cny: Option<Decimal>,
    /// How many recommendations.
    pub top: u32,
    /// Only this provider.
    pub provider: Option<String>,
    /// Only this region.
    pub region: Option<String>,
    /// Only this two-letter country.
    pub country: Option<String>,
    /// Spot prices are raised by the risk that machines are taken back.
    pub reclaim: bool,
    /// Regions that come first.
    pub prefer_regions: Vec<String>,
    /// Only prices that are not too old.
    pub fresh_only: bool,
    /// How long it runs.
    pub hours: Option<Decimal>,
    /// With how much disk.
    pub disk_gib: Option<u32>,
}

/// Where the prices of this machine are, and by which settings.
#[derive(Clone, Debug)]
pub struct Place {
    home: PathBuf,
    config: PathBuf,
    lang: Lang,
}

impl Place {
    /// Prices below `home`; settings of a server in `config`, without it those of the server below
    /// `home`, where there is one.
    ///
    /// # Errors
    /// Exit code 2 for a file that is not there.
    pub fn new(home: &Path, config: Option<&Path>, lang: Lang) -> Outcome<Self> {
        if let Some(path) = config.filter(|path| !path.is_file()) {
            let text = texts::price_settings_missing(path.display());
            return Err(Failure::usage("server_config", text));
        }
        let own = || home.join("server").join("config.toml");
        let config = config.map_or_else(own, Path::to_owned);
        Ok(Self { home: home.to_owned(), config, lang })
    }

    fn folder(&self) -> PathBuf {
        self.home.join("prices")
    }

    fn settings(&self) -> Outcome<ServerConfig> {
        ServerConfig::read(&self.config).map_err(refused)
    }
}

fn refused(error: ConfigError) -> Failure {
    Failure::usage("server_config", texts::price_settings(error))
}

/// The prices of this machine: those that come with this program, and what was imported or read into the
/// price folder.
#[derive(Debug)]
pub struct LocalPrices {
    refresher: Arc<Refresher>,
    lang: Lang,
    kept: bool,
}

impl LocalPrices {
    /// Reads them; where there is no folder, none is made.
    ///
    /// # Errors
    /// Exit code 1 when the folder cannot be read, 2 for settings that cannot be used.
    pub fn read(place: &Place) -> Outcome<Self> {
        let folder = place.folder();
        let config = place.settings()?;
        Self::with(folder.exists().then_some(folder.as_path()), &config, Vec::new(), place.lang)
    }

    /// Opens them for a server that reads nothing from the network: quotes are kept where a folder can be made.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn offline(place: &Place) -> Outcome<Self> {
        // Where it cannot, the prices that come with the program are served all the same.
        let _ = std::fs::create_dir_all(place.folder());
        Self::read(place)
    }

    /// Opens them for writing, with the price lists that need no account and the settings' sources.
    ///
    /// # Errors
    /// Exit code 1 when the folder cannot be made or read, 2 for settings that cannot be used.
    pub fn open(place: &Place) -> Outcome<Self> {
        let mut config = place.settings()?;
        config.prices.public = true;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let listed = listed(&config, &place.config, &place.home, &clock, super::sources::foreign())
            .map_err(refused)?;
        Self::with(Some(&place.folder()), &config, listed, place.lang)
    }

    fn with(
        folder: Option<&Path>,
        config: &ServerConfig,
        listed: Vec<Arc<dyn OfferSource>>,
        lang: Lang,
    ) -> Outcome<Self> {
        let kept = folder.is_some();
        let folder = folder
            .map(PriceFolder::open)
            .transpose()
            .map_err(|error| Failure::other("prices_folder", texts::price_answer(error)))?;
        let fx = FxTable::new(&config.fx)
            .map_err(|error| Failure::usage("server_config", texts::price_settings(error)))?;
        let options = PriceOptions { folder, fx, ..PriceOptions::default() };
        let service = Arc::new(PriceService::new(Arc::new(SystemClock), options));
        Ok(Self { refresher: Arc::new(Refresher::new(service, listed)), lang, kept })
    }

    /// Whether there is more than what comes with the program.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// What the folder held and could not be read.
    #[must_use]
    pub fn damaged(&self) -> &[String] {
        self.service().damaged()
    }

    /// The runner of the sources.
    #[must_use]
    pub fn refresher(&self) -> &Arc<Refresher> {
        &self.refresher
    }

    fn service(&self) -> &PriceService {
        self.refresher.service()
    }

    /// As `GET /api/v1/comparison/summary`.
    ///
    /// # Errors
    /// None that a user could see.
    pub fn summary(&self) -> Outcome<Value> {
        json(&self.service().summary(Audience::Public))
    }

    /// As `GET /api/v1/prices/sources`.
    ///
    /// # Errors
    /// None that a user could see.
    pub fn sources(&self) -> Outcome<Value> {
        let mut status = self.refresher.status();
        // Nothing is read here, so no source is set up: what waits is what the last reading left.
        let waiting = self.service().kept_waiting();
        for source in &mut status {
            let of = waiting.iter().filter(|price| price.provider == source.provider);
            source.quarantined = of.count();
        }
        Ok(json!({"items": json(&status)?, "quarantine": json(&waiting)?}))
    }

    /// As `GET /api/v1/offers`.
    ///
    /// # Errors
    /// Exit code 2 for a filter that cannot be.
    pub fn offers(&self, request: &ListRequest) -> Outcome<Value> {
        let page = self.service().list(request, Audience::Public, self.lang);
        let page = page.map_err(|error| {
            Failure::usage("price_filter", Text::new(error.text(Lang::Zh), error.text(Lang::En)))
        })?;
        json(&page)
    }

    /// As `POST /api/v1/comparison/quote`.
    ///
    /// # Errors
    /// None that a user could see.
    pub fn quote(&self, question: &Question) -> Outcome<Value> {
        let mut query = Query::new(None, question.gpu_count);
        query.task_type = match question.task_type.as_str() {
            "inference" => TaskType::Inference,
            "notebook" => TaskType::Notebook,
            _ => TaskType::Training,
        };
        query.spot_allowed = question.spot_allowed;
        query.max_hourly_price = question.max_cny;
        query.top_n = question.top as usize;
        query.provider.clone_from(&question.provider);
        query.region.clone_from(&question.region);
        query.country.clone_from(&question.country);
        query.policy = if question.reclaim { Policy::Reclaim } else { Policy::Price };
        query.prefer_regions.clone_from(&question.prefer_regions);
        query.fresh_only = question.fresh_only;
        query.hours = question.hours;
        query.disk_gib = question.disk_gib;
        json(&self.service().quote_named(question.gpu_model.as_deref(), query, self.lang))
    }

    /// As `GET /api/v1/prices/offer`.
    ///
    /// # Errors
    /// Exit code 2 for a name that is no offer's.
    pub fn offer(&self, name: &str) -> Outcome<Value> {
        let assessed = self.service().resolve(name).map_err(|error| {
            Failure::usage("offer_unknown", Text::new(error.text(Lang::Zh), error.text(Lang::En)))
        })?;
        let row = self.service().row(&assessed.entry, self.lang);
        let reasons = runwhere_pricing::quote::reasons(&assessed);
        let text = runwhere_pricing::reason::join(&reasons, self.lang);
        Ok(json!({"offer": json(&row)?, "reasons": json(&reasons)?, "reason": text}))
    }

    /// Imports a file; what it replaces and holds.
    ///
    /// # Errors
    /// Exit code 2 for a file that cannot be used, 1 where its prices cannot be kept.
    pub fn import(&self, bytes: &[u8], options: &ImportOptions) -> Outcome<Value> {
        let now = SystemClock.now();
        let imported = runwhere_pricing::import(bytes, options).map_err(|error| {
            Failure::usage("import_failed", texts::price_import_failed(error))
                .hint(texts::price_import_hint())
        })?;
        let imported = imported.read_by(now);
        let (rows, without_gpu) = (imported.rows, imported.without_gpu);
        let rejected: Vec<Value> = imported
            .rejected
            .iter()
            .map(|row| json!({"row": row.row, "reason": row.reason}))
            .collect();
        let layout = format!("{:?}", imported.layout).to_lowercase();
        let mut items = Vec::new();
        for (provider, sheet) in imported.into_sheets(now) {
            let offers = sheet.offers.len();
            let unmapped = sheet.offers.iter().filter(|offer| offer.gpu.is_none()).count();
            self.refresher.import(&provider, sheet);
            items.push(json!({"provider": provider, "offers": offers, "unmapped": unmapped}));
        }
        self.refresher
            .keep()
            .map_err(|error| Failure::other("prices_folder", texts::price_not_kept(error)))?;
        Ok(json!({
            "items": items, "layout": layout, "rows": rows, "without_gpu": without_gpu,
            "rejected": rejected,
        }))
    }

    /// Reads sources now.
    ///
    /// # Errors
    /// Exit code 2 for a source that there is not.
    pub async fn refresh(&self, provider: Option<&str>) -> Outcome<Value> {
        let outcomes = match provider {
            None => self.refresher.refresh_all().await,
            Some(name) => {
                let id = ProviderId::new(name).map_err(|_| unknown_source(name))?;
                let outcome = self.refresher.refresh(&id).await;
                vec![(id, outcome.map_err(|_| unknown_source(name))?)]
            }
        };
        let mut items = Vec::new();
        for (provider, outcome) in &outcomes {
            items.push(json!({"provider": provider, "outcome": json(outcome)?}));
        }
        Ok(json!({
            "items": items, "sources": json(&self.refresher.status())?,
            "quarantine": json(&self.refresher.waiting())?,
        }))
    }

    /// As `GET /api/v1/prices/changes`, newest first.
    ///
    /// # Errors
    /// Exit code 1 when the folder cannot be read.
    pub fn changes(&self, provider: &ProviderId, key: Option<&OfferKey>) -> Outcome<Value> {
        let changes = self
            .service()
            .changes(provider)
            .map_err(|error| Failure::other("prices_folder", texts::price_answer(error)))?;
        let kept =
            changes.into_iter().filter(|change| key.is_none_or(|key| change.offer_key == *key));
        let mut items: Vec<Change> = kept.collect();
        items.reverse();
        Ok(json!({"total": items.len(), "items": json(&items)?}))
    }

    /// As `GET /api/v1/prices/diff`.
    ///
    /// # Errors
    /// Exit code 2 for a state that is not kept.
    pub fn diff(&self, from: &str, to: Option<&str>) -> Outcome<Value> {
        let state = |id: &str| {
            self.service().state(id).ok_or_else(|| {
                Failure::usage("state_unknown", texts::price_no_state(id))
                    .hint(texts::price_no_state_hint())
            })
        };
        let from = state(from)?;
        let to = to.map_or_else(|| Ok(self.service().catalogue()), state)?;
        let items = to.changes_since(&from);
        Ok(json!({
            "total": items.len(), "items": json(&items)?, "from": from.state_id(), "to": to.state_id(),
        }))
    }

    /// As `GET /api/v1/prices/states`.
    ///
    /// # Errors
    /// Exit code 1 when the folder cannot be read.
    pub fn states(&self) -> Outcome<Value> {
        let states = self
            .service()
            .states()
            .map_err(|error| Failure::other("prices_folder", texts::price_answer(error)))?;
        let items: Vec<Value> =
            states.into_iter().map(|(id, at)| json!({"state_id": id, "kept_at": at})).collect();
        Ok(json!({"items": items, "current": self.service().catalogue().state_id()}))
    }

    /// As `GET /api/v1/prices/fx`.
    #[must_use]
    pub fn fx(&self) -> Value {
        let catalogue = self.service().catalogue();
        let items = catalogue.fx().listed(SystemClock.now());
        json!({"items": items, "max_age_days": catalogue.fx().max_age_days()})
    }

    /// Keeps the present state, to compare with it later.
    pub fn keep_state(&self) {
        self.service().keep_state();
    }
}

fn unknown_source(name: &str) -> Failure {
    Failure::usage("source_unknown", texts::price_source_unknown(name))
        .hint(texts::price_source_unknown_hint())
}

fn json(answer: &impl Serialize) -> Outcome<Value> {
    serde_json::to_value(answer)
        .map_err(|error| Failure::other("price_answer", texts::price_answer(error)))
}
