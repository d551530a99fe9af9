//! Which command is which.

use crate::args::{AdminWhat, Command, DeleteWhat, GetWhat, PriceWhat, TokenWhat};
use crate::diagnostics::Level;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::seams::broker;
use crate::settings::Settings;
use crate::texts;

use super::{
    admin, describe, get, lifecycle, login, logs, outputs, price, price_service, run, serve,
    submit, sync, token,
};

/// Runs `command`.
///
/// # Errors
/// What the command says; see [`Failure`].
pub fn dispatch(command: Command, settings: &Settings, printer: &Printer) -> Outcome {
    match command {
        Command::Run(args) => block_on(run::run(&args, settings, printer)),
        Command::Sync(args) => block_on(sync::sync(&args, settings, printer)),
        Command::Submit(args) => block_on(submit::submit(&args, settings, printer)),
        Command::Logs(args) => block_on(locally(settings, printer, async |settings: &Settings| {
            logs::logs(&args, settings, printer).await
        })),
        Command::Outputs(args) => {
            block_on(locally(settings, printer, async |settings: &Settings| {
                outputs::outputs(&args, settings, printer).await
            }))
        }
        Command::Get(args) => match args.what {
            GetWhat::Jobs(args) => {
                block_on(locally(settings, printer, async |settings: &Settings| {
                    get::jobs(&args, settings, printer).await
                }))
            }
            GetWhat::Usage(args) => {
                block_on(locally(settings, printer, async |settings: &Settings| {
                    get::usage(&args, settings, printer).await
                }))
            }
        },
        Command::Describe(args) => {
            block_on(locally(settings, printer, async |settings: &Settings| {
                describe::job(args.what.name(), settings, printer).await
            }))
        }
        Command::Stop(args) => block_on(locally(settings, printer, async |settings: &Settings| {
            lifecycle::stop(args.what.name(), settings, printer).await
        })),
        // What is resumed needs a server that stays.
        Command::Resume(_) if settings.endpoint().is_none() => Err(settings
            .login()
            .err()
            .unwrap_or_else(|| Failure::usage("endpoint_missing", texts::endpoint_missing()))
            .hint(texts::resume_needs_server())),
        Command::Resume(args) => block_on(lifecycle::resume(&args, settings, printer)),
        Command::Delete(args) => {
            let DeleteWhat::Job(args) = args.what;
            block_on(locally(settings, printer, async |settings: &Settings| {
                lifecycle::delete(&args, settings, printer).await
            }))
        }
        // Without a server these need neither a runtime nor TLS, and answer in a few milliseconds.
        Command::Price(args) => match args.what {
            PriceWhat::Summary(args) => price::summary(&args, settings, printer),
            PriceWhat::Explain(args) => price_service::explain(&args, settings, printer),
            PriceWhat::Sources(args) => price_service::sources(&args, settings, printer),
            PriceWhat::Refresh(args) => price_service::refresh(&args, settings, printer),
            PriceWhat::History(args) => price_service::history(&args, settings, printer),
            PriceWhat::Diff(args) => price_service::diff(&args, settings, printer),
            PriceWhat::Import(args) => price_service::import(&args, settings, printer),
            PriceWhat::Fx(args) => price_service::fx(&args, settings, printer),
            PriceWhat::Serve(args) => price_service::serve(&args, settings, printer),
            PriceWhat::List(args) => price::list(&args, settings, printer),
            PriceWhat::Recommend(args) => price::recommend(&args, settings, printer),
        },
        Command::Login(args) => block_on(login::login(&args, settings, printer)),
        Command::Whoami => block_on(login::whoami(settings, printer)),
        Command::Logout => login::logout(settings, printer),
        Command::Serve(args) => serve::serve(&args, settings, printer),
        Command::Token(args) => match args.what {
            TokenWhat::Create(args) => token::create(&args, settings, printer),
            TokenWhat::List(args) => token::list(&args, settings, printer),
            TokenWhat::Revoke(args) => token::revoke(&args, settings, printer),
        },
        Command::Admin(args) => {
            block_on(locally(settings, printer, async |settings: &Settings| match &args.what {
                AdminWhat::Leases(args) => admin::leases(args, settings, printer).await,
                AdminWhat::Sweep(args) => admin::sweep(args, settings, printer).await,
            }))
        }
        Command::Version => super::version(printer),
        Command::Completions(args) => super::completions(&args, printer),
        Command::Agent(args) => super::agent(&args),
        // The entry runs it: its exit codes are its own.
        Command::AgentClear(args) => super::agent_clear(&args),
        Command::AgentExec(_) | Command::AgentEnd(_) => Ok(()),
    }
}

/// Runs a command with the configured server. Without one it uses the data folder that `run` leaves on this machine: through the
/// server that has it now, else through one in this process.
async fn locally(
    settings: &Settings,
    printer: &Printer,
    command: impl AsyncFnOnce(&Settings) -> Outcome,
) -> Outcome {
    let data_dir = settings.home.join("server");
    if settings.endpoint().is_some() || !broker::is_used(&data_dir) {
        return command(settings).await;
    }
    printer.note(&texts::using_local(data_dir.display()));
    crate::diagnostics::start(Level::Command, settings.verbose);
    match broker::start_private(&data_dir, false).await {
        Ok(running) => {
            let outcome = match running.own_token().await {
                Ok(token) => {
                    let endpoint = running.endpoint.clone();
                    command(&settings.with_embedded(endpoint, token, &data_dir)).await
                }
                Err(failure) => Err(failure),
            };
            running.stop().await;
            outcome
        }
        Err(failure) if failure.code == "data_dir_locked" => match broker::running_at(&data_dir) {
            Some((endpoint, token)) => {
                command(&settings.with_embedded(endpoint, token, &data_dir)).await
            }
            None => Err(failure),
        },
        Err(failure) => Err(failure),
    }
}

/// Runs a future on one thread, which is all a client needs.
pub(super) fn block_on<T>(future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other("runtime", texts::runtime(error)))?
        .block_on(future)
}
