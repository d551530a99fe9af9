//! From what a YAML says to one offer that a connected account can launch.

use runwhere_engine::{FxRate, UsedRate};
use runwhere_model::{
    Bootstrapping, Currency, Deadman, GpuCount, GpuModel, GpuModelId, HourlyPrice, Lang, Offer,
    OfferCode, OfferKey, Stock,
};
use runwhere_providers::Registry;
use rust_decimal::{Decimal, RoundingStrategy};

use crate::api::runwhere::Refusal;
use crate::api::text::Words;
use crate::ports::Prices;
use crate::task::{GpuSku, TaskFile};

/// The most GPUs that one node is looked for with.
const MOST_GPUS: u32 = 16;

/// What a submit is held against besides the YAML.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    pub(super) prices: &'a dyn Prices,
    pub(super) registry: &'a Registry,
    /// The project accepts nodes that nothing ends without us.
    pub(super) consents_no_deadman: bool,
    /// Agents on other machines can reach us.
    pub(super) reachable: bool,
    pub(super) max_price: Option<HourlyPrice>,
}

/// The chosen offer, what it costs, and the price it may be launched at.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) offer: Offer,
    pub(super) price: HourlyPrice,
    /// In the currency of the price.
    pub(super) ceiling: HourlyPrice,
    /// How a limit in another currency became the ceiling.
    pub(super) rates: Vec<UsedRate>,
    pub(super) gpus: GpuCount,
}

fn invalid(message: Words, suggestion: Words) -> Refusal {
    Refusal::Invalid { message, suggestion: Some(suggestion) }
}

/// Chooses by key or code where one is given, else by model and count.
pub(super) fn choose(
    terms: &Terms<'_>,
    task: &TaskFile,
    key: Option<&str>,
    code: Option<&str>,
) -> Result<Chosen, Refusal> {
    let sku = match (key, code, &task.resources.gpu_sku_key) {
        (Some(key), ..) => Some(by_key(terms, key)?),
        (None, Some(code), _) => Some(by_code(terms, code)?),
        (None, None, Some(GpuSku::OfferKey(key))) => Some(by_key(terms, &key.to_string())?),
        (None, None, Some(GpuSku::OfferCode(code))) => Some(by_code(terms, code.as_str())?),
        (None, None, None) => None,
    };
    let wanted = task.resources.gpu_num.value;
    let gpus = GpuCount::whole(wanted).ok_or_else(|| {
        invalid(
            Words::new(
                "resources.gpuNum 必须是正整数",
                "resources.gpuNum must be a positive number",
            ),
            Words::new("填写 1 到 16", "use 1 to 16"),
        )
    })?;
    let offer = match sku {
        Some(offer) => {
            if offer.gpu_count < gpus {
                return Err(invalid(
                    Words::new(
                        format!(
                            "Offer {} 只有 {} 张 GPU，少于 resources.gpuNum={wanted}",
                            offer.key, offer.gpu_count
                        ),
                        format!(
                            "offer {} has {} GPUs, fewer than resources.gpuNum={wanted}",
                            offer.key, offer.gpu_count
                        ),
                    ),
                    Words::new(
                        "改用 GPU 数足够的 Offer（runwhere price list 查 SKU KEY），或减小 resources.gpuNum",
                        "use an offer with enough GPUs (see `runwhere price list`) or lower resources.gpuNum",
                    ),
                ));
            }
            offer
        }
        None => by_model(terms, task.resources.gpu_type.as_deref().unwrap_or_default(), gpus)?,
    };
    check(terms, offer, gpus)
}

fn by_key(terms: &Terms<'_>, text: &str) -> Result<Offer, Refusal> {
    let key: OfferKey = text.parse().map_err(|error: runwhere_model::KeyError| {
        invalid(
            Words::new(
                format!("resources.gpuSkuKey 不是有效的 Offer key：{error}"),
                format!("resources.gpuSkuKey: {error}"),
            ),
            list_hint(),
        )
    })?;
    terms.prices.offer(&key).ok_or_else(|| {
        invalid(
            Words::new(format!("没有这个 Offer：{key}"), format!("there is no offer {key}")),
            list_hint(),
        )
    })
}

