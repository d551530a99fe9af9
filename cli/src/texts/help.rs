//! The texts of help pages.

use super::Lang;

/// One row of the help table.
#[derive(Debug)]
pub struct HelpEntry {
    /// Command words, then `--option` or `<argument>` (by its id); empty for the whole program.
    pub path: &'static str,
    /// Chinese text.
    pub zh: &'static str,
    /// English text.
    pub en: &'static str,
    /// Examples, command lines only.
    pub examples: &'static str,
}

/// A row without examples.
pub(crate) const fn row(path: &'static str, zh: &'static str, en: &'static str) -> HelpEntry {
    HelpEntry { path, zh, en, examples: "" }
}

/// A row with examples.
pub(crate) const fn with(
    path: &'static str,
    zh: &'static str,
    en: &'static str,
    examples: &'static str,
) -> HelpEntry {
    HelpEntry { path, zh, en, examples }
}

/// The help table: every visible command and argument has a row.
pub const HELP: &[HelpEntry] = &[
    with(
        "",
        "在最便宜的地方运行 GPU 任务，并证明花了多少钱",
        "Run GPU work where it is cheapest, and prove what it cost",
        "runwhere run -f train.yaml --try-locally\nrunwhere price list --gpu-type a100-80g\nrunwhere submit -f train.yaml",
    ),
    row(
        "--json",
        "输出 JSON（错误也是，写到标准错误）",
        "Print JSON (errors too, on standard error)",
    ),
    row("--explain", "说明默认值和选择的理由", "Explain defaults and choices"),
    row("--lang", "界面语言", "Language of texts"),
    row(
        "--endpoint",
        "服务器地址（优先于 RUNW_ENDPOINT 和配置文件）",
        "Server address (wins over RUNW_ENDPOINT and the configuration file)",
    ),
    row("--verbose", "更多诊断信息（可重复）", "More diagnostics (repeatable)"),
    row("--help", "显示帮助", "Print help"),
    row("--version", "显示版本", "Print the version"),
    with(
        "run",
        "一次完成：比价、同步、提交、跟随、结算、确认释放",
        "All in one: compare prices, sync, submit, follow, cost, confirmed release",
        "runwhere run -f train.yaml\nrunwhere run -f train.yaml --try-locally\nrunwhere run -f train.yaml --max-price '50 CNY'",
    ),
    row("run --file", "任务 YAML 文件", "Task YAML file"),
    row(
        "run --try-locally",
        "让本机假装拥有所需 GPU（仅供试用）",
        "Let this machine pretend to have the wanted GPUs (to try it out)",
    ),
    row(
        "run --max-price",
        "每小时最高价，例如 50 或 \"7 USD\"（不写货币为 CNY）",
        "Highest price per hour, such as 50 or \"7 USD\" (CNY without a currency)",
    ),
    row("run --data-dir", "内置服务的数据目录", "Data folder of the embedded server"),
    row("run --yes", "不再询问", "Ask nothing"),
    with(
        "sync",
        "上传变化的文件，准备环境",
        "Upload changed files and prepare the environment",
        "runwhere sync -f train.yaml\nrunwhere sync -f train.yaml --dry-run\nrunwhere sync -f train.yaml --status",
    ),
    row("sync --file", "任务 YAML 文件", "Task YAML file"),
    row("sync --status", "只查看最近一次同步状态", "Only show the state of the latest sync"),
    row("sync --dry-run", "只列出会同步的文件，不上传", "Only list the files that would be synced"),
    row("sync --yes", "文件很多或很大时不再询问", "Do not ask about many or large files"),
    with(
        "submit",
        "提交任务并跟随实时事件",
        "Submit a task and follow its events",
        "runwhere submit -f train.yaml\nrunwhere --json submit -f train.yaml\nrunwhere submit -f train.yaml --max-price 50 --no-follow",
    ),
    row("submit --file", "任务 YAML 文件", "Task YAML file"),
    row(
        "submit --max-price",
        "每小时最高价，例如 50 或 \"7 USD\"（不写货币为 CNY）",
        "Highest price per hour, such as 50 or \"7 USD\" (CNY without a currency)",
    ),
    row(
        "submit --idempotency-key",
        "幂等键：同一个键只会创建一个任务",
        "Idempotency key: one key makes one job",
    ),
    row("submit --no-follow", "提交后立即返回", "Return right after submitting"),
    row("submit --accept-overage", "接受超出配额的费用", "Accept the price beyond the quota"),
    with(
        "logs",
        "查看日志",
        "Show logs",
        "runwhere logs llama-finetune\nrunwhere logs llama-finetune -f\nrunwhere logs llama-finetune --tail 500",
    ),
    row("logs <name>", "任务名或 ID", "Job name or id"),
    row(
        "logs --follow",
        "实时跟随，断线后无缝续接",
        "Follow live; resumes without gaps after a lost connection",
    ),
    row(
        "logs --tail",
        "最近 N 行（1 到 5000，默认 200）",
        "The last N lines (1 to 5000, default 200)",
    ),
    with(
        "outputs",
        "列出或下载任务留下的文件",
        "List or download the files that a job left",
        "runwhere outputs llama-finetune\nrunwhere outputs llama-finetune --download results\nrunwhere outputs llama-finetune checkpoints/ --download results",
    ),
    row("outputs <name>", "任务名或 ID", "Job name or id"),
    row(
        "outputs <paths>",
        "只要这些文件；以 / 结尾表示整个文件夹",
        "Only these files; a / at the end means a whole folder",
    ),
    row(
        "outputs --download",
        "下载到这个文件夹（逐个校验 SHA-256）",
        "Download into this folder (each file is checked by its SHA-256)",
    ),
    row("outputs --force", "覆盖内容不同的文件", "Overwrite files with another content"),
    with(
        "get",
        "列出任务或用量",
        "List jobs or usage",
        "runwhere get jobs --status running\nrunwhere get usage --from 2026-07-01",
    ),
    with(
        "get jobs",
        "列出任务",
        "List jobs",
        "runwhere get jobs\nrunwhere get jobs --status running\nrunwhere get jobs --kind Training --limit 50",
    ),
    row(
        "get jobs --status",
        "按状态筛选：pending、running、succeeded、failed、stopped",
        "Only jobs in this state: pending, running, succeeded, failed, stopped",
    ),
    row(
        "get jobs --kind",
        "按类型筛选：Training、Inference、Notebook",
        "Only jobs of this kind: Training, Inference, Notebook",
    ),
    row("get jobs --limit", "最多 N 条，最新的在前", "At most N jobs, newest first"),
    row("get jobs --all", "逐页取出全部", "All jobs, page by page"),
    with(
        "get usage",
        "查看用量与费用",
        "Show usage and cost",
        "runwhere get usage --from 2026-07-01 --to 2026-07-31",
    ),
    row("get usage --from", "起始日期", "First day"),
    row("get usage --to", "结束日期", "Last day"),
    with("describe", "查看详情", "Show details", "runwhere describe job llama-finetune"),
    with(
        "describe job",
        "查看任务详情",
        "Show a job",
        "runwhere describe job llama-finetune\nrunwhere --json describe job job-efa79e36",
    ),
    row("describe job <name>", "任务名或 ID", "Job name or id"),
    with(
        "stop",
        "停止任务并释放 GPU",
        "Stop a job and release its GPUs",
        "runwhere stop job llama-finetune",
    ),
    with(
        "stop job",
        "停止任务并释放 GPU",
        "Stop a job and release its GPUs",
        "runwhere stop job llama-finetune",
    ),
    row("stop job <name>", "任务名或 ID", "Job name or id"),
    with(
        "resume",
        "恢复已停止的任务",
        "Resume a stopped job",
        "runwhere resume llama-finetune\nrunwhere resume llama-finetune --from-step 12000",
    ),
    row("resume <name>", "任务名或 ID", "Job name or id"),
    row(
        "resume --from-step",
        "从第 N 步继续，以 RUNW_RESUME_FROM_STEP 传给程序",
        "Continue from step N, handed to the program as RUNW_RESUME_FROM_STEP",
    ),
    row(
        "resume --max-price",
        "每小时价格上限（默认沿用原任务的上限）",
        "Highest price per hour (default: the earlier job's limit)",
    ),
    with("delete", "删除任务记录", "Delete a job's record", "runwhere delete job llama-finetune"),
    with(
        "delete job",
        "删除任务记录",
        "Delete a job's record",
        "runwhere delete job llama-finetune\nrunwhere delete job llama-finetune --force",
    ),
    row("delete job <name>", "任务名或 ID", "Job name or id"),
    row("delete job --force", "仍在运行时先停止再删除", "Stop it first if it still runs"),
    with(
        "price",
        "比价",
        "Compare prices",
        "runwhere price summary\nrunwhere price list --gpu-type a100-80g\nrunwhere price recommend -f train.yaml",
    ),
    with(
        "price summary",
        "各 GPU 型号的价格范围",
        "Price range of each GPU model",
        "runwhere price summary\nrunwhere price summary --strict",
    ),
    row(
        "price summary --strict",
        "有价格来源未能完整读取时以退出码 1 结束",
        "End with exit code 1 where a price source could not be read whole",
    ),
    row("price summary --csv", "输出 CSV", "Print CSV"),
    with(
        "price list",
        "列出 Offer",
        "List offers",
        "runwhere price list --gpu-type a100-80g\nrunwhere price list --provider aliyun --billing-model on_demand --all\nrunwhere price list --gpu-type h100-80g --gpu-num 8 --max-price 200 --csv",
    ),
    row("price list --gpu-type", "GPU 型号", "GPU model"),
    row("price list --gpu-num", "GPU 数量，例如 8 或 1/6", "Number of GPUs, such as 8 or 1/6"),
    row("price list --provider", "平台", "Provider"),
    row("price list --region", "地域", "Region"),
    row("price list --zone", "可用区", "Zone"),
    row("price list --country", "两位国家代码", "Two-letter country"),
    row("price list --billing-model", "计费方式", "Billing model"),
    row(
        "price list --all-forms",
        "包含其他售卖形式（容量块、专属主机、Windows 等）",
        "Other forms too (blocks, hosts, Windows and so on)",
    ),
    row("price list --min-memory", "最小内存（GiB）", "Least main memory in GiB"),
    row(
        "price list --max-price",
        "每小时最高价，例如 50 或 \"7 USD\"（不写货币为 CNY）",
        "Highest price per hour, such as 50 or \"7 USD\" (CNY without a currency)",
    ),
    row("price list --stock", "库存状态", "Stock"),
    row("price list --max-age", "价格最多多少小时前读取", "Only prices read within so many hours"),
    row("price list --fresh", "只要未过期的价格", "Only prices that are not too old"),
    row("price list --launchable", "只要现在能启动的", "Only what can be launched now"),
    row("price list --limit", "最多 N 条（默认 20）", "At most N offers (default 20)"),
    row("price list --all", "全部列出", "All offers"),
    row("price list --csv", "输出 CSV", "Print CSV"),
    row(
        "price list --strict",
        "有价格未知时以退出码 1 结束",
        "End with exit code 1 where a price is unknown",
    ),
    with(
        "price recommend",
        "为任务 YAML 推荐 Offer",
        "Recommend offers for a task YAML",
        "runwhere price recommend -f train.yaml\nrunwhere price recommend -f train.yaml --max-price 50 --top 3 --no-spot\nrunwhere price recommend -f train.yaml --hours 12 --disk 200",
    ),
    row("price recommend --file", "任务 YAML 文件", "Task YAML file"),
    row(
        "price recommend --max-price",
        "每小时最高价，例如 50 或 \"7 USD\"（不写货币为 CNY）",
        "Highest price per hour, such as 50 or \"7 USD\" (CNY without a currency)",
    ),
    row("price recommend --top", "推荐条数", "How many to recommend"),
    row("price recommend --spot", "包含抢占式实例（默认）", "Include spot offers (the default)"),
    row("price recommend --no-spot", "不含抢占式实例", "Leave out spot offers"),
    row("price recommend --provider", "平台", "Provider"),
    row("price recommend --region", "地域", "Region"),
    row("price recommend --country", "两位国家代码", "Two-letter country"),
    row(
        "price recommend --prefer-region",
        "优先的地域，逗号分隔，靠前者优先",
        "Regions that come first, with commas, the first before the second",
    ),
    row(
        "price recommend --policy",
        "排序依据：price 价格；reclaim 计入抢占式回收风险",
        "What decides: price, or reclaim (price with the risk that spot is taken back)",
    ),
    row("price recommend --fresh", "只要未过期的价格", "Only prices that are not too old"),
    row(
        "price recommend --hours",
        "运行小时数，给出整次运行的费用",
        "Hours of the run: says what the whole run costs",
    ),
    row("price recommend --disk", "磁盘（GiB），计入费用", "Disk in GiB, counted in the cost"),
    with(
        "price explain",
        "说明一个 Offer 的全部信息和价格来源",
        "All that is known of one offer and its price",
        "runwhere price explain aws/us-east-1/-/on_demand/p4d.24xlarge",
    ),
    row("price explain <offer>", "SKU KEY 或代码", "SKU KEY or code"),
    with(
        "price sources",
        "价格来源的状态、行数和更新时间",
        "Price sources: state, rows and age",
        "runwhere price sources\nrunwhere price sources --strict",
    ),
    row(
        "price sources --strict",
        "有来源异常或过期时以退出码 1 结束",
        "End with exit code 1 where a source is in trouble or too old",
    ),
    with(
        "price refresh",
        "立即读取价格来源，或处理待确认的价格",
        "Read price sources now, or decide about quarantined prices",
        "runwhere price refresh\nrunwhere price refresh azure\nrunwhere price refresh --accept azure/eastus/-/spot/Standard_NC24ads_A100_v4",
    ),
    row("price refresh <provider>", "只读取这个平台", "Only this provider"),
    row("price refresh --accept", "接受一个待确认的价格", "Accept a quarantined price"),
    row("price refresh --reject", "拒绝一个待确认的价格", "Turn down a quarantined price"),
    row(
        "price refresh --accept-next",
        "原样接受该平台的下一次读取",
        "Take this provider's next reading as it comes",
    ),
    row(
        "price refresh --config",
        "没有服务器时：使用这个设置文件中的价格来源和汇率（默认 <home>/server/config.toml，如果存在）",
        "Without a server: price sources and rates of this settings file (default: <home>/server/config.toml, where there is one)",
    ),
    row(
        "price refresh --strict",
        "有来源异常或过期时以退出码 1 结束",
        "End with exit code 1 where a source is in trouble or too old",
    ),
    with(
        "price history",
        "一个 Offer 的价格变化",
        "Price changes of an offer",
        "runwhere price history azure/eastus/-/spot/Standard_NC24ads_A100_v4",
    ),
    row("price history <offer>", "SKU KEY 或代码", "SKU KEY or code"),
    row("price history --limit", "最多 N 条", "At most N changes"),
    with(
        "price diff",
        "两个价格快照之间的变化；不带参数列出快照",
        "What changed between two states of prices; lists the states without one",
        "runwhere price diff",
    ),
    row("price diff <from>", "较早的快照", "Earlier state"),
    row("price diff <to>", "较晚的快照（默认当前）", "Later state (the present one by default)"),
    row("price diff --limit", "最多 N 条", "At most N changes"),
    with(
        "price import",
        "把价格文件导入本机（SkyPilot、gpuhunt 或本程序的 CSV）",
        "Import a price file into this machine (CSV of SkyPilot, gpuhunt or this program)",
        "runwhere price import vms.csv --provider lambda\nrunwhere price import prices.csv --observed 2026-11-20",
    ),
    row("price import <file>", "CSV 文件", "CSV file"),
    row("price import --provider", "文件属于哪个平台", "Whose prices the file holds"),
    row("price import --currency", "价格的货币", "Currency of the prices"),
    row("price import --source", "来源说明", "Where the file is from"),
    row("price import --observed", "价格的日期", "Day of the prices"),
    row(
        "price import --strict",
        "有行无法使用时以退出码 1 结束",
        "End with exit code 1 where rows cannot be used",
    ),
    with(
        "price fx",
        "汇率及其日期和来源，或换算金额",
        "Exchange rates with day and source, or convert an amount",
        "runwhere price fx\nrunwhere price fx 32.77USD",
    ),
    row(
        "price fx <amount>",
        "要换算的金额，例如 \"32.77 USD\"",
        "Amount to convert, such as \"32.77 USD\"",
    ),
    row("price fx --to", "目标货币", "Currency of the result"),
    with(
        "price serve",
        "只提供价格服务，不能启动任何东西",
        "Serve prices only, without any right to launch",
        "runwhere price serve\nrunwhere price serve --listen 127.0.0.1:9000 --offline",
    ),
    row("price serve --listen", "监听地址", "Address to listen on"),
    row(
        "price serve --config",
        "服务器的设置文件，其中的价格来源和汇率生效（默认 <home>/server/config.toml，如果存在）",
        "A server's settings, whose price sources and rates count (default: <home>/server/config.toml, where there is one)",
    ),
    row("price serve --offline", "不读取网上的价格", "Read no prices from the network"),
    with(
        "login",
        "登录服务器",
        "Log in to a server",
        "runwhere login --endpoint http://127.0.0.1:8080\nrunwhere login --endpoint https://gpu.example.com < token.txt",
    ),
    row(
        "login --token-stdin",
        "从标准输入读取 Token，不提示",
        "Read the token from standard input, without a prompt",
    ),
    with("whoami", "查看当前登录", "Show the current login", "runwhere whoami"),
    with(
        "logout",
        "删除本机保存的服务器地址和 Token",
        "Remove the stored server address and token",
        "runwhere logout",
    ),
    with(
        "serve",
        "启动服务器",
        "Run the server",
        "runwhere serve\nrunwhere serve --try-locally\nrunwhere serve --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem --public-url https://gpu.example.com",
    ),
    row(
        "serve --listen",
        "监听地址（默认 127.0.0.1:8080）",
        "Address to listen on (default 127.0.0.1:8080)",
    ),
    row(
        "serve --data-dir",
        "数据目录（默认 ~/.runwhere/server）",
        "Data folder (default ~/.runwhere/server)",
    ),
    row(
        "serve --public-url",
        "节点和客户端访问本服务器的地址",
        "Address by which nodes and clients reach this server",
    ),
    row("serve --tls-cert", "TLS 证书（PEM）", "TLS certificate (PEM)"),
    row("serve --tls-key", "TLS 私钥（PEM）", "TLS private key (PEM)"),
    row(
        "serve --try-locally",
        "让本机假装拥有所需 GPU（仅供试用）",
        "Let this machine pretend to have the wanted GPUs (to try it out)",
    ),
    row(
        "serve --allow-local-exec",
        "监听本机以外的地址时仍允许在本机运行任务",
        "Allow jobs on this machine although the server listens beyond it",
    ),
    with(
        "token",
        "管理服务器的 Token",
        "Manage the server's tokens",
        "runwhere token create --name ci\nrunwhere token list",
    ),
    with(
        "token create",
        "创建 Token，只显示一次",
        "Create a token; it is shown once",
        "runwhere token create --name ci\nrunwhere --json token create --name ci --scope training.run",
    ),
    row("token create --name", "备注名", "A name to remember it by"),
    row(
        "token create --envloop",
        "创建 el 命令与 EnvLoop SDK 使用的 API key",
        "Make an API key for the el command and the EnvLoop SDK",
    ),
    row(
        "token create --scope",
        "权限，可重复或用逗号分隔（默认 admin，即全部）：training.run、training.stop、job.read、runner.read、billing.read、metrics.read、admin",
        "Permissions, repeated or separated by commas (default: admin, which is all): training.run, training.stop, job.read, runner.read, billing.read, metrics.read, admin",
    ),
    row(
        "token create --project",
        "所属项目（默认第一个）",
        "Project that it is for (default: the first)",
    ),
    row("token create --expires-in", "有效期，例如 30d", "Life time, such as 30d"),
    row("token create --data-dir", "服务器的数据目录", "Data folder of the server"),
    with(
        "token list",
        "列出 Token（不含密文）",
        "List tokens (never the secret)",
        "runwhere token list",
    ),
    row("token list --data-dir", "服务器的数据目录", "Data folder of the server"),
    with("token revoke", "吊销 Token", "Revoke a token", "runwhere token revoke key-1a2b3c4d"),
    row("token revoke <id>", "Token 的 ID", "Id of the token"),
    row("token revoke --data-dir", "服务器的数据目录", "Data folder of the server"),
    with(
        "admin",
        "查看租约和无主节点，清扫（需要 admin 权限）",
        "Leases, nodes without an owner, and the sweeper (needs the permission admin)",
        "runwhere admin leases\nrunwhere admin sweep --dry-run",
    ),
    with(
        "admin leases",
        "列出租约：归谁、状态、已持续多久、每小时多少钱、依据是什么",
        "List leases: whose, in which state, for how long, at what price, with what evidence",
        "runwhere admin leases\nrunwhere --json admin leases --all",
    ),
    row("admin leases --all", "包括已结束的", "Also those that have ended"),
    with(
        "admin sweep",
        "查找没有租约的节点（默认只预览），或结束它们",
        "Look for nodes that no lease owns (without changing anything), or end them",
        "runwhere admin sweep\nrunwhere admin sweep --apply\nrunwhere admin sweep --confirm-restore",
    ),
    row("admin sweep --dry-run", "只预览（默认）", "Change nothing (the default)"),
    row(
        "admin sweep --apply",
        "结束足够老、两次查看都无主的节点，并确认消失",
        "End nodes that are old enough and without an owner at two looks, and confirm their end",
    ),
    row(
        "admin sweep --confirm-restore",
        "确认数据库已从旧备份恢复；启动与清扫继续",
        "Confirm that the database was restored; launches and the sweeper go on",
    ),
    row("admin sweep --provider", "只清扫这个云", "Only this provider"),
    row("admin sweep --yes", "不再询问", "Ask nothing"),
    with("version", "显示版本", "Print the version", "runwhere version\nrunwhere --json version"),
    with(
        "completions",
        "输出 shell 补全脚本",
        "Print a shell completion script",
        "runwhere completions bash > ~/.local/share/bash-completion/completions/runwhere",
    ),
    row("completions <shell>", "Shell 名称", "Name of the shell"),
];

