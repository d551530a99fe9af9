//! `runwhere price`: from the server if one is configured, else from the prices in this program.

use runwhere_pricing::{ListRequest, MOST_HOURS};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::describe::{stated, yuan};
use super::dispatch::block_on;
use super::ids::Ceiling;
use super::price_ceiling::{self, InCny};
use super::price_filter::{OFFER_COLUMNS, SUMMARY_COLUMNS, csv, filters, list_request};
use crate::api::{Client, Repeat, View};
use crate::args::{PolicyArg, PriceListArgs, PriceRecommendArgs, PriceSummaryArgs};
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::seams::prices::{LocalPrices, Place, Question};
use crate::seams::task::Task;
use crate::settings::Settings;
use crate::table;
use crate::texts::{self, Text};

const QUOTE: &str = "/api/v1/comparison/quote";
const OFFERS: u32 = 20;
const PAGE: u32 = 200;
/// Prices older than this are said to be old.
const STALE_SECONDS: i64 = 1800;
const DAY: i64 = 86_400;

/// Shows the price range of each model.
pub(super) fn summary(args: &PriceSummaryArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let answer = match client(settings, printer) {
        Some(client) => block_on(async { Ok(client.get("/api/v1/comparison/summary").await?) })?,
        None => bundled(settings, printer)?.summary()?,
    };
    let view = View(&answer);
    let items = view.list("items");
    if items.is_empty() {
        nothing(printer);
    } else {
        let header = [
            texts::price_model(),
            texts::price_memory(),
            texts::price_lowest(),
            texts::price_highest(),
            texts::price_providers(),
            texts::price_offers(),
            texts::price_has_spot(),
        ];
        let rows: Vec<_> = items
            .iter()
            .map(|item| {
                let item = View(item);
                let text = |key: &str| item.text(key).unwrap_or_else(|| "-".to_owned());
                let price = |key: &str| item.decimal(key).map_or_else(|| "-".to_owned(), yuan);
                let memory = item
                    .text("gpu_memory_gb")
                    .map_or_else(|| "-".to_owned(), |gb| format!("{gb} GB"));
                let spot = yes_or_no(item.flag("has_spot"), printer);
                vec![
                    text("gpu_model"),
                    memory,
                    price("min_hourly_price"),
                    price("max_hourly_price"),
                    text("provider_count"),
                    text("offer_count"),
                    spot,
                ]
            })
            .collect();
        match args.csv {
            true => printer.plain(&csv(&SUMMARY_COLUMNS, items)?),
            false => printer.plain(&table::draw(&words(&header, printer), &rows)),
        }
    }
    let stale = warn_if_stale(view, printer);
    let troubles = trouble_names(view);
    if !troubles.is_empty() {
        printer.warn(&texts::price_sources_incomplete(troubles.join(", ")));
    }
    if printer.is_json() {
        let gpu = |item: &Value| {
            let item = View(item);
            json!({
                "gpu_type": item.get("gpu_model"),
                "memory_gb": item.get("gpu_memory_gb"),
                "min_price": item.get("min_hourly_price"),
                "max_price": item.get("max_hourly_price"),
                "provider_count": item.get("provider_count"),
                "sku_count": item.get("offer_count"),
                "has_spot": item.get("has_spot"),
            })
        };
        let gpus: Vec<_> = items.iter().map(gpu).collect();
        printer.json(&json!({
            "gpus": gpus,
            "items": items,
            "troubles": view.get("troubles").cloned().unwrap_or_else(|| json!({})),
            "last_updated": view.get("last_updated"),
            "staleness_seconds": view.get("staleness_seconds"),
            "stale": view.get("stale"),
            "stale_bundled": view.get("stale_bundled"),
        }));
    }
    let mut incomplete = troubles;
    incomplete.extend(stale);
    incomplete.sort();
    incomplete.dedup();
    strictly(args.strict, &incomplete)
}

/// With `--strict`, sources that could not be read (whole) end a command with exit code 1.
pub(super) fn strictly(strict: bool, troubles: &[String]) -> Outcome {
    match strict && !troubles.is_empty() {
        true => Err(Failure::other(
            "sources_incomplete",
            texts::price_sources_incomplete(troubles.join(", ")),
        )
        .hint(texts::price_sources_hint())),
        false => Ok(()),
    }
}

fn trouble_names(view: View<'_>) -> Vec<String> {
    let troubles = view.get("troubles").and_then(Value::as_object);
    troubles.map_or_else(Vec::new, |troubles| troubles.keys().cloned().collect())
}