fn by_code(terms: &Terms<'_>, text: &str) -> Result<Offer, Refusal> {
    let offer = text
        .parse::<OfferCode>()
        .ok()
        .and_then(|code| terms.prices.by_code(code))
        .and_then(|key| terms.prices.offer(&key));
    offer.ok_or_else(|| {
        let shown: String = text.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        invalid(
            Words::new(
                format!("没有代码为 {shown} 的 Offer，或它不唯一"),
                format!("no offer, or more than one, has the code {shown}"),
            ),
            list_hint(),
        )
    })
}

fn list_hint() -> Words {
    Words::new("用 runwhere price list 查 SKU KEY", "see `runwhere price list` for the keys")
}

/// The refusal of the documents for a GPU name that nothing can be chosen for.
fn unresolvable(terms: &Terms<'_>, text: &str) -> Refusal {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(64).collect();
    let near = similar_models(terms.prices, text);
    let (zh, en) = (near.say(Lang::Zh), near.say(Lang::En));
    invalid(
        Words::new(
            format!("无法为 gpuType='{shown}' 自动选机（未知型号或比价服务暂不可达）"),
            format!(
                "no offer can be chosen for gpuType='{shown}' (unknown model, or no prices at hand)"
            ),
        ),
        Words::new(
            format!(
                "检查 GPU 型号拼写，或在 YAML 填 resources.gpuSkuKey 指定具体 Offer（runwhere price list 查 SKU KEY）{zh}"
            ),
            format!(
                "check the spelling of the GPU model, or name an offer in resources.gpuSkuKey (see `runwhere price list`){en}"
            ),
        ),
    )
}

/// What a model that is unknown may have meant, to follow a sentence; empty where nothing is like it.
pub(crate) fn similar_models(prices: &dyn Prices, text: &str) -> Words {
    let near: Vec<&str> = prices.suggest(text).into_iter().map(|id| id.as_str()).collect();
    match near.is_empty() {
        true => Words::new("", ""),
        false => Words::new(
            format!("；相近的型号：{}", near.join("、")),
            format!("; did you mean {}", near.join(", ")),
        ),
    }
}

/// With how many GPUs on one node a model can be launched where its provider is `known`, to follow a sentence; empty
/// where it cannot.
pub(crate) fn launchable_counts(
    prices: &dyn Prices,
    model: GpuModelId,
    known: impl Fn(&Offer) -> bool,
) -> Words {
    let counts = counts_of(prices, model, |offer| offer.launchable && known(offer));
    match counts.is_empty() {
        true => Words::new("", ""),
        false => Words::new(
            format!("；现在能启动的张数：{}", counts.join("、")),
            format!("; it can be launched with {}", counts.join(", ")),
        ),
    }
}

/// The numbers of GPUs on one node with which a model has offers that are `good`.
fn counts_of(prices: &dyn Prices, model: GpuModelId, good: impl Fn(&Offer) -> bool) -> Vec<String> {
    (1..=MOST_GPUS)
        .filter_map(GpuCount::whole)
        .filter(|count| prices.best(model, *count).iter().any(&good))
        .map(|count| count.to_string())
        .collect()
}

fn by_model(terms: &Terms<'_>, text: &str, gpus: GpuCount) -> Result<Offer, Refusal> {
    let Some(model) = GpuModel::resolve(text) else { return Err(unresolvable(terms, text)) };
    let offers = terms.prices.best(model.id, gpus);
    offers.into_iter().next().ok_or_else(|| no_such_count(terms, text, model, gpus))
}

/// The refusal for a known model that nobody offers with this number of GPUs.
fn no_such_count(terms: &Terms<'_>, text: &str, model: &GpuModel, gpus: GpuCount) -> Refusal {
    let offered = counts_of(terms.prices, model.id, |_| true);
    if offered.is_empty() {
        return unresolvable(terms, text);
    }
    let name = model.name;
    invalid(
        Words::new(
            format!("没有正好 {gpus} 张 {name} 的 Offer；现有的张数：{}", offered.join("、")),
            format!(
                "no offer has exactly {gpus} x {name}; there are offers of {}",
                offered.join(", ")
            ),
        ),
        Words::new(
            "把 resources.gpuNum 改为其中之一，或在 resources.gpuSkuKey 指定 GPU 更多的 Offer（runwhere price list 查 SKU KEY）",
            "set resources.gpuNum to one of these, or name an offer with more GPUs in resources.gpuSkuKey (see `runwhere price list`)",
        ),
    )
}

