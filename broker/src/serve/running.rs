//! Putting a server together, running it, ending it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use runwhere_engine::Policy;
use runwhere_failpoint::failpoint;
use runwhere_model::{KeyId, Secret};
use runwhere_pricing::{FxTable, PriceFolder, PriceOptions, PriceService, Refresher};
use runwhere_providers::local::{Local, LocalConfig};
use runwhere_providers::sources::ForeignFn;
use runwhere_providers::{Clock, Registry, SystemClock};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::config::{ConfigError, ServerConfig};
use super::data_dir::{DataDir, DataDirError, write_whole};
use super::marker::{BeforeLaunch, Marker, MarkerError, follow};
use super::prices::{Catalogued, sources};
use super::projects::apply_projects;
use super::rates::keep_rates;
use crate::accounts::{AccountError, Accounts};
use crate::admin::Admin;
use crate::agents::Agents;
use crate::api::envloop::EnvloopParts;
use crate::api::{ApiParts, router};
use crate::blobs::{BlobError, Blobs};
use crate::disk::DiskRoom;
use crate::driver::{Core, CoreParts, Others, Sweeper};
use crate::jobs::Jobs;
use crate::logs::{LogError, Logs};
use crate::ports::{Ids, Room, SystemIds};
use crate::runners::{Images, OciImages, Registry as RunnerRegistry, Training, publish_examples};
use crate::server::{App, BindError, Listen, Server};
use crate::store::{OpenError, SqliteStore, Store, StoreError};

/// Sources that are read again this often are read before the first request.
const LOCAL_REFRESH: std::time::Duration = std::time::Duration::from_secs(60);

