//! `runwhere run`: compare prices, sync, submit, follow, cost, confirmed release.

mod interrupts;
mod release;

use std::path::PathBuf;

use serde_json::{Value, json};

pub(super) use interrupts::{Interrupt, Interrupts};
use release::{Embedded, Release, left_behind, wait_for_release};

use super::ids::Ceiling;
use super::submit::{self, Order};
use super::{describe, price, price_ceiling, sync};
use crate::api::{ApiError, Client, View};
use crate::args::RunArgs;
use crate::diagnostics::Level;
use crate::failure::{Exit, Failure, Outcome};
use crate::follow::{Follower, is_terminal};
use crate::printer::Printer;
use crate::seams::broker::{self, Running};
use crate::seams::task::{Task, Wanted};
use crate::settings::Settings;
use crate::texts;

const RECOMMENDED: u32 = 5;
/// How long an unfinished job of the same name is waited for.
const EARLIER: std::time::Duration = std::time::Duration::from_secs(30);

/// Runs a task from prices to the confirmed release.
pub(super) async fn run(args: &RunArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let task = Task::read(&args.file)?;
    task.require_gpu()?;
    task.require_served()?;
    let ceiling = args.max_price.as_deref().map(Ceiling::parse).transpose()?;
    // From here on a signal is an event, so that no machine is ever left behind by one.
    let mut interrupts = Interrupts::new()?;
    submit::explain(&task, settings, printer);
    let server = Server::find(args, settings, printer).await?;
    let run = Run {
        task: &task,
        ceiling,
        yes: args.yes,
        settings: &server.settings,
        printer,
        embedded: server.embedded.as_ref().map(|(_, data_dir)| data_dir.clone()),
    };
    let outcome = run.whole(&mut interrupts).await;
    server.close().await;
    outcome
}

/// The configured server, or the one in this process.
struct Server {
    settings: Settings,
    embedded: Option<(Running, PathBuf)>,
}

impl Server {
    async fn find(args: &RunArgs, settings: &Settings, printer: &Printer) -> Outcome<Self> {
        if settings.endpoint().is_some() && !args.try_locally {
            settings.login()?;
            return Ok(Self { settings: settings.clone(), embedded: None });
        }
        let data_dir = args.data_dir.clone().unwrap_or_else(|| settings.home.join("server"));
        crate::diagnostics::start(Level::Command, settings.verbose);
        let running = broker::start_private(&data_dir, args.try_locally).await;
        let running = running.map_err(|failure| match settings.endpoint() {
            _ if failure.code != "data_dir_locked" => failure,
            Some(endpoint) => failure.hint(texts::run_without_try_locally(endpoint)),
            None => match broker::address_of(&data_dir) {
                Some(other) => failure
                    .hint(texts::run_beside_another(other, data_dir.join("first-token").display())),
                None => failure,
            },
        })?;
        printer.note(&match settings.endpoint() {
            Some(endpoint) => texts::run_not_configured(endpoint),
            None => texts::run_embedded(),
        });
        if args.try_locally {
            printer.warn(&texts::run_pretended());
        }
        let token = running.own_token().await?;
        let settings = settings.with_embedded(running.endpoint.clone(), token, &data_dir);
        Ok(Self { settings, embedded: Some((running, data_dir)) })
    }

    async fn close(self) {
        if let Some((running, _)) = self.embedded {
            running.stop().await;
        }
    }
}

struct Run<'a> {
    task: &'a Task,
    ceiling: Option<Ceiling>,
    yes: bool,
    settings: &'a Settings,
    printer: &'a Printer,
    /// Data folder of the embedded server.
    embedded: Option<PathBuf>,
}

