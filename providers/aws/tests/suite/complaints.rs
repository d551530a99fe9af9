//! What users ran into with AWS's spot prices; the numbers are those of `docs/price-complaints.md`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use crate::support::{Files, fixture, offer, source, told};
use runwhere_model::{BillingModel, OfferScope, OfferSheet};
use runwhere_providers::http::NoCache;

/// Plays EC2: the rows of each page of the price history.
fn ec2(pages: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream, pages));
        }
    });
    base
}

fn answer(mut stream: TcpStream, pages: &[&str]) {
    let mut asked = Vec::new();
    let mut chunk = [0u8; 4096];
    let whole = |asked: &[u8]| {
        let text = String::from_utf8_lossy(asked).to_lowercase();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        (body.len() >= length).then_some(())
    };
    while whole(&asked).is_none() {
        match stream.read(&mut chunk) {
            Ok(count) if count > 0 => asked.extend_from_slice(&chunk[..count]),
            _ => return,
        }
    }
    let asked = String::from_utf8_lossy(&asked).into_owned();
    let value =
        |name: &str| asked.split(&format!("{name}=")).nth(1).and_then(|v| v.split('&').next());
    let action = value("Action").unwrap_or_default();
    let page: usize = value("NextToken").and_then(|token| token.parse().ok()).unwrap_or(0);
    let rows = match action {
        "DescribeInstanceTypes" => TYPES.to_owned(),
        "DescribeInstanceTypeOfferings" => OFFERINGS.to_owned(),
        _ => {
            let next = if page + 1 < pages.len() { (page + 1).to_string() } else { String::new() };
            format!(
                "<spotPriceHistorySet>{}</spotPriceHistorySet><nextToken>{next}</nextToken>",
                pages[page]
            )
        }
    };
    let body = format!(
        "<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>x</requestId>{rows}</{action}Response>"
    );
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/xml\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}

const TYPES: &str = "<instanceTypeSet><item><instanceType>p4d.24xlarge</instanceType>\
    <vCpuInfo><defaultVCpus>96</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>1179648</sizeInMiB></memoryInfo>\
    <gpuInfo><gpus><item><name>A100</name><manufacturer>NVIDIA</manufacturer><count>8</count>\
    <memoryInfo><sizeInMiB>40960</sizeInMiB></memoryInfo></item></gpus></gpuInfo></item></instanceTypeSet>";
const OFFERINGS: &str = "<instanceTypeOfferingSet>\
    <item><instanceType>p4d.24xlarge</instanceType><location>use1-az1</location></item>\
    <item><instanceType>p4d.24xlarge</instanceType><location>use1-atl2-az1</location></item>\
    </instanceTypeOfferingSet>";

macro_rules! row {
    ($zone:literal, $price:literal) => {
        concat!(
            "<item><instanceType>p4d.24xlarge</instanceType><productDescription>Linux/UNIX</productDescription>",
            $price,
            "<timestamp>2026-11-20T10:00:00.000Z</timestamp><availabilityZoneId>",
            $zone,
            "</availabilityZoneId></item>"
        )
    };
}

async fn read(pages: &'static [&'static str]) -> OfferSheet {
    let files =
        Files::start(|path| path.contains("us-east-1").then(|| fixture("offers/us-east-1.csv")));
    let settings = format!(
        r#"{{"kind":"aws","regions":["us-east-1"],"price_endpoint":"{}","endpoint":"{}",
            "account":true,"access_key_id":"testing","secret_access_key":"testing"}}"#,
        files.base,
        ec2(pages)
    );
    let source = source(&settings, Arc::new(NoCache)).unwrap();
    source.offers(&OfferScope::default()).await.unwrap()
}

fn spot(sheet: &OfferSheet) -> Vec<(String, String)> {
    let of = |o: &&runwhere_model::Offer| o.key.billing_model == BillingModel::Spot;
    let zone = |o: &runwhere_model::Offer| (o.key.zone.clone().unwrap_or_default(), told(o));
    sheet.offers.iter().filter(of).map(zone).collect()
}

#[tokio::test]
async fn pr_031_a_zone_without_history_has_no_spot_offer() {
    let sheet = read(&[row!("use1-az1", "<spotPrice>9.831700</spotPrice>")]).await;
    assert!(sheet.complete, "{:?}", sheet.gaps);
    // Offered in a local zone too, where the history is empty.
    assert_eq!(spot(&sheet), [("use1-az1".into(), "a100-40g 8 9.8317 USD/h".into())]);
    let on_demand = offer(&sheet, "aws/us-east-1/-/on_demand/p4d.24xlarge");
    assert_eq!(told(on_demand), "a100-40g 8 32.7726 USD/h");
}

#[tokio::test]
async fn pr_032_zones_of_all_pages_are_there() {
    let sheet = read(&[
        row!("use1-az1", "<spotPrice>9.831700</spotPrice>"),
        row!("use1-az2", "<spotPrice>11.000000</spotPrice>"),
        "",
        row!("use1-az4", "<spotPrice>12.5</spotPrice>"),
    ])
    .await;
    let zones: Vec<String> = spot(&sheet).into_iter().map(|(zone, _)| zone).collect();
    assert_eq!(zones, ["use1-az1", "use1-az2", "use1-az4"]);
}

#[tokio::test]
async fn pr_073_one_zone_without_a_price_costs_no_other() {
    let sheet = read(&[concat!(
        row!("use1-az1", "<spotPrice>9.831700</spotPrice>"),
        row!("use1-az2", ""),
        row!("use1-az3", "<spotPrice></spotPrice>"),
        row!("use1-az4", "<spotPrice>ask</spotPrice>"),
        row!("use1-az6", "<spotPrice>10.1</spotPrice>"),
    )])
    .await;
    assert!(sheet.complete, "{:?}", sheet.gaps);
    let zones: Vec<String> = spot(&sheet).into_iter().map(|(zone, _)| zone).collect();
    assert_eq!(zones, ["use1-az1", "use1-az6"]);
    for zone in ["use1-az2", "use1-az3", "use1-az4"] {
        assert!(
            sheet.rejected.iter().any(|row| row.row.contains(zone)),
            "{zone}: {:?}",
            sheet.rejected
        );
    }
}
