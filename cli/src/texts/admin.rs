//! Texts of admin.

use super::macros::texts;

texts! {
    /// Column.
    column_lease() "租约" "LEASE";
    /// Column.
    column_job() "任务" "JOB";
    /// Column.
    column_state() "状态" "STATE";
    /// Column.
    column_since() "已持续" "FOR";
    /// Column.
    column_provider() "云" "PROVIDER";
    /// Column.
    column_node() "节点" "NODE";
    /// Column.
    column_per_hour() "每小时" "PER HOUR";
    /// Column.
    column_remark() "依据 / 问题" "EVIDENCE / PROBLEM";
    /// Column.
    column_verdict() "判定" "VERDICT";
    /// Column.
    column_cause() "原因" "CAUSE";
    /// No leases.
    no_leases() "没有未结束的租约" "No open leases";
    /// What all of them cost.
    leases_cost(count, cost) "→ {count} 个未结束的租约，合计 {cost}/hr" "→ {count} open leases, {cost}/hr in all";
    /// Only some are shown.
    more_leases() "→ 只显示了一部分，用 --json 和 API 的 limit 查看更多" "→ Not all are shown; more with the limit of the API";
    /// Heading.
    strays_title(count) "无主节点（{count}）：" "Nodes without an owner ({count}):";
    /// A provider with leases is not connected.
    cleanup_unconnected(provider) "清理受阻：云 {provider} 未连接；重新连接后会继续释放" "Clean-up is blocked: {provider} is not connected; connect it again to release the node";
    /// The provider refuses to end the node.
    cleanup_blocked(provider, kind) "清理受阻：{provider} 拒绝结束节点（{kind}）；会一直重试" "Clean-up is blocked: {provider} refuses to end the node ({kind}); it is tried for ever";
    /// The provider refuses to end the node for a while.
    cleanup_blocked_until(provider, kind, until) "清理受阻：{provider} 在 {until} 之前拒绝结束节点（{kind}）" "Clean-up is blocked: {provider} refuses to end the node until {until} ({kind})";
    /// Surplus nodes of a lease.
    surplus_nodes(count) "另有 {count} 个多余节点正在结束" "{count} surplus nodes are being ended";
    /// Nobody pays.
    unattributed() "未归属任何项目" "unattributed";
    /// The last sweep of a provider.
    last_sweep(provider, at, owned, suspected, ending, foreign) "→ {provider}：上次清扫 {at}，属于租约 {owned}，无主 {suspected}，正在结束 {ending}，外来节点 {foreign}（只计数）" "→ {provider}: last swept {at}; owned {owned}, without an owner {suspected}, being ended {ending}, foreign {foreign} (only counted)";
    /// The last list of a provider was not complete.
    sweep_incomplete(provider) "{provider} 的节点列表不完整：看不到的节点不算消失" "The list of {provider} is not complete: what it does not show is not taken for gone";
    /// A provider's sweeps fail.
    sweep_failing(provider, count, error) "{provider} 已连续 {count} 次清扫失败（{error}）" "{provider} could not be swept {count} times in a row ({error})";
    /// A provider does not answer.
    sweep_failed(provider, error) "{provider} 无法清扫：{error}" "{provider} could not be swept: {error}";
    /// The database is an older copy.
    restored(found, expected) "数据库是从旧备份恢复的（位置 {found}，原为 {expected}）：不启动新节点，清扫只报告" "The database was restored from an older copy (at {found}, was at {expected}): nothing is launched, sweeps only report";
    /// Remedy.
    restored_hint() "→ 核对后执行 runwhere admin sweep --confirm-restore" "→ Look at what is reported, then run runwhere admin sweep --confirm-restore";
    /// Nothing to do.
    sweep_clean(provider, nodes, foreign) "✓ {provider}：{nodes} 个节点都有归属；外来节点 {foreign}（只计数，不触碰）" "✓ {provider}: all {nodes} nodes have owners; foreign nodes {foreign} (counted, never touched)";
    /// Nobody to ask.
    sweep_nobody() "没有连接任何云：没有可清扫的" "No cloud is connected: there is nothing to sweep";
    /// Nothing was ended, and may not be yet.
    sweep_held() "→ 仅预览；恢复确认之前不结束任何节点" "→ Nothing was changed; nothing is ended before the restore is confirmed";
    /// A provider of earlier leases or sweeps.
    provider_unconnected(provider) "{provider} 未连接：看不到它的节点，也无法结束它们" "{provider} is not connected: its nodes can be neither seen nor ended";
    /// Nodes without owners.
    sweep_found(provider, count, foreign) "{provider}：{count} 个节点没有归属；外来节点 {foreign}（只计数，不触碰）" "{provider}: {count} nodes have no owner; foreign nodes {foreign} (counted, never touched)";
    /// A dry run.
    sweep_dry() "→ 仅预览；用 --apply 结束无主节点" "→ Nothing was changed; end these nodes with --apply";
    /// Question.
    sweep_question(count) "结束这 {count} 个无主节点？" "End these {count} nodes?";
    /// Not confirmed.
    sweep_refused() "结束节点需要确认" "Ending nodes needs a confirmation";
    /// Remedy.
    sweep_refused_hint() "确认请加 --yes" "Confirm with --yes";
    /// Ended.
    sweep_ended(count) "✓ 已结束 {count} 个无主节点并确认消失" "✓ {count} nodes without an owner were ended and are confirmed gone";
    /// Under way.
    sweep_going_on(count) "→ 还有 {count} 个节点尚待第二次确认或正在结束；服务器会继续，用 runwhere admin leases 查看" "→ {count} nodes wait for a second look or are being ended; the server goes on, see runwhere admin leases";
    /// Confirmed.
    restore_confirmed() "✓ 已确认恢复的数据库；启动与清扫继续" "✓ The restored database is confirmed; launches and sweeps go on";
    /// Nothing to confirm.
    restore_not_needed() "没有需要确认的恢复" "There is no restore to confirm";
    /// Unknown evidence.
    evidence_terminal(call, at) "云确认已结束（{call}，{at}）" "ended by the cloud's word ({call}, {at})";
    /// Evidence.
    evidence_absent(reads, at) "{reads} 次完整读取均不存在（最后 {at}）" "absent in {reads} reads (last {at})";
    /// Evidence.
    evidence_refused(error, at) "启动被拒绝（{error}，{at}）" "launch refused ({error}, {at})";
    /// Evidence.
    evidence_nothing(at) "从未启动（{at}）" "nothing was launched ({at})";
}
