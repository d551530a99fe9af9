//! The command line. Help pages have their texts from [`super::help`], in both languages.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Submit and manage jobs of published runners.
#[derive(Debug, Parser)]
#[command(name = "el", version, disable_help_subcommand = true, arg_required_else_help = true)]
pub(super) struct Cli {
    /// Language of texts
    #[arg(long, global = true, value_name = "zh|en", value_parser = ["zh", "en"])]
    pub(super) lang: Option<String>,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Jobs
    #[command(subcommand)]
    Job(Job),
    /// Trials of jobs
    #[command(subcommand, alias = "trail")]
    Trial(Trial),
    /// Published runners
    #[command(subcommand)]
    Runner(Runner),
    /// Recipes, datasets and plugins of profiles
    #[command(subcommand)]
    Content(Content),
    /// Adapters that jobs have made
    #[command(subcommand)]
    Checkpoint(Checkpoint),
    /// Server, key and project
    #[command(subcommand)]
    Auth(Auth),
    /// Money
    #[command(subcommand)]
    Billing(Billing),
    /// Limits of the project
    #[command(subcommand)]
    Limit(Show),
    /// Who one is, and the newest jobs
    #[command(subcommand)]
    Dashboard(Show),
    /// Print a completion script
    Completions(Completions),
}

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// Shell
    #[arg(value_name = "SHELL")]
    pub(super) shell: clap_complete::Shell,
}

#[derive(Debug, Subcommand)]
pub(super) enum Job {
    /// Submit a job
    Submit(Box<Submit>),
    /// List jobs
    List(JobList),
    /// Show a job
    Get(Id),
    /// Show a job's result
    Result(Id),
    /// Stop a job
    Stop(Id),
    /// Show a job's log
    Log(Log),
    /// Show what happened to a job
    Event(EventArgs),
}

#[derive(Debug, Args)]
pub(super) struct Submit {
    /// Kind of job; only train is served
    #[arg(long = "type", value_name = "TYPE", default_value = "train")]
    pub(super) kind: String,
    /// Request file (JSON); the other options override the fields of each trial
    #[arg(long, value_name = "FILE", conflicts_with = "trials")]
    pub(super) spec: Option<PathBuf>,
    /// Runner and full commit, namespace/name@commit
    #[arg(long, value_name = "RUNNER")]
    pub(super) runner: Option<String>,
    /// Number of trials, 1 to 16
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(super) trials: Option<u32>,
    /// GPU model of each trial
    #[arg(long, value_name = "MODEL")]
    pub(super) gpu_type: Option<String>,
    /// GPUs of each trial
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) gpu: Option<u32>,
    /// Public image instead of the runner's
    #[arg(long, value_name = "IMAGE")]
    pub(super) docker: Option<String>,
    /// CPUs of each trial
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) cpu: Option<u32>,
    /// Memory of each trial, such as 64Gi
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<String>,
    /// Disk of each trial, such as 100Gi
    #[arg(long, value_name = "SIZE")]
    pub(super) disk: Option<String>,
    /// Shared memory of each trial, such as 16Gi
    #[arg(long, value_name = "SIZE")]
    pub(super) shm_size: Option<String>,
    /// Command, handed to the runner byte for byte
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) command: Option<String>,
    /// Time-out of each trial in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) timeout_seconds: Option<u64>,
    /// Repeats with this id and the same input return the first job
    #[arg(long, value_name = "ID")]
    pub(super) request_id: Option<String>,
    /// Wait for the end
    #[arg(long)]
    pub(super) wait: bool,
    /// Results are JSON anyway
    #[arg(long, hide = true)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Paging {
    /// Rows
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub(super) limit: u32,
    /// Where an earlier page ended
    #[arg(long, value_name = "CURSOR")]
    pub(super) cursor: Option<String>,
    /// JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct JobList {
    /// Only jobs of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) kind: Option<String>,
    /// Only jobs in this state
    #[arg(long, value_name = "STATUS")]
    pub(super) status: Option<String>,
    #[command(flatten)]
    pub(super) paging: Paging,
}

#[derive(Debug, Args)]
pub(super) struct Id {
    /// Its id
    #[arg(value_name = "ID")]
    pub(super) id: String,
}

