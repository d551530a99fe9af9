//! Imports of other catalogues: every layout that was seen, every defect by its number.

use runwhere_model::{Currency, GpuModelId, Mark, Offer, PriceState, ProviderId};
use runwhere_pricing::{ImportError, ImportOptions, Imported, Layout, import};

pub(crate) fn read(provider: &str, csv: &str) -> Imported {
    let options = ImportOptions {
        provider: ProviderId::new(provider).ok(),
        source: "vms.csv".to_owned(),
        ..ImportOptions::default()
    };
    import(csv.as_bytes(), &options).expect("a table")
}

pub(crate) fn price(offer: &Offer) -> String {
    match offer.price.state {
        PriceState::Known { price } => format!("{} {}", price.amount, price.currency),
        PriceState::Unknown => "unknown".to_owned(),
        PriceState::NotOffered => "not offered".to_owned(),
    }
}

pub(crate) fn told(imported: &Imported) -> Vec<String> {
    let line = |offer: &Offer| {
        let gpu = offer.gpu.map_or("?", GpuModelId::as_str);
        let key = &offer.key;
        let zone = key.zone.as_deref().unwrap_or("-");
        format!(
            "{} {zone} {} {}x{gpu} {}",
            key.billing_model,
            key.instance_type,
            offer.gpu_count,
            price(offer)
        )
    };
    imported.offers.iter().map(line).collect()
}

pub(crate) const A5: &str = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB";

#[test]
fn every_layout_is_read_by_the_names_of_its_columns() {
    let info = |mib: u32| {
        format!(
            "\"{{'Gpus': [{{'Name': 'X', 'Count': 1.0, 'MemoryInfo': {{'SizeInMiB': {mib}}}}}], 'TotalGpuMemoryInMiB': {mib}}}\""
        )
    };
    let a5 = "t,H100,8.0,208.0,1800.0";
    let i = info(81_920);
    for (provider, header, row) in [
        ("aws", format!("{A5},GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch"), format!("{a5},{i},10.5,2.500000,r,z1,x86_64")),
        ("azure", format!("{A5},GpuInfo,Price,SpotPrice,Region,Generation"), format!("{a5},H100-80GB,10.5,2.5,r,\"V1,V2\"")),
        ("lambda", format!("{A5},Price,Region,GpuInfo,SpotPrice"), format!("{a5},10.5,r,{i},2.5")),
        ("runpod", format!("{A5},Region,SpotPrice,Price,AvailabilityZone,GpuInfo"), format!("{a5},r,2.5,10.5,z,{i}")),
        ("runpod", format!("{A5},GpuInfo,Region,SpotPrice,Price,AvailabilityZone"), format!("{a5},{i},r,2.5,10.5,z")),
        ("verda", "InstanceType,UpstreamCloudId,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,Price,SpotPrice".to_owned(), format!("t,u,208,1800,H100,8.0,{i},r,10.5,2.5")),
        ("primeintellect", "InstanceType,UpstreamCloudId,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice".to_owned(), format!("t,u,208,1800,H100,8,{i},r,z,10.5,2.5")),
        ("hyperstack", format!("{A5},GpuInfo,Price,Region,SpotPrice"), format!("{a5},{i},10.5,r,2.5")),
        ("oci", format!("{A5},GpuInfo,Price,SpotPrice,Region,AvailabilityZone"), format!("{a5},{i},10.5,2.5,r,AD-1")),
        ("vast", format!("{A5},GpuInfo,Price,SpotPrice,Region"), format!("8x-H100-208-1843200,H100,8.0,208.0,1800.0,{i},10.5,2.5,\"Oslo, NO, EU\"")),
        ("mithril", format!("{A5},Price,SpotPrice,Region,GpuInfo"), format!("{a5},10.5,2.5,r,{i}")),
        ("yotta", format!("{A5},GpuInfo,Region,SpotPrice,Price"), format!("{a5},{i},r,2.5,10.5")),
        ("spheron", format!("{A5},Price,Region,GpuInfo,SpotPrice,Provider,OperatingSystem,SpheronInstanceType"), format!("{a5},10.5,r,{i},2.5,massed,Ubuntu,s")),
        ("scaleway", "AvailabilityZone,InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,Price,SpotPrice".to_owned(), format!("z,t,208,1800,H100,8,{i},r,10.5,2.5")),
        ("ovhcloud", format!("{A5},Price,Region,GpuInfo,SpotPrice,AvailabilityZone"), format!("{a5},10.5,r,{i},2.5,z")),
        ("hyperbolic", "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,StorageGiB,Price,Region,GpuInfo,SpotPrice".to_owned(), format!("{a5},100,10.5,r,{i},2.5")),
    ] {
        let imported = read(provider, &format!("{header}\n{row}"));
        assert_eq!(imported.rejected, [], "{provider}");
        let amounts: Vec<String> = imported.offers.iter().map(|offer| {
            assert_eq!((offer.gpu.map(GpuModelId::as_str), offer.gpu_count.to_string().as_str()), (Some("h100-80g"), "8"), "{provider}");
            assert_eq!((offer.vcpus, offer.memory_mib), (Some(208), Some(1800 * 1024)), "{provider}");
            price(offer).split(' ').next().unwrap_or_default().to_owned()
        }).collect();
        let want: &[&str] = if provider == "mithril" { &["2.5"] } else { &["10.5", "2.5"] };
        assert_eq!(amounts, want, "{provider}");
    }
    // No spot column at all, no newline at the end.
    let without = read("simplepod", &format!("{A5},Price,Region,GpuInfo\n{a5},10.5,r,{i}"));
    assert_eq!(without.offers.len(), 1);
}