/// How to run a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 for a free one.
    pub listen: SocketAddr,
    /// Its data folder.
    pub data_dir: PathBuf,
    /// How others reach it, without a trailing slash.
    pub public_url: Option<String>,
    /// Certificate chain and private key, PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The local machine pretends to have every GPU.
    pub try_locally: bool,
    /// User code may run on this machine although others can reach the server.
    pub allow_local_exec: bool,
    /// The program that is the agent when called with `agent --node-dir DIR`.
    pub agent_program: PathBuf,
    /// Builds the price sources that this package does not know.
    pub foreign_sources: ForeignFn,
}

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data folder.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The settings file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A configured exchange rate.
    #[error("config.toml: {0}")]
    Fx(#[from] runwhere_pricing::FxSettingError),
    /// The address or certificate.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The marker that tells a restored older copy of it.
    #[error(transparent)]
    Marker(#[from] MarkerError),
    /// File contents.
    #[error("blobs: {0}")]
    Blobs(#[from] BlobError),
    /// Logs.
    #[error("logs: {0}")]
    Logs(#[from] LogError),
    /// What is needed to read image registries.
    #[error("images: {0}")]
    Images(String),
    /// The first token.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// This machine as a provider.
    #[error(transparent)]
    Local(#[from] runwhere_providers::local::LocalError),
    /// User code would run with the server's rights for everybody who can reach it.
    #[error(
        "{0} can be reached from other machines, so jobs may not run on this one; listen on \
         127.0.0.1, or add --allow-local-exec if everybody with a token may run programs here"
    )]
    LocalExec(SocketAddr),
    /// The address file.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was written.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// How this machine reaches it.
    pub url: String,
    /// The first token, where this is the first start.
    pub first_token: Option<Secret>,
    /// This machine's offers are only pretended.
    pub pretending: bool,
    /// It speaks TLS; without, tokens pass in plain text.
    pub secure: bool,
    /// Jobs may run on this machine. Off where other machines can reach the server and that was
    /// not allowed.
    pub local_exec: bool,
    closing: watch::Sender<bool>,
    serving: JoinHandle<()>,
    background: Vec<JoinHandle<()>>,
    accounts: Accounts,
    own_keys: Mutex<Vec<KeyId>>,
    store: Arc<dyn Store>,
    marker: Arc<Marker>,
    _data: DataDir,
}

impl Running {
    /// A token for a client in the same process: valid until the server stops, a day at most.
    pub async fn own_token(&self) -> Result<Secret, AccountError> {
        let new = crate::accounts::NewKey {
            name: "embedded".to_owned(),
            permissions: vec![runwhere_engine::Permission::Admin],
            expires_in: Some(std::time::Duration::from_secs(24 * 3600)),
        };
        let (key, token) = self.accounts.create(new, None).await?;
        self.own_keys.lock().unwrap_or_else(PoisonError::into_inner).push(key.id);
        Ok(token)
    }

    /// Takes no more connections, finishes the running requests within bounds, and ends. What
    /// runs on nodes goes on.
    pub async fn stop(self) {
        // Nobody listening any more is as good.
        let _ = self.closing.send(true);
        if let Err(error) = self.serving.await {
            tracing::error!(%error, "The server did not end cleanly");
        }
        for task in self.background {
            task.abort();
        }
        let keys = self.own_keys.into_inner().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if let Err(error) = self.accounts.revoke(&key).await {
                tracing::warn!(%key, %error, "The token of this server's own client stays valid until it expires");
            }
        }
        let advanced = match self.store.position().await {
            Ok(position) => self.marker.advance(position).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = advanced {
            tracing::warn!(%error, "The marker of the data folder could not be advanced");
        }
    }
}

/// Starts a server: everything an earlier one left is taken up before the first request.
pub async fn start(options: ServeOptions) -> Result<Running, ServeError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ids: Arc<dyn Ids> = Arc::new(SystemIds);
    let data = DataDir::open(&options.data_dir, ids.as_ref())?;
    failpoint!("start.folder_opened");
    let config_path = data.config();
    let config = ServerConfig::read(&config_path)?;
    let listen = Listen { address: options.listen, tls: options.tls.clone() };
    let server = Server::bind(&listen).await?;
    let address = server.address();
    let secure = server.is_secure();
    let scheme = if secure { "https" } else { "http" };
    let url = format!("{scheme}://{}", own_address(address));
    let public_url = options.public_url.map(|url| url.trim_end_matches('/').to_owned());
    let broker_url = public_url.clone().unwrap_or_else(|| url.clone());

    let policy = Policy::default();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&data.database())?);
    failpoint!("start.store_opened");
    // Before anything is written: this is how far the database was left.
    let marker = Arc::new(Marker::open(&data.generation(), store.position().await?, clock.now())?);
    let blobs = Blobs::open(data.blobs())?;
    let logs = Logs::open(data.logs(), policy.log_bytes, Arc::clone(&clock))?;
    let accounts = Accounts::new(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&ids));
    let token_path = data.first_token();
    let first_token = accounts
        .first_start(|token| write_whole(&token_path, &format!("{}\n", token.expose())))
        .await?;
    failpoint!("start.token.committed");
    apply_projects(&accounts, store.as_ref(), &config, &config_path).await?;

    let mut registry = Registry::new();
    let exposed = !address.ip().is_loopback();
    if exposed && options.try_locally && !options.allow_local_exec {
        return Err(ServeError::LocalExec(address));
    }
    let local_exec = config.local.enabled && (!exposed || options.allow_local_exec);
    if local_exec {
        let mut local = LocalConfig::new(
            data.deployment().clone(),
            data.local(),
            options.agent_program.clone(),
        );
        local.gpus = config.local.gpu_list(&config_path)?;
        local.price_per_hour = config.local.price(&config_path)?;
        local.pretend = options.try_locally;
        let root = rustix::process::geteuid().is_root();
        local.drop_to = config.local.own_users(&config_path, root)?;
        local.work_root = config.local.work_root.clone();
        if local.drop_to.is_some() {
            data.close_to_others();
        } else if root {
            tracing::warn!(
                "Jobs run as root and can read everything of this machine: config.toml says so \
                 with run_as = \"server\""
            );
        }
        local.docker = config.local.containers(&config_path)?;
        local.broker_url = Some(broker_url.clone());
        registry.add(Arc::new(Local::open(local, Arc::clone(&clock)).await?));
    }
    failpoint!("start.provider_opened");
    let price_folder = data.root().join("prices");
    let folder = PriceFolder::open(&price_folder)
        .map_err(|source| ServeError::Io { path: price_folder, source })?;
    let rates = FxTable::new(&config.fx)?;
    let price_options =
        PriceOptions { fx: rates.clone(), folder: Some(folder), ..PriceOptions::default() };
    let prices = Arc::new(PriceService::new(Arc::clone(&clock), price_options));
    let listed = super::sources::listed(
        &config,
        &config_path,
        data.root(),
        &clock,
        options.foreign_sources,
    )?;
    let refresher = Arc::new(Refresher::new(
        Arc::clone(&prices),
        // An account's own offers count before a list of the same name.
        listed.into_iter().chain(sources(&registry)),
    ));
    // What this machine has may have changed while no server ran; price lists are read when due.
    for provider in registry.iter().filter(|provider| provider.terms().refresh <= LOCAL_REFRESH) {
        let _ = refresher.refresh(provider.id()).await;
    }
    let catalogued = Arc::new(Catalogued::new(Arc::clone(&prices), Arc::clone(&clock)));

    let core = Core::new(CoreParts {
        store: Arc::clone(&store),
        registry: registry.clone(),
        prices: catalogued.clone(),
        clock: Arc::clone(&clock),
        ids: Arc::clone(&ids),
        log: Arc::new(logs.clone()),
        policy,
        deployment: data.deployment().clone(),
        broker_url,
        ca_pem: ca_pem(&options.tls)?,
        token_key: data.key().clone(),
    });
    core.keep_generation(Arc::new(BeforeLaunch(Arc::clone(&marker))));
    let sweeper = Sweeper::new(Arc::clone(&core));
    // Holds launches where the database is an older copy, so before anything is woken.
    let admin = Admin::new(Arc::clone(&core), Arc::clone(&sweeper), marker.clone());
    if let Some(restored) = marker.restored() {
        tracing::error!(
            found = restored.found,
            expected = restored.expected,
            "The database is an older copy of what was here: it does not know what was launched \
             since. Nothing is launched, and nodes without an owner are only reported, until an \
             operator has looked at `runwhere admin leases` and run \
             `runwhere admin sweep --confirm-restore`. Running jobs that it knows go on, and are \
             stopped and released as usual"
        );
    }
    failpoint!("start.before_recover");
    // The lock of the data folder is ours alone.
    core.recover(Others::Ended).await?;
    failpoint!("start.recovered");
    let (closing, closed) = watch::channel(false);
    let room: Arc<dyn Room> = Arc::new(DiskRoom::of(data.root()));
    let reachable = public_url.is_some() || exposed;
    let jobs = Jobs::new(Arc::clone(&core), reachable);
    let runners = RunnerRegistry::new(Arc::clone(&store), blobs.clone(), Arc::clone(&clock));
    if let Err(refused) = publish_examples(&runners).await {
        tracing::warn!(reason = refused.message.en, "The example runners were not published");
    }
    let settings = config.images.oci(&config_path)?;
    let images = OciImages::new(settings, Arc::clone(&clock)).map_err(ServeError::Images)?;
    let images: Arc<dyn Images> = Arc::new(images);
    let training = Training::new(Arc::clone(&core), runners, images, Arc::clone(&room), reachable);
    let envloop = crate::api::envloop::router(EnvloopParts {
        training: Arc::new(training),
        store: Arc::clone(&store),
        blobs: blobs.clone(),
        logs: logs.clone(),
        accounts: accounts.clone(),
        clock: Arc::clone(&clock),
        key: data.key().clone(),
        public_url: public_url.clone(),
        secure,
    });
    let parts = ApiParts {
        store: Arc::clone(&store),
        admin: Arc::new(admin),
        jobs: Arc::new(jobs.within(Arc::clone(&room))),
        room,
        agents: Arc::new(Agents::new(Arc::clone(&core), Arc::new(logs.clone()))),
        blobs,
        logs,
        rates: catalogued,
        price_sources: Arc::clone(&refresher),
        clock: Arc::clone(&clock),
        ids,
        key: data.key().clone(),
        uploads_valid_for: config.uploads.valid_for(&config_path)?,
        public_url,
        secure,
        closing: closed.clone(),
    };
    let routes =
        router(parts, runwhere_pricing::router_with(Arc::clone(&refresher))).merge(envloop);
    let mut background = vec![
        tokio::spawn(core.run()),
        tokio::spawn(sweeper.run()),
        tokio::spawn(follow(Arc::clone(&marker), Arc::clone(&store), Arc::clone(&clock))),
        tokio::spawn(Arc::clone(&refresher).keep_fresh()),
    ];
    if config.prices.ecb || config.fx.file.is_some() {
        let kept = keep_rates(prices, config.fx.clone(), rates, config.prices.ecb, clock);
        background.push(tokio::spawn(kept));
    }
    let serving = tokio::spawn(server.run(App::new(routes, closed.clone()), closed));
    failpoint!("start.serving");
    let address_path = data.address();
    write_whole(&address_path, &format!("{url}\n"))
        .map_err(|source| ServeError::Io { path: address_path, source })?;
    Ok(Running {
        address,
        url,
        first_token,
        pretending: options.try_locally,
        secure,
        local_exec,
        closing,
        serving,
        background,
        accounts,
        own_keys: Mutex::default(),
        store,
        marker,
        _data: data,
    })
}