#[derive(Debug, Args)]
pub(super) struct EventArgs {
    /// The job's id
    #[arg(value_name = "ID")]
    pub(super) id: String,
    /// JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Log {
    /// The job's id
    #[arg(value_name = "ID")]
    pub(super) id: String,
    /// all, system or runtime
    #[arg(long, value_name = "SOURCE", default_value = "all")]
    pub(super) source: String,
    /// Last lines to begin with
    #[arg(long, value_name = "N", conflicts_with = "cursor")]
    pub(super) tail: Option<u32>,
    /// Where an earlier page ended
    #[arg(long, value_name = "CURSOR")]
    pub(super) cursor: Option<String>,
    /// Lines of a page
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(super) limit: u32,
    /// Go on until the log ends
    #[arg(long)]
    pub(super) follow: bool,
    /// Pages as JSON, one a line
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Trial {
    /// List trials
    List(TrialList),
    /// Show a trial
    Get(Id),
    /// Stop a trial
    Stop(Id),
    /// Show a trial's result
    Result(Id),
    /// Show what was frozen for a trial
    Snapshot(Id),
    /// Outputs of a trial
    #[command(subcommand)]
    Artifact(Artifact),
}

#[derive(Debug, Args)]
pub(super) struct TrialList {
    /// Only trials of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) kind: Option<String>,
    /// Only trials of this job
    #[arg(long, value_name = "ID")]
    pub(super) job_id: Option<String>,
    #[command(flatten)]
    pub(super) paging: Paging,
}

#[derive(Debug, Subcommand)]
pub(super) enum Artifact {
    /// List a trial's artifacts
    List(ArtifactList),
    /// Download a trial's artifacts
    Download(Download),
}

#[derive(Debug, Args)]
pub(super) struct ArtifactList {
    /// The trial's id
    #[arg(value_name = "TRIAL")]
    pub(super) trial: String,
    #[command(flatten)]
    pub(super) paging: Paging,
}

#[derive(Debug, Args)]
pub(super) struct Download {
    /// The trial's id, or a checkpoint's id or path
    #[arg(value_name = "ID")]
    pub(super) id: String,
    /// Folder to put the files in
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(super) enum Runner {
    /// List readable runners
    List(Paging),
    /// Show a runner, or one revision of it
    Get(RunnerName),
    /// List the revisions of a runner
    Revisions(RunnerRevisions),
    /// Publish a commit of a Git work tree
    Publish(Publish),
}

#[derive(Debug, Args)]
pub(super) struct RunnerName {
    /// namespace/name, or namespace/name@commit
    #[arg(value_name = "RUNNER")]
    pub(super) runner: String,
}

#[derive(Debug, Args)]
pub(super) struct RunnerRevisions {
    /// namespace/name
    #[arg(value_name = "RUNNER")]
    pub(super) runner: String,
    #[command(flatten)]
    pub(super) paging: Paging,
}

#[derive(Debug, Args)]
pub(super) struct Publish {
    /// Folder of the runner in a clean Git work tree
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
    /// namespace/name to publish as
    #[arg(long, value_name = "NAME")]
    pub(super) name: String,
    /// Commit to publish; HEAD without
    #[arg(long, value_name = "COMMIT")]
    pub(super) commit: Option<String>,
    /// Who may read it: public, workspace or project
    #[arg(long, value_name = "WHO", default_value = "workspace")]
    pub(super) visibility: VisibilityWord,
}

#[derive(Debug, Subcommand)]
pub(super) enum Content {
    /// Publish a folder: recipes, datasets or plugins
    Publish(PublishContent),
    /// List readable content
    List(ContentList),
    /// Show content with its manifest
    Get(ContentName),
    /// Let profiles of this project bind a plugin
    Approve(ContentName),
    /// End a plugin's approval
    Withdraw(ContentName),
}

#[derive(Debug, Args)]
pub(super) struct PublishContent {
    /// recipes, datasets or plugins
    #[arg(value_name = "KIND")]
    pub(super) kind: ContentWord,
    /// Folder with recipe.toml, dataset.toml or plugin.toml
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
    /// namespace/name to publish as
    #[arg(long, value_name = "NAME")]
    pub(super) name: String,
    /// Version of a dataset or plugin; a recipe is known by its digest
    #[arg(long, value_name = "VERSION")]
    pub(super) version: Option<String>,
    /// Who may read it: public, workspace or project
    #[arg(long, value_name = "WHO", default_value = "workspace")]
    pub(super) visibility: VisibilityWord,
}

/// The word of a choice, on the command line and for the server alike.
pub(super) fn word(choice: impl clap::ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// A kind of content on the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum ContentWord {
    Recipes,
    Datasets,
    Plugins,
}

/// Who may read what is published.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum VisibilityWord {
    Public,
    Workspace,
    Project,
}

#[derive(Debug, Args)]
pub(super) struct ContentList {
    /// recipes, datasets or plugins
    #[arg(value_name = "KIND")]
    pub(super) kind: ContentWord,
    /// Only this namespace/name
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    #[command(flatten)]
    pub(super) paging: Paging,
}

#[derive(Debug, Args)]
pub(super) struct ContentName {
    /// envloop://KIND/namespace/name@revision; without @revision the newest
    #[arg(value_name = "URI")]
    pub(super) uri: String,
}

#[derive(Debug, Subcommand)]
pub(super) enum Checkpoint {
    /// List checkpoints
    List(CheckpointList),
    /// Download a checkpoint
    Download(Download),
    /// Delete a checkpoint; its files stay artifacts
    Delete(Id),
}

#[derive(Debug, Args)]
pub(super) struct CheckpointList {
    /// Only those of this job
    #[arg(long, value_name = "ID")]
    pub(super) job_id: Option<String>,
    #[command(flatten)]
    pub(super) paging: Paging,
}

#[derive(Debug, Subcommand)]
pub(super) enum Auth {
    /// Log in with the browser
    Login(Login),
    /// Show who the key is
    Status,
    /// Show or change the stored settings
    #[command(subcommand)]
    Config(Config),
}

#[derive(Debug, Args)]
pub(super) struct Login {
    /// Address of the server
    #[arg(long, value_name = "URL")]
    pub(super) base_url: Option<String>,
    /// Longest wait in seconds
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub(super) timeout: u64,
    /// Only print the address
    #[arg(long)]
    pub(super) no_browser: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Config {
    /// Show the settings that are in force, without the key
    Show,
    /// Change a setting: base-url, workspace-id, project-id, api-key
    Set(SetConfig),
}

#[derive(Debug, Args)]
pub(super) struct SetConfig {
    /// base-url, workspace-id, project-id or api-key
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// Its value; a key is read from standard input only
    #[arg(value_name = "VALUE")]
    pub(super) value: Option<String>,
    /// Read the value from standard input
    #[arg(long)]
    pub(super) stdin: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Billing {
    /// The project's budget
    #[command(subcommand)]
    Account(Show),
    /// What was used
    #[command(subcommand)]
    Usage(Usage),
    /// Money records
    #[command(subcommand)]
    Ledger(Ledger),
    /// Prices of what can be launched
    #[command(subcommand)]
    Price(Price),
}

#[derive(Debug, Subcommand)]
pub(super) enum Usage {
    /// List what was used in a span of days
    List(UsageList),
}

#[derive(Debug, Args)]
pub(super) struct UsageList {
    /// First day, or an instant with its offset
    #[arg(long, value_name = "DATE")]
    pub(super) start: String,
    /// Day after the last, or an instant with its offset
    #[arg(long, value_name = "DATE")]
    pub(super) end: String,
    /// day, product, endpoint or sku
    #[arg(long, value_name = "WHAT", default_value = "day")]
    pub(super) group_by: Grouping,
    /// JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

/// What usage is summed up by.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Grouping {
    Day,
    Product,
    Endpoint,
    Sku,
}

#[derive(Debug, Subcommand)]
pub(super) enum Ledger {
    /// List the newest entries
    List(LedgerList),
}

#[derive(Debug, Args)]
pub(super) struct LedgerList {
    /// Rows
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub(super) limit: u32,
    /// JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Price {
    /// List prices
    List(PriceList),
}

#[derive(Debug, Args)]
pub(super) struct PriceList {
    /// JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Show {
    /// Show them
    Get,
}
