//! `runwhere serve`.

use std::net::SocketAddr;

use serde_json::json;

use super::run::Interrupts;
use crate::args::ServeArgs;
use crate::diagnostics::Level;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::seams::broker::{self, ServeOptions};
use crate::settings::Settings;
use crate::terminal;
use crate::texts;

/// Runs the server until it is told to end.
pub(super) fn serve(args: &ServeArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let listen = args
        .listen
        .as_deref()
        .map(|text| {
            text.parse::<SocketAddr>()
                .map_err(|_| Failure::usage("listen_invalid", texts::listen_invalid(text)))
        })
        .transpose()?;
    let data_dir = args.data_dir.clone().unwrap_or_else(|| settings.home.join("server"));
    let options = ServeOptions {
        listen,
        data_dir: data_dir.clone(),
        public_url: args.public_url.clone(),
        tls: args.tls_cert.clone().zip(args.tls_key.clone()),
        try_locally: args.try_locally,
        allow_local_exec: args.allow_local_exec,
    };
    crate::diagnostics::start(Level::Service, settings.verbose);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other("runtime", texts::runtime(error)))?
        .block_on(async {
            let mut interrupts = Interrupts::new()?;
            let running = broker::start(options).await?;
            let url = running.endpoint.to_string();
            let address = listen.filter(|address| !address.ip().is_loopback());
            if let Some(address) = address {
                if args.tls_cert.is_none() {
                    printer.warn(&texts::serving_plain(address));
                }
                if !args.allow_local_exec {
                    printer.warn(&texts::serving_no_local(address));
                }
            }
            if args.try_locally {
                printer.warn(&texts::serving_pretended());
            }
            printer.note(&texts::serving(&url));
            printer.note(&texts::serving_data(data_dir.display()));
            if let Some(token) = &running.first_token {
                printer.note(&texts::serving_token_file(data_dir.join("first-token").display()));
                if terminal::stderr_is_terminal() {
                    printer.note(&texts::serving_token(token.reveal()));
                }
            }
            printer.note(&texts::serving_login(&url));
            printer.json(&json!({"status": "serving", "endpoint": url, "data_dir": data_dir.display().to_string()}));
            let stop = async {
                interrupts.next().await;
                printer.note(&texts::serving_ends());
            };
            stop.await;
            running.stop().await;
            Ok(())
        })
}
