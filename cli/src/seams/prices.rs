//! The price service inside this process, for price commands without a server.

use std::sync::Arc;

use runwhere_model::{BillingModel, Currency, Lang, Money};
use runwhere_pricing::{
    Audience, FxTable, ListRequest, PriceOptions, PriceService, Query, TaskType,
};
use runwhere_providers::{Clock, SystemClock};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::texts::{self, Text};

/// What is asked of a quote, here or on a server.
#[derive(Clone, Debug)]
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
}

/// The prices that come with this program.
#[derive(Debug)]
pub struct BundledPrices {
    service: PriceService,
    lang: Lang,
}

impl BundledPrices {
    /// Reads them.
    #[must_use]
    pub fn new(lang: Lang) -> Self {
        let service = PriceService::new(Arc::new(SystemClock), PriceOptions::default());
        Self { service, lang }
    }

    /// As `GET /api/v1/comparison/summary`.
    ///
    /// # Errors
    /// None that a user could see.
    pub fn summary(&self) -> Outcome<Value> {
        json(&self.service.summary(Audience::Public))
    }

    /// As `GET /api/v1/offers`.
    ///
    /// # Errors
    /// Exit code 2 for a filter that cannot be.
    pub fn offers(
        &self,
        gpu: Option<&str>,
        provider: Option<&str>,
        billing: Option<BillingModel>,
        limit: u32,
        offset: u32,
    ) -> Outcome<Value> {
        let request = ListRequest {
            gpu_model: gpu.map(str::to_owned),
            provider: provider.map(str::to_owned),
            billing_model: billing,
            limit: limit as usize,
            offset: offset as usize,
            ..ListRequest::default()
        };
        let page = self.service.list(&request, Audience::Public, self.lang).map_err(|error| {
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
        json(&self.service.quote_named(question.gpu_model.as_deref(), query, self.lang))
    }
}

/// A price ceiling in CNY, as quotes want it. The rate must be fresh enough to decide by.
///
/// # Errors
/// Exit code 2 when there is no rate, or only an old one.
pub fn ceiling_in_cny(ceiling: Money) -> Outcome<Decimal> {
    FxTable::bundled()
        .decide(ceiling, Currency::CNY, SystemClock.now())
        .map(|converted| converted.money.amount)
        .map_err(|error| {
            Failure::usage("price_currency", texts::price_no_rate(ceiling.currency.code(), error))
                .hint(texts::price_no_rate_hint())
        })
}

fn json(answer: &impl Serialize) -> Outcome<Value> {
    serde_json::to_value(answer)
        .map_err(|error| Failure::other("price_answer", texts::price_answer(error)))
}
