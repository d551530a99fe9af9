//! Texts of the price commands.

use super::macros::texts;

texts! {
    /// Column.
    price_model() "GPU 型号" "GPU MODEL";
    /// Column.
    price_memory() "显存" "MEMORY";
    /// Column.
    price_lowest() "最低价/hr" "LOWEST/HR";
    /// Column.
    price_highest() "最高价/hr" "HIGHEST/HR";
    /// Column.
    price_providers() "平台数" "PROVIDERS";
    /// Column.
    price_offers() "Offer 数" "OFFERS";
    /// Column.
    price_has_spot() "抢占式" "SPOT";
    /// Cell.
    price_yes() "有" "yes";
    /// Cell.
    price_no() "-" "-";
    /// Column.
    price_sku_key() "SKU KEY" "SKU KEY";
    /// Column.
    price_code() "代码" "CODE";
    /// Column.
    price_provider() "平台" "PROVIDER";
    /// Column.
    price_region() "地域" "REGION";
    /// Column.
    price_gpu() "GPU" "GPU";
    /// Column.
    price_billing() "计费方式" "BILLING";
    /// Column.
    price_original() "原价/hr" "ORIGINAL/HR";
    /// Column.
    price_cny() "价格/hr" "CNY/HR";
    /// Column.
    price_launchable() "可启动" "LAUNCHABLE";
    /// Column.
    price_rank() "#" "#";
    /// Column.
    price_reason() "理由" "REASON";
    /// No prices.
    price_nothing() "没有找到 SKU" "No SKU found";
    /// Remedy for [`price_nothing`].
    price_nothing_hint() "用 runwhere price summary 查看可用型号" "runwhere price summary shows the models";
    /// Old prices.
    price_stale(minutes) "价格数据已有 {minutes} 分钟未更新" "The prices are {minutes} minutes old";
    /// Very old prices.
    price_stale_days(days) "价格数据已有 {days} 天未更新" "The prices are {days} days old";
    /// Cut list.
    price_more(shown, total) "显示 {shown} / {total} 条（--all 全部列出）" "{shown} of {total} shown (--all lists all)";
    /// Where prices come from.
    price_bundled() "未配置服务器：使用随程序附带的价格，可能已过时" "No server is configured: these are bundled prices and may be old";
    /// Rate line.
    price_rate(rate, currency, date, source) "汇率 1 {currency} = {rate} CNY（{date}，{source}）" "Rate 1 {currency} = {rate} CNY ({date}, {source})";
    /// Advice.
    price_write_back(key) "→ 要固定用它，在 YAML 填 resources.gpuSkuKey: {key}" "→ To fix this offer, put resources.gpuSkuKey: {key} into the YAML";
    /// Nothing within the ceiling.
    price_none_within(ceiling) "没有不超过 {ceiling}/hr 的 Offer" "No offer costs at most {ceiling}/hr";
    /// Remedy for [`price_none_within`].
    price_none_within_hint() "提高 --max-price，或允许抢占式实例" "Raise --max-price, or allow spot offers";
    /// No offer matches.
    price_no_match() "没有匹配的 Offer" "No offer matches";
    /// Unknown model.
    price_model_unknown(gpu) "未知的 GPU 型号 '{gpu}'" "Unknown GPU model '{gpu}'";
    /// Nearest known.
    price_did_you_mean(names) "相近的型号：{names}" "Similar models: {names}";
    /// Title of the table in run.
    price_recommendation(gpu, count) "推荐（{count}×{gpu}）：" "Recommendation ({count}×{gpu}):";
    /// No rate for a ceiling.
    price_no_rate(currency, error) "无法把 {currency} 换算为 CNY（{error}）" "{currency} cannot be converted to CNY ({error})";
    /// Remedy for [`price_no_rate`].
    price_no_rate_hint() "以 CNY 给出 --max-price" "Give --max-price in CNY";
    /// The answer cannot be made.
    price_answer(error) "无法生成比价结果（{error}）" "The prices cannot be shown ({error})";
    /// Cell.
    price_can_launch() "是" "yes";
    /// Cell.
    price_cannot_launch() "否" "no";
    /// Why recommendations cannot be launched.
    price_not_launchable(reason) "标为“否”的 Offer 现在无法启动：{reason}" "Offers marked no cannot be launched now: {reason}";
    /// explain: why an offer stands where it stands.
    price_because(rank, reason) "  #{rank} {reason}" "  #{rank} {reason}";
}