/// Lists offers.
pub(super) fn list(args: &PriceListArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let wanted = if args.all { u32::MAX } else { args.limit.unwrap_or(OFFERS) };
    let ceiling = args.max_price.as_deref().map(Ceiling::parse).transpose()?;
    let (converted, pages) = match client(settings, printer) {
        Some(client) => {
            let ceiling = block_on(price_ceiling::by_server(&client, ceiling))?;
            let request = list_request(args, ceiling.amount)?;
            let filters = filters(&request);
            let pages = pages(wanted, |limit, offset| {
                let path =
                    format!("/api/v1/offers?is_active=true&limit={limit}&offset={offset}{filters}");
                block_on(async { Ok(client.get(&path).await?) })
            })?;
            (ceiling, pages)
        }
        None => {
            let prices = bundled(settings, printer)?;
            let ceiling = price_ceiling::by_machine(&prices, ceiling)?;
            let request = list_request(args, ceiling.amount)?;
            let pages = pages(wanted, |limit, offset| {
                let page = ListRequest {
                    limit: limit as usize,
                    offset: offset as usize,
                    ..request.clone()
                };
                prices.offers(&page)
            })?;
            (ceiling, pages)
        }
    };
    let Pages { items, total, similar } = pages;
    if args.csv {
        printer.plain(&csv(&OFFER_COLUMNS, &items)?);
        return unknown_prices(args.strict, &items);
    }
    if items.is_empty() {
        nothing(printer);
        if let Some(provider) = &args.provider {
            let hint = texts::price_provider_hint(provider);
            printer.note(&texts::arrow(hint.get(printer.lang())));
        }
        if !similar.is_empty() {
            printer.note(&texts::arrow(
                texts::price_did_you_mean(similar.join(", ")).get(printer.lang()),
            ));
        }
    } else {
        let header = [
            texts::price_sku_key(),
            texts::price_code(),
            texts::price_provider(),
            texts::price_region(),
            texts::price_gpu(),
            texts::price_billing(),
            texts::price_original(),
            texts::price_cny(),
            texts::price_launchable(),
        ];
        let rows: Vec<_> = items.iter().map(|offer| offer_row(View(offer), printer)).collect();
        // Provider, region and billing model stand in the key.
        printer.plain(&table::draw_fitting(&words(&header, printer), &rows, &[2, 3, 5, 1, 6]));
        if (items.len() as u64) < total {
            printer.note(&texts::price_more(items.len(), total));
        }
    }
    let mut answer = json!({"items": items, "total": total, "suggestions": similar});
    if !converted.told().is_null() {
        answer["ceiling"] = converted.told();
    }
    printer.json(&answer);
    unknown_prices(args.strict, &items)
}

/// With `--strict`, offers without a known price end a list with exit code 1.
fn unknown_prices(strict: bool, items: &[Value]) -> Outcome {
    let unknown = items.iter().filter(|item| View(item).text("price").is_none()).count();
    match strict && unknown > 0 {
        true => Err(Failure::other("price_unknown", texts::price_some_unknown(unknown))),
        false => Ok(()),
    }
}

struct Pages {
    items: Vec<Value>,
    total: u64,
    /// Models with a name like the unknown one.
    similar: Vec<String>,
}

/// Collects pages until `wanted` offers, or all, are there.
fn pages(wanted: u32, mut page: impl FnMut(u32, u32) -> Outcome<Value>) -> Outcome<Pages> {
    let mut items: Vec<Value> = Vec::new();
    loop {
        let have = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let answer = page(wanted.saturating_sub(have).min(PAGE), have)?;
        let view = View(&answer);
        let got = view.list("items");
        items.extend_from_slice(got);
        let total = view
            .integer("total")
            .and_then(|total| u64::try_from(total).ok())
            .unwrap_or(items.len() as u64);
        if got.is_empty() || items.len() as u64 >= total || items.len() as u64 >= u64::from(wanted)
        {
            items.truncate(wanted as usize);
            let similar = view.list("suggestions").iter().filter_map(Value::as_str);
            return Ok(Pages { total, similar: similar.map(str::to_owned).collect(), items });
        }
    }
}

fn offer_row(offer: View<'_>, printer: &Printer) -> Vec<String> {
    let text = |key: &str| offer.text(key).unwrap_or_else(|| "-".to_owned());
    let cny = offer.decimal("hourly_price").map(yuan);
    let cny = cny.unwrap_or_else(|| texts::unknown().get(printer.lang()).to_owned());
    let model = offer.first_text(&["gpu_type", "gpu_model"]);
    let gpu = match (offer.text("gpu_count"), model) {
        (Some(count), Some(model)) => format!("{count}×{model}"),
        (None, Some(model)) => model,
        _ => "-".to_owned(),
    };
    vec![
        text("offer_key"),
        text("offer_code"),
        text("provider"),
        text("region"),
        gpu,
        text("billing_model"),
        stated(offer).unwrap_or_else(|| "-".to_owned()),
        cny,
        launchable(offer, printer),
    ]
}