#[test]
fn p01_p02_p04_p05_memory_of_one_gpu_is_found_whatever_the_field_holds() {
    let file = |provider: &str, name: &str, count: &str, mib: u64| {
        let csv = format!(
            "{A5},Price,Region,GpuInfo\nt,{name},{count},8,64,1,r,\"{{'SizeInMiB': {mib}}}\""
        );
        let imported = read(provider, &csv);
        let offer = &imported.offers[0];
        (offer.gpu.map(GpuModelId::as_str), offer.gpu_memory_mib)
    };
    assert_eq!(file("lambda", "H100", "8.0", 81_920), (Some("h100-80g"), Some(81_920)), "P1: one");
    assert_eq!(file("vast", "H200", "4.0", 575_084), (Some("h200"), Some(143_771)), "P2: all");
    assert_eq!(
        file("primeintellect", "A100-80GB", "8", 655_360),
        (Some("a100-80g"), Some(81_920)),
        "P2"
    );
    assert_eq!(
        file("primeintellect", "A100-80GB", "8", 5_242_880),
        (Some("a100-80g"), Some(81_920)),
        "P2: squared"
    );
    assert_eq!(file("seeweb", "RTXPRO6000", "1", 0).0, Some("rtx-pro-6000"), "P4: zero");
    assert_eq!(
        file("seeweb", "A6000", "1", 48_384),
        (Some("rtx-a6000"), Some(48_384)),
        "P4: wrong"
    );
    assert_eq!(file("aws", "L4", "1", 22_888), (Some("l4"), Some(22_888)), "P5: decimal");
    assert_eq!(file("aws", "B200", "8", 183_359).0, Some("b200"), "P5");
    assert_eq!(
        file("vast", "H100", "1", 95_830).0,
        Some("h100-nvl-94g"),
        "names: 94 GB is the NVL"
    );
}

