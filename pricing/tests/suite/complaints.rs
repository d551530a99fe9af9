//! What users of other price services complained about, by the numbers of the collection in
//! `docs/prices.md`: each with the right answer. Those about one cloud's interface are tested with its
//! source, those about launches with the server.

use jiff::SignedDuration;
use runwhere_model::gpu::Vendor;
use runwhere_model::offer::{RejectedRow, Stock};
use runwhere_model::{
    Currency, GpuModel, GpuModelId, Lang, Mark, Marks, Offer, OfferDetails, PriceKind, PricePart,
    PriceState, RawNumber, parse_decimal,
};
use runwhere_pricing::{
    Audience, Flag, ListRequest, OfferRow, PriceService, Query, Reason, Rejection, Tag,
};
use rust_decimal::Decimal;

use crate::support::{at, offer, provider, service, sheet, young};

fn list(key: &str, gpu: &str, count: &str, price: &str) -> Offer {
    let mut offer = offer(key, gpu, count, price);
    offer.price.kind = PriceKind::List;
    offer
}

/// A service with these offers; each provider's own.
fn with(offers: Vec<Offer>) -> PriceService {
    let service = service(young(), false);
    let mut sheets = std::collections::BTreeMap::<_, Vec<Offer>>::new();
    for offer in offers {
        sheets.entry(offer.key.provider.clone()).or_default().push(offer);
    }
    for (id, offers) in sheets {
        service.replace_sheet(id, sheet(offers, young()));
    }
    service
}

fn gpu(name: &str) -> GpuModelId {
    GpuModel::resolve(name).expect("a model").id
}

fn query(name: &str, count: u32) -> Query {
    Query { audience: Audience::Member, ..Query::new(Some(gpu(name)), count) }
}

fn types(service: &PriceService, query: &Query) -> Vec<String> {
    let quote = service.quote(query);
    let key = |r: &runwhere_pricing::Recommended| r.assessed.entry.offer.key.instance_type.clone();
    quote.recommendations.iter().map(key).collect()
}

fn rows(service: &PriceService, request: &ListRequest) -> Vec<OfferRow<'static>> {
    service.list(request, Audience::Member, Lang::En).expect("a page").items
}

fn row(service: &PriceService, key: &str) -> OfferRow<'static> {
    let assessed = service.resolve(key).expect("an offer");
    service.row(&assessed.entry, Lang::En)
}

#[test]
fn pr_001_a_capacity_block_is_not_on_demand() {
    let service = with(vec![
        list("aws/us-east-1/-/on_demand/p4d.24xlarge", "a100-40g", "8", "32.7726 USD"),
        list("aws/us-east-1/-/capacity_block/p4d.24xlarge", "a100-40g", "8", "0.032 USD"),
    ]);
    let quote = service.quote(&query("a100-40g", 8));
    assert_eq!(quote.recommendations.len(), 1);
    let first = OfferRow::new(&quote.recommendations[0].assessed, young(), Lang::En);
    assert_eq!(first.price.as_deref(), Some("32.7726"));
    assert_eq!(quote.rejected[&Rejection::Form], 1);
    assert_eq!(rows(&service, &ListRequest::default()).len(), 1);
    let all = ListRequest { all_forms: true, ..ListRequest::default() };
    let shown = rows(&service, &all);
    let forms: Vec<&str> = shown.iter().map(|row| &*row.billing_model).collect();
    assert_eq!(forms, ["capacity_block", "on_demand"]);
    assert_eq!(service.summary(Audience::Public).items[0].offer_count, 1);
}

#[test]
fn pr_002_a_price_of_zero_is_no_price() {
    let service = with(vec![
        list("azure/eastus/-/on_demand/A", "h100-80g", "8", "0 USD"),
        list("azure/eastus/-/on_demand/B", "h100-80g", "8", "8.80 USD"),
    ]);
    assert_eq!(types(&service, &query("h100-80g", 8)), ["B", "A"]);
    let a = row(&service, "azure/eastus/-/on_demand/A");
    assert_eq!((a.price, a.price_state.as_ref()), (None, "unknown"));
    let rejected = service.catalogue().rejected();
    assert!(rejected.iter().any(|(_, RejectedRow { reason, .. })| reason.contains("no_price")));
    let ceiling = Query { max_hourly_price: Some(Decimal::from(100)), ..query("h100-80g", 8) };
    assert_eq!(types(&service, &ceiling), ["B"]);
}

