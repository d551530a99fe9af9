//! `runwhere price` beyond comparing: one offer, sources, decisions, changes, imports, rates, serving.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runwhere_broker::server::{App, Listen, Server};
use runwhere_model::{Currency, OfferKey, ProviderId};
use runwhere_pricing::{ImportOptions, RefreshError};
use runwhere_providers::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::dispatch::block_on;
use super::ids::Ceiling;
use super::price::{bundled, client, strictly, whole, words};
use super::price_ceiling::convert;
use super::run::Interrupts;
use crate::api::{Client, Repeat, View, query_value};
use crate::args::{
    PriceDiffArgs, PriceExplainArgs, PriceFxArgs, PriceHistoryArgs, PriceImportArgs,
    PriceRefreshArgs, PriceServeArgs, PriceSourcesArgs,
};
use crate::diagnostics::Level;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::seams::prices::{LocalPrices, Place};
use crate::settings::Settings;
use crate::table;
use crate::texts::{self, Text};

/// Bytes of a price file at most; a device never ends.
const MOST_IMPORTED: u64 = 256 << 20;

/// Shows all that is known of one offer.
pub(super) fn explain(args: &PriceExplainArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let answer = match client(settings, printer) {
        Some(client) => {
            let path = format!("/api/v1/prices/offer?offer={}", query_value(&args.offer));
            block_on(async { Ok(client.get(&path).await?) })?
        }
        None => bundled(settings, printer)?.offer(&args.offer)?,
    };
    let view = View(&answer);
    if let Some(offer) = view.get("offer").and_then(Value::as_object) {
        let cell = |value: &Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let rows: Vec<Vec<String>> = offer
            .iter()
            .filter_map(|(name, value)| Some(vec![name.clone(), cell(value)?]))
            .collect();
        let header = [texts::price_field(), texts::price_value()];
        printer.plain(&table::draw(&words(&header, printer), &rows));
    }
    if let Some(reason) = view.text("reason") {
        printer.plain(&reason);
    }
    printer.json(&answer);
    Ok(())
}

/// Shows how the sources stand.
pub(super) fn sources(args: &PriceSourcesArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let answer = match client(settings, printer) {
        Some(client) => {
            let mut answer: Value =
                block_on(async { Ok(client.get("/api/v1/prices/sources").await?) })?;
            add_waiting(&client, settings, "items", &mut answer);
            answer
        }
        None => bundled(settings, printer)?.sources()?,
    };
    let items = View(&answer).list("items");
    show_sources(items, printer);
    show_waiting(&answer, printer);
    printer.json(&answer);
    strictly(args.strict, &troubled(items))
}

fn troubled(items: &[Value]) -> Vec<String> {
    let bad = |item: &&Value| {
        let item = View(item);
        let status = item.text("status").unwrap_or_default();
        !matches!(status.as_str(), "ok" | "bundled") || item.flag("stale") == Some(true)
    };
    items.iter().filter(bad).filter_map(|item| View(item).text("provider")).collect()
}

fn show_sources(items: &[Value], printer: &Printer) {
    let header = [
        texts::price_provider(),
        texts::price_status(),
        texts::price_offers(),
        texts::price_age(),
        texts::price_quarantined(),
        texts::price_rejected(),
        texts::price_reason(),
    ];
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|item| {
            let item = View(item);
            let text = |key: &str| item.text(key).unwrap_or_else(|| "-".to_owned());
            let age = item.integer("age").map_or_else(|| "-".to_owned(), age);
            let stale = item.flag("stale") == Some(true);
            vec![
                text("provider"),
                text("status"),
                text("rows"),
                if stale { format!("{age} !") } else { age },
                text("quarantined"),
                text("rejected"),
                text("reason"),
            ]
        })
        .collect();
    printer.plain(&table::draw(&words(&header, printer), &rows));
    for item in items.iter().map(View) {
        let names = item.get("unmapped").and_then(Value::as_object);
        let names: Vec<&str> =
            names.map_or_else(Vec::new, |n| n.keys().map(String::as_str).collect());
        if let (Some(provider), false) = (item.text("provider"), names.is_empty()) {
            printer.note(&texts::price_unmapped(provider, names.join(", ")));
        }
    }
}

