//! Defects of catalogue files that are not about one column, by their numbers in
//! `docs/price-complaints.md`: in the bundled table, and when such a file is imported.

use runwhere_model::offer::Stock;
use runwhere_model::{GpuModel, Lang, Mark, OfferKey};
use runwhere_pricing::{
    Audience, Flag, ImportOptions, Imported, ListRequest, OfferRow, PriceService, Query, import,
};

use crate::imports::{A5, price, read, told};
use crate::support::{provider, service, young};

fn bundled() -> PriceService {
    service(young(), true)
}

fn row(service: &PriceService, key: &str) -> OfferRow<'static> {
    let assessed = service.resolve(key).unwrap_or_else(|error| panic!("{key}: {error:?}"));
    service.row(&assessed.entry, Lang::En)
}

/// Price and currency of a bundled offer.
fn stated(service: &PriceService, key: &str) -> String {
    let row = row(service, key);
    format!("{} {}", row.price.expect("a price"), row.currency.expect("a currency"))
}

/// A service with what a file holds.
fn with(imported: Imported) -> PriceService {
    let service = service(young(), false);
    for (id, sheet) in imported.into_sheets(young()) {
        service.replace_sheet(id, sheet);
    }
    service
}

#[test]
fn p28_a_machine_has_its_own_price_not_a_multiple() {
    let service = bundled();
    for (key, want) in [
        ("lambda/us-east-1/-/on_demand/gpu_1x_h100_sxm5", "4.29 USD"),
        ("lambda/us-east-1/-/on_demand/gpu_2x_h100_sxm5", "8.38 USD"),
        ("lambda/us-east-1/-/on_demand/gpu_4x_h100_sxm5", "16.36 USD"),
        ("lambda/us-east-1/-/on_demand/gpu_8x_h100_sxm5", "31.92 USD"),
        ("simplepod/Europe-PL/-/on_demand/gpu_3x_rtxpro6000blackwell_288", "2.97 USD"),
        ("simplepod/Europe-PL/-/on_demand/gpu_4x_rtxpro6000blackwell_192", "4.8 USD"),
        ("runpod/US/-/on_demand/4x_A100-80GB_SECURE", "6.48 USD"),
        ("shadeform/desmoines-usa-1/-/on_demand/massedcompute_L40x2", "1.98 USD"),
        ("shadeform/desmoines-usa-1/-/on_demand/massedcompute_L40x4", "5.96 USD"),
        ("verda/FIN-03/-/spot/1B200.30V", "1.712 USD"),
        ("verda/FIN-03/-/spot/8B200.240V", "13.69 USD"),
    ] {
        assert_eq!(stated(&service, key), want, "{key}");
    }
    // Asked for two, nobody gets two of the dearer single ones.
    let h100 = GpuModel::resolve("h100-80g").map(|model| model.id);
    let two = Query { provider: Some("lambda".into()), ..Query::new(h100, 2) };
    let quote = service.quote(&two);
    let first = &quote.recommendations[0].assessed.entry.offer;
    assert_eq!(first.key.instance_type, "gpu_2x_h100_sxm5");
    let each = |count: u32| {
        let key = format!("lambda/us-east-1/-/on_demand/gpu_{count}x_h100_sxm5");
        row(&service, &key).price_per_gpu.expect("a price of one")
    };
    assert_eq!([1, 2, 4, 8].map(each), ["4.29", "4.19", "4.09", "3.99"]);
}

#[test]
fn p31_prices_some_tenths_of_a_cent_apart_stay_apart() {
    let service = bundled();
    let key = |region: &str| format!("azure/{region}/-/on_demand/Standard_NC24rs_v3");
    assert_eq!(stated(&service, &key("eastus")), "13.46 USD");
    assert_eq!(stated(&service, &key("eastus2")), "13.464 USD");
    let v100 = GpuModel::resolve("v100-16g").map(|model| model.id);
    let query = Query {
        provider: Some("azure".to_owned()),
        spot_allowed: false,
        top_n: 50,
        ..Query::new(v100, 4)
    };
    let quote = service.quote(&query);
    let regions: Vec<&str> = quote
        .recommendations
        .iter()
        .filter(|r| r.assessed.entry.offer.key.instance_type == "Standard_NC24rs_v3")
        .filter_map(|r| r.assessed.entry.offer.key.region.as_deref())
        .collect();
    assert_eq!(regions, ["eastus", "westus2", "westus3", "eastus2", "southcentralus"]);
}