#[test]
fn pr_004_a_sixth_of_a_gpu_is_not_a_gpu() {
    let key = "azure/eastus/-/on_demand/Standard_NV6ads_A10_v5";
    let mut sixth = list(key, "a10", "1/6", "0.454 USD");
    sixth.gpu_memory_mib = Some(24 * 1024);
    let service = with(vec![sixth]);
    assert!(types(&service, &query("a10", 1)).is_empty());
    let request = ListRequest { gpu_count: "1/6".parse().ok(), ..ListRequest::default() };
    let found = rows(&service, &request);
    assert_eq!(found[0].gpu_count, "1/6");
    assert!(found[0].flags.contains(&Flag::Fraction));
    assert_eq!(found[0].price_per_gpu.as_deref(), Some("2.724"), "six of them make one");
}

#[test]
fn pr_005_a_wrong_count_is_corrected_and_both_are_kept() {
    let mut offer = list("azure/e/-/on_demand/ND96isr_H100_v5", "h100-80g", "8", "98.32 USD");
    offer.marks = Marks::of(Mark::CountCorrected);
    offer.details = Some(Box::new(OfferDetails {
        stated_gpu_count: Some("12".to_owned()),
        ..OfferDetails::default()
    }));
    let row = row(&with(vec![offer]), "azure/e/-/on_demand/ND96isr_H100_v5");
    assert_eq!((row.gpu_count.as_ref(), row.price_per_gpu.as_deref()), ("8", Some("12.29")));
    assert!(row.flags.contains(&Flag::CountCorrected));
    assert_eq!(row.details.unwrap().stated_gpu_count.as_deref(), Some("12"));
}

#[test]
fn pr_008_the_price_of_the_machine_and_of_one_gpu_are_labelled() {
    let service = with(vec![list("vast/-/-/spot/m", "rtx-4090", "8", "10.24 USD")]);
    let row = row(&service, "vast/-/-/spot/m");
    assert_eq!((row.price.as_deref(), row.price_per_gpu.as_deref()), (Some("10.24"), Some("1.28")));
}

#[test]
fn pr_010_yuan_are_yuan() {
    let number: RawNumber = serde_json::from_str("\"4.7700000000\"").unwrap();
    let text = format!("{} CNY", number.decimal().unwrap());
    let service =
        with(vec![list("aws-cn/cn-northwest-1/-/on_demand/g4dn.xlarge", "t4", "1", &text)]);
    let row = row(&service, "aws-cn/cn-northwest-1/-/on_demand/g4dn.xlarge");
    assert_eq!((row.price.as_deref(), row.currency.as_deref()), (Some("4.77"), Some("CNY")));
    assert_eq!(row.hourly_price.as_deref(), Some("4.7700"));
    assert_eq!(row.fx_rate, None);
}

#[test]
fn pr_011_spot_above_on_demand_comes_after_it_and_is_flagged() {
    let service = with(vec![
        list("aws/r/-/on_demand/x", "t4", "1", "2.90 USD"),
        list("aws/r/z/spot/x", "t4", "1", "3.10 USD"),
    ]);
    let quote = service.quote(&query("t4", 1));
    let flags = |at: usize| OfferRow::new(&quote.recommendations[at].assessed, young(), Lang::En);
    assert_eq!(flags(0).billing_model, "on_demand");
    assert!(flags(1).flags.contains(&Flag::SpotAboveOnDemand));
}