/// Asks a server which prices wait for a decision, where some do and there is a token that may see them.
fn add_waiting(client: &Client, settings: &Settings, sources: &str, answer: &mut Value) {
    let waits = |item: &Value| View(item).integer("quarantined").is_some_and(|count| count > 0);
    if settings.token().is_some() && View(answer).list(sources).iter().any(waits) {
        let waiting: Outcome<Value> =
            block_on(async { Ok(client.get("/api/v1/prices/quarantine").await?) });
        // Older servers do not tell.
        if let Some(items) = waiting.ok().as_ref().and_then(|waiting| View(waiting).get("items")) {
            answer["quarantine"] = items.clone();
        }
    }
}

/// Says which prices wait for a decision, and what decides.
fn show_waiting(answer: &Value, printer: &Printer) {
    let price = |item: View<'_>, key: &str| {
        let price = item.at(key)?;
        Some(format!("{} {}", price.text("amount")?, price.text("currency")?))
    };
    for item in View(answer).list("quarantine").iter().map(View) {
        let told = (item.text("offer_key"), price(item, "served"), price(item, "stated"));
        if let (Some(key), Some(served), Some(stated)) = told {
            printer.note(&texts::price_waits(key, served, stated));
        }
    }
}

/// `90 s`, `12 min`, `3 h`, `2 d`.
fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Reads sources now, or decides about quarantined prices.
pub(super) fn refresh(args: &PriceRefreshArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let decision = match (&args.accept, &args.reject) {
        (Some(key), _) => Some((offer_key(key)?, true)),
        (None, Some(key)) => Some((offer_key(key)?, false)),
        (None, None) => None,
    };
    let local = match client(settings, printer) {
        Some(_) => None,
        None => {
            let place = Place::new(&settings.home, args.config.as_deref(), settings.lang)?;
            Some(whole(LocalPrices::open(&place)?, printer))
        }
    };
    let post = |path: &str, body: Value| -> Outcome<Value> {
        let Some(client) = client(settings, printer) else { return Ok(json!({})) };
        block_on(async { Ok(client.post(path, Some(&body), Repeat::Safe).await?) })
    };
    if let Some((key, accept)) = decision {
        let answer = match &local {
            None => post(
                "/api/v1/prices/quarantine/decide",
                json!({"offer_key": key, "accept": accept}),
            )?,
            Some(prices) => {
                prices.refresher().decide(&key, accept).map_err(|error| match error {
                    RefreshError::NotKept(error) => {
                        Failure::other("prices_folder", texts::price_not_kept(error))
                    }
                    error => {
                        Failure::usage("nothing_to_decide", texts::price_nothing_to_decide(error))
                    }
                })?;
                json!({"offer_key": key, "accepted": accept})
            }
        };
        printer.out(&match accept {
            true => texts::price_accepted(&key),
            false => texts::price_turned_down(&key),
        });
        printer.json(&answer);
        return Ok(());
    }
    if let Some(provider) = &args.accept_next {
        match &local {
            None => {
                post("/api/v1/prices/accept-next", json!({"provider": provider}))?;
            }
            Some(prices) => {
                let id = ProviderId::new(provider.as_str());
                let known = id.is_ok_and(|id| prices.refresher().accept_next(&id).is_ok());
                if !known {
                    return Err(Failure::usage(
                        "source_unknown",
                        texts::price_source_unknown(provider),
                    )
                    .hint(texts::price_source_unknown_hint()));
                }
            }
        }
    }
    let provider = args.provider.as_deref().or(args.accept_next.as_deref());
    let answer = match &local {
        None => {
            let body = provider.map_or_else(|| json!({}), |id| json!({"provider": id}));
            let mut answer = post("/api/v1/prices/refresh", body)?;
            if let Some(client) = client(settings, printer) {
                add_waiting(&client, settings, "sources", &mut answer);
            }
            answer
        }
        Some(prices) => block_on(prices.refresh(provider))?,
    };
    let sources = View(&answer).list("sources");
    let read: Vec<View<'_>> = View(&answer).list("items").iter().map(View).collect();
    let asked_for = |source: &&Value| {
        let provider = View(source).text("provider");
        read.iter().any(|item| item.text("provider") == provider)
    };
    // Those that nobody reads (bundled, imported) are for `price sources`.
    let shown: Vec<Value> = sources.iter().filter(asked_for).cloned().collect();
    show_sources(&shown, printer);
    show_waiting(&answer, printer);
    for item in &read {
        let outcome = item.at("outcome").filter(|o| o.text("code").as_deref() == Some("not_tried"));
        let (Some(provider), Some(outcome)) = (item.text("provider"), outcome) else { continue };
        let until = outcome.at("params").and_then(|why| why.text("cool_down"));
        printer.warn(&match until {
            Some(at) => texts::price_cooling_down(provider, at),
            None => texts::price_budget_spent(provider),
        });
    }
    printer.json(&answer);
    let asked = |name: &String| provider.is_none_or(|provider| provider == name);
    let troubled: Vec<String> = troubled(sources).into_iter().filter(asked).collect();
    strictly(args.strict, &troubled)
}