#[test]
fn p07_p08_p10_wrong_columns_are_corrected_or_left_out() {
    let csv = format!(
        "{A5},Price,Region,GpuInfo,SpotPrice,Provider\nx,A100-80GB,1,8,64,1,calgary-canada-1,\"{{'SizeInMiB': 81920}}\",,denvr"
    );
    let denvr = &read("spheron", &csv).offers[0];
    assert_eq!(denvr.gpu.map(GpuModelId::as_str), Some("a100-40g"), "P7");
    assert!(denvr.marks.has(Mark::MemoryCorrected) && denvr.marks.has(Mark::Resold));
    assert_eq!(denvr.details.as_ref().unwrap().upstream.as_deref(), Some("denvr"), "P38");
    let csv = format!(
        "{A5},GpuInfo,Region,SpotPrice,Price,AvailabilityZone\n2x,B200,2,8,360,B200,US,,9,US-1"
    );
    assert_eq!(read("runpod", &csv).offers[0].memory_mib, None, "P8");
    let csv = format!(
        "{A5},GpuInfo,Price,SpotPrice,Region\nStandard_ND96asr_v4,A100,8,96,900,A100,27,,eastus"
    );
    assert_eq!(read("azure", &csv).offers[0].gpu.map(GpuModelId::as_str), Some("a100-40g"), "P10");
}

#[test]
fn p11_p13_p14_p16_p17_counts_are_rationals() {
    let csv = format!(
        "{A5},GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n\
         g6f.large,L4,0.125,2,8,\"{{'Count': 0, 'MemoryInfo': {{'SizeInMiB': 2861}}}}\",0.2,,r,z\n\
         g6f.2xlarge,L4,0.25,8,32,\"{{'SizeInMiB': 5722}}\",0.4,,r,z\n\
         c5.large,,,2,4,,0.1,,r,z\n"
    );
    let aws = read("aws", &csv);
    assert_eq!(
        told(&aws),
        ["on_demand - g6f.large 1/8xl4 0.2 USD", "on_demand - g6f.2xlarge 1/4xl4 0.4 USD"]
    );
    assert_eq!((aws.rows, aws.without_gpu), (3, 1));
    let csv = format!(
        "{A5},GpuInfo,Price,SpotPrice,Region\n\
         Standard_NV6ads_A10_v5,A10,1.0,6,55,A10,0.454,,eastus\n\
         Standard_NV12ads_A10_v5,A10,0.333,12,110,A10,0.908,,eastus\n\
         Standard_NV8as_v4,Radeon MI25,1,8,28,Radeon MI25,0.466,,eastus\n\
         Standard_NC8ads_A10_v4,,,8,55,,0.9,,eastus\n\
         Standard_D2,,,2,8,,0.1,,eastus\n"
    );
    let azure = read("azure", &csv);
    let counts: Vec<String> = azure.offers.iter().map(|o| o.gpu_count.to_string()).collect();
    assert_eq!(counts, ["1/6", "1/3", "1/4"], "P14");
    assert!(azure.offers[0].marks.has(Mark::CountCorrected));
    assert!(!azure.offers[1].marks.has(Mark::CountCorrected), "a newer file has it right");
    assert_eq!((azure.rejected.len(), azure.without_gpu), (1, 1), "P16");
    let nebius = read(
        "nebius",
        &format!(
            "{A5},Price,Region,GpuInfo,SpotPrice\ncpu-d3,,0,4,16,0.1,eu,,\ncpu-e2,CPU,0.0,4,16,0.1,eu,,"
        ),
    );
    assert_eq!((nebius.offers.len(), nebius.without_gpu), (0, 2), "P17");
}

#[test]
fn p19_p20_p22_p41_digits_survive_and_one_auction_is_one_price() {
    let csv = format!(
        "{A5},GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n\
         p4d.24xlarge,A100,8,96,1152,,21.957642,1.413400,us-east-1,use1-az1\n\
         p4d.24xlarge,A100,8,96,1152,,21.957642,1.5,us-east-1,use1-az2\n"
    );
    let aws = read("aws", &csv);
    assert_eq!(
        told(&aws),
        [
            "on_demand - p4d.24xlarge 8xa100-40g 21.957642 USD",
            "spot use1-az1 p4d.24xlarge 8xa100-40g 1.4134 USD",
            "on_demand - p4d.24xlarge 8xa100-40g 21.957642 USD",
            "spot use1-az2 p4d.24xlarge 8xa100-40g 1.5 USD",
        ],
        "P41: zone ids; the on-demand price is the region's"
    );
    let mithril = read(
        "mithril",
        &format!("{A5},Price,SpotPrice,Region,GpuInfo\nx,A100-80GB,8,8,64,8,8.0,r,"),
    );
    assert_eq!(told(&mithril), ["spot - x 8xa100-80g 8 USD"], "P22");
    assert!(mithril.offers[0].marks.has(Mark::Floor));
    let odd = read(
        "x",
        &format!(
            "{A5},Price,Region,GpuInfo\na,T4,1,8,64,0,r,\nb,T4,1,8,64,-1,r,\nc,T4,1,8,64,1e-5,r,\nd,T4,1,8,64,0.123456789012345678901234567891,r,\ne,T4,1,8,64,n/a,r,"
        ),
    );
    assert_eq!(told(&odd), ["on_demand - a 1xt4 unknown", "on_demand - c 1xt4 0.00001 USD"]);
    let reasons: Vec<bool> = odd.rejected.iter().map(|row| row.reason.contains("Price")).collect();
    assert_eq!(reasons, [true; 3]);
}