#[test]
fn pr_017_two_prices_for_one_type_are_one_offer_with_both() {
    let mut cheap = list("azure/e/-/on_demand/D2as_v5", "t4", "1", "0.086 USD");
    cheap.price.source = "product B".to_owned();
    let mut dear = list("azure/e/-/on_demand/D2as_v5", "t4", "1", "0.178 USD");
    dear.price.source = "product A".to_owned();
    for offers in [vec![cheap.clone(), dear.clone()], vec![dear, cheap]] {
        let row = row(&with(offers), "azure/e/-/on_demand/D2as_v5");
        assert_eq!(row.price.as_deref(), Some("0.178"), "nothing turns out dearer than shown");
        assert!(row.flags.contains(&Flag::Duplicated));
        let other = &row.details.unwrap().alternatives[0];
        assert_eq!(
            (other.price.to_string().as_str(), other.of.as_str()),
            ("0.086 USD/h", "product B")
        );
    }
}

#[test]
fn pr_019_pr_037_parts_add_up_to_the_price_exactly() {
    let part = |part: &str, amount: &str| PricePart {
        part: part.to_owned(),
        amount: parse_decimal(amount).ok(),
    };
    let mut offer = list("gcp/r/-/on_demand/a3-highgpu-8g", "h100-80g", "8", "88.25 USD");
    let parts = vec![
        part("cpu", "6.1"),
        part("memory", "3.39"),
        part("gpu", "78.36"),
        part("local_ssd", "0.4"),
    ];
    offer.details = Some(Box::new(OfferDetails { parts, ..OfferDetails::default() }));
    let row = row(&with(vec![offer]), "gcp/r/-/on_demand/a3-highgpu-8g");
    let parts = row.details.unwrap().into_owned().parts;
    assert!(parts.iter().any(|part| part.part == "local_ssd"));
    let sum: Decimal = parts.iter().filter_map(|part| part.amount).sum();
    assert_eq!(Some(sum.to_string().as_str()), row.price.as_deref());
}

#[test]
fn pr_020_the_same_row_twice_is_one_offer() {
    let twin = || list("gcp/r/-/on_demand/x", "t4", "1", "1 USD");
    let service = with(vec![twin(), twin()]);
    assert_eq!(service.catalogue().len(), 1);
    assert_eq!(service.catalogue().shard(&provider("gcp")).unwrap().doubles(), 1);
    assert!(!row(&service, "gcp/r/-/on_demand/x").flags.contains(&Flag::Duplicated));
}

#[test]
fn pr_025_pr_026_unknown_and_not_offered_are_not_free_and_not_the_same() {
    let mut nowhere = list("aws/us-west-1/-/on_demand/g5.12xlarge", "a10g", "4", "-");
    nowhere.price.state = PriceState::NotOffered;
    let service = with(vec![
        nowhere,
        list("aws/us-west-2/-/on_demand/g5.12xlarge", "a10g", "4", "-"),
        list("aws/us-east-1/-/on_demand/g5.12xlarge", "a10g", "4", "5.672 USD"),
    ]);
    let quote = service.quote(&query("a10g", 4));
    assert_eq!(quote.rejected[&Rejection::NotOffered], 1);
    assert_eq!(quote.matching, 2);
    let unknown = row(&service, "aws/us-west-2/-/on_demand/g5.12xlarge");
    assert_eq!((unknown.price_state.as_ref(), unknown.hourly_price), ("unknown", None));
    let nowhere = row(&service, "aws/us-west-1/-/on_demand/g5.12xlarge");
    assert_eq!(nowhere.price_state, "not_offered");
    assert!(nowhere.flags.contains(&Flag::NotOffered));
}

#[test]
fn pr_029_one_type_in_two_currencies_has_two_prices() {
    let service = with(vec![
        list("azure-cn/r/-/on_demand/x", "t4", "1", "0 CNY"),
        list("aliyun/r/-/on_demand/y", "t4", "1", "1.00 USD"),
        list("aliyun/r/-/on_demand/y", "t4", "1", "6.50 CNY"),
    ]);
    assert_eq!(row(&service, "azure-cn/r/-/on_demand/x").price_state, "unknown");
    let row = row(&service, "aliyun/r/-/on_demand/y");
    assert_eq!((row.price.as_deref(), row.currency.as_deref()), (Some("6.5"), Some("CNY")));
    let other = &row.details.unwrap().alternatives[0].price;
    assert_eq!(other.currency, Currency::USD);
}