fn offer_key(text: &str) -> Outcome<OfferKey> {
    text.parse().map_err(|error: runwhere_model::KeyError| {
        Failure::usage("offer_key", texts::price_bad_key(error))
    })
}

/// Shows how the price of an offer changed.
pub(super) fn history(args: &PriceHistoryArgs, settings: &Settings, printer: &Printer) -> Outcome {
    // An offer that is gone may have a history; it is known by its key only.
    let given = args.offer.parse::<OfferKey>().ok();
    let key_of = |answer: &Value| {
        let key = View(answer).at("offer").and_then(|offer| offer.text("offer_key"));
        key.as_deref().map_or_else(|| offer_key(&args.offer), offer_key)
    };
    let empty = |answer: &Value| View(answer).list("items").is_empty();
    let answer = match client(settings, printer) {
        Some(client) => block_on(async {
            let offer = format!("/api/v1/prices/offer?offer={}", query_value(&args.offer));
            let key = match &given {
                Some(key) => key.clone(),
                None => key_of(&client.get(&offer).await?)?,
            };
            let key = query_value(&key.to_string());
            let path = format!("/api/v1/prices/changes?offer={key}&limit={}", args.limit);
            let answer = client.get(&path).await?;
            if given.is_some() && empty(&answer) {
                // Refused where there is no such offer.
                client.get(&offer).await?;
            }
            Ok(answer)
        })?,
        None => {
            let prices = bundled(settings, printer)?;
            let key = match &given {
                Some(key) => key.clone(),
                None => key_of(&prices.offer(&args.offer)?)?,
            };
            let answer = prices.changes(&key.provider, Some(&key))?;
            if empty(&answer) {
                prices.offer(&args.offer)?;
            }
            answer
        }
    };
    changes(&answer, args.limit, printer);
    Ok(())
}

/// Shows what changed between two states of prices; without one, which states there are.
pub(super) fn diff(args: &PriceDiffArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let Some(from) = &args.from else {
        let answer = match client(settings, printer) {
            Some(client) => block_on(async { Ok(client.get("/api/v1/prices/states").await?) })?,
            None => {
                let prices = bundled(settings, printer)?;
                prices.keep_state();
                prices.states()?
            }
        };
        let rows: Vec<Vec<String>> = View(&answer)
            .list("items")
            .iter()
            .map(|item| {
                let text = |key: &str| View(item).text(key).unwrap_or_else(|| "-".to_owned());
                vec![text("state_id"), text("kept_at")]
            })
            .collect();
        let header = [texts::price_state(), texts::price_kept_at()];
        match rows.is_empty() {
            true => printer.out(&texts::price_no_states()),
            false => printer.plain(&table::draw(&words(&header, printer), &rows)),
        }
        printer.json(&answer);
        return Ok(());
    };
    let answer = match client(settings, printer) {
        Some(client) => {
            let to = args.to.as_deref().map(|to| format!("&to={}", query_value(to)));
            let path = format!(
                "/api/v1/prices/diff?from={}&limit={}{}",
                query_value(from),
                args.limit,
                to.unwrap_or_default()
            );
            block_on(async { Ok(client.get(&path).await?) })?
        }
        None => bundled(settings, printer)?.diff(from, args.to.as_deref())?,
    };
    changes(&answer, args.limit, printer);
    Ok(())
}