/// Recommends offers for a task file.
pub(super) fn recommend(
    args: &PriceRecommendArgs,
    settings: &Settings,
    printer: &Printer,
) -> Outcome {
    let task = Task::read(&args.file)?;
    let ceiling = args.max_price.as_deref().map(Ceiling::parse).transpose()?;
    let hours = args.hours.as_deref().map(|text| {
        let hours = runwhere_model::parse_decimal(text).ok();
        let most = Decimal::from(MOST_HOURS);
        let hours = hours.filter(|hours| *hours > Decimal::ZERO && *hours <= most);
        hours.ok_or_else(|| Failure::usage("hours", texts::price_hours_invalid(text)))
    });
    let mut prices = None;
    let client = client(settings, printer);
    let converted = match &client {
        Some(client) => block_on(price_ceiling::by_server(client, ceiling))?,
        None => price_ceiling::by_machine(prices.insert(bundled(settings, printer)?), ceiling)?,
    };
    let question = Question {
        provider: args.provider.clone(),
        region: args.region.clone(),
        country: args.country.clone(),
        reclaim: args.policy == PolicyArg::Reclaim,
        prefer_regions: args.prefer_region.clone(),
        fresh_only: args.fresh,
        hours: hours.transpose()?,
        disk_gib: args.disk,
        ..question(&task, &converted, args.top, !args.no_spot)
    };
    let mut answer = match (&client, &prices) {
        (Some(client), _) => block_on(ask(client, &question))?,
        (None, Some(prices)) => prices.quote(&question)?,
        (None, None) => bundled(settings, printer)?.quote(&question)?,
    };
    let recommendations = View(&answer).list("recommendations");
    if recommendations.is_empty() {
        let failure = nothing_recommended(View(&answer), &task, ceiling);
        if ceiling.is_none() {
            let places = [&args.provider, &args.region, &args.country];
            return Err(match places.iter().any(|place| place.is_some()) {
                true => failure.hint(texts::price_filters_hint()),
                false => failure,
            });
        }
        // What is shown is rounded; whoever copies a price as a ceiling needs all its digits.
        let anything = Question { max_cny: None, top: 1, ..question };
        let cheapest = match (&client, &prices) {
            (Some(client), _) => block_on(ask(client, &anything))?,
            (None, Some(prices)) => prices.quote(&anything)?,
            (None, None) => json!({}),
        };
        return Err(with_cheapest(failure, &cheapest));
    }
    show_recommendations(&answer, &task, settings.explain, printer);
    if let Some(key) =
        View(&recommendations[0]).at("offer").and_then(|offer| offer.text("offer_key"))
    {
        printer.out(&texts::price_write_back(key));
    }
    if !converted.told().is_null() {
        answer["ceiling"] = converted.told();
    }
    printer.json(&answer);
    Ok(())
}

/// Draws recommendations; also a part of `run`.
pub(super) fn show_recommendations(answer: &Value, task: &Task, explain: bool, printer: &Printer) {
    printer.out(&texts::price_recommendation(task.gpu_type().unwrap_or("GPU"), task.gpu_count()));
    let header = [
        texts::price_rank(),
        texts::price_sku_key(),
        texts::price_code(),
        texts::price_billing(),
        texts::price_original(),
        texts::price_cny(),
        texts::price_launchable(),
        texts::price_reason(),
    ];
    let mut rates = Vec::new();
    let mut reasons = Vec::new();
    let rows: Vec<_> = View(answer)
        .list("recommendations")
        .iter()
        .enumerate()
        .map(|(place, row)| {
            let row = View(row);
            let nothing = json!({});
            let offer = row.at("offer").unwrap_or(View(&nothing));
            rates.extend(rate(offer));
            reasons.extend(offer.text("not_launchable_text"));
            let cells = offer_row(offer, printer);
            let reason = row.first_text(&["tag", "reason"]).unwrap_or_else(|| "-".to_owned());
            let rank = row.text("rank").unwrap_or_else(|| (place + 1).to_string());
            let mut cells = cells.into_iter();
            let mut take = |skip: usize| cells.nth(skip).unwrap_or_default();
            // key, code, billing, original, cny, launchable
            vec![rank, take(0), take(0), take(3), take(0), take(0), take(0), reason]
        })
        .collect();
    printer.plain(&table::draw_fitting(&words(&header, printer), &rows, &[3, 2, 4]));
    rates.sort();
    rates.dedup();
    reasons.sort();
    reasons.dedup();
    if !reasons.is_empty() {
        printer.note(&texts::price_not_launchable(reasons.join("; ")));
    }
    for [currency, rate, date, source] in rates {
        printer.out(&texts::price_rate(rate, currency, date, source));
    }
    for row in View(answer).list("recommendations").iter().map(View) {
        let cost = row.at("run_cost").and_then(|cost| {
            let total = cost.at("total").filter(|total| total.text("amount").is_some());
            let shown = total.or_else(|| cost.at("compute"))?;
            Some((shown.text("amount")?, shown.text("currency")?, total.is_some()))
        });
        if let (Some((amount, currency, whole)), Some(rank)) = (cost, row.text("rank")) {
            let amount = runwhere_model::parse_decimal(&amount).map_or(amount, |a| a.to_string());
            printer.out(&match whole {
                true => texts::price_run_cost(rank, amount, currency),
                false => texts::price_run_cost_no_disk(rank, amount, currency),
            });
        }
    }
    for row in View(answer).list("recommendations").iter().filter(|_| explain).map(View) {
        if let Some((rank, reason)) = row.text("rank").zip(row.text("reason")) {
            printer.out(&texts::price_because(rank, reason));
        }
    }
}