#[test]
fn pr_034_an_unknown_spot_price_is_not_the_on_demand_price() {
    let service = with(vec![
        list("aws/r/-/on_demand/x", "t4", "1", "2 USD"),
        list("aws/r/z/spot/x", "t4", "1", "-"),
    ]);
    let spot = row(&service, "aws/r/z/spot/x");
    assert_eq!((spot.price, spot.price_state.as_ref()), (None, "unknown"));
}

#[test]
fn pr_038_an_unknown_part_leaves_the_total_known() {
    let mut offer = list("aws/r/-/on_demand/g9.xlarge", "t4", "1", "3 USD");
    let part = PricePart { part: "gpu".to_owned(), amount: None };
    offer.details = Some(Box::new(OfferDetails { parts: vec![part], ..OfferDetails::default() }));
    let row = row(&with(vec![offer]), "aws/r/-/on_demand/g9.xlarge");
    assert_eq!(row.price.as_deref(), Some("3"));
    assert_eq!(row.details.unwrap().parts[0].amount, None);
}

#[test]
fn pr_041_the_cheapest_is_shown_and_the_median_apart() {
    let mut ask = list("vast/-/-/on_demand/1", "rtx-4090", "1", "0.30 USD");
    let median = "0.43 USD".parse::<runwhere_model::Money>().unwrap().into();
    ask.details =
        Some(Box::new(OfferDetails { median_price: Some(median), ..OfferDetails::default() }));
    let service = with(vec![
        ask,
        list("vast/-/-/on_demand/2", "rtx-4090", "1", "0.43 USD"),
        list("vast/-/-/on_demand/3", "rtx-4090", "1", "0.60 USD"),
    ]);
    assert_eq!(types(&service, &query("rtx-4090", 1)), ["1", "2", "3"]);
    let row = row(&service, "vast/-/-/on_demand/1");
    assert_eq!(row.price.as_deref(), Some("0.3"));
    assert_eq!(row.details.unwrap().median_price.unwrap().to_string(), "0.43 USD/h");
}

#[test]
fn pr_043_an_old_price_is_stale_and_launches_nothing() {
    let service = service(at("2026-11-22T12:00:00Z"), false);
    let mut offer = offer("runpod/-/-/on_demand/h100", "h100-80g", "1", "4.49 USD");
    offer.price.kind = PriceKind::Account;
    service.replace_sheet(provider("runpod"), sheet(vec![offer], young()));
    let row = row(&service, "runpod/-/-/on_demand/h100");
    assert!(row.stale && !row.launchable && row.flags.contains(&Flag::Stale));
    assert_eq!(row.age, Some(48 * 3600));
}

#[test]
fn pr_044_an_unmapped_name_is_kept_found_and_listed() {
    let mut new = list("runpod/-/-/on_demand/x", "t4", "1", "1 USD");
    (new.gpu, new.gpu_raw) = (None, "RTX 9090 Ti".to_owned());
    let service = with(vec![new]);
    let request =
        ListRequest { gpu_model: Some("rtx 9090 ti".to_owned()), ..ListRequest::default() };
    let found = rows(&service, &request);
    assert_eq!((found[0].gpu_model.as_ref(), found[0].gpu_type), ("RTX 9090 Ti", None));
    assert!(found[0].flags.contains(&Flag::Unmapped));
    let catalogue = service.catalogue();
    let unmapped = catalogue.shard(&provider("runpod")).unwrap().unmapped();
    assert_eq!(unmapped.get("RTX 9090 Ti"), Some(&1));
}