fn changes(answer: &Value, limit: u32, printer: &Printer) {
    let view = View(answer);
    let items: Vec<Value> = view.list("items").iter().take(limit as usize).cloned().collect();
    let price = |item: View<'_>, key: &str| {
        let price = item.at(key)?;
        Some(format!("{} {}", price.text("amount")?, price.text("currency")?))
    };
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|item| {
            let item = View(item);
            let text = |key: &str| item.text(key).unwrap_or_else(|| "-".to_owned());
            let dash = || "-".to_owned();
            vec![
                text("at"),
                text("offer_key"),
                text("kind"),
                price(item, "before").unwrap_or_else(dash),
                price(item, "after").unwrap_or_else(dash),
                item.text("percent").map_or_else(dash, |percent| format!("{percent}%")),
            ]
        })
        .collect();
    if rows.is_empty() {
        printer.out(&texts::price_no_changes());
    } else {
        let header = [
            texts::price_when(),
            texts::price_sku_key(),
            texts::price_change(),
            texts::price_before(),
            texts::price_after(),
            texts::price_percent(),
        ];
        printer.plain(&table::draw(&words(&header, printer), &rows));
    }
    let total = view.integer("total").unwrap_or_default();
    if usize::try_from(total).is_ok_and(|total| total > items.len()) {
        printer.note(&texts::price_more_changes(items.len(), total));
    }
    printer.json(&json!({"items": items, "total": total}));
}

/// Nobody has read a price tomorrow: it would stay fresh for longer than it may.
fn not_in_the_future(observed: Option<Timestamp>, now: Timestamp) -> Outcome {
    let day = |at: Timestamp| at.to_zoned_datetime(TimeZone::UTC).date();
    match observed.map(day).filter(|observed| *observed > day(now)) {
        Some(observed) => Err(Failure::usage(
            "observed_in_future",
            texts::price_observed_future(observed, day(now)),
        )
        .hint(texts::price_observed_hint())),
        None => Ok(()),
    }
}

/// Imports a price file into this machine's price folder.
pub(super) fn import(args: &PriceImportArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let path = &args.file;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    file.and_then(|file| file.take(MOST_IMPORTED + 1).read_to_end(&mut bytes)).map_err(
        |error| Failure::usage("import_read", texts::price_import_read(path.display(), error)),
    )?;
    if bytes.len() as u64 > MOST_IMPORTED {
        let text = texts::price_import_large(path.display(), MOST_IMPORTED >> 20);
        return Err(Failure::usage("import_large", text));
    }
    let provider =
        args.provider.as_deref().map(ProviderId::new).transpose().map_err(|error| {
            Failure::usage("provider_invalid", texts::price_import_failed(error))
        })?;
    let currency = args.currency.as_deref().map(str::parse::<Currency>).transpose();
    let day = args.observed.as_deref().map(|text| {
        let date: jiff::civil::Date = text.parse()?;
        date.to_zoned_datetime(TimeZone::UTC).map(|at| at.timestamp())
    });
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let options = ImportOptions {
        provider,
        currency: currency.map_err(|error| {
            Failure::usage("currency_invalid", texts::price_currency_invalid(error))
        })?,
        source: args.source.clone().or(name).unwrap_or_default(),
        observed_at: day.transpose().map_err(|error: jiff::Error| {
            Failure::usage("observed_invalid", texts::price_import_failed(error))
        })?,
    };
    not_in_the_future(options.observed_at, SystemClock.now())?;
    let place = Place::new(&settings.home, None, settings.lang)?;
    let answer = whole(LocalPrices::open(&place)?, printer).import(&bytes, &options)?;
    let view = View(&answer);
    for item in view.list("items").iter().map(View) {
        let text = |key: &str| item.text(key).unwrap_or_default();
        printer.out(&texts::price_imported(text("provider"), text("offers"), text("unmapped")));
    }
    let rejected = view.list("rejected");
    for row in rejected.iter().take(10).map(View) {
        let text = |key: &str| row.text(key).unwrap_or_default();
        printer.note(&texts::price_rejected_row(text("reason"), text("row")));
    }
    let without = view.integer("without_gpu").unwrap_or_default();
    printer.note(&texts::price_import_rest(rejected.len(), without));
    printer.json(&answer);
    match rejected.len() {
        _ if view.list("items").is_empty() => {
            Err(Failure::usage("import_nothing", texts::price_import_nothing())
                .hint(texts::price_import_hint()))
        }
        rows if rows > 0 && args.strict => {
            Err(Failure::other("rows_rejected", texts::price_import_rest(rows, without)))
        }
        _ => Ok(()),
    }
}

