//! What each command does.

use std::io::Read as _;
use std::time::Duration;

use runwhere_model::Lang;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::args::{
    Artifact, Auth, Billing, Checkpoint, Command, Config, Grouping, Job, Ledger, Login, Paging,
    Price, Runner, SetConfig, Submit, Trial, Usage, word,
};
use super::client::{Client, encoded, query};
use super::connection::{Connection, Store, key_is_good, normal};
use super::failure::{ElFailure, Outcome};
use super::follow::print_line;
use super::{content, download, follow, git, help, submit};
use crate::settings::Env;
use crate::table;
use crate::terminal;
use crate::texts::el as texts;

pub(super) async fn dispatch(command: Command, env: &Env, lang: Lang) -> Outcome {
    if let Command::Auth(auth) = command {
        return self::auth(auth, env, lang).await;
    }
    if let Command::Completions(args) = command {
        return completions(args.shell, lang);
    }
    let client = Client::new(Connection::resolve(env)?, lang)?;
    match command {
        Command::Job(job) => self::job(&client, job, lang).await,
        Command::Trial(trial) => self::trial(&client, trial).await,
        Command::Runner(runner) => self::runner(&client, runner).await,
        Command::Content(content) => content::run(&client, content).await,
        Command::Checkpoint(checkpoint) => self::checkpoint(&client, checkpoint).await,
        Command::Billing(billing) => self::billing(&client, billing).await,
        Command::Dashboard(_) => {
            let me = client.get("/v1/me").await?;
            let jobs = client.get("/v1/jobs?type=train&limit=25").await?;
            shown(json!({ "me": me, "jobs": jobs["items"] }))
        }
        Command::Limit(_) => {
            let me = client.get("/v1/me").await?;
            let id =
                |name: &str, field: &str| encoded(me[name][field].as_str().unwrap_or_default());
            let (workspace, project) =
                (id("workspace", "workspace_id"), id("project", "project_id"));
            shown(
                client
                    .get(&format!("/v1/workspaces/{workspace}/projects/{project}/limits"))
                    .await?,
            )
        }
        Command::Auth(_) | Command::Completions(_) => Ok(0),
    }
}

fn completions(shell: clap_complete::Shell, lang: Lang) -> Outcome {
    use clap::CommandFactory as _;
    let mut command = help::translated(super::args::Cli::command(), lang);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "el", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end_matches('\n'));
    Ok(0)
}

/// Prints a result; one that failed makes the exit code 1.
pub(super) fn shown(value: Value) -> Outcome {
    print_line(&serde_json::to_string_pretty(&value).unwrap_or_default());
    Ok(u8::from(value["status"] == "failed"))
}