#[test]
fn p32_the_table_has_the_prices_of_linux() {
    let service = bundled();
    for (size, linux, windows) in [
        ("Standard_NC48ads_A100_v4", "7.346", "9.554"),
        ("Standard_NC80adis_H100_v5", "13.96", "17.64"),
        ("Standard_NC96ads_A100_v4", "14.692", "19.108"),
    ] {
        let row = row(&service, &format!("azure/eastus/-/on_demand/{size}"));
        let amount = |text: &str| runwhere_model::parse_decimal(text).expect("a price");
        assert_eq!(row.price.as_deref(), Some(linux), "{size}, not {windows}");
        // 0.046 for each vCPU is the licence.
        let licence = amount("0.046") * rust_decimal::Decimal::from(row.vcpus.expect("vCPUs"));
        assert_eq!(amount(linux) + licence, amount(windows), "{size}");
    }
}

#[test]
fn p34_a_price_in_an_unclear_unit_is_left_out() {
    let service = bundled();
    for size in ["GN8.7XLARGE224", "GN8.14XLARGE448"] {
        for region in ["-", "ap-guangzhou"] {
            assert!(service.resolve(&format!("tencent/{region}/-/on_demand/{size}")).is_err());
        }
    }
    assert_eq!(stated(&service, "tencent/-/-/on_demand/GN8.LARGE56"), "1.98 USD");
    assert!(row(&service, "tencent/-/-/on_demand/GN8.LARGE56").flags.contains(&Flag::FromPrice));
    // A file that writes "yuan an hour" among dollars: the row says why it is none.
    let csv = "provider,region,zone,billing_model,instance_type,gpu_name,gpu_count,gpu_memory_gib,vcpus,memory_gib,currency,price_per_hour\n\
        tencent,,,on_demand,GN8.LARGE56,P40,1,24,6,56,USD,1.98\n\
        tencent,,,on_demand,GN8.7XLARGE224,P40,4,24,28,224,元/小时,8.01\n\
        tencent,,,on_demand,GN8.14XLARGE448,P40,8,24,56,448,USD,16.02 元/小时\n";
    let imported = import(csv.as_bytes(), &ImportOptions::default()).expect("a table");
    assert_eq!(told(&imported), ["on_demand - GN8.LARGE56 1xp40 1.98 USD"]);
    let reasons: Vec<&str> = imported.rejected.iter().map(|row| row.reason.as_str()).collect();
    assert!(reasons[0].starts_with("currency"), "{reasons:?}");
    assert!(reasons[1].starts_with("price_per_hour"), "{reasons:?}");
}

#[test]
fn p35_a_block_that_stands_twice_is_there_once_and_says_nothing_of_stock() {
    let block = "2x_B200_SECURE,B200,2,28,360,B200,US,,9.98,\n2x_B200_SECURE,B200,2,28,360,B200,CA,,9.98,\n";
    let header = format!("{A5},GpuInfo,Region,SpotPrice,Price,AvailabilityZone\n");
    let imported = read("runpod", &format!("{header}{block}{block}"));
    assert_eq!(imported.rows, 4);
    let service = with(imported);
    let catalogue = service.catalogue();
    let shard = catalogue.shard(&provider("runpod")).expect("its prices");
    assert_eq!((shard.len(), shard.doubles()), (2, 2));
    for region in ["US", "CA"] {
        let row = row(&service, &format!("runpod/{region}/-/on_demand/2x_B200_SECURE"));
        // One price in every place is a list price, not a machine that stands there.
        assert_eq!((row.stock, row.launchable), (Stock::Unstated, false));
        assert!(!row.flags.contains(&Flag::Duplicated));
    }
}