fn check(terms: &Terms<'_>, offer: Offer, gpus: GpuCount) -> Result<Chosen, Refusal> {
    let provider = terms.registry.get(&offer.key.provider);
    let (Some(provider), true) = (provider, offer.launchable) else {
        return Err(not_launchable(terms, &offer, gpus));
    };
    if offer.stock == Stock::SoldOut {
        tracing::debug!(offer.key = %offer.key, "Submitted while sold out; it will wait");
    }
    let Some(price) = offer.price.state.known() else {
        return Err(invalid(
            Words::new(
                format!("Offer {} 的价格未知，不能启动", offer.key),
                format!("the price of offer {} is unknown, so it cannot be launched", offer.key),
            ),
            list_hint(),
        ));
    };
    let capabilities = provider.capabilities();
    let own_machine = capabilities.bootstrapping == Bootstrapping::Direct;
    if capabilities.deadman == Deadman::None && !own_machine && !terms.consents_no_deadman {
        return Err(invalid(
            Words::new(
                format!("{} 不会在服务失联时自行结束节点，需要项目先同意", offer.key.provider),
                format!(
                    "{} does not end a node when this server is gone; the project must consent first",
                    offer.key.provider
                ),
            ),
            Words::new(
                "由管理员为项目开启该同意",
                "an administrator can record the project's consent",
            ),
        ));
    }
    if capabilities.needs_public_url && !terms.reachable {
        return Err(invalid(
            Words::new(
                "节点无法连回本服务：没有可从外部访问的地址",
                "nodes could not reach this server: it has no address that is reachable from outside",
            ),
            Words::new(
                "用 --public-url 指定地址后重启服务",
                "restart the server with --public-url",
            ),
        ));
    }
    // Without a limit of the user's what is seen now is the most it may cost.
    let most = match terms.max_price {
        Some(limit) => within(terms, price, limit, &offer)?,
        None => Most { ceiling: price, rates: Vec::new() },
    };
    Ok(Chosen { offer, price, ceiling: most.ceiling, rates: most.rates, gpus })
}

/// The refusal for an offer that no connected account can launch: what could be launched instead,
/// and whether only the price limit is in its way.
fn not_launchable(terms: &Terms<'_>, offer: &Offer, gpus: GpuCount) -> Refusal {
    let key = &offer.key;
    let account = &key.provider;
    // Launchable ones come first, the cheapest of them at the head.
    let ready = offer
        .gpu
        .and_then(|model| terms.prices.best(model, gpus).into_iter().next())
        .filter(|ready| ready.launchable && terms.registry.get(&ready.key.provider).is_some());
    let ready = ready.and_then(|ready| Some((ready.price.state.known()?, ready.key)));
    match (ready, terms.max_price) {
        (Some((price, cheapest)), Some(limit)) if over(terms, price, limit) == Some(true) => {
            invalid(
                Words::new(
                    format!(
                        "没有价格不超过 {limit} 且能启动的 Offer；最便宜的可启动 Offer 是 {cheapest}，{price}"
                    ),
                    format!(
                        "no offer that can be launched costs at most {limit}; the cheapest one is {cheapest} at {price}"
                    ),
                ),
                Words::new(
                    format!(
                        "把 --max-price 提高到 {price} 以上；{key} 便宜些，但要先连接 {account} 账户"
                    ),
                    format!(
                        "raise --max-price to {price} or more; {key} is within the limit, but needs a connected account of {account}"
                    ),
                ),
            )
        }
        (ready, _) => {
            let (zh, en) = match ready {
                Some((price, other)) => (
                    format!("或改用已能启动的 {other}（{price}）"),
                    format!("or use {other} ({price}), which can be launched now"),
                ),
                None => (
                    "想先在本机试跑，用 runwhere run --try-locally（或用 runwhere serve --try-locally 启动服务）".to_owned(),
                    "to try it on this machine use `runwhere run --try-locally` (or start the server with `runwhere serve --try-locally`)".to_owned(),
                ),
            };
            invalid(
                Words::new(
                    format!("没有已连接的账户能启动 {key}：请先连接 {account} 账户"),
                    format!(
                        "no connected account can launch {key}: connect an account of {account} first"
                    ),
                ),
                Words::new(
                    format!("这个版本还不能连接云账户，只在本机启动；{zh}"),
                    format!(
                        "this version cannot connect accounts of clouds yet and launches on this machine only; {en}"
                    ),
                ),
            )
        }
    }
}