/// The address to reach the server from this machine.
fn own_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn ca_pem(tls: &Option<(PathBuf, PathBuf)>) -> Result<Option<String>, ServeError> {
    let Some((chain, _)) = tls else { return Ok(None) };
    std::fs::read_to_string(chain)
        .map(Some)
        .map_err(|source| ServeError::Io { path: chain.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn started(folder: &std::path::Path, listen: SocketAddr) -> Running {
        let options = ServeOptions {
            listen,
            data_dir: folder.to_owned(),
            public_url: None,
            tls: None,
            try_locally: false,
            allow_local_exec: false,
            agent_program: "/bin/false".into(),
            foreign_sources: runwhere_providers::sources::no_foreign,
        };
        start(options).await.unwrap()
    }

    #[tokio::test]
    async fn the_token_of_a_servers_own_client_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let running = started(folder.path(), ([127, 0, 0, 1], 0).into()).await;
        assert!(running.local_exec && !running.secure);
        let token = running.own_token().await.unwrap();
        let accounts = running.accounts.clone();
        assert!(accounts.authenticate(token.expose()).await.is_ok());
        running.stop().await;
        let ended = accounts.authenticate(token.expose()).await;
        assert!(matches!(ended, Err(AccountError::Unauthorized)), "{ended:?}");
    }
}