const GCP: &str = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n";

#[test]
fn p25_p26_hosts_and_gpus_are_added_and_queue_prices_left_out() {
    let csv = format!(
        "{GCP}a2-highgpu-1g,12,85,,,,us-central1,us-central1-a,0.73948,0.2\n\
         a2-highgpu-1g,12,85,,,,europe-west4,europe-west4-a,0.81406,0.3\n\
         a3-highgpu-1g,26,234,,,,us-central1,us-central1-a,1.18251,0.5\n\
         a2-ultragpu-1g,12,170,,,,us-central1,us-central1-a,1.09962,0.4\n\
         n1-standard-4,4,15,,,,us-central1,us-central1-a,0.19,0.04\n\
         ,,,A100,1.0,{{Gpus: [{{Name: A100}}]}},us-central1,us-central1-a,2.93391,1.1\n\
         ,,,A100,1.0,,europe-west4,europe-west4-a,1.61365,1.1691\n\
         ,,,H100,1.0,,us-central1,us-central1-a,4.20076,2.9926\n\
         ,,,A100-80GB,1.0,,us-central1,us-central1-a,1.8462,1.964\n\
         ,,,T4,1.0,,us-central1,us-central1-a,0.35,0.11\n\
         ,,,tpu-v6e-1,1,tpu-v6e-1,us-central1,us-central1-a,700,1\n"
    );
    let gcp = read("gcp", &csv);
    assert_eq!(
        told(&gcp),
        [
            "spot europe-west4-a a2-highgpu-1g 1xa100-40g 1.4691 USD",
            "on_demand us-central1-a a2-highgpu-1g 1xa100-40g 3.67339 USD",
            "spot us-central1-a a2-highgpu-1g 1xa100-40g 1.3 USD",
            "spot us-central1-a a2-ultragpu-1g 1xa100-80g 2.364 USD",
            "spot us-central1-a a3-highgpu-1g 1xh100-80g 3.4926 USD",
        ]
    );
    let queued = gcp.rejected.iter().filter(|row| row.reason.contains("queue")).count();
    assert_eq!(queued, 3, "{:?}", gcp.rejected);
    assert_eq!(gcp.without_gpu, 1, "a host alone is no A100 at 0.73948");
    let parts = &gcp.offers[1].details.as_ref().unwrap().parts;
    assert_eq!(
        parts.iter().filter_map(|part| part.amount).sum::<rust_decimal::Decimal>().to_string(),
        "3.67339"
    );
}