/// Puts the texts of `lang` on `command` and everything below it.
#[must_use]
pub fn translate(command: clap::Command, lang: Lang) -> clap::Command {
    translate_with(command, &Table { rows: HELP, notes: program_notes }, lang)
}

/// The texts of one program.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// A row for every visible command and argument.
    pub rows: &'static [HelpEntry],
    /// What follows the help of the whole program.
    pub notes: fn(Lang) -> &'static str,
}

/// The same with the texts of another program.
#[must_use]
pub fn translate_with(command: clap::Command, table: &Table, lang: Lang) -> clap::Command {
    let globals = table.rows.iter().filter(|entry| entry.path.starts_with("--"));
    let globals: Vec<_> = globals.collect();
    below(command, "", table, &globals, lang)
}

/// What belongs to all commands: exit codes and variables.
fn program_notes(lang: Lang) -> &'static str {
    match lang {
        Lang::Zh => {
            "
退出码：
  0    成功
  1    本机错误（文件、输出、本机服务）
  2    参数或任务 YAML 有误
  3    服务器拒绝，或未登录
  4    无法连接服务器
  10   跟随的任务没有成功（程序自己的退出码写在文字里）
  130  被中断（Ctrl-C）

环境变量：
  RUNW_ENDPOINT, RUNW_TOKEN  服务器地址和 Token（优先于 ~/.runwhere/config.toml）
  RUNWHERE_LANG              界面语言：zh 或 en
  RUNWHERE_JSON              1 等同于 --json
  RUNWHERE_HOME              代替 ~/.runwhere
"
        }
        Lang::En => {
            "
Exit codes:
  0    success
  1    something on this machine went wrong (files, output, the server in this process)
  2    wrong arguments or task YAML
  3    the server refused, or there is no login
  4    the server cannot be reached
  10   the followed job did not succeed (the program's own code is in the text)
  130  interrupted (Ctrl-C)

Environment variables:
  RUNW_ENDPOINT, RUNW_TOKEN  server address and token (win over ~/.runwhere/config.toml)
  RUNWHERE_LANG              language of texts: zh or en
  RUNWHERE_JSON              1 is the same as --json
  RUNWHERE_HOME              replaces ~/.runwhere
"
        }
    }
}

