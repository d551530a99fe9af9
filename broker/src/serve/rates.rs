//! Exchange rates that change while the server runs: the reference rates of the ECB, and the operator's file.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runwhere_model::{ProviderError, ProviderId};
use runwhere_pricing::{ECB_DAILY, FxSettings, FxTable, PriceService, read_ecb};
use runwhere_providers::Clock;
use runwhere_providers::http::{Http, HttpClient, Request};

/// They are published once a working day.
const EVERY: SignedDuration = SignedDuration::from_hours(6);
/// How often the operator's file is read.
const LOOK: Duration = Duration::from_secs(60);

/// Why rates were not read.
#[derive(Debug, thiserror::Error)]
enum RateError {
    #[error(transparent)]
    Call(#[from] ProviderError),
    #[error("{0}")]
    Document(String),
}

/// Keeps the rates fresh, for ever; a failure leaves the last ones, which age.
pub(super) async fn keep_rates(
    prices: Arc<PriceService>,
    settings: FxSettings,
    mut configured: FxTable,
    ecb: bool,
    clock: Arc<dyn Clock>,
) {
    let mut reference = Vec::new();
    let mut asked: Option<Timestamp> = None;
    let mut served = configured.clone();
    loop {
        let now = clock.now();
        if ecb && asked.is_none_or(|at| now.duration_since(at) >= EVERY) {
            asked = Some(now);
            match read(&clock).await {
                Ok(rates) => reference = rates,
                Err(error) => {
                    tracing::warn!(%error, "The ECB's rates could not be read; the last ones stay")
                }
            }
        }
        if settings.file.is_some() {
            let settings = settings.clone();
            match tokio::task::spawn_blocking(move || FxTable::new(&settings)).await {
                Ok(Ok(table)) => configured = table,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "The file of exchange rates cannot be used; the last rates stay")
                }
                Err(error) => tracing::error!(%error, "The file of exchange rates was not read"),
            }
        }
        let table = configured.clone().with(reference.iter().cloned());
        if table != served {
            prices.replace_fx(table.clone());
            served = table;
        }
        clock.sleep(LOOK).await;
    }
}

async fn read(clock: &Arc<dyn Clock>) -> Result<Vec<runwhere_pricing::FxRate>, RateError> {
    let document = |error: &dyn std::fmt::Display| RateError::Document(error.to_string());
    let client = HttpClient::new().map_err(|error| document(&error))?;
    let id = ProviderId::new("ecb").map_err(|error| document(&error))?;
    let http = Http::new(id, &client, Arc::clone(clock));
    let body = http.session().bytes("daily rates", |_| Request::get(ECB_DAILY)).await?;
    let text = std::str::from_utf8(&body).map_err(|error| document(&error))?;
    read_ecb(text).map_err(|error| document(&error))
}