#[test]
fn p29_p37_p43_p44_p52_names_places_and_odd_numbers_are_kept_as_they_are() {
    let csv = format!(
        "{A5},GpuInfo,Price,SpotPrice,Region\n1x-RTX_4070S_Ti-32-65536,RTX4070,1.0,32,64,,0.11,,\", US, NA\"\n1x-RTX_4090-32-65536,RTX4090,1.0,32,64,\"{{'SizeInMiB': 24564}}\",0.35,,\"Hafnarfjarðarkaupstaður, IS, EU\"\n"
    );
    let vast = read("vast", &csv);
    assert_ne!(vast.offers[0].gpu.map(GpuModelId::as_str), Some("rtx-4070"), "the type says Ti");
    assert_eq!(vast.offers[0].gpu_raw, "RTX_4070S_Ti");
    assert!(vast.offers[1].marks.has(Mark::Statistical), "P29");
    assert_eq!(vast.offers[1].details.as_ref().unwrap().country.as_deref(), Some("IS"));
    for offer in &vast.offers {
        let text = offer.key.to_string();
        assert_eq!(text.parse::<runwhere_model::OfferKey>().as_ref(), Ok(&offer.key), "P43");
    }
    let seeweb = read(
        "seeweb",
        &format!("{A5},Price,Region,GpuInfo,SpotPrice\nECS,RTX6000,1,255,1.69921875,0.65,,,"),
    );
    let offer = &seeweb.offers[0];
    assert_eq!((offer.key.region.as_deref(), offer.vcpus), (None, Some(255)), "P44, P52");
    assert_eq!(offer.memory_mib, Some(1740));
    assert_eq!(price(offer), "0.65 EUR");
    assert!(offer.marks.has(Mark::CurrencyAssumed));
    let windows = read(
        "spheron",
        &format!(
            "{A5},Price,Region,GpuInfo,SpotPrice,Provider,OperatingSystem\nx,T4,1,4,16,1,r,,,p,Windows 11\nx-bigroot,T4,1,4,16,2,r,,,p,Ubuntu"
        ),
    );
    assert_eq!(told(&windows), ["windows - x 1xt4 1 USD", "on_demand - x-bigroot 1xt4 2 USD"]);
}

#[test]
fn names_of_gpus_in_the_files_mean_what_they_mean() {
    for (provider, name, want) in [
        ("lambda", "RTX6000", "quadro-rtx-6000"),
        ("seeweb", "RTX6000", "quadro-rtx-6000"),
        ("hyperstack", "RTX6000-Ada", "rtx-6000-ada"),
        ("vast", "RTX_6000Ada", "rtx-6000-ada"),
        ("gcp", "RTX PRO 6000 96GB", "rtx-pro-6000"),
        ("verda", "RTX-PRO-6000", "rtx-pro-6000"),
        ("runpod", "RTXPro6000", "rtx-pro-6000"),
        ("runpod", "RTX-A6000", "rtx-a6000"),
        ("lambda", "A6000", "rtx-a6000"),
        ("aws", "A100", "a100-40g"),
        ("cudo", "A100", "a100-80g"),
        ("seeweb", "A100", "a100-80g"),
        ("hyperstack", "A100-80G-PCIe", "a100-80g"),
        ("verda", "A100_80G_SXM4", "a100-80g"),
        ("gcp-x", "H100-MEGA", "h100-80g"),
        ("spheron", "H100_PCIE_BAREMETAL", "h100-80g"),
        ("azure", "Radeon MI25", "mi25"),
        ("aws", "T4g", "t4g"),
    ] {
        let csv = format!("{A5},Price,Region,GpuInfo\nt,{name},1,8,64,1,r,");
        let imported = read(provider, &csv);
        let got = imported.offers[0].gpu.map(GpuModelId::as_str);
        assert_eq!(got, Some(want), "{provider} {name}");
    }
}

#[test]
fn gpuhunt_files_are_read_and_shares_recognised() {
    let csv = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,provider_data\n\
        p5.48xlarge,us-east-1,98.32,192,2048.0,8,H100,80.0,False,,nvidia,,{}\n\
        p5.48xlarge,us-east-1,33.0000000001,192,2048.0,8,H100,80.0,True,,nvidia,,{}\n\
        Standard_NV6ads_A10_v5,eastus,0.454,6,55.0,1,A10,4.0,False,,nvidia,,{}\n\
        m5.large,us-east-1,0.096,2,8.0,0,,,False,,,,{}\n\
        vl,,0.5,6,55.0,1,A10,24.0,False,,nvidia,,{}\n\
        mi,r,1e-05,6,55.0,1,MI300X,192.0,False,,nvidia,,{}\n";
    let imported = read("aws", csv);
    assert_eq!(imported.layout, Layout::Gpuhunt);
    assert_eq!(
        told(&imported),
        [
            "on_demand - p5.48xlarge 8xh100-80g 98.32 USD",
            "spot - p5.48xlarge 8xh100-80g 33.0000000001 USD",
            "on_demand - Standard_NV6ads_A10_v5 1/6xa10 0.454 USD",
            "on_demand - mi 1xmi300x 0.00001 USD",
        ]
    );
    assert_eq!((imported.without_gpu, imported.rejected.len()), (1, 1));
    assert!(imported.rejected[0].reason.contains("location"));
}

