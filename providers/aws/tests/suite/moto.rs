//! EC2's interface against moto, which holds AWS's recorded types and zones.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Files, fixture, offer, source, told};
use runwhere_model::{BillingModel, ErrorKind, OfferScope, PriceState};
use runwhere_providers::http::NoCache;

struct Moto {
    child: Child,
    base: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    /// `None` where the test command did not name a moto.
    fn start() -> Option<Self> {
        let program = std::env::var_os("RUNWHERE_MOTO").or_else(|| {
            assert!(std::env::var_os("CI").is_none(), "RUNWHERE_MOTO is not set");
            eprintln!("skipped: RUNWHERE_MOTO names no moto_server");
            None
        })?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moto = Self { child, base: format!("http://127.0.0.1:{port}") };
        let deadline = Instant::now() + Duration::from_secs(120);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "moto does not listen");
            sleep(Duration::from_millis(100));
        }
        Some(moto)
    }
}

fn settings(files: &Files, base: &str) -> String {
    format!(
        r#"{{"kind":"aws","regions":["us-east-1"],"price_endpoint":"{}","endpoint":"{base}",
            "account":true,"access_key_id":"testing","secret_access_key":"hush-hush-testing"}}"#,
        files.base
    )
}

fn files() -> Files {
    Files::start(|path| path.contains("us-east-1").then(|| fixture("offers/us-east-1.csv")))
}

#[tokio::test]
async fn types_zones_and_spot_are_joined_to_the_list_prices() {
    let Some(moto) = Moto::start() else { return };
    let files = files();
    let source = source(&settings(&files, &moto.base), Arc::new(NoCache)).unwrap();
    let sheet = source.offers(&OfferScope::default()).await.unwrap();
    assert!(sheet.complete, "{:?}", sheet.gaps);
    let p5 = offer(&sheet, "aws/us-east-1/-/on_demand/p5.48xlarge");
    assert_eq!(told(p5), "h100-80g 8 55.04 USD/h");
    assert_eq!((p5.gpu_memory_mib, p5.vcpus), (Some(81_920), Some(192)));
    // Offered without a price in the file: listed, unknown.
    let g5 = offer(&sheet, "aws/us-east-1/-/on_demand/g5.12xlarge");
    assert_eq!(told(g5), "a10g 4 unknown");
    let spot: Vec<_> =
        sheet.offers.iter().filter(|o| o.key.billing_model == BillingModel::Spot).collect();
    assert!(!spot.is_empty(), "no spot offer");
    assert!(spot.iter().all(|offer| {
        offer.key.zone.is_some() && matches!(offer.price.state, PriceState::Known { .. })
    }));
    // Accelerators that are no GPUs are there, with their own names.
    assert!(
        sheet.offers.iter().any(|o| o.gpu.is_some_and(|gpu| gpu.as_str().starts_with("trainium")))
    );
    assert!(sheet.offers.len() > 60, "{}", sheet.offers.len());
}

#[tokio::test]
async fn an_account_that_cannot_be_read_leaves_the_list_prices_and_a_gap() {
    let files = files();
    // Nobody listens there.
    let dead =
        format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let source = source(&settings(&files, &dead), Arc::new(NoCache)).unwrap();
    let sheet = source.offers(&OfferScope::default()).await.unwrap();
    assert_eq!(sheet.gaps.len(), 1, "{:?}", sheet.gaps);
    assert!(sheet.gaps[0].part.contains("spot") && !format!("{sheet:?}").contains("hush-hush"));
    assert_eq!(sheet.offers.len(), 9);
    let _ = ErrorKind::Transient;
}