pub(super) fn listed(page: &Value, columns: &[&str], json_wanted: bool) -> Outcome {
    if json_wanted {
        print_line(&serde_json::to_string_pretty(page).unwrap_or_default());
        return Ok(0);
    }
    let header: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
    let cell = |item: &Value, column: &str| match &item[column] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> = page["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| columns.iter().map(|column| cell(item, column)).collect())
        .collect();
    print_line(&table::draw(&header, &rows));
    if let Some(next) = page["next_cursor"].as_str() {
        eprintln!("--cursor {next}");
    }
    Ok(0)
}

pub(super) fn paged(paging: &Paging, more: &[(&str, Option<String>)]) -> String {
    let mut all =
        vec![("limit", Some(paging.limit.to_string())), ("cursor", paging.cursor.clone())];
    all.extend(more.iter().cloned());
    query(&all)
}

async fn job(client: &Client, job: Job, lang: Lang) -> Outcome {
    let at = |id: &str, rest: &str| format!("/v1/jobs/{}{rest}", encoded(id));
    match job {
        Job::Submit(args) => self::submit(client, &args, lang).await,
        Job::List(args) => {
            let query = paged(&args.paging, &[("type", args.kind), ("status", args.status)]);
            let page = client.get(&format!("/v1/jobs{query}")).await?;
            listed(
                &page,
                &["job_id", "type", "name", "status", "created_at", "finished_at"],
                args.paging.json,
            )
        }
        Job::Get(args) => shown(client.get(&at(&args.id, "")).await?),
        Job::Result(args) => shown(client.get(&at(&args.id, "/result")).await?),
        Job::Stop(args) => shown(client.post(&at(&args.id, "/stop"), None).await?),
        Job::Log(args) => follow::log(client, &args, lang).await,
        Job::Event(args) => {
            let page = client.get(&at(&args.id, "/events")).await?;
            listed(&page, &["resource_id", "status", "at", "source"], args.json)
        }
    }
}

async fn submit(client: &Client, args: &Submit, lang: Lang) -> Outcome {
    let request = submit::request(args)?;
    let id = request["request_id"].as_str().unwrap_or_default();
    // Before it is sent: an uncertain submit can be repeated with it.
    eprintln!("{}", texts::request_id(id).get(lang));
    let reply = client.post("/v1/jobs", Some(&request)).await?;
    if !args.wait {
        return shown(reply);
    }
    let job = reply["job_id"].as_str().unwrap_or_default().to_owned();
    // However the wait ends, the job can be found again.
    eprintln!("{}", texts::waiting(terminal::one_line(&job)).get(lang));
    loop {
        let now = client.get(&format!("/v1/jobs/{}", encoded(&job))).await?;
        if matches!(now["status"].as_str(), Some("completed" | "failed" | "cancelled")) {
            return shown(now);
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(130),
        }
    }
}

async fn trial(client: &Client, trial: Trial) -> Outcome {
    let at = |id: &str, rest: &str| format!("/v1/trials/{}{rest}", encoded(id));
    match trial {
        Trial::List(args) => {
            let query = paged(&args.paging, &[("type", args.kind), ("job_id", args.job_id)]);
            let page = client.get(&format!("/v1/trials{query}")).await?;
            let columns = [
                "trial_id",
                "job_id",
                "name",
                "status",
                "exit_code",
                "cleanup_confirmed",
                "created_at",
            ];
            listed(&page, &columns, args.paging.json)
        }
        Trial::Get(args) => shown(client.get(&at(&args.id, "")).await?),
        Trial::Stop(args) => shown(client.post(&at(&args.id, "/stop"), None).await?),
        Trial::Result(args) => shown(client.get(&at(&args.id, "/result")).await?),
        Trial::Snapshot(args) => shown(client.get(&at(&args.id, "/snapshot")).await?),
        Trial::Artifact(Artifact::List(args)) => {
            let path = at(&args.trial, "/artifacts");
            let page = client.get(&format!("{path}{}", paged(&args.paging, &[]))).await?;
            listed(&page, &["artifact_id", "name", "state", "size", "sha256"], args.paging.json)
        }
        Trial::Artifact(Artifact::Download(args)) => {
            let done = download::artifacts(client, &args.id, &args.folder).await?;
            let left = done["not_downloaded"].as_array().is_some_and(|left| !left.is_empty());
            shown(done)?;
            Ok(u8::from(left))
        }
    }
}

async fn runner(client: &Client, runner: Runner) -> Outcome {
    const COLUMNS: [&str; 5] = ["name", "revision", "visibility", "source_ref", "created_at"];
    match runner {
        Runner::List(args) => {
            let page = client.get(&format!("/v1/runners{}", paged(&args, &[]))).await?;
            listed(&page, &COLUMNS, args.json)
        }
        Runner::Get(args) => {
            let (name, revision) = args.runner.split_once('@').unwrap_or((&args.runner, ""));
            let path = runner_path(name)?;
            match revision {
                "" => shown(client.get(&path).await?),
                revision => {
                    shown(client.get(&format!("{path}/revisions/{}", encoded(revision))).await?)
                }
            }
        }
        Runner::Revisions(args) => {
            let path = runner_path(&args.runner)?;
            let page = client.get(&format!("{path}/revisions{}", paged(&args.paging, &[]))).await?;
            listed(&page, &COLUMNS, args.paging.json)
        }
        Runner::Publish(args) => {
            let path = runner_path(&args.name)?;
            let body =
                git::publication(&args.folder, args.commit.as_deref(), &word(args.visibility))?;
            shown(client.post(&format!("{path}/revisions"), Some(&body)).await?)
        }
    }
}

async fn billing(client: &Client, billing: Billing) -> Outcome {
    match billing {
        Billing::Account(_) => shown(client.get("/v1/billing/account").await?),
        Billing::Usage(Usage::List(args)) => {
            let query = query(&[
                ("start", Some(instant(&args.start))),
                ("end", Some(instant(&args.end))),
                ("group_by", Some(word(args.group_by))),
            ]);
            let page = client.get(&format!("/v1/billing/usage{query}")).await?;
            let group = match args.group_by {
                Grouping::Day => "day",
                Grouping::Product => "product",
                Grouping::Endpoint => "endpoint_id",
                Grouping::Sku => "sku",
            };
            listed(&page, &[group, "amount_usd", "gpu_seconds"], args.json)
        }
        Billing::Ledger(Ledger::List(args)) => {
            let page = client.get(&format!("/v1/billing/ledger?limit={}", args.limit)).await?;
            let columns = [
                "entry_id",
                "sku",
                "amount",
                "currency",
                "gpu_seconds",
                "reference",
                "occurred_at",
            ];
            listed(&page, &columns, args.json)
        }
        Billing::Price(Price::List(args)) => {
            let page = client.get("/v1/billing/prices").await?;
            listed(&page, &["sku", "gpu_type", "gpus", "amount", "currency", "unit"], args.json)
        }
    }
}

/// A day begins at midnight, UTC; the server says what is wrong with anything else.
fn instant(text: &str) -> String {
    match text.parse::<jiff::civil::Date>() {
        Ok(_) if text.len() == "2026-01-01".len() => format!("{text}T00:00:00+00:00"),
        Ok(_) | Err(_) => text.to_owned(),
    }
}

fn runner_path(name: &str) -> Outcome<String> {
    match name.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(format!("/v1/runners/{}/{}", encoded(namespace), encoded(name)))
        }
        _ => Err(ElFailure::usage(texts::runner_name())),
    }
}