#[test]
fn our_own_table_comes_back_as_it_went() {
    let csv = "provider,region,zone,billing_model,instance_type,gpu_name,gpu_count,gpu_memory_gib_each,vcpus,memory_gib,currency,price_per_hour,observed_at,source\n\
        aliyun,cn-shanghai,,on_demand,ecs.gn7e,A100,8,80,128,1024,CNY,277.93,2023-06-17,\"a, b\"\n\
        x,,,spot,t,T4,0.167,16,,,USD,,,\n\
        ,,,spot,t,T4,1,16,,,USD,1,,\n";
    let options = ImportOptions { source: "file".to_owned(), ..ImportOptions::default() };
    let imported = import(csv.as_bytes(), &options).unwrap();
    assert_eq!(
        (imported.layout, imported.offers.len(), imported.rejected.len()),
        (Layout::Own, 2, 1)
    );
    let first = &imported.offers[0];
    assert_eq!(price(first), format!("277.93 {}", Currency::CNY));
    assert_eq!(first.price.source, "a, b");
    assert_eq!(first.price.observed_at.unwrap().to_string(), "2023-06-17T00:00:00Z");
    assert_eq!(told(&imported)[1], "spot - t 1/6xt4 unknown");
}

#[test]
fn other_files_are_refused_with_a_reason() {
    let options = ImportOptions { provider: ProviderId::new("x").ok(), ..ImportOptions::default() };
    for (bytes, want) in [
        (&b"<html>404</html>"[..], ImportError::Document),
        (b"{\"error\":\"rate limit\"}", ImportError::Document),
        (b"a,b,c\n1,2,3\n", ImportError::Layout),
        (b"", ImportError::Layout),
        // Which of the two prices would count?
        (
            b"provider,price_per_hour,instance_type,price_per_hour\nx,1,t,99\n",
            ImportError::Twice("price_per_hour".to_owned()),
        ),
    ] {
        assert_eq!(import(bytes, &options).unwrap_err(), want);
    }
    let nobody = import(format!("{A5},Price\n").as_bytes(), &ImportOptions::default());
    assert_eq!(nobody.unwrap_err(), ImportError::Provider);
    // Bytes that are no text reject their row, not the file.
    let mut bytes = format!("{A5},Price,Region,GpuInfo\n").into_bytes();
    bytes.extend_from_slice(b"t,\xff\xfe,1,8,64,1,r,\nt,T4,1,8,64,1,r,\n");
    let imported = import(&bytes, &options).unwrap();
    assert_eq!((imported.offers.len(), imported.rejected.len()), (1, 1));
}

#[test]
fn a_row_that_was_read_tomorrow_is_turned_down() {
    let csv = "provider,billing_model,instance_type,gpu_name,gpu_count,currency,price_per_hour,observed_at\n\
        lambda,on_demand,a,H100,1,USD,2.5,2026-11-30\n\
        lambda,on_demand,b,H100,1,USD,2.5,2026-12-01\n\
        lambda,on_demand,c,H100,1,USD,2.5,\n";
    let imported = read("lambda", csv).read_by("2026-11-30T12:00:00Z".parse().unwrap());
    let types: Vec<&str> =
        imported.offers.iter().map(|offer| offer.key.instance_type.as_str()).collect();
    assert_eq!(types, ["a", "c"]);
    let [late] = imported.rejected.as_slice() else { panic!("{:?}", imported.rejected) };
    assert_eq!(late.row, "lambda/-/-/on_demand/b");
    assert!(late.reason.contains("observed_at") && late.reason.contains("future"), "{late:?}");
}