/// The dated rate that an offer was converted with.
fn rate(offer: View<'_>) -> Option<[String; 4]> {
    let currency = offer.text("currency").filter(|currency| currency != "CNY")?;
    let field = |key: &str| offer.text(key).unwrap_or_else(|| "-".to_owned());
    Some([currency, offer.text("fx_rate")?, field("fx_date"), field("fx_source")])
}

/// What to ask about a task.
pub(super) fn question(task: &Task, ceiling: &InCny, top: u32, spot: bool) -> Question {
    Question {
        gpu_model: task.gpu_type().map(str::to_owned),
        gpu_count: task.gpu_count(),
        task_type: task.kind(),
        spot_allowed: spot,
        max_cny: ceiling.amount,
        top,
        ..Question::default()
    }
}

/// Asks the server for a quote. Reading prices is harmless to repeat.
pub(super) async fn ask(client: &Client, question: &Question) -> Outcome<Value> {
    let mut body = json!({
        "gpu_count": question.gpu_count,
        "task_type": question.task_type,
        "spot_allowed": question.spot_allowed,
        "top_n": question.top,
    });
    if let Some(gpu) = &question.gpu_model {
        body["gpu_model"] = json!(gpu);
    }
    if let Some(max) = &question.max_cny {
        body["max_hourly_price"] = json!(max.to_string());
    }
    // Only what was asked for: an older server knows fewer words.
    for (key, value) in [
        ("provider", &question.provider),
        ("region", &question.region),
        ("country", &question.country),
    ] {
        if let Some(value) = value {
            body[key] = json!(value);
        }
    }
    if question.reclaim {
        body["policy"] = json!("reclaim");
    }
    if !question.prefer_regions.is_empty() {
        body["prefer_regions"] = json!(question.prefer_regions);
    }
    if question.fresh_only {
        body["fresh_only"] = json!(true);
    }
    if let Some(hours) = &question.hours {
        body["hours"] = json!(hours.to_string());
    }
    if let Some(disk) = question.disk_gib {
        body["disk_gib"] = json!(disk);
    }
    Ok(client.post(QUOTE, Some(&body), Repeat::Safe).await?)
}

/// A failure that says what the cheapest offer costs, every digit.
fn with_cheapest(failure: Failure, answer: &Value) -> Failure {
    let offer =
        View(answer).list("recommendations").first().map(View).and_then(|row| row.at("offer"));
    let told = offer.and_then(|offer| {
        Some((offer.text("price")?, offer.text("currency")?, offer.text("offer_key")?))
    });
    match told {
        Some((price, currency, key)) => failure
            .hint(texts::price_cheapest(&price, &currency, &key))
            .detail("cheapest", json!({"price": price, "currency": currency, "offer_key": key})),
        None => failure,
    }
}

/// Why nothing is recommended: an unknown model, too low a ceiling, or nothing of the kind.
pub(super) fn nothing_recommended(
    answer: View<'_>,
    task: &Task,
    ceiling: Option<Ceiling>,
) -> Failure {
    let similar: Vec<_> = answer.list("suggestions").iter().filter_map(Value::as_str).collect();
    match (task.gpu_type(), ceiling) {
        (Some(gpu), _)
            if answer.get("quote_id").is_none() && answer.0.get("suggestions").is_some() =>
        {
            let failure = Failure::usage("gpu_unknown", texts::price_model_unknown(gpu))
                .detail("suggestions", similar.clone());
            match similar.is_empty() {
                true => failure.hint(texts::price_nothing_hint()),
                false => failure.hint(texts::price_did_you_mean(similar.join(", "))),
            }
        }
        (_, Some(ceiling)) => none_within(ceiling),
        (_, None) => {
            Failure::other("no_offer", texts::price_no_match()).hint(texts::gpu_unresolvable_hint())
        }
    }
}

