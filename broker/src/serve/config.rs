//! The server's settings file, `<data-dir>/config.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runwhere_engine::Quota;
use runwhere_model::Money;
use runwhere_pricing::FxSettings;
use runwhere_providers::local::{DockerRuntime, GpuList, UidRange};
use runwhere_providers::sources::SourceSettings;
use serde::Deserialize;

use crate::runners::OciSettings;

/// All settings; every one has a default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// This machine as a provider.
    pub local: LocalSettings,
    /// Registries of container images.
    pub images: ImageSettings,
    /// Exchange rates.
    pub fx: FxSettings,
    /// Prices.
    pub prices: PriceSettings,
    /// Sources of prices by the provider's id.
    pub providers: BTreeMap<String, SourceSettings>,
    /// Uploads of synced files.
    pub uploads: UploadSettings,
    /// Projects by id.
    pub projects: BTreeMap<String, ProjectSettings>,
}

/// `[prices]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceSettings {
    /// Price lists that need no account are read too.
    pub public: bool,
    /// The daily reference rates of the ECB are read (rates from the euro).
    pub ecb: bool,
}

/// `[images]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImageSettings {
    /// Registries that speak plain HTTP, `name` or `name:port`.
    pub plain_http: Vec<String>,
    /// Certificates to trust in addition, a PEM file.
    pub ca_file: Option<PathBuf>,
}

/// How jobs with an image run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum RunIn {
    /// As plain processes; images are not used.
    #[default]
    Process,
    /// In containers of Docker or Podman.
    Docker,
}

/// `[local]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalSettings {
    /// Whether the machine is offered at all.
    pub enabled: bool,
    /// GPUs such as `"a100-80g:8"`; detected when absent.
    pub gpus: Option<String>,
    /// Price of one GPU for one hour such as `"36.44 CNY"`.
    pub price_per_hour: Option<String>,
    /// Whose rights user code has, where the server is root.
    pub run_as: RunAs,
    /// First and last user id that user code may run as; 61184 to 65519 when absent.
    pub run_as_uids: Option<(u32, u32)>,
    /// Holds the work folders of user code that runs as a user of its own; every user must be able
    /// to reach it. `/var/tmp/runwhere-<deployment>` when absent.
    pub work_root: Option<PathBuf>,
    /// How jobs of published runners run.
    pub runtime: RunIn,
    /// Socket of the container engine; `/var/run/docker.sock` when absent.
    pub docker_socket: Option<PathBuf>,
    /// Network of containers; the engine's own choice when absent.
    pub docker_network: Option<String>,
}

/// `[uploads]`
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UploadSettings {
    /// How long an upload address is valid, in seconds.
    pub valid_seconds: u64,
}

impl Default for UploadSettings {
    fn default() -> Self {
        Self { valid_seconds: 24 * 3600 }
    }
}

/// Whose rights user code has on this machine.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum RunAs {
    /// Each allocation's programs are a user of their own where the server is root, and have the
    /// server's rights where it is not.
    #[default]
    OwnUsers,
    /// The server's, also where that is root: such programs can read everything of this machine.
    Server,
}

impl Default for LocalSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            gpus: None,
            price_per_hour: None,
            run_as: RunAs::default(),
            run_as_uids: None,
            work_root: None,
            runtime: RunIn::default(),
            docker_socket: None,
            docker_network: None,
        }
    }
}

/// `[projects.<id>]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProjectSettings {
    /// The tenant it belongs to, `default` without; both are made at the start where they are new.
    pub workspace: Option<String>,
    /// GPUs above which a submit needs the user's confirmation.
    pub confirm_above_gpus: Option<u32>,
    /// GPUs above which a submit is refused.
    pub max_gpus: Option<u32>,
    /// What an overage costs, shown with the question.
    pub overage_unit_price: Option<String>,
    /// Hard budget such as `"1000 CNY"`.
    pub budget: Option<String>,
    /// Launches where nothing ends a node without us are allowed.
    pub consent_no_deadman: bool,
}

impl ProjectSettings {
    /// The quota part.
    pub fn quota(&self) -> Quota {
        Quota {
            confirm_above: self.confirm_above_gpus,
            hard_limit: self.max_gpus,
            overage_unit_price: self.overage_unit_price.clone(),
        }
    }
}

/// Why settings are refused; names the file, the field and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not valid TOML, or has an unknown or wrongly typed field.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What and where.
        message: String,
    },
    /// A field has a value that cannot be used.
    #[error("{}: {field}: {message}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong and what is expected.
        message: String,
    },
}

impl ServerConfig {
    /// Reads the file; a missing one means defaults.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = match read_settings(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
        };
        let mut config: Self = toml::from_str(&text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        if let (Some(file), Some(folder)) = (&mut config.fx.file, path.parent()) {
            *file = folder.join(&*file);
        }
        config.local.gpu_list(path)?;
        config.local.price(path)?;
        config.local.own_users(path, true)?;
        config.uploads.valid_for(path)?;
        config.local.containers(path)?;
        for (id, project) in &config.projects {
            project.budget(path, id)?;
        }
        Ok(config)
    }
}

