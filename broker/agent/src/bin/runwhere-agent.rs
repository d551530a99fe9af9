//! The agent as a program of its own, for nodes that need nothing else of runwhere:
//! `runwhere-agent agent --node-dir DIR`. It calls itself as `agent-exec` to start user code and as
//! `agent-end` to end all of a user's.

use std::path::PathBuf;
use std::process::ExitCode;

use runwhere_agent::{
    AgentExit, AgentOptions, clear_containers, close_inherited, end_user, exec_shim, run,
};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [command, flag, node_dir] = arguments.as_slice() else { return usage() };
    if command == "agent-end" {
        return match (flag.to_str(), node_dir.to_str().and_then(|uid| uid.parse().ok())) {
            (Some("--uid"), Some(uid)) => ExitCode::from(end_user(uid)),
            _ => usage(),
        };
    }
    if flag != "--node-dir" {
        return usage();
    }
    let node_dir = PathBuf::from(node_dir);
    match command.to_str() {
        Some("agent-exec") => ExitCode::from(exec_shim(&node_dir)),
        Some("agent") => agent(&node_dir),
        Some("agent-clear") => clear(&node_dir),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: runwhere-agent agent --node-dir DIR");
    ExitCode::from(2)
}

fn clear(node_dir: &std::path::Path) -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let cleared = match runtime {
        Ok(runtime) => runtime.block_on(clear_containers(node_dir)),
        Err(error) => Err(error.to_string()),
    };
    match cleared {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn agent(node_dir: &std::path::Path) -> ExitCode {
    // It outlives whoever started it, and what that one had open need not.
    close_inherited(None);
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info")),
        )
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(16)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let exit = match AgentOptions::new(node_dir) {
        Ok(options) => runtime.block_on(run(options)),
        Err(error) => {
            eprintln!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    // Threads that still wait for a pipe or a slow disk must not keep the process alive.
    runtime.shutdown_background();
    match exit {
        AgentExit::Released | AgentExit::Terminated => ExitCode::SUCCESS,
        AgentExit::Fenced => ExitCode::from(3),
        AgentExit::BrokerSilent => ExitCode::from(4),
        AgentExit::Failed(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