impl Run<'_> {
    async fn whole(&self, interrupts: &mut Interrupts) -> Outcome {
        let client = Client::logged_in(self.settings, self.printer)?;
        // Nothing is rented yet: an interruption may simply end this.
        let sync_id = tokio::select! {
            prepared = self.prepare(&client) => prepared?,
            _ = interrupts.next() => {
                self.printer.note(&texts::nothing_left_behind());
                return Err(Failure::silent(Exit::Interrupted));
            }
        };
        if self.embedded.is_some() {
            self.wait_for_earlier(&client, interrupts).await?;
            self.warn_of_others(&client).await;
        }
        let (submitted, mut asked) = self.submit(&client, sync_id.as_deref(), interrupts).await?;
        let id = submit::job_id(&submitted)?;
        submit::announce(View(&submitted), self.printer);
        self.printer.json(&json!({"submitted": submit::report(&submitted, self.task)}));
        let end = self.follow(&client, &id, &mut asked, interrupts).await;
        if let Err(failure) = end {
            let leave = Failure::silent(failure.exit);
            self.say_left_behind(&client, &id).await;
            return Err(if failure.silent { leave } else { failure });
        }
        let job = match wait_for_release(&client, &id, self.printer, interrupts, &mut asked).await?
        {
            Release::Confirmed(job) => job,
            Release::Left => {
                self.say_left_behind(&client, &id).await;
                return Err(Failure::silent(Exit::Interrupted));
            }
        };
        self.result(View(&job));
        let concluded = submit::conclude(View(&job), self.task.name(), self.printer);
        match concluded {
            // The user asked for the stop: that is an interruption, not a failure of the job.
            Err(failure) if asked && failure.code == "job_stopped" => {
                Err(failure.exit(Exit::Interrupted))
            }
            other => other,
        }
    }

    /// Shows what it would cost elsewhere, and syncs. Returns the id of the sync.
    async fn prepare(&self, client: &Client) -> Outcome<Option<String>> {
        let ceiling = price_ceiling::by_server(client, self.ceiling).await?;
        let quote = price::question(self.task, &ceiling, RECOMMENDED, true);
        let answer = price::ask(client, &quote).await?;
        let nothing = View(&answer).list("recommendations").is_empty();
        if nothing
            && (self.ceiling.is_some()
                || matches!(self.task.wanted(), Wanted::GpuType(_) | Wanted::Anything))
        {
            return Err(price::nothing_recommended(View(&answer), self.task, self.ceiling));
        }
        // What is wrong with the folders is told before the table. The files are read after it: the table itself may go into
        // one of them (`runwhere run … > run.log`).
        sync::check_folders(self.task)?;
        if !nothing {
            price::show_recommendations(&answer, self.task, self.settings.explain, self.printer);
        }
        let pushed = sync::bring(self.task, self.yes, client, self.settings, self.printer).await?;
        self.printer.json(&sync::report(&pushed));
        Ok(pushed.sync_id)
    }

    /// An earlier run that was left in a hurry may still be stopping: its release goes on now that a server runs again.
    async fn wait_for_earlier(&self, client: &Client, interrupts: &mut Interrupts) -> Outcome {
        let until = tokio::time::Instant::now() + EARLIER;
        let mut told = false;
        while tokio::time::Instant::now() < until {
            let Ok(job) = describe::fetch(client, self.task.name()).await else { break };
            if is_terminal(View(&job)) {
                break;
            }
            if !told {
                told = true;
                let id = View(&job).text("job_id").unwrap_or_default();
                self.printer.note(&texts::waiting_for_earlier(id));
            }
            tokio::select! {
                () = tokio::time::sleep(std::time::Duration::from_millis(250)) => {}
                _ = interrupts.next() => return Err(Failure::silent(Exit::Interrupted)),
            }
        }
        Ok(())
    }

    /// Says which other jobs of this data folder still live, such as those of a run that was killed.
    async fn warn_of_others(&self, client: &Client) {
        let Ok(answer) = client.get("/api/v1/jobs?limit=200").await else { return };
        for job in View(&answer).list("data").iter().map(View) {
            let name = job.text("name").unwrap_or_default();
            if is_terminal(job) || name == self.task.name() {
                continue;
            }
            let id = job.first_text(&["job_id", "id"]).unwrap_or_default();
            let price = describe::price(job)
                .unwrap_or_else(|| texts::unknown().get(self.printer.lang()).to_owned());
            self.printer.warn(&texts::other_job(&id, name, price));
        }
    }

    /// Submits. Once the request is out it is waited for, interrupted or not: only then the job can be stopped by its id.
    async fn submit(
        &self,
        client: &Client,
        sync_id: Option<&str>,
        interrupts: &mut Interrupts,
    ) -> Outcome<(Value, bool)> {
        let key = uuid::Uuid::new_v4().to_string();
        let order = Order {
            task: self.task,
            ceiling: self.ceiling,
            key: &key,
            sync_id,
            accept_overage: false,
        };
        let placing = order.place(client, self.settings, self.printer);
        tokio::pin!(placing);
        let mut asked = false;
        loop {
            tokio::select! {
                submitted = &mut placing => return Ok((submitted?, asked)),
                signal = interrupts.next() => {
                    if asked && signal == Interrupt::Asked {
                        let lost = Failure::new(Exit::Interrupted, "interrupted", texts::interrupted());
                        return Err(lost.hint(texts::submit_lost(&key)));
                    }
                    asked = true;
                    self.printer.note(&texts::stopping_now());
                }
            }
        }
    }

    /// Follows to the end. The first interruption stops the job, the second leaves.
    async fn follow(
        &self,
        client: &Client,
        id: &str,
        asked: &mut bool,
        interrupts: &mut Interrupts,
    ) -> Outcome {
        let mut follower = Follower::new(client, id, self.printer);
        let follow = follower.run_to_end();
        tokio::pin!(follow);
        let stopping = release::stop(client, id, self.printer);
        tokio::pin!(stopping);
        let mut stopped = false;
        loop {
            tokio::select! {
                ended = &mut follow => return ended.map(drop),
                result = &mut stopping, if *asked && !stopped => {
                    result?;
                    stopped = true;
                }
                signal = interrupts.next() => {
                    if *asked && signal == Interrupt::Asked {
                        return Err(Failure::silent(Exit::Interrupted));
                    }
                    if !*asked {
                        self.printer.note(&texts::stopping_now());
                    }
                    *asked = true;
                }
            }
        }
    }

    fn result(&self, job: View<'_>) {
        let dash = || "-".to_owned();
        let duration = job.integer("elapsed_seconds").map_or_else(dash, super::get::elapsed);
        self.printer.out(&texts::result_duration(duration));
        self.printer.out(&texts::result_billed(job.text("billed_seconds").unwrap_or_else(dash)));
        let cost = describe::cost(job)
            .unwrap_or_else(|| texts::unknown().get(self.printer.lang()).to_owned());
        let exact = job.text("cost_exact").map(|exact| format!("{cost} ({exact} CNY)"));
        let cost = exact.unwrap_or(cost);
        self.printer.out(&match job.flag("gpu_pretended") {
            Some(true) => texts::result_cost_pretended(cost),
            _ => texts::result_cost(cost),
        });
        let cleanup = describe::cleanup(job).unwrap_or_else(texts::cleanup_open);
        self.printer.out(&texts::result_cleanup(cleanup.get(self.printer.lang())));
        self.printer.json(&json!({"job": job.0}));
    }

    async fn say_left_behind(&self, client: &Client, id: &str) {
        // Asked for once, briefly: the user wants to leave.
        let known =
            tokio::time::timeout(std::time::Duration::from_secs(2), describe::fetch(client, id))
                .await;
        let job = known
            .ok()
            .and_then(|answer: Result<Value, ApiError>| answer.ok())
            .unwrap_or(Value::Null);
        let endpoint = client.endpoint().to_string();
        let listen = endpoint.trim_start_matches("http://");
        let embedded = match self.embedded.as_deref() {
            None => Embedded::No,
            Some(data_dir) if data_dir == self.settings.home.join("server") => Embedded::InHome,
            Some(data_dir) => Embedded::At(data_dir, listen),
        };
        left_behind(View(&job), id, embedded, self.printer);
    }
}