/// The highest price that a limit allows, in the currency of a price.
struct Most {
    ceiling: HourlyPrice,
    rates: Vec<UsedRate>,
}

/// Digits after the point of a ceiling that an exchange rate made: as many as a price can be metered with.
const CEILING_DIGITS: u32 = 12;

/// The highest price in a currency that a limit allows; `None` where no dated rate can tell. Two currencies meet in yuan, as
/// in quotes: rates have one direction and are never turned round, so a ceiling in a currency other than yuan is the highest
/// price that comes to no more yuan than the limit.
fn most(terms: &Terms<'_>, limit: HourlyPrice, currency: Currency) -> Option<Most> {
    if currency == limit.currency {
        return Some(Most { ceiling: limit, rates: Vec::new() });
    }
    let mut rates = Vec::new();
    let mut in_yuan = |from: Currency| {
        if from == Currency::CNY {
            return Some(Decimal::ONE);
        }
        let FxRate { rate, date, source } = terms.prices.rate(from, Currency::CNY)?;
        rates.push(UsedRate { from, to: Currency::CNY, rate, date, source });
        Some(rate)
    };
    let (of_limit, of_price) = (in_yuan(limit.currency)?, in_yuan(currency)?);
    let yuan = limit.amount.checked_mul(of_limit)?;
    let amount = match currency {
        Currency::CNY => yuan,
        _ => {
            let quotient = yuan.checked_div(of_price)?;
            let cut = quotient.round_dp_with_strategy(CEILING_DIGITS, RoundingStrategy::ToZero);
            // The quotient itself may have been rounded up in its last digit.
            match cut.checked_mul(of_price)? > yuan {
                true => cut.checked_sub(Decimal::new(1, CEILING_DIGITS))?,
                false => cut,
            }
        }
    };
    Some(Most { ceiling: HourlyPrice { amount, currency }, rates })
}

/// Whether a price is above a limit; `None` where no dated rate can tell.
fn over(terms: &Terms<'_>, price: HourlyPrice, limit: HourlyPrice) -> Option<bool> {
    Some(price.amount > most(terms, limit, price.currency)?.ceiling.amount)
}

/// Holds a price against the user's limit; another currency only with a dated rate.
fn within(
    terms: &Terms<'_>,
    price: HourlyPrice,
    limit: HourlyPrice,
    offer: &Offer,
) -> Result<Most, Refusal> {
    match most(terms, limit, price.currency) {
        Some(most) if price.amount <= most.ceiling.amount => Ok(most),
        Some(_) => Err(invalid(
            Words::new(
                format!("Offer {} 的价格 {price} 高于上限 {limit}", offer.key),
                format!("offer {} costs {price}, more than the limit of {limit}", offer.key),
            ),
            Words::new(
                "提高 --max-price 或换一个 Offer",
                "raise --max-price or choose another offer",
            ),
        )),
        None => Err(invalid(
            Words::new(
                format!(
                    "没有可用汇率来比较 {} 与 {}，无法核对价格上限",
                    price.currency, limit.currency
                ),
                format!(
                    "no usable rate to compare {} with {}, so the price limit cannot be checked",
                    price.currency, limit.currency
                ),
            ),
            Words::new(
                "用 Offer 的币种给出上限，或配置汇率",
                "give the limit in the offer's currency, or configure a rate",
            ),
        )),
    }
}
