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
    /// Prices that a list of fresh ones leaves out.
    price_stale_offers(count, providers)
        "{count} 个 Offer 的价格已过期（{providers}），price list --fresh 不列出它们"
        "{count} offers have prices older than their kind may be ({providers}); price list --fresh leaves them out";
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
    /// What the cheapest offer costs.
    price_cheapest(price, currency, key) "最便宜的是 {key}：--max-price \"{price} {currency}\"" "The cheapest is {key}: --max-price \"{price} {currency}\"";
    /// Filters that nothing fits.
    price_filters_hint() "放宽 --provider、--region 或 --country；runwhere price list 列出各平台和地域的 Offer" "Widen --provider, --region or --country; runwhere price list shows the offers of all";
    /// A provider without offers that fit.
    price_provider_hint(provider) "runwhere price sources 列出有价格的平台（{provider} 是否拼写正确）" "runwhere price sources shows the providers that have prices (is {provider} spelt right?)";
    /// Bad currency.
    price_currency_invalid(error) "货币无效：{error}" "The currency is not valid: {error}";
    /// A source that failed a moment ago.
    price_cooling_down(provider, at) "{provider} 刚刚读取失败，{at} 之前不会再读" "{provider} failed a moment ago and is not read again before {at}";
    /// A source that was read often.
    price_budget_spent(provider) "{provider} 本小时的读取次数已用完" "{provider} was read as often as it may be within an hour";
    /// No states.
    price_no_states() "还没有保存价格快照：导入或读取价格、询价后会保存" "No states of prices are kept yet: imports, readings and quotes keep them";
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
    /// Settings of price sources or rates.
    price_settings(error) "价格来源或汇率的设置无法使用：{error}" "The settings of price sources or rates cannot be used: {error}";
    /// No settings there.
    price_settings_missing(path) "没有设置文件 {path}" "There is no settings file {path}";
    /// Cell.
    price_can_launch() "是" "yes";
    /// Cell.
    price_cannot_launch() "否" "no";
    /// Why recommendations cannot be launched.
    price_not_launchable(reason) "标为“否”的 Offer 现在无法启动：{reason}" "Offers marked no cannot be launched now: {reason}";
    /// explain: why an offer stands where it stands.
    price_because(rank, reason) "  #{rank} {reason}" "  #{rank} {reason}";
    /// Column.
    price_field() "字段" "FIELD";
    /// Column.
    price_value() "值" "VALUE";
    /// Column.
    price_status() "状态" "STATUS";
    /// Column.
    price_age() "更新于" "AGE";
    /// Column.
    price_quarantined() "待确认" "QUARANTINED";
    /// Column.
    price_rejected() "无法使用的行" "REJECTED";
    /// Names without a model.
    price_unmapped(provider, names) "{provider} 中有未识别的 GPU 名称：{names}" "{provider} has GPU names that no model is known for: {names}";
    /// Prices of this machine.
    price_local(folder) "未配置服务器：使用随程序附带的价格和 {folder} 中的价格" "No server is configured: these are bundled prices and those in {folder}";
    /// Sources in trouble.
    price_sources_incomplete(providers) "未能完整读取或已过期的价格来源：{providers}" "Price sources that could not be read (whole), or are too old: {providers}";
    /// Remedy for [`price_sources_incomplete`].
    price_sources_hint() "用 runwhere price sources 查看原因" "runwhere price sources says why";
    /// Strict lists.
    price_some_unknown(count) "{count} 个 Offer 的价格未知" "{count} offers have no known price";
    /// Whose the old prices that come with the program are.
    price_of_the_program() "随程序附带" "bundled";
    /// A day that has not come yet.
    price_observed_future(date, today) "--observed {date} 在未来（今天是 {today}，UTC）" "--observed {date} is in the future (today is {today}, UTC)";
    /// Remedy for [`price_observed_future`].
    price_observed_hint() "填写读取价格的日期，不晚于今天；不知道就省略" "Give the day on which the prices were read, today at the latest; leave it out where nobody knows";
    /// Bad count.
    price_gpu_num() "--gpu-num 必须是正整数或分数，例如 8 或 1/6" "--gpu-num must be a whole number or a share, such as 8 or 1/6";
    /// Bad hours.
    price_hours_invalid(text) "--hours 无效：{text}（须大于 0，最多 87600）" "--hours is not valid: {text} (more than 0, at most 87600)";
    /// Cost of a run.
    price_run_cost(rank, amount, currency) "  #{rank} 整次运行 {amount} {currency}" "  #{rank} the whole run {amount} {currency}";
    /// Cost of a run without its disk.
    price_run_cost_no_disk(rank, amount, currency) "  #{rank} 整次运行 {amount} {currency}（磁盘价格未知，未计入）" "  #{rank} the whole run {amount} {currency} (without disk, whose price is unknown)";
    /// Unknown source.
    price_source_unknown(name) "没有这个价格来源：{name}" "No such price source: {name}";
    /// Remedy for [`price_source_unknown`].
    price_source_unknown_hint() "用 runwhere price sources 查看可用来源" "runwhere price sources shows those there are";
    /// Nothing waits.
    price_nothing_to_decide(error) "没有等待确认的价格（{error}）" "Nothing waits for a decision ({error})";
    /// Decision.
    price_accepted(key) "已接受 {key} 的新价格，下次读取后生效" "The new price of {key} is accepted and served from the next reading on";
    /// Decision.
    price_turned_down(key) "已拒绝 {key} 的新价格，继续使用上一个价格" "The new price of {key} is turned down; the last one stays";
    /// Bad key.
    price_bad_key(error) "不是有效的 SKU KEY：{error}" "Not a SKU KEY: {error}";
    /// Column.
    price_state() "快照" "STATE";
    /// Column.
    price_kept_at() "保存于" "KEPT AT";
    /// Unknown state.
    price_no_state(id) "没有保存价格快照 {id}" "No state {id} of prices is kept";
    /// Remedy for [`price_no_state`].
    price_no_state_hint() "用 runwhere price diff 列出已保存的快照" "runwhere price diff lists those that are kept";
    /// No changes.
    price_no_changes() "价格没有变化" "No price changed";
    /// Column.
    price_when() "时间" "WHEN";
    /// Column.
    price_change() "变化" "CHANGE";
    /// Column.
    price_before() "之前" "BEFORE";
    /// Column.
    price_after() "之后" "AFTER";
    /// Column.
    price_percent() "幅度" "PERCENT";
    /// Cut list.
    price_more_changes(shown, total) "显示 {shown} / {total} 条（--limit 显示更多）" "{shown} of {total} shown (--limit shows more)";
    /// File cannot be read.
    price_import_read(path, error) "无法读取 {path}（{error}）" "{path} cannot be read ({error})";
    /// File is larger than any price file.
    price_import_large(path, mib) "{path} 超过 {mib} MiB，不像价格文件" "{path} is larger than {mib} MiB, no price file is";
    /// Import refused.
    price_import_failed(error) "无法导入：{error}" "Cannot import: {error}";
    /// Remedy for [`price_import_failed`].
    price_import_hint() "支持 SkyPilot 的 vms.csv、gpuhunt 的 catalog.csv 和本程序的 CSV；用 --provider 指定平台" "vms.csv of SkyPilot, catalog.csv of gpuhunt and CSV of this program are read; --provider names the provider";
    /// Imported.
    price_imported(provider, offers, unmapped) "已导入 {provider}：{offers} 个 Offer，其中 {unmapped} 个 GPU 名称未识别" "Imported {provider}: {offers} offers, {unmapped} of them with GPU names that no model is known for";
    /// Rejected row.
    price_rejected_row(reason, row) "  {reason}：{row}" "  {reason}: {row}";
    /// What was not imported.
    price_import_rest(rejected, without) "{rejected} 行无法使用，{without} 行没有 GPU" "{rejected} rows cannot be used, {without} rows have no GPU";
    /// Empty import.
    price_import_nothing() "文件里没有可用的价格，原有价格不变" "Nothing in the file can be used; the prices stay as they are";
    /// A price that waits for a decision.
    price_waits(key, served, stated) "待确认：{key} 现用 {served}，来源改为 {stated}（price refresh --accept 或 --reject）" "Waits for a decision: {key} at {served}, now stated as {stated} (price refresh --accept or --reject)";
    /// Kept prices that cannot be read.
    price_damaged(what) "保存的价格无法读取，未列出：{what}；请重新导入或刷新" "Kept prices cannot be read and are left out: {what}; import or refresh them again";
    /// The folder takes nothing.
    price_not_kept(error) "无法写入价格文件夹（{error}）" "The price folder cannot be written ({error})";
    /// An amount beyond what can be computed.
    price_too_large() "换算后的金额超出可精确计算的范围" "The converted amount is too large to be computed exactly";
    /// Column.
    price_from() "从" "FROM";
    /// Column.
    price_to() "到" "TO";
    /// Column.
    price_fx_rate() "汇率" "RATE";
    /// Column.
    price_date() "日期" "DATE";
    /// Column.
    price_fx_age() "天数" "DAYS OLD";
    /// Column.
    price_fx_source() "来源" "SOURCE";
    /// Rate that was used.
    price_fx_used(from, rate, to, date, source) "汇率 1 {from} = {rate} {to}（{date}，{source}）" "Rate 1 {from} = {rate} {to} ({date}, {source})";
    /// No rate in this direction.
    price_no_direction(from, to) "没有从 {from} 到 {to} 的汇率；反方向的汇率不会倒用" "No rate from {from} to {to}; the opposite one is not turned round";
    /// Remedy for [`price_no_direction`].
    price_no_direction_hint() "在服务器的 [fx] 中配置" "Configure one in the server's [fx]";
    /// Old rate.
    price_old_rate() "汇率已过期，不用于换算" "The rate is too old to convert with";
}
