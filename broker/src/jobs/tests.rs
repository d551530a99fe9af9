use std::sync::Arc;
use std::time::Duration;

use runwhere_engine::{EndReason, FxRate, Job, OutputState, Policy, TrialState, UsedRate};
use runwhere_model::{
    Currency, DeploymentId, GpuCount, GpuModel, GpuModelId, HourlyPrice, KeyId, Offer, OfferCode,
    OfferKey, Price, PriceKind, PriceState, Secret, Stock, parse_decimal,
};
use runwhere_providers::Registry;
use runwhere_providers::testing::{ManualClock, SimCloud, SimProfile};

use super::Jobs;
use super::offer::{Terms, choose};
use super::submit::resumed;
use crate::accounts::Caller;
use crate::api::runwhere::{JobService as _, Refusal};
use crate::driver::{Core, CoreParts};
use crate::ports::{NoPlatformLog, Prices, SystemIds};
use crate::store::{JobView, MemoryStore, Row, Store, Transition, sample};
use crate::task::TaskFile;

/// A catalogue of these offers.
#[derive(Debug, Default)]
pub(crate) struct Sheet(pub(crate) Vec<Offer>);

impl Prices for Sheet {
    fn offer(&self, key: &OfferKey) -> Option<Offer> {
        self.0.iter().find(|offer| offer.key == *key).cloned()
    }

    fn by_code(&self, _code: OfferCode) -> Option<OfferKey> {
        None
    }

    fn best(&self, model: GpuModelId, count: GpuCount) -> Vec<Offer> {
        let fits = |offer: &&Offer| offer.gpu == Some(model) && offer.gpu_count == count;
        let mut found: Vec<Offer> = self.0.iter().filter(fits).cloned().collect();
        found.sort_by_key(|offer| (!offer.launchable, offer.price.state.known().map(|p| p.amount)));
        found
    }

    fn suggest(&self, _text: &str) -> Vec<GpuModelId> {
        Vec::new()
    }

    fn rate(&self, from: Currency, to: Currency) -> Option<FxRate> {
        // One direction only, as everywhere.
        (from == Currency::USD && to == Currency::CNY).then(|| FxRate {
            rate: parse_decimal("7").unwrap(),
            date: "2026-07-01".to_owned(),
            source: "test".to_owned(),
        })
    }

    fn snapshot(&self) -> String {
        "test".to_owned()
    }
}

fn cny(amount: &str) -> HourlyPrice {
    HourlyPrice { amount: parse_decimal(amount).unwrap(), currency: Currency::CNY }
}

/// `10`, or `2 USD`.
fn limit(text: &str) -> HourlyPrice {
    let (amount, currency) = text.split_once(' ').unwrap_or((text, "CNY"));
    HourlyPrice { currency: currency.parse().unwrap(), ..cny(amount) }
}

pub(crate) fn offer(key: &str, gpus: u32, price: &str, launchable: bool) -> Offer {
    Offer {
        key: key.parse().unwrap(),
        gpu: GpuModel::resolve("H100").map(|model| model.id),
        gpu_raw: "H100".to_owned(),
        gpu_count: GpuCount::whole(gpus).unwrap(),
        vcpus: None,
        memory_mib: None,
        price: Price {
            state: PriceState::Known { price: cny(price) },
            kind: PriceKind::Configured,
            source: "test".to_owned(),
            observed_at: None,
            effective_at: None,
        },
        stock: Stock::Available,
        launchable,
        pretended: false,
        gpu_memory_mib: None,
        marks: runwhere_model::Marks::NONE,
        details: None,
    }
}

const HERE: &str = "sim/-/-/on_demand/h100";
const THERE: &str = "azure/eastus/-/on_demand/nc40";

fn catalogue() -> Sheet {
    Sheet(vec![offer(HERE, 1, "20", true), offer(HERE, 4, "80", true), offer(THERE, 1, "5", false)])
}