/// What the parser would add in English: the default and the possible values of an argument.
fn chinese_notes(argument: &clap::Arg) -> String {
    let mut notes = String::new();
    let default: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !default.is_empty() {
        notes.push_str(&format!("（默认 {}）", default.join(", ")));
    }
    let possible: Vec<_> =
        argument.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect();
    if !possible.is_empty() {
        notes.push_str(&format!("（可用：{}）", possible.join("、")));
    }
    notes
}

fn below(
    mut command: clap::Command,
    path: &str,
    table: &Table,
    globals: &[&HelpEntry],
    lang: Lang,
) -> clap::Command {
    let text = |entry: &HelpEntry| match lang {
        Lang::Zh => entry.zh,
        Lang::En => entry.en,
    };
    let find = |path: &str| table.rows.iter().find(|entry| entry.path == path);
    if let Some(entry) = find(path) {
        command = command.about(text(entry));
        if !entry.examples.is_empty() {
            let title = match lang {
                Lang::Zh => "示例：",
                Lang::En => "Examples:",
            };
            let lines = entry.examples.replace('\n', "\n  ");
            let more = if path.is_empty() { (table.notes)(lang) } else { "" };
            command = command.after_help(format!("{title}\n  {lines}\n{more}"));
        }
    }
    if lang == Lang::Zh {
        command = command
            .subcommand_help_heading("命令")
            .help_template("{about-with-newline}\n用法：{usage}\n\n{all-args}{after-help}");
    }
    command = command
        .disable_help_flag(true)
        .arg(clap::Arg::new("help").short('h').long("help").action(clap::ArgAction::Help));
    if path.is_empty() {
        command = command.disable_version_flag(true).arg(
            clap::Arg::new("version").short('V').long("version").action(clap::ArgAction::Version),
        );
    }
    command = command.mut_args(|argument| {
        let common =
            argument.is_global_set() || matches!(argument.get_id().as_str(), "help" | "version");
        let heading = match (lang, argument.is_positional()) {
            (Lang::Zh, true) => Some("参数"),
            (Lang::Zh, false) if common => Some("通用选项"),
            (Lang::Zh, false) => Some("选项"),
            (Lang::En, false) if common => Some("Common options"),
            (Lang::En, _) => None,
        };
        let argument = match heading {
            Some(heading) => argument.help_heading(heading),
            None => argument,
        };
        let key = match argument.get_long() {
            Some(long) => format!("--{long}"),
            None => format!("<{}>", argument.get_id()),
        };
        let own = find(format!("{path} {key}").trim_start());
        match own.or_else(|| globals.iter().copied().find(|entry| entry.path == key)) {
            Some(entry) if lang == Lang::Zh && argument.get_action().takes_values() => {
                let notes = chinese_notes(&argument);
                let help = format!("{}{notes}", entry.zh);
                argument.help(help).hide_default_value(true).hide_possible_values(true)
            }
            Some(entry) => argument.help(text(entry)),
            None => argument,
        }
    });
    command.mut_subcommands(|sub| {
        let path = format!("{path} {}", sub.get_name());
        below(sub, path.trim_start(), table, globals, lang)
    })
}

