//! Running and timing programs.

use crate::figure::Sample;
use crate::machine::children_cpu;
use runwhere_tests::{Api, Project, Runner, Server, ServerOptions};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// How often each thing is measured; `RUNWHERE_BENCH_RUNS` says otherwise.
pub(crate) fn runs(usual: usize) -> usize {
    std::env::var("RUNWHERE_BENCH_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The folder for large files.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os("RUNWHERE_BENCH_DIR").expect("tests/bench sets it"))
}

/// A new folder on the same disk, which programs of any user may pass through.
pub(crate) fn fresh_folder(prefix: &str) -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(folder()).expect("a folder");
    std::fs::set_permissions(made.path(), std::fs::Permissions::from_mode(0o755))
        .expect("the folder is ours");
    made
}

/// A server with its data folder below `within`.
pub(crate) fn server(within: &Path) -> Server {
    Server::start_with(ServerOptions {
        data_dir: Some(within.join("data")),
        ..ServerOptions::default()
    })
}

/// Syncs a project as it is and submits it; gives the job's id.
pub(crate) fn submitted(api: &Api, project: &Project, program: &str) -> String {
    let yaml = project.yaml();
    let files: [(&str, &[u8]); 2] =
        [("train.sh", program.as_bytes()), ("train.yaml", yaml.as_bytes())];
    api.sync(project.name(), &yaml, &files);
    api.submit(&yaml)
}

/// A command in a runner's sealed place.
pub(crate) fn command(runner: &Runner, arguments: &[&str]) -> Command {
    let mut command = plain(&runner.program, arguments, &runner.folder);
    command.env_clear().envs(runner.env.iter().map(|(name, value)| (name, value)));
    command
}

/// A command in a folder.
pub(crate) fn plain(program: impl AsRef<OsStr>, arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

/// Runs a command, which must succeed, and measures it from its start to its end.
pub(crate) fn timed(mut command: Command) -> (Sample, Output) {
    let cpu = children_cpu();
    let start = Instant::now();
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let wall = start.elapsed();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (Sample { wall, cpu: Some(children_cpu().saturating_sub(cpu)) }, output)
}
