//! The cases.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{
    Capabilities, Deadman, Effect, ErrorKind, Identity, LaunchRequest, LeaseId, NodeId, NodePhase,
    OfferKey, OfferScope, Period, Stock, Terminated,
};

use super::support::{
    Outcome, clean, end, ensure, found, in_call, listed, patience, reaches, refused,
    reservation_over, same,
};
use super::{Applies, Subject};

type Run = for<'a> fn(&'a dyn Subject) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// One case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) applies: Applies,
    pub(super) takes_hours: bool,
    pub(super) run: Run,
}

macro_rules! case {
    ($run:ident, $applies:expr) => {
        Case { takes_hours: false, ..case!(long $run, $applies) }
    };
    (long $run:ident, $applies:expr) => {
        Case {
            name: stringify!($run),
            applies: $applies,
            takes_hours: true,
            run: |subject| Box::pin($run(subject)),
        }
    };
}

pub(super) const ALL: &[Case] = &[
    case!(promises_are_possible, always),
    case!(offers_are_named_dated_and_priced, always),
    case!(a_launch_is_found_by_its_lease, always),
    case!(a_refusal_has_no_effect, always),
    case!(a_price_above_the_ceiling_is_refused, always),
    case!(a_token_launches_once, |c| identity(c, Identity::Token)),
    case!(a_token_with_other_parameters_is_refused, |c| identity(c, Identity::Token)),
    case!(a_name_launches_once, |c| identity(c, Identity::UniqueName)),
    case!(find_shows_every_node_of_a_lease, |c| identity(c, Identity::LabelOnly)),
    case!(an_end_is_reached_and_repeatable, always),
    case!(an_unknown_node_is_not_found, always),
    case!(a_node_can_be_ended_at_once, endable),
    case!(long a_refused_end_says_until_when, |c| states(endable(c).is_err())),
    case!(long a_server_side_end_is_kept, |c| states(c.deadman == Deadman::Cloud)),
    case!(nodes_are_ours_and_others_are_counted, always),
    case!(a_listing_shows_every_node, always),
    case!(times_are_the_providers_own, |c| states(c.states_times)),
    case!(usage_is_the_providers_bill, |c| states(c.states_usage)),
    case!(no_usage_is_said, |c| states(!c.states_usage)),
];

fn always(_: &Capabilities) -> Result<(), &'static str> {
    Ok(())
}

fn endable(capabilities: &Capabilities) -> Result<(), &'static str> {
    match capabilities.minimum_reservation {
        None => Ok(()),
        Some(_) => Err("a node's end is refused at first"),
    }
}

fn identity(capabilities: &Capabilities, wanted: Identity) -> Result<(), &'static str> {
    if capabilities.identity == wanted { Ok(()) } else { Err("launches have another identity") }
}

fn states(stated: bool) -> Result<(), &'static str> {
    if stated { Ok(()) } else { Err("the provider states it otherwise") }
}

async fn promises_are_possible(subject: &dyn Subject) -> Outcome {
    let capabilities = subject.provider().capabilities();
    ensure(capabilities.absent_reads > 0, || "absence takes at least one read".to_owned())?;
    ensure(capabilities.boot_timeout > Duration::ZERO, || "no time to boot".to_owned())?;
    let granularity = capabilities.metering.granularity;
    ensure(granularity >= Duration::from_micros(1), || "no billing granularity".to_owned())?;
    ensure(capabilities.spot || capabilities.reclaim_notice.is_none(), || {
        "a reclaim notice without spot".to_owned()
    })
}