#[test]
fn pr_046_pr_067_only_what_is_stated_is_listed_under_exactly_its_name() {
    let service = with(vec![
        list("gcp/us-central1/-/on_demand/a2-megagpu-16g", "a100-40g", "16", "55 USD"),
        list("azure/e/-/on_demand/P1", "p100", "1", "1 USD"),
        list("azure/e/-/on_demand/P10", "p100", "1", "10 USD"),
        list("azure/e/-/on_demand/P15", "p100", "1", "15 USD"),
    ]);
    let elsewhere = Query { region: Some("europe-west4".to_owned()), ..query("a100-40g", 16) };
    let quote = service.quote(&elsewhere);
    assert_eq!((quote.matching, quote.rejected[&Rejection::Place]), (0, 1));
    assert_eq!(row(&service, "azure/e/-/on_demand/P1").price.as_deref(), Some("1"));
}

#[test]
fn pr_047_a_least_bid_is_said_to_be_one() {
    let mut bid = list("mithril/-/-/spot/x", "a100-80g", "1", "0.01 USD");
    bid.marks = Marks::of(Mark::Floor);
    let service = with(vec![bid]);
    assert!(row(&service, "mithril/-/-/spot/x").flags.contains(&Flag::Floor));
    let quote = service.quote(&query("a100-80g", 1));
    assert!(quote.recommendations[0].reasons.contains(&Reason::Floor));
}

#[test]
fn pr_049_of_two_types_the_cheaper_machine_is_first() {
    let service = with(vec![
        list("gcp/r/-/on_demand/g4-standard-48", "rtx-pro-6000", "1", "4.50 USD"),
        list("gcp/r/-/on_demand/g4-standard-6", "rtx-pro-6000", "1", "1.518 USD"),
    ]);
    assert_eq!(types(&service, &query("rtx-pro-6000", 1))[0], "g4-standard-6");
}

#[test]
fn pr_050_letter_case_of_a_region_does_not_hide_a_price() {
    let service = with(vec![list("azure/westus3/-/on_demand/NC24", "t4", "1", "2 USD")]);
    assert_eq!(row(&service, "azure/WestUS3/-/on_demand/nc24").price.as_deref(), Some("2"));
}

#[test]
fn pr_052_a_catalogue_of_600_days_is_not_the_cheapest() {
    let service = service(young(), false);
    let old = young().checked_sub(SignedDuration::from_hours(600 * 24)).unwrap();
    let mut cheap = list("oci/r/-/on_demand/old", "t4", "1", "0.1 USD");
    cheap.price.observed_at = Some(old);
    service.replace_sheet(provider("oci"), sheet(vec![cheap], old));
    let dear = list("aws/r/-/on_demand/new", "t4", "1", "1 USD");
    service.replace_sheet(provider("aws"), sheet(vec![dear], young()));
    assert_eq!(types(&service, &query("t4", 1)), ["new", "old"]);
    let fresh = Query { fresh_only: true, ..query("t4", 1) };
    let quote = service.quote(&fresh);
    assert_eq!((quote.matching, quote.rejected[&Rejection::Stale]), (1, 1));
    let summary = service.summary(Audience::Public);
    assert_eq!(
        summary.items[0].min_hourly_price.as_deref(),
        Some("6.7489"),
        "1 USD, the fresh one"
    );
}

#[test]
fn pr_055_an_odd_memory_is_the_models_and_the_stated_one_is_kept() {
    let mut odd = list("vast/-/-/on_demand/1", "rtx-4090", "1", "0.3 USD");
    odd.gpu_memory_mib = Some(24_564);
    let mut wrong = list("vast/-/-/on_demand/2", "rtx-4090", "1", "0.3 USD");
    wrong.gpu_memory_mib = Some(8192);
    let service = with(vec![odd, wrong]);
    let odd = row(&service, "vast/-/-/on_demand/1");
    assert_eq!((odd.gpu_memory_gb, odd.gpu_memory_stated_mib), (Some(24), Some(24_564)));
    assert!(!odd.flags.contains(&Flag::MemoryCorrected));
    let wrong = row(&service, "vast/-/-/on_demand/2");
    assert_eq!((wrong.gpu_memory_gb, wrong.gpu_memory_stated_mib), (Some(24), Some(8192)));
    assert!(wrong.flags.contains(&Flag::MemoryCorrected));
}