/// What a submit of so many H100 is told.
fn refused(key: Option<&str>, gpus: u32, max_price: Option<&str>, connected: bool) -> String {
    let clock = Arc::new(ManualClock::default());
    let mut registry = Registry::new();
    if connected {
        let deployment = DeploymentId::new("rw-test").unwrap();
        let cloud = SimCloud::new(SimProfile::token(), deployment, clock);
        registry.add(Arc::new(cloud.named("sim".parse().unwrap())));
    }
    let yaml = format!(
        "job:\n  name: a\nresources:\n  gpuType: H100\n  gpuNum: {gpus}\nenvironment:\n  command: [\"true\"]\n"
    );
    let task = TaskFile::parse(&yaml).unwrap();
    let prices = catalogue();
    let terms = Terms {
        prices: &prices,
        registry: &registry,
        consents_no_deadman: true,
        reachable: true,
        max_price: max_price.map(limit),
    };
    match choose(&terms, &task, key, None) {
        Err(Refusal::Invalid { message, suggestion }) => {
            let hint = suggestion.unwrap();
            let said = format!("{} | {} | {} | {}", message.zh, hint.zh, message.en, hint.en);
            assert!(!said.contains(['[', ']']), "{said}");
            said
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_count_that_nobody_offers_names_those_on_offer() {
    let said = refused(None, 3, None, true);
    assert!(said.contains("没有正好 3 张") && said.contains("1、4"), "{said}");
    assert!(said.contains("no offer has exactly 3 x") && said.contains("1, 4"), "{said}");
    assert!(!said.contains("拼写") && !said.contains("spelling"), "{said}");
}

#[test]
fn a_price_limit_below_what_can_be_launched_is_named_as_the_reason() {
    let said = refused(Some(THERE), 1, Some("10"), true);
    assert!(
        said.contains("10 CNY/h") && said.contains("20 CNY/h") && said.contains(HERE),
        "{said}"
    );
    assert!(said.contains("--max-price") && !said.contains("try-locally"), "{said}");
    // Without a limit, or with one that leaves room, what can be launched is named instead.
    for limit in [None, Some("30")] {
        let said = refused(Some(THERE), 1, limit, true);
        assert!(said.contains("azure") && said.contains(HERE), "{said}");
    }
    // A limit in another currency meets the price in yuan, as in quotes: no rate is turned round.
    let said = refused(Some(THERE), 1, Some("2 USD"), true);
    assert!(said.contains("2 USD/h") && said.contains("20 CNY/h"), "{said}");
    let said = refused(Some(THERE), 1, Some("3 USD"), true);
    assert!(said.contains("azure") && said.contains(HERE), "{said}");
    // With nothing to launch, the way to try it here.
    let said = refused(Some(THERE), 1, Some("10"), false);
    assert!(said.contains("runwhere run --try-locally"), "{said}");
}

/// What a submit of one H100 at 20 CNY settles with a limit.
fn settled(max_price: Option<&str>) -> (HourlyPrice, HourlyPrice, Vec<UsedRate>) {
    chosen(&catalogue(), max_price.map(limit)).unwrap()
}

fn chosen(
    prices: &Sheet,
    max_price: Option<HourlyPrice>,
) -> Option<(HourlyPrice, HourlyPrice, Vec<UsedRate>)> {
    let cloud = SimCloud::new(
        SimProfile::token(),
        DeploymentId::new("rw-test").unwrap(),
        Arc::new(ManualClock::default()),
    );
    let mut registry = Registry::new();
    registry.add(Arc::new(cloud.named("sim".parse().unwrap())));
    let yaml = "job:\n  name: a\nresources:\n  gpuType: H100\n  gpuNum: 1\nenvironment:\n  command: [\"true\"]\n";
    let terms = Terms {
        prices,
        registry: &registry,
        consents_no_deadman: true,
        reachable: true,
        max_price,
    };
    let chosen = choose(&terms, &TaskFile::parse(yaml).unwrap(), Some(HERE), None).ok()?;
    Some((chosen.price, chosen.ceiling, chosen.rates))
}

#[test]
fn a_limit_becomes_the_ceiling_in_the_currency_of_the_price() {
    assert_eq!(settled(None), (cny("20"), cny("20"), Vec::new()));
    assert_eq!(settled(Some("31.5")), (cny("20"), cny("31.5"), Vec::new()));
    let (price, ceiling, rates) = settled(Some("3 USD"));
    assert_eq!((price, ceiling), (cny("20"), cny("21")));
    let [used] = rates.as_slice() else { panic!("{rates:?}") };
    assert_eq!((used.from, used.to, used.source.as_str()), (Currency::USD, Currency::CNY, "test"));
    assert_eq!((used.rate, used.date.as_str()), (parse_decimal("7").unwrap(), "2026-07-01"));
}

#[test]
fn a_limit_in_yuan_allows_no_dollar_price_that_comes_to_more() {
    // 7 CNY for 1 USD: 20 CNY are 2.857142857142857… USD.
    let mut sheet = catalogue();
    let asked = |sheet: &mut Sheet, usd: &str| {
        let price = HourlyPrice { currency: Currency::USD, ..cny(usd) };
        sheet.0[0].price.state = PriceState::Known { price };
        chosen(sheet, Some(limit("20")))
    };
    let (_, ceiling, rates) = asked(&mut sheet, "2.857142857142").expect("within the limit");
    assert_eq!(ceiling, limit("2.857142857142 USD"));
    assert_eq!(rates.len(), 1);
    assert!(asked(&mut sheet, "2.857142857143").is_none(), "20.000000000001 CNY");
    // Where it divides without a rest, the quotient itself is allowed.
    let (_, ceiling, _) = chosen(&sheet, Some(limit("35"))).unwrap();
    assert_eq!(ceiling, limit("5 USD"));
}

#[test]
fn a_resume_goes_on_from_the_last_run_that_left_something() {
    let view = |job: Job, outputs: OutputState, started: bool| {
        let mut trial = sample::trial(&job, 0);
        trial.outputs = outputs;
        trial.started_at = started.then(|| sample::at(1));
        JobView { job, trials: vec![(trial, None)] }
    };
    let kept = OutputState::Uploaded { files: 1, bytes: 1 };
    let nothing = OutputState::Uploaded { files: 0, bytes: 0 };
    let failed = OutputState::Failed { reason: "lost".to_owned() };
    let first = view(sample::job("p", 1, "llama"), kept.clone(), true);
    let mut from = resumed(&first).unwrap();
    let saved = from.trial.clone();
    assert_eq!(saved, first.trials[0].0.id);
    // Stopped before it began, lost, not collected: what the first one saved is still where to go on from.
    for (number, outputs, started) in
        [(2, OutputState::None, false), (3, nothing, false), (4, failed, true)]
    {
        let mut job = sample::job("p", number, "llama");
        job.resumed = Some(from.clone());
        let next = view(job, outputs, started);
        from = resumed(&next).unwrap();
        assert_eq!((&from.job, &from.trial), (&next.job.id, &saved));
    }
    let mut job = sample::job("p", 5, "llama");
    job.resumed = Some(from);
    let last = view(job, kept, true);
    assert_eq!(resumed(&last).unwrap().trial, last.trials[0].0.id);
}

struct Bench {
    jobs: Arc<Jobs>,
    store: Arc<MemoryStore>,
    core: Arc<Core>,
    clock: Arc<ManualClock>,
    caller: Caller,
}

impl Bench {
    /// A failed job whose machine is not proven gone.
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(sample::at(7200)));
        let store = Arc::new(MemoryStore::new());
        let mut job = sample::job("p", 1, "llama");
        job.active = false;
        let mut trial = sample::trial(&job, 0);
        trial.state = TrialState::Failed;
        trial.end_reason = Some(EndReason::ProgramFailed);
        let rows = vec![
            Row::Workspace(sample::workspace()),
            Row::Project(sample::project("p")),
            Row::Job(job.clone()),
            Row::Trial(trial),
        ];
        store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
        let core = Core::new(CoreParts {
            store: store.clone(),
            registry: Registry::new(),
            prices: Arc::new(Sheet::default()),
            clock: clock.clone(),
            ids: Arc::new(SystemIds),
            log: Arc::new(NoPlatformLog),
            policy: Policy::default(),
            deployment: DeploymentId::new("rw-test").unwrap(),
            broker_url: "http://127.0.0.1:1".to_owned(),
            ca_pem: None,
            token_key: Secret::new("key"),
        });
        let caller = Caller {
            workspace: job.workspace.clone(),
            project: job.project.clone(),
            principal: job.principal.clone(),
            key: KeyId::new("key-1").unwrap(),
            permissions: Vec::new(),
            seen_in: None,
        };
        let jobs = Arc::new(Jobs::new(core.clone(), false));
        Self { jobs, store, core, clock, caller }
    }

    fn delete(&self, target: &'static str) -> tokio::task::JoinHandle<(usize, bool)> {
        let (jobs, caller) = (self.jobs.clone(), self.caller.clone());
        tokio::spawn(async move {
            let deleted = jobs.delete(&caller, target, true).await.unwrap();
            (deleted.jobs.len(), deleted.stopping)
        })
    }

    async fn release(&self) {
        let id = sample::job_id(1);
        let view = self.store.job(&self.caller.project, &id).await.unwrap().unwrap();
        let mut trial = view.trials[0].0.clone();
        trial.cleanup_confirmed = true;
        let rows = vec![Row::Trial(trial)];
        self.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
        self.core.signals.changed(id.as_str());
    }
}

#[tokio::test]
async fn a_delete_answers_once_the_release_is_confirmed() {
    for target in ["llama", "job-00000001"] {
        let bench = Bench::new().await;
        let deleting = bench.delete(target);
        bench.clock.settle().await;
        assert!(!deleting.is_finished());
        assert!(bench.jobs.job(&bench.caller, "llama").await.is_ok(), "seen until it is released");
        bench.release().await;
        assert_eq!(deleting.await.unwrap(), (1, false));
        let gone = bench.jobs.job(&bench.caller, "llama").await;
        assert!(matches!(gone, Err(Refusal::NotFound)));
    }
}

#[tokio::test]
async fn a_delete_that_is_not_confirmed_in_time_says_so() {
    let bench = Bench::new().await;
    let deleting = bench.delete("llama");
    bench.clock.settle().await;
    bench.clock.advance(Duration::from_secs(60)).await;
    assert_eq!(deleting.await.unwrap(), (1, true));
    let gone = bench.jobs.job(&bench.caller, "llama").await;
    assert!(matches!(gone, Err(Refusal::NotFound)));
}