async fn offers_are_named_dated_and_priced(subject: &dyn Subject) -> Outcome {
    let provider = subject.provider();
    let before = subject.now();
    let sheet = provider.offers(&OfferScope::default()).await.map_err(in_call("offers"))?;
    ensure(sheet.complete, || "a whole reading is not complete".to_owned())?;
    ensure(sheet.observed_at >= before && sheet.observed_at <= subject.now(), || {
        format!("observed_at is {}, read at {before}", sheet.observed_at)
    })?;
    ensure(!sheet.offers.is_empty(), || "no offers".to_owned())?;
    let mut keys = std::collections::BTreeSet::new();
    for offer in &sheet.offers {
        let text = offer.key.to_string();
        same("a key that is printed and read", &text.parse::<OfferKey>(), &Ok(offer.key.clone()))?;
        same("the provider of a key", &offer.key.provider, provider.id())?;
        ensure(keys.insert(text.clone()), || format!("{text} is offered twice"))?;
        ensure(offer.price.observed_at.is_some(), || format!("the price of {text} has no date"))?;
        ensure(!offer.price.source.is_empty(), || format!("the price of {text} has no source"))?;
        if let Some(price) = offer.price.state.known() {
            ensure(price.amount > rust_decimal::Decimal::ZERO, || format!("{text} costs {price}"))?;
        }
        let unstated = offer.stock == Stock::Unstated;
        ensure(unstated != provider.capabilities().states_stock, || {
            format!("the stock of {text} is {:?}, against the capability", offer.stock)
        })?;
    }
    let nowhere =
        OfferScope { regions: vec!["no-such-region".to_owned()], ..OfferScope::default() };
    let sheet = provider.offers(&nowhere).await.map_err(in_call("offers"))?;
    ensure(sheet.offers.is_empty(), || "offers of a region that does not exist".to_owned())
}

async fn a_launch_is_found_by_its_lease(subject: &dyn Subject) -> Outcome {
    let request = subject.request(10);
    let provider = subject.provider();
    let before = provider.find(&request.lease).await.map_err(in_call("find"))?;
    same("nodes before the launch", &before.nodes, &Vec::new())?;
    let launched = provider.launch(&request).await.map_err(in_call("launch"))?;
    same("surplus nodes", &launched.surplus, &Vec::new())?;
    let nodes = found(subject, &request, 1).await?;
    let ids: Vec<&NodeId> = nodes.iter().map(|state| &state.node).collect();
    same("the lease's nodes", &ids, &vec![&launched.node])?;
    reaches(subject, &launched.node, NodePhase::Running).await?;
    clean(subject, &request, 1).await
}

async fn a_refusal_has_no_effect(subject: &dyn Subject) -> Outcome {
    let mut request = subject.request(20);
    request.offer.instance_type = "no-such-type".to_owned();
    let error = refused("an unknown type", subject.provider().launch(&request).await)?;
    same("the kind", &error.kind, &ErrorKind::Invalid)?;
    same("nodes of the error", &error.nodes, &Vec::new())?;
    nothing_was_launched(subject, &request.lease).await
}

async fn a_price_above_the_ceiling_is_refused(subject: &dyn Subject) -> Outcome {
    let mut request = subject.request(25);
    request.ceiling.amount = rust_decimal::Decimal::new(1, 12);
    refused("a price above the ceiling", subject.provider().launch(&request).await)?;
    nothing_was_launched(subject, &request.lease).await
}

async fn nothing_was_launched(subject: &dyn Subject, lease: &LeaseId) -> Outcome {
    subject.pass(subject.provider().capabilities().settle).await;
    let found = subject.provider().find(lease).await.map_err(in_call("find"))?;
    ensure(found.complete, || "a whole reading is not complete".to_owned())?;
    same("nodes after a refusal", &found.nodes, &Vec::new())
}

async fn a_token_launches_once(subject: &dyn Subject) -> Outcome {
    let request = subject.request(30);
    let provider = subject.provider();
    let (first, second) = tokio::join!(provider.launch(&request), provider.launch(&request));
    let first = first.map_err(in_call("launch"))?.node;
    same("the node of a second launch", &second.map_err(in_call("launch"))?.node, &first)?;
    reaches(subject, &first, NodePhase::Running).await?;
    let third = provider.launch(&request).await.map_err(in_call("launch"))?.node;
    same("the node of a later launch", &third, &first)?;
    same("how many nodes there are", &found(subject, &request, 1).await?.len(), &1)?;
    clean(subject, &request, 1).await
}