/// Shows exchange rates, or converts an amount.
pub(super) fn fx(args: &PriceFxArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let answer = match client(settings, printer) {
        Some(client) => block_on(async { Ok(client.get("/api/v1/prices/fx").await?) })?,
        None => bundled(settings, printer)?.fx(),
    };
    let items = View(&answer).list("items");
    let Some(amount) = &args.amount else {
        let header = [
            texts::price_from(),
            texts::price_to(),
            texts::price_fx_rate(),
            texts::price_date(),
            texts::price_fx_age(),
            texts::price_fx_source(),
        ];
        let rows: Vec<Vec<String>> = items
            .iter()
            .map(|item| {
                let text = |key: &str| View(item).text(key).unwrap_or_else(|| "-".to_owned());
                let old = View(item).flag("decides") == Some(false);
                let age = if old { format!("{} !", text("age_days")) } else { text("age_days") };
                vec![text("from"), text("to"), text("rate"), text("date"), age, text("source")]
            })
            .collect();
        printer.plain(&table::draw(&words(&header, printer), &rows));
        printer.json(&answer);
        return Ok(());
    };
    let money = Ceiling::parse(amount)?.0;
    let to: Currency = args.to.parse().map_err(|error: runwhere_model::CurrencyError| {
        Failure::usage("currency_invalid", texts::price_currency_invalid(error))
    })?;
    let (converted, rate) = convert(money, to, items)?;
    printer.out(&Text::new(converted.to_string(), converted.to_string()));
    if let Some(rate) = &rate {
        let text = |key: &str| View(rate).text(key).unwrap_or_default();
        printer.note(&texts::price_fx_used(
            text("from"),
            text("rate"),
            text("to"),
            text("date"),
            text("source"),
        ));
    }
    printer.json(&json!({"amount": converted.amount, "currency": to, "rate": rate}));
    Ok(())
}

/// Serves the prices of this machine and nothing else.
pub(super) fn serve(args: &PriceServeArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let listen: SocketAddr = args
        .listen
        .parse()
        .map_err(|_| Failure::usage("listen_invalid", texts::listen_invalid(&args.listen)))?;
    crate::diagnostics::start(Level::Service, settings.verbose);
    let place = Place::new(&settings.home, args.config.as_deref(), settings.lang)?;
    let prices = match args.offline {
        true => LocalPrices::offline(&place)?,
        false => LocalPrices::open(&place)?,
    };
    let refresher = Arc::clone(prices.refresher());
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other("runtime", texts::runtime(error)))?
        .block_on(async {
            let mut interrupts = Interrupts::new()?;
            let server = Server::bind(&Listen { address: listen, tls: None })
                .await
                .map_err(|error| Failure::other("serve_failed", texts::serve_failed(error)))?;
            let url = format!("http://{}", server.address());
            let routes = runwhere_pricing::standalone(Arc::clone(&refresher));
            let reading = tokio::spawn(async move {
                refresher.refresh_due().await;
                refresher.keep_fresh().await;
            });
            let (closing, closed) = watch::channel(false);
            let serving = tokio::spawn(server.run(App::new(routes, closed.clone()), closed));
            printer.note(&texts::serving(&url));
            printer.json(&json!({"status": "serving", "endpoint": url}));
            interrupts.next().await;
            closing.send_replace(true);
            // Who asks a second time does not wait for slow callers.
            tokio::select! {
                _ = serving => {}
                _ = interrupts.next() => {}
            }
            reading.abort();
            Ok(())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_that_has_not_come_is_refused_with_the_remedy() {
        let now: Timestamp = "2026-11-30T23:59:59Z".parse().unwrap();
        let day = |text: &str| text.parse::<Timestamp>().ok();
        for good in [None, day("2026-11-30T00:00:00Z"), day("2020-01-01T00:00:00Z")] {
            assert!(not_in_the_future(good, now).is_ok());
        }
        let refused = not_in_the_future(day("2026-12-01T00:00:00Z"), now).unwrap_err();
        let said = format!("{refused:?}");
        assert!(said.contains("--observed 2026-12-01") && said.contains("2026-11-30"), "{said}");
        assert!(said.contains("observed_in_future") && said.contains("leave it out"), "{said}");
    }

    #[test]
    fn ages_are_short() {
        let told = [5, 90, 180, 7200, 200_000].map(age);
        assert_eq!(told, ["5 s", "90 s", "3 min", "2 h", "2 d"]);
    }
}