impl ImageSettings {
    /// How registries are reached.
    pub fn oci(&self, path: &Path) -> Result<OciSettings, ConfigError> {
        let ca_pem = match &self.ca_file {
            None => None,
            Some(file) => {
                Some(std::fs::read(file).map_err(|error| field(path, "images.ca_file", &error))?)
            }
        };
        Ok(OciSettings { plain_http: self.plain_http.clone(), ca_pem })
    }
}

impl LocalSettings {
    /// The parsed GPU list.
    pub fn gpu_list(&self, path: &Path) -> Result<Option<GpuList>, ConfigError> {
        self.gpus
            .as_deref()
            .map(|text| text.parse::<GpuList>().map_err(|error| field(path, "local.gpus", &error)))
            .transpose()
    }

    /// The user ids of user code; `None` where it has the server's rights.
    pub fn own_users(&self, path: &Path, root: bool) -> Result<Option<UidRange>, ConfigError> {
        match (self.run_as, self.run_as_uids) {
            (RunAs::Server, Some(_)) => {
                let message = "has no meaning with run_as = \"server\"; leave one of them out";
                Err(field(path, "local.run_as_uids", &message))
            }
            (RunAs::Server, None) => Ok(None),
            (RunAs::OwnUsers, None) => Ok(root.then_some(UidRange::DYNAMIC)),
            (RunAs::OwnUsers, Some((first, last))) => {
                let count = last.checked_sub(first).and_then(|more| more.checked_add(1));
                let ids = count.filter(|_| first >= 1000).map(|count| UidRange { first, count });
                let message = "expected the first and the last of some user ids from 1000 on, such \
                               as [20000, 20063]";
                ids.map(Some).ok_or_else(|| field(path, "local.run_as_uids", &message))
            }
        }
    }

    /// The container engine; `None` where jobs run as plain processes.
    pub fn containers(&self, path: &Path) -> Result<Option<DockerRuntime>, ConfigError> {
        let named = self.docker_socket.is_some() || self.docker_network.is_some();
        match self.runtime {
            RunIn::Process if named => {
                let message = "has no meaning without runtime = \"docker\"";
                Err(field(path, "local.docker_socket or docker_network", &message))
            }
            RunIn::Process => Ok(None),
            RunIn::Docker => {
                let socket = self.docker_socket.clone();
                let socket = socket.unwrap_or_else(|| PathBuf::from("/var/run/docker.sock"));
                if !socket.is_absolute() {
                    return Err(field(path, "local.docker_socket", &"expected an absolute path"));
                }
                Ok(Some(DockerRuntime { socket, network: self.docker_network.clone() }))
            }
        }
    }

    /// The parsed price.
    pub fn price(&self, path: &Path) -> Result<Option<Money>, ConfigError> {
        self.price_per_hour
            .as_deref()
            .map(|text| match text.parse::<Money>() {
                Ok(price) if price.amount > rust_decimal::Decimal::ZERO => Ok(price),
                Ok(_) => Err(field(path, "local.price_per_hour", &"expected more than 0")),
                Err(error) => Err(field(path, "local.price_per_hour", &error)),
            })
            .transpose()
    }
}

impl UploadSettings {
    /// The checked span.
    pub fn valid_for(&self, path: &Path) -> Result<Duration, ConfigError> {
        const WEEK: u64 = 7 * 24 * 3600;
        match self.valid_seconds {
            1..=WEEK => Ok(Duration::from_secs(self.valid_seconds)),
            _ => Err(field(path, "uploads.valid_seconds", &"expected 1 to 604800, a week")),
        }
    }
}

impl ProjectSettings {
    /// The parsed budget.
    pub fn budget(&self, path: &Path, id: &str) -> Result<Option<Money>, ConfigError> {
        self.budget
            .as_deref()
            .map(|text| {
                let wrong = |error: &dyn std::fmt::Display| {
                    field(path, &format!("projects.{id}.budget"), error)
                };
                let budget = text.parse::<Money>().map_err(|error| wrong(&error))?;
                match budget.amount.is_sign_negative() {
                    true => Err(wrong(&"must not be negative; 0 lets nothing be launched")),
                    false => Ok(budget),
                }
            })
            .transpose()
    }
}

/// A settings file holds far less.
const MOST_SETTINGS: u64 = 1 << 20;

/// Reads a settings file. Only a file of some size is read: a pipe would be waited for, and a device has no end.
pub fn read_settings(path: &Path) -> std::io::Result<String> {
    let data = std::fs::metadata(path)?;
    let refused = |why| Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    if !data.is_file() {
        return refused("not a regular file");
    }
    if data.len() > MOST_SETTINGS {
        return refused("longer than 1 MiB");
    }
    std::fs::read_to_string(path)
}

