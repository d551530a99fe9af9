//! What `get` takes.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(subcommand)]
    pub what: GetWhat,
}

#[derive(Debug, Subcommand)]
pub enum GetWhat {
    Jobs(GetJobsArgs),
    Usage(GetUsageArgs),
}

#[derive(Debug, Args)]
pub struct GetJobsArgs {
    #[arg(long, value_name = "STATUS", ignore_case = true, value_parser = states())]
    pub status: Option<String>,
    #[arg(long, value_name = "KIND", ignore_case = true, value_parser = kinds())]
    pub kind: Option<String>,
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "all")]
    pub limit: Option<u32>,
    #[arg(long)]
    pub all: bool,
    #[arg(long)]
    pub wide: bool,
}

/// The words of the API, and those that it takes for them.
fn states() -> PossibleValuesParser {
    PossibleValuesParser::new([
        PossibleValue::new("pending").aliases(["queued", "provisioning", "preparing"]),
        PossibleValue::new("running"),
        PossibleValue::new("succeeded").alias("completed"),
        PossibleValue::new("failed"),
        PossibleValue::new("stopped").alias("cancelled"),
    ])
}

fn kinds() -> PossibleValuesParser {
    PossibleValuesParser::new([
        PossibleValue::new("Training").aliases(["compute", "batch"]),
        PossibleValue::new("Inference"),
        PossibleValue::new("Notebook"),
    ])
}

#[derive(Debug, Args)]
pub struct GetUsageArgs {
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub from: Option<String>,
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub to: Option<String>,
}