#[test]
fn p38_a_brokers_copy_names_the_cloud_behind_it() {
    let service = bundled();
    let shadeform = "shadeform/saltlakecity-usa-1/-/on_demand/lambdalabs_H100-sxm5x8";
    let prime = "primeintellect/US/us-west-3/on_demand/lambdalabs__8xH100_80GB__208__1800";
    let own = "lambda/us-east-1/-/on_demand/gpu_8x_h100_sxm5";
    for (key, want) in [(own, "31.92 USD"), (shadeform, "31.92 USD"), (prime, "23.92 USD")] {
        assert_eq!(stated(&service, key), want, "{key}");
    }
    for key in [shadeform, prime] {
        let row = row(&service, key);
        assert!(row.flags.contains(&Flag::Resold), "{key}");
        let details = row.details.expect("details");
        assert_eq!(details.upstream.as_deref(), Some("lambda"), "{key}");
    }
    assert!(!row(&service, own).flags.contains(&Flag::Resold));
    // The same when the file is imported, with and without a column for it.
    let csv = format!(
        "{A5},Price,Region,GpuInfo,SpotPrice\nmassedcompute_L40x2,L40,2,50,384,1.98,desmoines-usa-1,,"
    );
    let details = read("shadeform", &csv).offers[0].details.clone().expect("details");
    assert_eq!(details.upstream.as_deref(), Some("massedcompute"));
    let csv = "InstanceType,UpstreamCloudId,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n\
        datacrunch__8xH100_80GB__176__1480,8H100.80S.176V,176,1480,H100,8,,FI,FIN-02,15.77,";
    let details = read("primeintellect", csv).offers[0].details.clone().expect("details");
    assert_eq!(details.upstream.as_deref(), Some("verda"));
}

#[test]
fn p40_a_type_in_two_zones_is_two_offers() {
    let csv = "AvailabilityZone,InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,Price,SpotPrice\n\
        fr-par-1,RENDER-S,10,42,P100,1,Tesla P100-PCIE-16GB,fr-par,1.2426,\n\
        fr-par-2,RENDER-S,10,42,P100,1,Tesla P100-PCIE-16GB,fr-par,1.2426,\n";
    let service = with(read("scaleway", csv));
    let catalogue = service.catalogue();
    let shard = catalogue.shard(&provider("scaleway")).expect("its prices");
    assert_eq!((shard.len(), shard.doubles()), (2, 0));
    for zone in ["fr-par-1", "fr-par-2"] {
        let row = row(&service, &format!("scaleway/fr-par/{zone}/on_demand/RENDER-S"));
        assert_eq!((row.price.as_deref(), row.currency.as_deref()), (Some("1.2426"), Some("EUR")));
        assert_eq!(row.gpu_type.map(|gpu| gpu.as_str()), Some("p100"));
    }
}

#[test]
fn p41_zones_are_ids_and_local_zones_are_among_them() {
    let csv = format!(
        "{A5},GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch\n\
         g4dn.8xlarge,T4,1,32,128,,2.176,0.469400,us-west-2,usw2-lax1-az1,x86_64\n\
         g4dn.8xlarge,T4,1,32,128,,2.176,0.870000,us-west-2,usw2-az1,x86_64\n"
    );
    let service = with(read("aws", &csv));
    let zones: Vec<Option<String>> = {
        let request = ListRequest { limit: 10, ..ListRequest::default() };
        let page = service.list(&request, Audience::Member, Lang::En).expect("a page");
        page.items.into_iter().map(|row| Some(row.zone?.into_owned())).collect()
    };
    // The on-demand price is the region's, spot prices are the zones', whatever their names look like.
    assert_eq!(zones, [Some("usw2-lax1-az1".to_owned()), Some("usw2-az1".to_owned()), None]);
}