/// Nothing is cheap enough.
pub(super) fn none_within(ceiling: Ceiling) -> Failure {
    Failure::other("no_offer_within_price", texts::price_none_within(ceiling))
        .hint(texts::price_none_within_hint())
        .detail("max_price", ceiling.0.amount.to_string())
        .detail("currency", ceiling.0.currency.code())
}

pub(super) fn client(settings: &Settings, printer: &Printer) -> Option<Client> {
    let endpoint = settings.endpoint()?.clone();
    // List prices need no token; account prices come with one.
    Some(Client::new(settings, printer, endpoint, settings.token().cloned()))
}

pub(super) fn bundled(settings: &Settings, printer: &Printer) -> Outcome<LocalPrices> {
    let prices = LocalPrices::read(&Place::new(&settings.home, None, settings.lang)?)?;
    printer.note(&match prices.is_kept() {
        true => texts::price_local(settings.home.join("prices").display()),
        false => texts::price_bundled(),
    });
    Ok(whole(prices, printer))
}

/// Says what of the prices of this machine could not be read.
pub(super) fn whole(prices: LocalPrices, printer: &Printer) -> LocalPrices {
    if !prices.damaged().is_empty() {
        printer.warn(&texts::price_damaged(prices.damaged().join(", ")));
    }
    prices
}

fn nothing(printer: &Printer) {
    printer.out(&texts::price_nothing());
    printer.note(&texts::arrow(texts::price_nothing_hint().get(printer.lang())));
}

/// Says which prices are older than their kind may be, by the rule of `price list --fresh`; the sources of them.
fn warn_if_stale(view: View<'_>, printer: &Printer) -> Vec<String> {
    if let Some(stale) = view.get("stale").and_then(Value::as_object) {
        let bundled = view.get("stale_bundled").and_then(Value::as_u64).unwrap_or_default();
        let count = stale.values().filter_map(Value::as_u64).sum::<u64>() + bundled;
        let mut whose: Vec<String> = stale.keys().cloned().collect();
        if bundled > 0 {
            whose.push(texts::price_of_the_program().get(printer.lang()).to_owned());
        }
        if count > 0 {
            printer.warn(&texts::price_stale_offers(count, whose.join(", ")));
        }
        return stale.keys().cloned().collect();
    }
    // Another server says only how old its oldest prices are.
    if let Some(seconds) =
        view.integer("staleness_seconds").filter(|seconds| *seconds > STALE_SECONDS)
    {
        printer.warn(&if seconds > 2 * DAY {
            texts::price_stale_days(seconds / DAY)
        } else {
            texts::price_stale(seconds / 60)
        });
    }
    Vec::new()
}

fn yes_or_no(flag: Option<bool>, printer: &Printer) -> String {
    let text = if flag == Some(true) { texts::price_yes() } else { texts::price_no() };
    text.get(printer.lang()).to_owned()
}

fn launchable(offer: View<'_>, printer: &Printer) -> String {
    let text = match offer.flag("launchable") {
        Some(true) => texts::price_can_launch(),
        Some(false) => texts::price_cannot_launch(),
        None => texts::price_no(),
    };
    text.get(printer.lang()).to_owned()
}

pub(super) fn words(header: &[Text], printer: &Printer) -> Vec<String> {
    header.iter().map(|text| text.get(printer.lang()).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_with_the_last_offer_whatever_the_server_says() {
        let all: Vec<_> = (0..450).map(|n| json!({"offer_key": n.to_string()})).collect();
        let serve = |limit: u32, offset: u32| {
            let items: Vec<_> =
                all.iter().skip(offset as usize).take(limit as usize).cloned().collect();
            Ok(json!({"items": items, "total": all.len()}))
        };
        let Pages { items, total, .. } = pages(u32::MAX, serve).unwrap();
        assert_eq!((items.len(), total), (450, 450));
        let Pages { items, total, .. } = pages(20, serve).unwrap();
        assert_eq!((items.len(), total), (20, 450));
        let Pages { items, .. } =
            pages(u32::MAX, |_, _| Ok(json!({"items": [], "total": 9}))).unwrap();
        assert!(items.is_empty());
    }
}