async fn checkpoint(client: &Client, checkpoint: Checkpoint) -> Outcome {
    match checkpoint {
        Checkpoint::List(args) => {
            let query = paged(&args.paging, &[("job_id", args.job_id)]);
            let page = client.get(&format!("/v1/job/checkpoints{query}")).await?;
            listed(
                &page,
                &["checkpoint_id", "checkpoint_type", "base_model", "job_id", "tinker_path"],
                args.paging.json,
            )
        }
        Checkpoint::Download(args) => {
            shown(download::checkpoint(client, &args.id, &args.folder).await?)
        }
        Checkpoint::Delete(args) => {
            shown(client.delete(&format!("/v1/job/checkpoints/{}", encoded(&args.id))).await?)
        }
    }
}

async fn auth(auth: Auth, env: &Env, lang: Lang) -> Outcome {
    match auth {
        Auth::Login(args) => login(&args, env, lang).await,
        Auth::Status => {
            let client = Client::new(Connection::resolve(env)?, lang)?;
            shown(client.get("/v1/me").await?)
        }
        Auth::Config(Config::Show) => {
            let connection = Connection::resolve(env)?;
            shown(json!({
                "base_url": connection.url,
                "workspace_id": connection.workspace,
                "project_id": connection.project,
                "api_key": connection.key.map(|_| "configured"),
            }))
        }
        Auth::Config(Config::Set(args)) => set(&args, env, lang).await,
    }
}

async fn set(args: &SetConfig, env: &Env, lang: Lang) -> Outcome {
    let store = Store::of(env)?;
    let mut saved = store.saved()?;
    let value = match (&args.value, args.stdin) {
        (Some(_), _) if args.name == "api-key" => {
            return Err(ElFailure::usage(texts::key_as_argument()));
        }
        (Some(value), false) => value.clone(),
        (None, true) => {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(4096).read_to_string(&mut text);
            read.map_err(|error| ElFailure::local("FILE_ERROR", texts::stdin_failed(error)))?;
            text.trim().to_owned()
        }
        _ => return Err(ElFailure::usage(texts::value_or_stdin())),
    };
    match args.name.as_str() {
        "base-url" => saved.api_url = Some(normal(&value)?),
        "workspace-id" => saved.workspace_id = Some(value),
        "project-id" => saved.project_id = Some(value),
        "api-key" => {
            if !key_is_good(&value) {
                return Err(ElFailure::local("INVALID_API_KEY", texts::key_invalid()));
            }
            let url = Connection::resolve(env)?.require_url()?.to_owned();
            let connection = Connection {
                url: Some(url.clone()),
                key: Some(value.clone()),
                ..Connection::default()
            };
            let me = Client::new(connection, lang)?.get("/v1/me").await?;
            keep(&store, &url, &value, &me)?;
            return shown(json!({ "saved": "api-key", "project": me["project"] }));
        }
        other => return Err(ElFailure::usage(texts::setting_unknown(other))),
    }
    store.save(&saved)?;
    shown(json!({ "saved": args.name }))
}