/// What the tables of both programs are held to.
#[cfg(test)]
pub(crate) mod checks {
    use std::collections::BTreeSet;

    use super::HelpEntry;
    use crate::texts::Lang;

    fn note(
        command: &clap::Command,
        path: &str,
        rows: &BTreeSet<&str>,
        used: &mut BTreeSet<String>,
    ) {
        assert!(rows.contains(path), "no row for `{path}`");
        used.insert(path.to_owned());
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let key = match argument.get_long() {
                Some(long) => format!("--{long}"),
                None => format!("<{}>", argument.get_id()),
            };
            let own = format!("{path} {key}").trim_start().to_owned();
            let found = [own, key].into_iter().find(|row| rows.contains(row.as_str()));
            used.insert(found.unwrap_or_else(|| panic!("no row for an argument of `{path}`")));
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            note(sub, format!("{path} {}", sub.get_name()).trim_start(), rows, used);
        }
    }

    /// Every command and argument has a row, and no row is left over.
    pub(crate) fn rows_fit(command: &clap::Command, table: &[HelpEntry]) {
        let rows: BTreeSet<&str> = table.iter().map(|entry| entry.path).collect();
        assert_eq!(rows.len(), table.len(), "a row stands twice");
        let mut used = BTreeSet::from(["--help".to_owned(), "--version".to_owned()]);
        note(command, "", &rows, &mut used);
        let left: Vec<&&str> = rows.iter().filter(|row| !used.contains(**row)).collect();
        assert_eq!(left, Vec::<&&str>::new());
    }

    /// The examples are command lines.
    pub(crate) fn examples_parse(command: impl Fn(Lang) -> clap::Command, table: &[HelpEntry]) {
        for line in table.iter().flat_map(|entry| entry.examples.lines()) {
            let bare = line.split(" > ").next().unwrap().split(" < ").next().unwrap();
            let words = bare.split(' ').collect::<Vec<_>>().join("\u{1}");
            // Quoted examples hold one blank inside the quotes.
            let words = words.replace("'50\u{1}CNY'", "50 CNY");
            for lang in [Lang::Zh, Lang::En] {
                let parsed = command(lang).try_get_matches_from(words.split('\u{1}'));
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        }
    }

    /// Chinese rows are Chinese and English ones are not.
    pub(crate) fn languages_are_apart(table: &[HelpEntry]) {
        let is_cjk = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
        for entry in table {
            assert!(entry.zh.chars().any(is_cjk) || entry.zh.is_ascii(), "{}", entry.path);
            assert!(!entry.en.chars().any(is_cjk), "{}", entry.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_and_option_has_its_row_and_no_row_is_left_over() {
        checks::rows_fit(&crate::args::Cli::command(), HELP);
    }

    #[test]
    fn every_example_parses() {
        checks::examples_parse(|lang| translate(crate::args::Cli::command(), lang), HELP);
    }

    #[test]
    fn chinese_rows_are_chinese_and_english_rows_are_not() {
        checks::languages_are_apart(HELP);
    }
}