#[test]
fn pr_056_pr_059_the_vendor_is_the_models() {
    assert_eq!(gpu("mi300x").model().vendor, Vendor::Amd);
    assert_eq!(GpuModel::named("Inferentia2", None).map(|m| m.vendor), Some(Vendor::Aws));
    assert_eq!(
        GpuModel::named("AMD Instinct MI300X OAM", None).map(|m| m.vendor),
        Some(Vendor::Amd)
    );
}

#[test]
fn pr_061_what_is_sold_out_is_hidden_unless_asked_for() {
    let mut gone = list("runpod/-/-/on_demand/gone", "t4", "1", "0.2 USD");
    (gone.stock, gone.launchable) = (Stock::SoldOut, false);
    let service = with(vec![gone, list("runpod/-/-/on_demand/there", "t4", "1", "0.3 USD")]);
    assert_eq!(types(&service, &query("t4", 1)), ["there"]);
    assert_eq!(rows(&service, &ListRequest::default()).len(), 1);
    let inactive = ListRequest { active: false, ..ListRequest::default() };
    assert_eq!(rows(&service, &inactive)[0].stock, Stock::SoldOut);
}

#[test]
fn pr_064_a_bare_family_name_means_all_its_members() {
    let service = with(vec![
        list("a/-/-/on_demand/sxm", "h100-80g", "1", "3 USD"),
        list("a/-/-/on_demand/nvl", "h100-nvl-94g", "1", "2 USD"),
        list("a/-/-/on_demand/40", "a100-40g", "1", "1 USD"),
        list("a/-/-/on_demand/80", "a100-80g", "1", "1.5 USD"),
    ]);
    let named = |name: &str| {
        let request = ListRequest { gpu_model: Some(name.to_owned()), ..ListRequest::default() };
        rows(&service, &request).into_iter().map(|row| row.instance_type).collect::<Vec<_>>()
    };
    assert_eq!(named("H100"), ["nvl", "sxm"]);
    assert_eq!(named("h100-80g"), ["sxm"], "pinned");
    assert_eq!(named("NVIDIA H100"), ["sxm"], "the published client's name of one model");
    assert_eq!(named("a100"), ["40", "80"]);
}

#[test]
fn pr_074_an_exchange_rate_shows_its_day_and_decides_nothing_when_it_is_old() {
    let rate = |service: &PriceService| {
        let row = row(service, "a/r/-/on_demand/x");
        let source = row.fx_source.map(|source| source.into_owned());
        let (rate, day) = (row.fx_rate.map(|r| r.to_string()), row.fx_date.map(|d| d.to_string()));
        let shown = [rate, day, source].map(|text| text.unwrap_or_default());
        assert_eq!(shown, ["6.7489", "2026-09-24", "CFETS central parity rate"]);
        assert_eq!(row.hourly_price.as_deref(), Some("13.4978"));
        row.flags
    };
    let ceiling = Query { max_hourly_price: Some(Decimal::from(100)), ..query("t4", 1) };
    let at_limit = |day: &str| {
        let now = at(day);
        let service = service(now, false);
        let mut offer = offer("a/r/-/on_demand/x", "t4", "1", "2 USD");
        offer.price.observed_at = Some(now);
        service.replace_sheet(provider("a"), sheet(vec![offer], now));
        service
    };
    // Nobody stated a rate for 120 days: it still holds, and everybody sees of which day it is.
    let last_day = at_limit("2027-01-22T12:00:00Z");
    assert!(!rate(&last_day).contains(&Flag::OldRate));
    assert_eq!(types(&last_day, &ceiling), ["x"]);
    // A day later it is shown as an old one, and what would be decided with it is refused.
    let too_old = at_limit("2027-01-23T12:00:00Z");
    assert!(rate(&too_old).contains(&Flag::OldRate));
    let quote = too_old.quote(&ceiling);
    assert_eq!((quote.matching, quote.rejected[&Rejection::ExchangeRate]), (0, 1));
    let two = "2 USD".parse().unwrap();
    let decided = too_old.catalogue().fx().decide(two, Currency::CNY, at("2027-01-23T12:00:00Z"));
    assert!(decided.unwrap_err().to_string().contains("121 days old; at most 120"));
    // What needs no rate is decided as ever.
    let free = Query { max_hourly_price: None, ..ceiling };
    assert_eq!(types(&too_old, &free), ["x"]);
}

