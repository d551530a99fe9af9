//! The arguments. Help texts are not here but in [`crate::texts::HELP`], in both languages.
#![expect(
    missing_docs,
    reason = "the help table documents every command and option, in two languages"
)]

mod listing;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use runwhere_model::BillingModel;

pub use listing::{GetArgs, GetJobsArgs, GetUsageArgs, GetWhat};

use crate::settings::GlobalArgs;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "runwhere",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Args)]
pub struct Global {
    #[arg(long, global = true)]
    pub json: bool,
    #[arg(long, global = true)]
    pub explain: bool,
    #[arg(long, global = true, value_name = "zh|en", value_parser = lang_tag)]
    pub lang: Option<String>,
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint: Option<String>,
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

fn lang_tag(word: &str) -> Result<String, &'static str> {
    runwhere_model::Lang::from_tag(word).map(|_| word.to_owned()).ok_or("zh, en")
}

impl From<Global> for GlobalArgs {
    fn from(args: Global) -> Self {
        Self {
            json: args.json,
            explain: args.explain,
            lang: args.lang,
            endpoint: args.endpoint,
            verbose: args.verbose,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    Sync(SyncArgs),
    Submit(SubmitArgs),
    Logs(LogsArgs),
    Outputs(OutputsArgs),
    Get(GetArgs),
    Describe(DescribeArgs),
    Stop(StopArgs),
    Resume(ResumeArgs),
    Delete(DeleteArgs),
    Price(PriceArgs),
    Login(LoginArgs),
    Whoami,
    Logout,
    Serve(ServeArgs),
    Token(TokenArgs),
    Admin(AdminArgs),
    Version,
    Completions(CompletionsArgs),
    #[command(hide = true)]
    Agent(NodeArgs),
    #[command(hide = true, name = "agent-exec")]
    AgentExec(NodeArgs),
    #[command(hide = true, name = "agent-clear")]
    AgentClear(NodeArgs),
    #[command(hide = true, name = "agent-end")]
    AgentEnd(UserArgs),
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[arg(short, long, value_name = "YAML")]
    pub file: PathBuf,
    #[arg(long)]
    pub try_locally: bool,
    #[arg(long, value_name = "PRICE")]
    pub max_price: Option<String>,
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct SyncArgs {
    #[arg(short, long, value_name = "YAML", required_unless_present = "status")]
    pub file: Option<PathBuf>,
    #[arg(long)]
    pub status: bool,
    #[arg(long, conflicts_with = "status")]
    pub dry_run: bool,
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct SubmitArgs {
    #[arg(short, long, value_name = "YAML")]
    pub file: PathBuf,
    #[arg(long, value_name = "PRICE")]
    pub max_price: Option<String>,
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    #[arg(long)]
    pub no_follow: bool,
    #[arg(long)]
    pub accept_overage: bool,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    #[arg(value_name = "NAME")]
    pub name: String,
    #[arg(short, long)]
    pub follow: bool,
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub tail: Option<u32>,
}

#[derive(Debug, Args)]
pub struct OutputsArgs {
    #[arg(value_name = "NAME")]
    pub name: String,
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,
    #[arg(long, value_name = "DIR")]
    pub download: Option<PathBuf>,
    #[arg(long, requires = "download")]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct DescribeArgs {
    #[command(subcommand)]
    pub what: JobOnly,
}

#[derive(Debug, Args)]
pub struct StopArgs {
    #[command(subcommand)]
    pub what: JobOnly,
}

#[derive(Debug, Subcommand)]
pub enum JobOnly {
    Job(JobName),
}

impl JobOnly {
    /// The job's name or id.
    #[must_use]
    pub fn name(&self) -> &str {
        let Self::Job(job) = self;
        &job.name
    }
}

#[derive(Debug, Args)]
pub struct JobName {
    #[arg(value_name = "NAME")]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[arg(value_name = "NAME")]
    pub name: String,
    #[arg(long, value_name = "N")]
    pub from_step: Option<u64>,
    #[arg(long, value_name = "PRICE")]
    pub max_price: Option<String>,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(subcommand)]
    pub what: DeleteWhat,
}

#[derive(Debug, Subcommand)]
pub enum DeleteWhat {
    Job(DeleteJobArgs),
}

#[derive(Debug, Args)]
pub struct DeleteJobArgs {
    #[arg(value_name = "NAME")]
    pub name: String,
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct PriceArgs {
    #[command(subcommand)]
    pub what: PriceWhat,
}

#[derive(Debug, Subcommand)]
pub enum PriceWhat {
    Summary(PriceSummaryArgs),
    List(PriceListArgs),
    Recommend(PriceRecommendArgs),
    Explain(PriceExplainArgs),
    Sources(PriceSourcesArgs),
    Refresh(PriceRefreshArgs),
    History(PriceHistoryArgs),
    Diff(PriceDiffArgs),
    Import(PriceImportArgs),
    Fx(PriceFxArgs),
    Serve(PriceServeArgs),
}

#[derive(Debug, Args)]
pub struct PriceSummaryArgs {
    #[arg(long)]
    pub strict: bool,
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

#[derive(Debug, Args)]
pub struct PriceListArgs {
    #[arg(long, value_name = "GPU")]
    pub gpu_type: Option<String>,
    #[arg(long, value_name = "N")]
    pub gpu_num: Option<String>,
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<String>,
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    #[arg(long, value_name = "CC")]
    pub country: Option<String>,
    #[arg(long, value_name = "MODEL")]
    pub billing_model: Option<BillingModelArg>,
    #[arg(long)]
    pub all_forms: bool,
    #[arg(long, value_name = "GIB")]
    pub min_memory: Option<u32>,
    #[arg(long, value_name = "PRICE")]
    pub max_price: Option<String>,
    #[arg(long, value_name = "STOCK")]
    pub stock: Option<StockArg>,
    #[arg(long, value_name = "HOURS")]
    pub max_age: Option<u32>,
    #[arg(long)]
    pub fresh: bool,
    #[arg(long)]
    pub launchable: bool,
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "all")]
    pub limit: Option<u32>,
    #[arg(long)]
    pub all: bool,
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    #[arg(long)]
    pub strict: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum BillingModelArg {
    OnDemand,
    Spot,
    CapacityBlock,
    DedicatedHost,
    LowPriority,
    Queued,
    Reserved,
    Windows,
    WindowsSpot,
}

impl From<BillingModelArg> for BillingModel {
    fn from(arg: BillingModelArg) -> Self {
        match arg {
            BillingModelArg::OnDemand => Self::OnDemand,
            BillingModelArg::Spot => Self::Spot,
            BillingModelArg::CapacityBlock => Self::CapacityBlock,
            BillingModelArg::DedicatedHost => Self::DedicatedHost,
            BillingModelArg::LowPriority => Self::LowPriority,
            BillingModelArg::Queued => Self::Queued,
            BillingModelArg::Reserved => Self::Reserved,
            BillingModelArg::Windows => Self::Windows,
            BillingModelArg::WindowsSpot => Self::WindowsSpot,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum StockArg {
    InStock,
    Low,
    SoldOut,
    Unstated,
}

#[derive(Debug, Args)]
pub struct PriceRecommendArgs {
    #[arg(short, long, value_name = "YAML")]
    pub file: PathBuf,
    #[arg(long, value_name = "PRICE")]
    pub max_price: Option<String>,
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub top: u32,
    #[arg(long, overrides_with = "no_spot")]
    pub spot: bool,
    #[arg(long)]
    pub no_spot: bool,
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<String>,
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
    #[arg(long, value_name = "CC")]
    pub country: Option<String>,
    #[arg(long, value_name = "REGION", value_delimiter = ',')]
    pub prefer_region: Vec<String>,
    #[arg(long, value_name = "POLICY", default_value = "price")]
    pub policy: PolicyArg,
    #[arg(long)]
    pub fresh: bool,
    #[arg(long, value_name = "HOURS")]
    pub hours: Option<String>,
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub disk: Option<u32>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum PolicyArg {
    Price,
    Reclaim,
}

#[derive(Debug, Args)]
pub struct PriceExplainArgs {
    #[arg(value_name = "OFFER")]
    pub offer: String,
}

#[derive(Debug, Args)]
pub struct PriceSourcesArgs {
    #[arg(long)]
    pub strict: bool,
}

#[derive(Debug, Args)]
pub struct PriceRefreshArgs {
    #[arg(value_name = "PROVIDER")]
    pub provider: Option<String>,
    #[arg(long, value_name = "KEY", conflicts_with_all = ["provider", "reject", "accept_next"])]
    pub accept: Option<String>,
    #[arg(long, value_name = "KEY", conflicts_with_all = ["provider", "accept_next"])]
    pub reject: Option<String>,
    #[arg(long, value_name = "PROVIDER", conflicts_with = "provider")]
    pub accept_next: Option<String>,
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[arg(long)]
    pub strict: bool,
}

#[derive(Debug, Args)]
pub struct PriceHistoryArgs {
    #[arg(value_name = "OFFER")]
    pub offer: String,
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}

#[derive(Debug, Args)]
pub struct PriceDiffArgs {
    #[arg(value_name = "FROM")]
    pub from: Option<String>,
    #[arg(value_name = "TO", requires = "from")]
    pub to: Option<String>,
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}

#[derive(Debug, Args)]
pub struct PriceImportArgs {
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<String>,
    #[arg(long, value_name = "CURRENCY")]
    pub currency: Option<String>,
    #[arg(long, value_name = "TEXT")]
    pub source: Option<String>,
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub observed: Option<String>,
    #[arg(long)]
    pub strict: bool,
}

#[derive(Debug, Args)]
pub struct PriceFxArgs {
    #[arg(value_name = "AMOUNT")]
    pub amount: Option<String>,
    #[arg(long, value_name = "CURRENCY", default_value = "CNY")]
    pub to: String,
}

#[derive(Debug, Args)]
pub struct PriceServeArgs {
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub listen: String,
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[arg(long)]
    pub offline: bool,
}

#[derive(Debug, Args)]
pub struct LoginArgs {
    #[arg(long)]
    pub token_stdin: bool,
}

#[derive(Debug, Args)]
pub struct ServeArgs {
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    #[arg(long)]
    pub try_locally: bool,
    #[arg(long)]
    pub allow_local_exec: bool,
}

#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    pub what: TokenWhat,
}

#[derive(Debug, Subcommand)]
pub enum TokenWhat {
    Create(TokenCreateArgs),
    List(TokenListArgs),
    Revoke(TokenRevokeArgs),
}

#[derive(Debug, Args)]
pub struct TokenCreateArgs {
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    #[arg(long)]
    pub envloop: bool,
    #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
    pub scope: Vec<String>,
    #[arg(long, value_name = "ID")]
    pub project: Option<String>,
    #[arg(long, value_name = "TIME")]
    pub expires_in: Option<String>,
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TokenListArgs {
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TokenRevokeArgs {
    #[arg(value_name = "ID")]
    pub id: String,
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct AdminArgs {
    #[command(subcommand)]
    pub what: AdminWhat,
}

#[derive(Debug, Subcommand)]
pub enum AdminWhat {
    Leases(AdminLeasesArgs),
    Sweep(AdminSweepArgs),
}

#[derive(Debug, Args)]
pub struct AdminLeasesArgs {
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct AdminSweepArgs {
    #[arg(long)]
    pub dry_run: bool,
    #[arg(long, conflicts_with = "dry_run")]
    pub apply: bool,
    #[arg(long, conflicts_with_all = ["dry_run", "apply"])]
    pub confirm_restore: bool,
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<String>,
    #[arg(short, long, requires = "apply")]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Debug, Args)]
pub struct UserArgs {
    #[arg(long, value_name = "UID")]
    pub uid: u32,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    #[arg(long, value_name = "DIR")]
    pub node_dir: PathBuf,
}