fn keep(store: &Store, url: &str, key: &str, me: &Value) -> Outcome<()> {
    let mut saved = store.saved()?;
    saved.api_url = Some(url.to_owned());
    saved.workspace_id = me["workspace"]["workspace_id"].as_str().map(str::to_owned);
    saved.project_id = me["project"]["project_id"].as_str().map(str::to_owned);
    store.save_key(url, key)?;
    store.save(&saved)
}

fn random(bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < bytes {
        all.extend_from_slice(uuid::Uuid::new_v4().as_bytes());
    }
    all.truncate(bytes);
    // A version-4 UUID has six fixed bits; hashing several hides them.
    let whole: Vec<u8> = (0..4).flat_map(|_| *uuid::Uuid::new_v4().as_bytes()).chain(all).collect();
    Sha256::digest(whole).to_vec()
}

fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

async fn login(args: &Login, env: &Env, lang: Lang) -> Outcome {
    const LETTERS: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    let store = Store::of(env)?;
    let url = match &args.base_url {
        Some(url) => normal(url)?,
        None => Connection::resolve(env)?.require_url()?.to_owned(),
    };
    let connection = Connection { url: Some(url.clone()), ..Connection::default() };
    let client = Client::new(connection, lang)?;
    let key = format!("epk_{}", hex::encode(random(32)));
    let poll = hex::encode(random(32));
    let code: String = random(8)
        .iter()
        .take(8)
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect();
    let start =
        json!({ "key_hash": hash(&key), "poll_hash": hash(&poll), "code_hash": hash(&code) });
    let grant = client.post("/v1/auth/cli/start", Some(&start)).await?;
    let address = grant["verification_uri"].as_str().unwrap_or_default();
    eprintln!("{}", texts::login_open(code, address).get(lang));
    if !args.no_browser {
        let _ = std::process::Command::new("xdg-open")
            .arg(address)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
    }
    let body = json!({ "grant_id": grant["grant_id"], "poll_token": poll });
    let interval = Duration::from_secs(grant["interval"].as_u64().unwrap_or(2).clamp(1, 10));
    let waited = async {
        loop {
            let answer = client.post("/v1/auth/cli/poll", Some(&body)).await?;
            match answer["status"].as_str() {
                Some("approved") => return Ok(()),
                Some("pending") => tokio::time::sleep(interval).await,
                _ => {
                    return Err(ElFailure::local("AUTH_LOGIN_DENIED", texts::login_denied()));
                }
            }
        }
    };
    let limit = Duration::from_secs(args.timeout);
    let approved = tokio::select! {
        waited = tokio::time::timeout(limit, waited) => waited.unwrap_or_else(|_| {
            Err(ElFailure::local("AUTH_LOGIN_TIMEOUT", texts::login_timeout()))
        }),
        _ = tokio::signal::ctrl_c() => Err(ElFailure { exit: 130, ..ElFailure::local("AUTH_INPUT_CANCELLED", texts::cancelled()) }),
    };
    if let Err(failure) = approved {
        let _ = client.post("/v1/auth/cli/cancel", Some(&body)).await;
        return Err(failure);
    }
    let connection =
        Connection { url: Some(url.clone()), key: Some(key.clone()), ..Connection::default() };
    let me = Client::new(connection, lang)?.get("/v1/me").await?;
    keep(&store, &url, &key, &me)?;
    shown(json!({ "status": "signed_in", "workspace": me["workspace"], "project": me["project"] }))
}