#[test]
fn pr_085_the_summary_and_the_list_show_the_same_lowest_price() {
    let service = service(young(), true);
    for item in service.summary(Audience::Public).items.iter().take(20) {
        let request = ListRequest {
            gpu_model: item.gpu_type.map(|id| id.to_string()),
            limit: 500,
            ..ListRequest::default()
        };
        let whole = |row: &OfferRow| !row.flags.contains(&Flag::Fraction) && !row.stale;
        let rows = service.list(&request, Audience::Public, Lang::En).unwrap().items;
        let price = |row: OfferRow| parse_decimal(row.hourly_price.as_deref()?).ok();
        let lowest = rows.into_iter().filter(whole).filter_map(price).min();
        let shown = item.min_hourly_price.as_deref().map(|text| parse_decimal(text).unwrap());
        assert_eq!(lowest, shown, "{}", item.gpu_model);
    }
}

#[test]
fn pr_086_three_models_give_three_recommendations() {
    let service = with(vec![
        list("a/-/-/on_demand/x", "t4", "1", "1 USD"),
        list("a/-/-/on_demand/y", "l4", "1", "2 USD"),
        list("a/-/-/on_demand/z", "a10", "1", "3 USD"),
    ]);
    let rows = service.recommend_across(Query::new(None, 1), Lang::En);
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0].tag_code, Tag::Recommended);
}

#[test]
fn pr_088_an_unknown_price_is_last_not_first() {
    let service = with(vec![
        list("a/-/-/on_demand/unknown", "t4", "1", "-"),
        list("a/-/-/on_demand/dear", "t4", "1", "99 USD"),
    ]);
    assert_eq!(types(&service, &query("t4", 1)), ["dear", "unknown"]);
}

#[test]
fn pr_089_a_cut_list_says_how_many_there_are() {
    let offers =
        (0..25).map(|n| list(&format!("a/-/-/on_demand/{n}"), "t4", "1", "1 USD")).collect();
    let page = with(offers).list(&ListRequest::default(), Audience::Public, Lang::En).unwrap();
    assert_eq!((page.items.len(), page.total), (20, 25));
}

#[test]
fn reclaim_risk_and_regions_decide_where_that_is_asked() {
    use runwhere_pricing::Policy;
    let mut risky = list("a/r1/z/spot/risky", "t4", "1", "1.0 USD");
    risky.details = Some(Box::new(OfferDetails {
        reclaim_percent: parse_decimal("50").ok(),
        ..OfferDetails::default()
    }));
    let mut calm = list("a/r1/z/spot/calm", "t4", "1", "1.2 USD");
    calm.details = Some(Box::new(OfferDetails {
        reclaim_percent: parse_decimal("3").ok(),
        ..OfferDetails::default()
    }));
    let service = with(vec![risky, calm, list("a/r2/-/on_demand/fixed", "t4", "1", "1.4 USD")]);
    assert_eq!(types(&service, &query("t4", 1)), ["risky", "calm", "fixed"]);
    let weighed = Query { policy: Policy::Reclaim, ..query("t4", 1) };
    assert_eq!(types(&service, &weighed), ["calm", "fixed", "risky"]);
    let preferred = Query { prefer_regions: vec!["r2".to_owned()], ..query("t4", 1) };
    assert_eq!(types(&service, &preferred), ["fixed", "risky", "calm"]);
    let quote = service.quote(&preferred);
    let cheapest = |reason: &Reason| {
        matches!(reason, Reason::CheapestListed { .. } | Reason::CheapestLaunchable { .. })
    };
    assert!(!quote.recommendations[0].reasons.iter().any(cheapest));
}