async fn a_token_with_other_parameters_is_refused(subject: &dyn Subject) -> Outcome {
    let request = subject.request(40);
    let provider = subject.provider();
    let node = provider.launch(&request).await.map_err(in_call("launch"))?.node;
    let other = runwhere_model::LaunchRequest {
        offer: other_offer(subject, &request.offer).await?,
        ..request.clone()
    };
    let error = refused("a token for another offer", provider.launch(&other).await)?;
    same("the kind", &error.kind, &ErrorKind::Conflict)?;
    let nodes = found(subject, &request, 1).await?;
    same("the lease's nodes", &nodes.iter().map(|n| &n.node).collect::<Vec<_>>(), &vec![&node])?;
    clean(subject, &request, 1).await
}

async fn other_offer(subject: &dyn Subject, not: &OfferKey) -> Result<OfferKey, String> {
    let sheet =
        subject.provider().offers(&OfferScope::default()).await.map_err(in_call("offers"))?;
    let other = sheet.offers.into_iter().map(|offer| offer.key).find(|key| key != not);
    other.ok_or_else(|| "the case needs a second offer".to_owned())
}

async fn a_name_launches_once(subject: &dyn Subject) -> Outcome {
    let request = subject.request(50);
    let provider = subject.provider();
    provider.launch(&request).await.map_err(in_call("launch"))?;
    let error = refused("a second launch of a name", provider.launch(&request).await)?;
    same("the kind", &error.kind, &ErrorKind::Conflict)?;
    same("how many nodes there are", &found(subject, &request, 1).await?.len(), &1)?;
    clean(subject, &request, 1).await
}

async fn find_shows_every_node_of_a_lease(subject: &dyn Subject) -> Outcome {
    let request = subject.request(60);
    let provider = subject.provider();
    provider.launch(&request).await.map_err(in_call("launch"))?;
    provider.launch(&request).await.map_err(in_call("launch"))?;
    same("how many nodes there are", &found(subject, &request, 2).await?.len(), &2)?;
    clean(subject, &request, 2).await
}

async fn an_end_is_reached_and_repeatable(subject: &dyn Subject) -> Outcome {
    let request = subject.request(70);
    let provider = subject.provider();
    let node = provider.launch(&request).await.map_err(in_call("launch"))?.node;
    reaches(subject, &node, NodePhase::Running).await?;
    reservation_over(subject).await;
    let (one, two) = tokio::join!(provider.terminate(&node), provider.terminate(&node));
    one.map_err(in_call("terminate"))?;
    quiet(two)?;
    end_seen(subject, &node).await?;
    quiet(provider.terminate(&node).await)?;
    // Once ended, always ended.
    if let Ok(state) = provider.describe(&node).await {
        same("the phase of an ended node", &state.phase, &NodePhase::Gone)?;
    }
    Ok(())
}

async fn end_seen(subject: &dyn Subject, node: &NodeId) -> Outcome {
    let start = subject.now();
    loop {
        match subject.provider().describe(node).await {
            Ok(state) if state.phase == NodePhase::Gone => return Ok(()),
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(in_call("describe")(error)),
        }
        ensure(subject.now().duration_since(start).unsigned_abs() <= patience(subject), || {
            format!("{node} was terminated and is not gone")
        })?;
        subject.pass(Duration::from_millis(500)).await;
    }
}

/// A repeated termination works, or says that there is nothing.
fn quiet(result: Result<Terminated, runwhere_model::ProviderError>) -> Outcome {
    match result {
        Ok(_) => Ok(()),
        Err(error) if error.kind == ErrorKind::NotFound && error.effect == Effect::None => Ok(()),
        Err(error) => Err(format!("a repeated termination: {error}")),
    }
}