#[test]
fn what_the_program_lists_as_csv_can_be_imported() {
    let csv = "offer_key,offer_code,provider,region,zone,billing_model,instance_type,gpu_model,gpu_type,gpu_count,gpu_memory_gb,vcpus,memory_mib,price,currency,price_state,price_per_gpu,hourly_price,stock,price_kind,observed_at,age,stale,launchable,flags\n\
        vast/-/-/spot/8x%20H100,AAAAAAAA,vast,-,,spot,8x H100,NVIDIA H100,h100-80g,8,80,208,1916929,17.05486,USD,known,2.1318575,115.1015,unstated,list,2026-11-30T07:30:00Z,1,false,false,\n\
        azure/eastus/-/spot/nv6,BBBBBBBB,azure,eastus,,spot,nv6,NVIDIA A10,a10,1/6,24,6,56320,,,not_offered,,,unstated,list,,,false,false,fraction\n";
    let imported = import(csv.as_bytes(), &ImportOptions::default()).unwrap();
    assert!(imported.rejected.is_empty(), "{:?}", imported.rejected);
    let keys: Vec<String> = imported.offers.iter().map(|offer| offer.key.to_string()).collect();
    assert_eq!(keys, ["vast/-/-/spot/8x%20H100", "azure/eastus/-/spot/nv6"]);
    assert_eq!(told(&imported)[0], "spot - 8x H100 8xh100-80g 17.05486 USD");
    assert_eq!(told(&imported)[1], "spot - nv6 1/6xa10 not offered");
    let first = &imported.offers[0];
    assert_eq!((first.vcpus, first.memory_mib), (Some(208), Some(1_916_929)));
    assert_eq!(first.price.observed_at.unwrap().to_string(), "2026-11-30T07:30:00Z");
}

#[test]
fn an_instant_keeps_its_time_and_its_offset() {
    let csv = "provider,billing_model,instance_type,gpu_name,gpu_count,currency,price_per_hour,observed_at\n\
        x,spot,a,H100,1,USD,2.5,2026-11-30T00:30:00+08:00\n\
        x,spot,b,H100,1,USD,2.5,2026-11-30 00:30\n";
    let at: Vec<String> = read("x", csv)
        .offers
        .iter()
        .map(|offer| offer.price.observed_at.unwrap().to_string())
        .collect();
    assert_eq!(at, ["2026-11-29T16:30:00Z", "2026-11-30T00:00:00Z"]);
}

#[test]
fn a_row_that_swallows_others_or_is_huge_is_turned_down() {
    let header =
        "provider,billing_model,instance_type,gpu_name,gpu_count,currency,price_per_hour,source\n";
    let row = |kind: &str, source: &str| format!("x,spot,{kind},H100,1,USD,2.5,{source}\n");
    let cut = [row("a", "ok"), row("b", "\"never closed"), row("c", "ok"), row("d", "ok")];
    let imported = read("x", &format!("{header}{}", cut.concat()));
    assert_eq!(imported.offers.len(), 1);
    let [swallowed] = imported.rejected.as_slice() else { panic!("{:?}", imported.rejected) };
    assert!(swallowed.reason.contains("line 3") && swallowed.reason.contains("quote"));
    for huge in
        [row(&"R".repeat(1 << 20), "ok"), row("a", "ok").replace("2.5", &"9".repeat(1 << 20))]
    {
        let imported = read("x", &format!("{header}{huge}"));
        assert_eq!((imported.offers.len(), imported.rejected.len()), (0, 1));
        assert!(imported.rejected[0].reason.len() < 200, "what is said of it is short");
    }
}

#[test]
fn a_memory_that_no_gpu_has_overflows_nothing() {
    let csv = "instance_name,location,price,gpu_count,gpu_name,gpu_memory,spot\n\
        a,us,1.5,1,H100,10000000000000000,false\n";
    assert_eq!(read("vast", csv).offers.len(), 1);
}
