//! Texts of submit, logs, get, describe, stop, resume, delete and run.

use super::macros::texts;

texts! {
    /// Submitted on the customer's own account.
    submitted_byoa(id) "✓ 任务 {id} 已提交（BYOA）" "✓ Job {id} submitted (BYOA)";
    /// Submitted.
    submitted(id) "✓ 任务 {id} 已提交" "✓ Job {id} submitted";
    /// Price of the job.
    submitted_price(price) "→ ¥{price}/hr" "→ ¥{price}/hr";
    /// Price of the job, with the cloud's own price.
    submitted_price_original(price, original) "→ ¥{price}/hr（原价 {original}/hr）" "→ ¥{price}/hr (originally {original}/hr)";
    /// Estimated start.
    submitted_estimate(minutes) "→ 预计 ~{minutes} 分钟后开始运行（含节点创建）" "→ Expected to start within ~{minutes} min (with the making of the node)";
    /// Remedy where there is no server to resume on.
    resume_needs_server() "resume 需要一直运行的服务器：runwhere serve，再 runwhere login --endpoint <url>" "resume needs a server that stays: runwhere serve, then runwhere login --endpoint <url>";
    /// A repeat of a submit.
    submitted_before() "→ 这次提交已在此前收到（同一 idempotency key），没有新建任务" "→ This submit was received before (the same idempotency key); no new job was made";
    /// The GPU type leads nowhere.
    gpu_unresolvable(gpu) "无法为 gpuType='{gpu}' 自动选机（未知型号或比价服务暂不可达）" "No machine can be chosen for gpuType='{gpu}' (unknown model, or prices are not available)";
    /// Remedy for [`gpu_unresolvable`].
    gpu_unresolvable_hint() "检查 GPU 型号拼写，或在 YAML 填 resources.gpuSkuKey 指定具体 Offer（runwhere price list 查 SKU KEY）" "Check the spelling of the GPU model, or name an offer in resources.gpuSkuKey (runwhere price list shows them)";
    /// No GPU named.
    gpu_missing_hint(file) "先运行 runwhere price recommend -f {file}，或填写 resources.gpuType" "Run runwhere price recommend -f {file} first, or fill in resources.gpuType";
    /// The key the submit went under.
    submit_lost(key) "没有收到回答，任务可能已经创建；用同一个键重试是安全的：--idempotency-key {key}" "No answer arrived, the job may exist; repeating with the same key is safe: --idempotency-key {key}";
    /// Beyond the quota.
    quota_title(message) "⚠ {message}" "⚠ {message}";
    /// Usage and limit.
    quota_usage(current, limit) "  当前用量 {current} / 配额 {limit}" "  Used {current} of {limit}";
    /// Price beyond the quota.
    quota_price(price) "  超出部分单价 {price}" "  Unit price beyond it: {price}";
    /// Question.
    quota_question() "接受并继续提交？" "Accept and submit?";
    /// The user said no.
    not_submitted() "→ 没有提交" "→ Nothing was submitted";
    /// Not confirmed.
    quota_refused() "超出配额，需要确认" "Beyond the quota; this needs a confirmation";
    /// Remedy for [`quota_refused`].
    quota_refused_hint() "确认请加 --accept-overage" "Confirm with --accept-overage";
    /// No logs.
    no_logs() "暂无日志（任务尚未产生输出，或日志已过期）" "No logs yet (the job has produced no output, or the log has expired)";
    /// Remedy for [`no_logs`].
    no_logs_hint(name) "→ 任务可能还在准备：runwhere describe job {name}，或用 -f 跟随" "→ The job may still be preparing: runwhere describe job {name}, or follow with -f";
    /// The log was cut.
    logs_cut(count) "只显示最近 {count} 行（--tail N 调整）" "Only the last {count} lines are shown (change with --tail N)";
    /// outputs: column.
    outputs_path() "文件" "FILE";
    /// outputs: column.
    outputs_size() "字节" "BYTES";
    /// outputs: column.
    outputs_sha256() "SHA-256" "SHA-256";
    /// outputs: column.
    outputs_checkpoint() "检查点" "CHECKPOINT";
    /// outputs: none, and none will come.
    outputs_none() "没有输出文件" "No output files";
    /// outputs: none yet.
    outputs_not_yet() "还没有输出文件：程序结束后才收集" "No output files yet: they are collected once the program has ended";
    /// outputs: how to get them.
    outputs_hint(name) "→ 下载：runwhere outputs {name} --download DIR" "→ Download them: runwhere outputs {name} --download DIR";
    /// outputs: done.
    outputs_downloaded(count, bytes, dir) "✓ 已下载 {count} 个文件（{bytes} 字节）到 {dir}" "✓ Downloaded to {dir}: files: {count}, bytes: {bytes}";
    /// outputs: what was there.
    outputs_kept(count) "→ {count} 个文件已在那里，内容相同" "→ Already there, with the same content: {count}";
    /// outputs: no such file.
    outputs_unknown(path) "没有输出文件 {path}" "There is no output file {path}";
    /// Remedy for [`outputs_unknown`].
    outputs_unknown_hint(name) "runwhere outputs {name} 列出全部文件；以 / 结尾表示整个文件夹" "runwhere outputs {name} lists all of them; a / at the end means a whole folder";
    /// outputs: another file stands there.
    outputs_differs(path) "{path} 已存在且内容不同；什么都没有下载" "{path} exists with another content; nothing was downloaded";
    /// Remedy for [`outputs_differs`].
    outputs_differs_hint() "用 --force 覆盖，或换一个文件夹" "Overwrite with --force, or name another folder";
    /// outputs: a name that would leave the folder.
    outputs_unsafe(path) "文件名 {path} 会离开目标文件夹，已拒绝；什么都没有下载" "The name {path} would leave the folder and is refused; nothing was downloaded";
    /// outputs: the content is another one.
    outputs_broken(path) "{path} 的内容与服务器所述不符；没有保存" "The content of {path} is not what the server announced; it was not kept";
    /// outputs: the disk.
    outputs_disk(path, error) "无法写入 {path}：{error}" "Cannot write {path}: {error}";
    /// No jobs.
    no_jobs() "暂无作业" "No jobs";
    /// Column.
    column_name() "名称" "NAME";
    /// Column.
    column_kind() "类型" "KIND";
    /// Column.
    column_status() "状态" "STATUS";
    /// Column.
    column_gpu() "GPU" "GPU";
    /// Column.
    column_elapsed() "运行时长" "RUN TIME";
    /// Column.
    column_url() "URL" "URL";
    /// Column of the wide list.
    column_id() "ID" "ID";
    /// Column of the wide list.
    column_created() "提交时间" "SUBMITTED";
    /// Column of the wide list.
    column_cost() "费用" "COST";
    /// More to see.
    more_jobs() "还有更多（--all 全部列出）" "There are more (--all lists them)";
    /// describe: name.
    describe_name(name) "✓ 作业: {name}" "✓ Job: {name}";
    /// describe: name of a failed job.
    describe_name_failed(name) "✗ 作业: {name}" "✗ Job: {name}";
    /// describe.
    describe_id(id) "  ID: {id}" "  ID: {id}";
    /// describe.
    describe_kind(kind) "  类型: {kind}" "  Kind: {kind}";
    /// describe.
    describe_status(status) "  状态: {status}" "  Status: {status}";
    /// describe.
    describe_description(text) "  描述: {text}" "  Description: {text}";
    /// describe.
    describe_elapsed(time) "  运行时长: {time}" "  Run time: {time}";
    /// describe.
    describe_gpu(gpu) "  GPU: {gpu}" "  GPU: {gpu}";
    /// describe.
    describe_offer(offer) "  Offer: {offer}" "  Offer: {offer}";
    /// describe.
    describe_node(node) "  节点: {node}" "  Node: {node}";
    /// describe.
    describe_price(price) "  价格: {price}/hr" "  Price: {price}/hr";
    /// describe.
    describe_cost(cost, seconds) "  费用: {cost}（计费 {seconds} 秒）" "  Cost: {cost} ({seconds} billed seconds)";
    /// describe.
    describe_cost_pretended(cost, seconds) "  费用: {cost}（模拟，计费 {seconds} 秒，不产生真实费用）" "  Cost: {cost} (simulated, {seconds} billed seconds, nothing is really charged)";
    /// describe.
    describe_limit(time) "  最长运行: {time}" "  Longest run: {time}";
    /// describe.
    unlimited() "不限" "unlimited";
    /// describe.
    describe_reason(reason) "  结束原因: {reason}" "  End reason: {reason}";
    /// describe.
    describe_exit_code(code) "  退出码: {code}" "  Exit code: {code}";
    /// describe.
    describe_url(url) "  URL: {url}" "  URL: {url}";
    /// describe.
    describe_resumable(name) "  可恢复: runwhere resume {name}" "  Resumable: runwhere resume {name}";
    /// describe.
    describe_created(at) "  创建: {at}" "  Created: {at}";
    /// describe.
    describe_cleanup(text) "  释放: {text}" "  Release: {text}";
    /// describe.
    cleanup_done(evidence) "已确认（{evidence}）" "confirmed ({evidence})";
    /// describe.
    cleanup_open() "未确认" "not confirmed yet";
    /// The same where the cloud refuses it.
    cleanup_held(why) "未确认，清理受阻（{why}）；会一直重试" "not confirmed yet; clean-up is blocked ({why}) and tried for ever";
    /// The same where it is known until when.
    cleanup_held_until(why, until) "未确认，清理受阻到 {until}（{why}）" "not confirmed yet; clean-up is blocked until {until} ({why})";
    /// A stop whose release is blocked.
    stop_held(text) "释放{text}" "The release is {text}";
    /// describe.
    describe_util(average, maximum) "  GPU 利用率: 平均 {average}%，峰值 {maximum}%" "  GPU utilisation: average {average}%, peak {maximum}%";
    /// describe.
    describe_memory(gigabytes) "  显存峰值: {gigabytes} GB" "  Peak GPU memory: {gigabytes} GB";
    /// describe.
    describe_temperature(celsius) "  温度峰值: {celsius} °C" "  Peak temperature: {celsius} °C";
    /// End reason.
    reason_succeeded() "正常结束" "succeeded";
    /// End reason.
    reason_failed() "程序失败" "the program failed";
    /// End reason.
    reason_stopped() "已停止" "stopped";
    /// End reason.
    reason_max_duration() "达到 maxDuration" "maxDuration was reached";
    /// End reason.
    reason_lost() "执行中断，未重新运行" "the execution was lost and not run again";
    /// End reason.
    reason_reclaimed() "节点被云厂商收回，未重新运行" "the provider took the node back; not run again";
    /// End reason.
    reason_limit() "超出资源上限" "a limit of its resources was passed";
    /// End reason.
    reason_start_failed() "程序无法启动" "the program could not be started";
    /// End reason.
    reason_no_capacity() "没有可用的机器" "no machine was to be had";
    /// End reason.
    reason_price_changed() "价格超过上限，未启动" "the price rose above the limit; nothing was launched";
    /// End reason.
    reason_budget() "项目预算已用完" "the project's budget is used up";
    /// End reason.
    reason_launch_refused() "平台拒绝启动" "the provider refused the launch";
    /// End reason.
    reason_node_failed() "节点故障" "the node failed";
    /// End reason.
    reason_prepare_failed() "工作目录准备失败" "the work folder could not be prepared";
    /// Stopped.
    stopped(name) "✓ 作业 {name} 已停止，GPU 已释放，计费停止" "✓ Job {name} stopped, GPUs released, billing stopped";
    /// Nothing to stop.
    ended_already(name, status) "✓ 作业 {name} 此前已结束（{status}），GPU 已释放，计费停止" "✓ Job {name} had already ended ({status}), GPUs released, billing stopped";
    /// Stop accepted, release not yet confirmed.
    stopping(name) "✓ 作业 {name} 正在停止；释放确认后计费停止（runwhere describe job {name} 查看）" "✓ Job {name} is stopping; billing ends with the confirmed release (see runwhere describe job {name})";
    /// Deleted.
    deleted(name) "✓ 作业 {name} 已删除" "✓ Job {name} deleted";
    /// Deleted with its earlier runs.
    deleted_many(name, count) "→ 名为 {name} 的 {count} 次运行都已删除" "→ All {count} runs named {name} are deleted";
    /// Deleted before the release is confirmed.
    deleting() "→ 仍在释放；释放确认后计费停止（/api/v1/billing/segments 查看）" "→ Still being released; billing ends with the confirmed release (see /api/v1/billing/segments)";
    /// Resumed.
    resumed(name, id) "✓ 作业 {name} 已恢复，新任务 {id}" "✓ Job {name} resumed as {id}";
    /// From a step.
    resumed_from(step) "→ 从第 {step} 步继续（RUNW_RESUME_FROM_STEP={step}）" "→ Continues from step {step} (RUNW_RESUME_FROM_STEP={step})";
    /// No such job.
    job_unknown() "任务不存在或无权访问" "The job does not exist, or is not yours to see";
    /// Live: status.
    live_status(status) "状态: {status}" "Status: {status}";
    /// Live: address.
    live_url(url) "服务地址: {url}" "Service address: {url}";
    /// Live: the connection broke.
    live_reconnecting() "连接中断，正在续接" "The connection broke; resuming";
    /// Live: gap.
    live_gap() "断线期间的部分日志可能缺失：服务器不支持续接" "Some lines may be missing: this server cannot resume a log";
    /// Live: how to leave.
    live_left(name) "已停止跟随，任务仍在运行：runwhere logs {name} -f 继续查看，runwhere stop job {name} 停止" "No longer following; the job goes on: runwhere logs {name} -f to follow again, runwhere stop job {name} to stop";
    /// End of a followed job.
    ended_succeeded(name) "✓ 任务 {name} 成功" "✓ Job {name} succeeded";
    /// End of a followed job.
    ended_stopped(name) "任务 {name} 已停止" "Job {name} was stopped";
    /// End of a followed job.
    ended_failed(name, reason) "任务 {name} 失败：{reason}" "Job {name} failed: {reason}";
    /// The program's own code.
    ended_exit_code(code) "程序退出码 {code}" "the program's exit code is {code}";
    /// The program's end by a signal.
    ended_signal(signal) "程序被信号 {signal} 结束" "the program was ended by signal {signal}";
    /// Remedy for a failed job.
    ended_failed_hint(name) "runwhere logs {name} --tail 200 查看日志" "runwhere logs {name} --tail 200 shows the log";
    /// Result line.
    result_duration(time) "  运行时长: {time}" "  Run time: {time}";
    /// Result line.
    result_billed(seconds) "  计费秒数: {seconds}" "  Billed seconds: {seconds}";
    /// Result line.
    result_cost(cost) "  费用: {cost}" "  Cost: {cost}";
    /// Result line.
    result_cost_pretended(cost) "  费用: {cost}（模拟：GPU 由 --try-locally 假装，不产生真实费用）" "  Cost: {cost} (simulated: --try-locally pretended the GPUs, nothing is really charged)";
    /// Result line.
    result_cleanup(text) "  cleanup_confirmed: {text}" "  cleanup_confirmed: {text}";
    /// Waiting.
    waiting_for_release() "等待释放确认…" "Waiting for the confirmed release…";
    /// First interruption.
    stopping_now() "正在停止任务并等待释放确认；再按一次 Ctrl-C 立即离开" "Stopping the job and waiting for the confirmed release; press Ctrl-C again to leave at once";
    /// Stop call failed.
    stop_failed(reason) "停止失败（{reason}），继续重试" "Stopping failed ({reason}); trying again";
    /// Second interruption.
    left_behind(job, node, price) "任务 {job} 的节点 {node} 可能仍在运行并计费（{price}/hr）" "Node {node} of job {job} may still run and cost {price}/hr";
    /// Remedy for [`left_behind`].
    left_behind_hint(job) "用 runwhere describe job {job} 查看，runwhere stop job {job} 停止" "Look with runwhere describe job {job}, stop with runwhere stop job {job}";
    /// Remedy for [`left_behind`] with the embedded server.
    left_behind_embedded(job) "执行 runwhere stop job {job}：它会停止任务并等到确认释放" "Run runwhere stop job {job}: it stops the job and waits for the confirmed release";
    /// The same where the run had a data folder of its own.
    left_behind_elsewhere(data_dir, listen) "执行 runwhere serve --data-dir '{data_dir}' --listen {listen}：它会继续释放" "Run runwhere serve --data-dir '{data_dir}' --listen {listen}: it goes on releasing";
    /// What is left behind where no money is charged.
    left_behind_pretended(job, node) "任务 {job} 的节点 {node} 可能仍在运行（GPU 为假装，不产生费用）" "Node {node} of job {job} may still run (its GPUs are pretended, nothing is charged)";
    /// No resource was taken yet.
    nothing_left_behind() "尚未占用任何资源" "Nothing was taken yet";
    /// Unknown price.
    unknown() "未知" "unknown";
    /// run: used server.
    run_embedded() "未配置服务器：使用内置服务和本机（local）" "No server is configured: using the embedded one and this machine (local)";
    /// run: the configured server is left aside.
    run_not_configured(url) "--try-locally：不使用已配置的服务器 {url}；使用内置服务和本机（local）" "--try-locally: the configured server {url} is not used; using the embedded one and this machine (local)";
    /// Remedy where the data folder is in use.
    run_without_try_locally(url) "去掉 --try-locally 就会提交到已配置的服务器 {url}（要假装有 GPU，用 runwhere serve --try-locally 启动它）；或用 --data-dir 换一个目录" "Without --try-locally the job goes to the configured server {url} (to pretend to have GPUs, start that one with runwhere serve --try-locally); or choose another folder with --data-dir";
    /// Remedy where another `run` or `serve` has the data folder.
    run_beside_another(url, token) "若那是另一个 runwhere run，等它结束，或用 --data-dir 换一个目录；若是 runwhere serve，先登录：runwhere login --endpoint {url} < {token}" "If that is another runwhere run, wait for its end or choose another folder with --data-dir; if it is runwhere serve, log in first: runwhere login --endpoint {url} < {token}";
    /// run: another job of the same data folder.
    other_job(id, name, price) "任务 {id}（{name}）仍未结束，可能正在计费（{price}/hr）：runwhere stop job {id} 停止" "Job {id} ({name}) has not ended and may cost {price}/hr: runwhere stop job {id} stops it";
    /// Commands without a server: what answers.
    using_local(path) "未配置服务器：读取本机数据目录 {path}" "No server is configured: using the data folder {path} of this machine";
    /// run: pretended GPUs.
    run_pretended() "--try-locally：本机假装拥有所需 GPU，仅供试用，不产生真实费用" "--try-locally: this machine pretends to have the wanted GPUs; only to try it out, no real cost";
    /// usage.
    usage_period(from, to) "✓ 用量: {from} 至 {to}" "✓ Usage: {from} to {to}";
    /// usage.
    usage_total(hours) "  GPU 时长: {hours} 小时" "  GPU time: {hours} hours";
    /// usage.
    usage_gpu(gpu, hours) "    {gpu}: {hours} 小时" "    {gpu}: {hours} hours";
    /// usage.
    usage_cost(amount, currency) "  费用: {amount} {currency}" "  Cost: {amount} {currency}";
    /// usage, of GPUs that were pretended.
    usage_gpu_pretended(gpu, hours) "    {gpu}（模拟）: {hours} 小时" "    {gpu} (simulated): {hours} hours";
    /// usage, of GPUs that were pretended.
    usage_cost_pretended(amount, currency) "  模拟费用: {amount} {currency}（GPU 由 --try-locally 假装，不产生真实费用）" "  Simulated cost: {amount} {currency} (GPUs pretended by --try-locally, nothing is really charged)";
    /// usage.
    usage_none() "  没有用量" "  No usage";
    /// usage.
    usage_plan(plan) "  套餐: {plan}" "  Plan: {plan}";
    /// usage.
    usage_quota(kind, current, limit) "  配额 {kind}: {current} / {limit}" "  Quota {kind}: {current} / {limit}";
    /// usage.
    usage_bill(subscription, overage, total) "  平台费用: 订阅 ¥{subscription}，超额 ¥{overage}，合计 ¥{total}" "  Platform bill: subscription ¥{subscription}, overage ¥{overage}, total ¥{total}";
    /// explain.
    explain_title() "默认值与来源：" "Values and where they come from:";
    /// explain.
    explain_field(name, value, source, reason) "  {name} = {value}（{source}）{reason}" "  {name} = {value} ({source}) {reason}";
    /// explain.
    explain_envs() "平台环境变量：" "Environment variables of the platform:";
    /// explain.
    explain_env(name, reason) "  {name}：{reason}" "  {name}: {reason}";
    /// explain: choice.
    explain_choice(offer, reason) "  选择 {offer}：{reason}" "  Chosen {offer}: {reason}";
    /// explain: variable.
    env_job_id() "任务 ID" "id of the job";
    /// explain: variable.
    env_job_name() "任务名" "name of the job";
    /// explain: variable.
    env_org() "组织" "organisation";
    /// explain: variable.
    env_user() "用户" "user";
    /// explain: variable.
    env_nproc(count) "每个节点的进程数，等于 gpuNum（{count}）" "processes per node, equal to gpuNum ({count})";
    /// explain: variable.
    env_nccl() "NCCL 默认设置" "default setting of NCCL";
    /// describe.
    describe_waiting(what) "  等待: {what}" "  Waiting for: {what}";
    /// describe.
    describe_signal(signal) "  信号: {signal}" "  Signal: {signal}";
    /// describe.
    describe_message(text) "  说明: {text}" "  Message: {text}";
    /// describe.
    describe_outputs(files, bytes, name) "  输出: {files} 个文件，{bytes} 字节（runwhere outputs {name} 查看）" "  Outputs: {files} files, {bytes} bytes (see runwhere outputs {name})";
    /// describe.
    describe_outputs_state(state) "  输出: {state}" "  Outputs: {state}";
    /// describe.
    describe_outputs_failed(reason) "  输出: 收集失败（{reason}）" "  Outputs: not collected ({reason})";
    /// The live log ended, the job did not.
    live_broken(reason) "实时日志中断：{reason}" "The live log ended: {reason}";
    /// run: an earlier job of the same name.
    waiting_for_earlier(id) "上次运行的任务 {id} 尚未结束，等待其结束…" "Job {id} of an earlier run has not ended; waiting for its end…";
}