async fn an_unknown_node_is_not_found(subject: &dyn Subject) -> Outcome {
    let provider = subject.provider();
    for text in ["node-00000000", "..", "no-such-node", "node-0000000g"] {
        let node = NodeId::new(text).map_err(|error| error.to_string())?;
        let error = refused("reading an unknown node", provider.describe(&node).await)?;
        same("the kind", &error.kind, &ErrorKind::NotFound)?;
        quiet(provider.terminate(&node).await)?;
    }
    let lease = LeaseId::new("never-launched").map_err(|error| error.to_string())?;
    let found = provider.find(&lease).await.map_err(in_call("find"))?;
    same("nodes of an unknown lease", &found.nodes, &Vec::new())
}

async fn a_node_can_be_ended_at_once(subject: &dyn Subject) -> Outcome {
    let request = subject.request(80);
    let node = subject.provider().launch(&request).await.map_err(in_call("launch"))?.node;
    subject.provider().terminate(&node).await.map_err(in_call("terminate"))?;
    // Reads that lag may not know it yet: absence proves nothing before it was seen or settled.
    subject.pass(subject.provider().capabilities().settle).await;
    end_seen(subject, &node).await
}

async fn a_refused_end_says_until_when(subject: &dyn Subject) -> Outcome {
    let request = subject.request(85);
    let provider = subject.provider();
    let node = provider.launch(&request).await.map_err(in_call("launch"))?.node;
    reaches(subject, &node, NodePhase::Running).await?;
    let error = refused("an end before the reservation is over", provider.terminate(&node).await)?;
    same("the kind", &error.kind, &ErrorKind::Conflict)?;
    let left = error.retry_after.ok_or("the refusal does not say until when")?;
    let longest = provider.capabilities().minimum_reservation.unwrap_or_default();
    ensure(left <= longest, || format!("refused for {left:?}, longer than {longest:?}"))?;
    subject.pass(left).await;
    end(subject, &node).await.map(|_| ())
}

async fn a_server_side_end_is_kept(subject: &dyn Subject) -> Outcome {
    let provider = subject.provider();
    let capabilities = provider.capabilities();
    let life = capabilities.boot_timeout + Duration::from_secs(3600);
    let end_by = subject.now().checked_add(life).map_err(|error| error.to_string())?;
    let request = LaunchRequest { end_by: Some(end_by), ..subject.request(87) };
    let node = provider.launch(&request).await.map_err(in_call("launch"))?.node;
    reaches(subject, &node, NodePhase::Running).await?;
    let left = Duration::try_from(end_by.duration_since(subject.now())).unwrap_or_default();
    subject.pass(left).await;
    let kept = end_seen(subject, &node).await;
    if kept.is_err() {
        end(subject, &node).await?;
    }
    kept
}

async fn a_listing_shows_every_node(subject: &dyn Subject) -> Outcome {
    let provider = subject.provider();
    let mut nodes = std::collections::BTreeSet::new();
    let requests: Vec<_> = (92..95).map(|number| subject.request(number)).collect();
    for request in &requests {
        nodes.insert(provider.launch(request).await.map_err(in_call("launch"))?.node);
    }
    for node in &nodes {
        reaches(subject, node, NodePhase::Running).await?;
    }
    let list = listed(subject).await?;
    ensure(list.complete, || "a whole reading is not complete".to_owned())?;
    let seen = list.nodes.iter().map(|seen| seen.state.node.clone()).collect();
    let missing: Vec<_> = nodes.difference(&seen).collect();
    ensure(missing.is_empty(), || format!("{missing:?} run and are not listed"))?;
    for request in &requests {
        clean(subject, request, 1).await?;
    }
    Ok(())
}