fn field(path: &Path, field: &str, error: &dyn std::fmt::Display) -> ConfigError {
    ConfigError::Field {
        path: path.to_owned(),
        field: field.to_owned(),
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServerConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        ServerConfig::read(&path).map_err(|error| error.to_string())
    }

    /// The page for operators shows a file that works, with every key there is.
    #[test]
    fn the_documented_example_is_read() {
        let page = include_str!("../../../docs/config.md");
        let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        let config = read(example.unwrap()).unwrap();
        // Without `..`: a new key must be shown too.
        let ServerConfig { local, images, fx, prices, providers, uploads, projects } = config;
        assert_eq!(uploads.valid_seconds, 3600);
        let LocalSettings {
            enabled,
            gpus,
            price_per_hour,
            run_as,
            run_as_uids,
            work_root,
            runtime,
            docker_socket,
            docker_network,
        } = local;
        assert_eq!(runtime, RunIn::Docker);
        assert_eq!(docker_socket, Some(PathBuf::from("/run/podman/podman.sock")));
        assert_eq!(docker_network.as_deref(), Some("bridge"));
        let ImageSettings { plain_http, ca_file } = images;
        assert_eq!(plain_http, ["registry.lan:5000"]);
        assert_eq!(ca_file, Some(PathBuf::from("/etc/ssl/registry-ca.pem")));
        assert!(enabled);
        let PriceSettings { public, ecb } = prices;
        assert!(public && ecb);
        assert!(matches!(providers["vast"], SourceSettings::Vast(_)));
        assert_eq!(gpus.as_deref(), Some("a100-80g:8"));
        assert_eq!(price_per_hour.as_deref(), Some("36.44 CNY"));
        assert_eq!((run_as, run_as_uids), (RunAs::OwnUsers, Some((20_000, 20_063))));
        assert_eq!(work_root, Some(PathBuf::from("/data/jobs")));
        let FxSettings { max_age_days, file, rates } = &fx;
        assert_eq!((*max_age_days, rates.len()), (Some(90), 1));
        assert_eq!(file.as_deref(), Some(Path::new("/etc/runwhere/rates.csv")));
        runwhere_pricing::FxTable::new(&FxSettings { file: None, ..fx }).unwrap();
        let ProjectSettings {
            workspace: None,
            confirm_above_gpus: Some(8),
            max_gpus: Some(16),
            overage_unit_price: Some(_),
            budget: Some(_),
            consent_no_deadman: false,
        } = &projects["default"]
        else {
            panic!("{projects:?}");
        };
        assert_eq!(projects["vision"].workspace.as_deref(), Some("acme"));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        assert!(read("").is_ok());
        for (text, named) in [
            ("[local]\ngpu = \"t4:1\"", "gpu"),
            ("[local]\ngpus = \"t5:1\"", "local.gpus"),
            ("[local]\nprice_per_hour = \"36.44\"", "local.price_per_hour"),
            ("[local]\nprice_per_hour = \"0 CNY\"", "local.price_per_hour"),
            ("[local]\nrun_as_uids = [20063, 20000]", "local.run_as_uids"),
            ("[local]\nrun_as_uids = [0, 10]", "local.run_as_uids"),
            ("[uploads]\nvalid_seconds = 0", "uploads.valid_seconds"),
            ("[projects.a]\nbudget = \"much\"", "projects.a.budget"),
            ("[projects.a]\nbudget = \"-5 CNY\"", "projects.a.budget"),
            ("[fx]\nmax_age = 3", "max_age"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(named) && error.contains("config.toml"), "{error}");
        }
    }

    #[test]
    fn settings_are_read_from_files_only() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("config.toml");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // A pipe without a writer would be waited for.
        for path in [pipe.as_path(), Path::new("/dev/zero"), folder.path()] {
            let error = ServerConfig::read(path).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
        let long = folder.path().join("long.toml");
        std::fs::write(&long, vec![b'#'; MOST_SETTINGS as usize + 1]).unwrap();
        assert!(ServerConfig::read(&long).is_err());
    }

    #[test]
    fn root_gives_its_rights_away_only_when_told_to() {
        let users =
            |text: &str, root| read(text).unwrap().local.own_users(Path::new(""), root).unwrap();
        assert_eq!(users("", true), Some(UidRange::DYNAMIC));
        assert_eq!(users("", false), None);
        assert_eq!(users("[local]\nrun_as = \"server\"", true), None);
        let range = UidRange { first: 70_000, count: 10 };
        assert_eq!(users("[local]\nrun_as_uids = [70000, 70009]", true), Some(range));
        for (text, word) in [
            ("[local]\nrun_as = \"none\"", "own_users"),
            ("[local]\nrun_as_uids = [70009, 70000]", "local.run_as_uids"),
            ("[local]\nrun_as = \"server\"\nrun_as_uids = [70000, 70009]", "leave one"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
