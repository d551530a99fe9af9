//! The reference rates of the ECB, read now and then.

use std::sync::Arc;
use std::time::Duration;

use runwhere_model::{ProviderError, ProviderId};
use runwhere_pricing::{ECB_DAILY, FxTable, PriceService, read_ecb};
use runwhere_providers::Clock;
use runwhere_providers::http::{Http, HttpClient, Request};

/// They are published once a working day.
const EVERY: Duration = Duration::from_secs(6 * 3600);

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
    configured: FxTable,
    clock: Arc<dyn Clock>,
) {
    loop {
        match read(&clock).await {
            Ok(rates) => prices.replace_fx(configured.clone().with(rates)),
            Err(error) => {
                tracing::warn!(%error, "The ECB's rates could not be read; the last ones stay")
            }
        }
        clock.sleep(EVERY).await;
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