#[test]
fn p46_places_of_a_broker_are_kept_and_their_country_is_the_regions() {
    let csv = "InstanceType,UpstreamCloudId,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n\
        dc_roan__8xH100_80GB__104__1024,x,104,1024,H100,8,,US,a3111bd4-550a-47d0-838a-0a52bff2ae3f,15.92,\n\
        primecompute__8xH100_80GB__104__752,x,104,752,H100,8,,US,US/US,20.0,\n";
    let imported = read("primeintellect", csv);
    let keys: Vec<String> = imported.offers.iter().map(|offer| offer.key.to_string()).collect();
    assert_eq!(
        keys,
        [
            "primeintellect/US/a3111bd4-550a-47d0-838a-0a52bff2ae3f/on_demand/dc_roan__8xH100_80GB__104__1024",
            "primeintellect/US/US%2FUS/on_demand/primecompute__8xH100_80GB__104__752",
        ]
    );
    let service = with(imported);
    for key in &keys {
        assert_eq!(row(&service, key).offer_key, *key, "it can be named");
    }
    let country = |code: &str| {
        let request = ListRequest { country: Some(code.to_owned()), ..ListRequest::default() };
        service.list(&request, Audience::Public, Lang::En).expect("a page").total
    };
    assert_eq!((country("US"), country("FI")), (2, 0));
}

#[test]
fn p49_regions_and_zones_with_names_of_towns() {
    let csv = format!(
        "{A5},Price,Region,GpuInfo,SpotPrice,AvailabilityZone\n\
         t1-45,V100,1,8,45,1.97,GRA,,,GRA7\n\
         t1-45,V100,1,8,45,1.97,GRA,,,GRA11\n\
         t1-45,V100,1,8,45,1.97,FRA,,,DE1\n\
         t1-45,V100,1,8,45,1.97,LON,,,UK1\n"
    );
    let imported = read("ovhcloud", &csv);
    assert!(imported.offers.iter().all(|offer| offer.marks.has(Mark::CurrencyAssumed)));
    let service = with(imported);
    for (key, country) in [
        ("ovhcloud/GRA/GRA7/on_demand/t1-45", "FR"),
        ("ovhcloud/GRA/GRA11/on_demand/t1-45", "FR"),
        // Frankfurt, not France.
        ("ovhcloud/FRA/DE1/on_demand/t1-45", "DE"),
        ("ovhcloud/LON/UK1/on_demand/t1-45", "GB"),
    ] {
        let details = row(&service, key).details.expect("details");
        assert_eq!(details.country.as_deref(), Some(country), "{key}");
    }
    let gra = Query { region: Some("GRA".to_owned()), ..Query::new(None, 1) };
    assert_eq!(service.quote(&gra).matching, 2);
}

#[test]
fn p50_upper_case_zones_and_types_that_are_formulas() {
    let csv = format!(
        "{A5},GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n\
         BM.GPU.A10.4,A10,4,128,1024,,8,4,af-casablanca-1,AF-CASABLANCA-1-AD-1\n\
         VM.Standard.E4.Flex$_2_8,,,2,8,,0.0,0.0,af-casablanca-1,AF-CASABLANCA-1-AD-1\n\
         VM.GPU.Flex$_1_15,A10,1,15,240,,2,,af-casablanca-1,AF-CASABLANCA-1-AD-1\n"
    );
    let imported = read("oci", &csv);
    assert_eq!((imported.without_gpu, imported.rejected.len()), (1, 0));
    assert_eq!(price(&imported.offers[0]), "8 USD");
    let keys: Vec<String> = imported.offers.iter().map(|offer| offer.key.to_string()).collect();
    assert_eq!(keys[0], "oci/af-casablanca-1/AF-CASABLANCA-1-AD-1/on_demand/BM.GPU.A10.4");
    assert_eq!(keys[2], "oci/af-casablanca-1/AF-CASABLANCA-1-AD-1/on_demand/VM.GPU.Flex%24_1_15");
    for key in &keys {
        let parsed: OfferKey = key.parse().expect("a key");
        assert_eq!(parsed.to_string(), *key);
    }
    let service = with(imported);
    let found = row(&service, "oci/AF-CASABLANCA-1/af-casablanca-1-ad-1/on_demand/bm.gpu.a10.4");
    assert_eq!(found.offer_key, keys[0], "letter case hides nothing and nothing is rewritten");
}