async fn nodes_are_ours_and_others_are_counted(subject: &dyn Subject) -> Outcome {
    let request = subject.request(90);
    let provider = subject.provider();
    let before = listed(subject).await?;
    let node = provider.launch(&request).await.map_err(in_call("launch"))?.node;
    let foreign = subject.launch_foreign(91).await;
    reaches(subject, &node, NodePhase::Running).await?;
    let list = listed(subject).await?;
    ensure(list.complete, || "a whole reading is not complete".to_owned())?;
    let seen = list.nodes.iter().find(|seen| seen.state.node == node);
    let seen = seen.ok_or_else(|| format!("{node} is not listed"))?;
    same("the lease label", &seen.lease, &Some(request.lease.clone()))?;
    same("the deployment label", &seen.deployment, &Some(request.deployment.clone()))?;
    ensure(list.nodes.iter().all(|n| n.deployment.as_ref() == Some(&request.deployment)), || {
        "another installation's node is listed".to_owned()
    })?;
    if foreign {
        same("how many others there are", &list.foreign, &(before.foreign + 1))?;
    }
    clean(subject, &request, 1).await
}

async fn times_are_the_providers_own(subject: &dyn Subject) -> Outcome {
    let request = subject.request(100);
    let before = subject.now();
    let node = subject.provider().launch(&request).await.map_err(in_call("launch"))?.node;
    let running = reaches(subject, &node, NodePhase::Running).await?;
    let started = running.started_at.ok_or("a running node states no start")?;
    let error = subject.clock_error();
    let within = |at: Timestamp| {
        at.checked_add(error).is_ok_and(|at| at >= before)
            && at.checked_sub(error).is_ok_and(|at| at <= subject.now())
    };
    ensure(within(started), || format!("started at {started}"))?;
    same("the end of a running node", &running.stopped_at, &None)?;
    subject.pass(Duration::from_secs(2)).await;
    if let Some(gone) = end(subject, &node).await? {
        same("the start of an ended node", &gone.started_at, &Some(started))?;
        let stopped = gone.stopped_at.ok_or("an ended node states no end")?;
        ensure(stopped >= started && within(stopped), || format!("stopped at {stopped}"))?;
    }
    Ok(())
}

async fn usage_is_the_providers_bill(subject: &dyn Subject) -> Outcome {
    let request = subject.request(110);
    let provider = subject.provider();
    let start = subject.now();
    let node = provider.launch(&request).await.map_err(in_call("launch"))?.node;
    reaches(subject, &node, NodePhase::Running).await?;
    // Long enough for a bill that begins with health checks.
    let wait = if provider.capabilities().settle.is_zero() { 1 } else { 600 };
    subject.pass(Duration::from_secs(wait)).await;
    end(subject, &node).await?;
    subject.pass(Duration::from_millis(10)).await;
    let period = Period { start, end: subject.now() };
    let usage = provider.usage(&period).await.map_err(in_call("usage"))?;
    ensure(usage.complete, || "the bill of a past period is not complete".to_owned())?;
    let lines: Vec<_> = usage.records.iter().filter(|record| record.node == node).collect();
    same("how many lines the node has", &lines.len(), &1)?;
    ensure(lines[0].billed_micros > 0, || "the node cost nothing".to_owned())?;
    let middle = lines[0].period.start.checked_add(Duration::from_millis(700));
    let middle = middle.map_err(|error| error.to_string())?;
    let mut pieces = 0;
    for (start, end) in [(start, middle), (middle, period.end)] {
        let usage = provider.usage(&Period { start, end }).await.map_err(in_call("usage"))?;
        let ours = usage.records.iter().filter(|record| record.node == node);
        pieces += ours.map(|record| record.billed_micros).sum::<u64>();
    }
    same("the sum of two adjoining periods", &pieces, &lines[0].billed_micros)
}

async fn no_usage_is_said(subject: &dyn Subject) -> Outcome {
    let now = subject.now();
    let period = Period { start: now, end: now };
    let error = refused("usage", subject.provider().usage(&period).await)?;
    same("the kind", &error.kind, &ErrorKind::Unsupported)
}
