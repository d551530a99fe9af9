//! Where the server is and who we are: environment, then the published client's files.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::failure::{ElFailure, Outcome};
use crate::settings::Env;
use crate::texts::el as texts;

const MOST_BYTES: u64 = 64 << 10;

/// The settings in force.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    pub(super) url: Option<String>,
    pub(super) key: Option<String>,
    pub(super) workspace: Option<String>,
    pub(super) project: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Saved {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) api_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workspace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) project_id: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct File {
    version: u32,
    #[serde(default)]
    connection: Saved,
}

/// The folder of the files.
#[derive(Debug)]
pub(super) struct Store(PathBuf);

fn insecure(path: &Path) -> ElFailure {
    ElFailure::local("CONFIG_INSECURE_PATH", texts::path_insecure(path.display()))
}

fn invalid(path: &Path) -> ElFailure {
    ElFailure::local("INVALID_CONFIG", texts::file_invalid(path.display()))
}

fn io(path: &Path, error: &std::io::Error) -> ElFailure {
    ElFailure::local("FILE_ERROR", texts::file_failed(path.display(), error))
}

impl Store {
    pub(super) fn of(env: &Env) -> Outcome<Self> {
        if let Some(home) = env.get("ENVLOOP_HOME") {
            let home = PathBuf::from(home);
            if !home.is_absolute() {
                return Err(ElFailure::local("INVALID_ENVLOOP_HOME", texts::home_relative()));
            }
            return Ok(Self(home));
        }
        let home = env.get("HOME").map(PathBuf::from);
        let home =
            home.ok_or_else(|| ElFailure::local("INVALID_ENVLOOP_HOME", texts::home_missing()))?;
        Ok(Self(home.join(".envloop")))
    }

    fn read(&self, name: &str) -> Outcome<Option<String>> {
        let folder = match fs::symlink_metadata(&self.0) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(&self.0, &error)),
        };
        let us = rustix::process::geteuid().as_raw();
        if !folder.is_dir() || folder.mode() & 0o077 != 0 || folder.uid() != us {
            return Err(insecure(&self.0));
        }
        let path = self.0.join(name);
        let file = match fs::symlink_metadata(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(&path, &error)),
        };
        let ours = file.is_file() && file.uid() == us && file.nlink() == 1;
        if !ours || file.mode() & 0o077 != 0 {
            return Err(insecure(&path));
        }
        if file.len() > MOST_BYTES {
            return Err(ElFailure::local(
                "CONFIG_TOO_LARGE",
                texts::file_too_large(path.display()),
            ));
        }
        fs::read_to_string(&path).map(Some).map_err(|error| io(&path, &error))
    }

    fn write(&self, name: &str, content: &str) -> Outcome<()> {
        let path = self.0.join(name);
        let temp = self.0.join(format!(".{name}.{}", std::process::id()));
        let write = || -> std::io::Result<()> {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
            fs::set_permissions(&self.0, fs::Permissions::from_mode(0o700))?;
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temp, &path)
        };
        write().map_err(|error| io(&path, &error))
    }

    pub(super) fn saved(&self) -> Outcome<Saved> {
        let Some(text) = self.read("config.toml")? else { return Ok(Saved::default()) };
        let file: File = toml::from_str(&text).map_err(|_| invalid(&self.0.join("config.toml")))?;
        Ok(file.connection)
    }

    pub(super) fn save(&self, saved: &Saved) -> Outcome<()> {
        let file = File { version: 1, connection: saved.clone() };
        let text = toml::to_string(&file).map_err(|_| invalid(&self.0))?;
        self.write("config.toml", &text)
    }

    fn credentials(&self) -> Outcome<Map<String, Value>> {
        let Some(text) = self.read("auth.json")? else { return Ok(Map::new()) };
        let value: Value =
            serde_json::from_str(&text).map_err(|_| invalid(&self.0.join("auth.json")))?;
        match value["credentials"].as_object() {
            Some(credentials) => Ok(credentials.clone()),
            None => Err(invalid(&self.0.join("auth.json"))),
        }
    }

    fn key(&self, url: &str, saved: [Option<&str>; 2]) -> Outcome<Option<String>> {
        let credentials = self.credentials()?;
        let Some(entry) = credentials.get(url) else { return Ok(None) };
        let [workspace, project] = saved;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let own = match (workspace, project) {
            (Some(workspace), Some(project)) => text(&entry["project_keys"][workspace][project]),
            (Some(workspace), None) => text(&entry["workspace_keys"][workspace]),
            _ => None,
        };
        Ok(own.or_else(|| text(&entry["api_key"])))
    }

    /// Stores a key for a server.
    pub(super) fn save_key(&self, url: &str, key: &str) -> Outcome<()> {
        let mut credentials = self.credentials()?;
        let entry = credentials.entry(url.to_owned()).or_insert_with(|| json!({}));
        entry["api_key"] = key.into();
        let whole = json!({ "version": 1, "credentials": credentials });
        let text = serde_json::to_string_pretty(&whole).unwrap_or_default();
        self.write("auth.json", &format!("{text}\n"))
    }
}

/// A base URL in its one form.
pub(super) fn normal(url: &str) -> Outcome<String> {
    let wrong = || ElFailure::local("INVALID_API_URL", texts::url_invalid());
    let parsed = reqwest::Url::parse(url.trim()).map_err(|_| wrong())?;
    let host = parsed.host_str().ok_or_else(wrong)?.to_owned();
    let local = matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1" | "[::1]");
    let scheme = parsed.scheme();
    let plain = parsed.username().is_empty() && parsed.password().is_none();
    if !plain || parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(wrong());
    }
    if !(scheme == "https" || scheme == "http" && local) {
        return Err(wrong());
    }
    let path = parsed.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path);
    if !matches!(path, "" | "/api") {
        return Err(wrong());
    }
    let port = parsed.port().map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("{scheme}://{host}{port}{path}"))
}

/// Whether a text may be a key.
pub(super) fn key_is_good(key: &str) -> bool {
    (1..=512).contains(&key.len())
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._~-".contains(&b))
}

impl Connection {
    /// The settings in force.
    pub(super) fn resolve(env: &Env) -> Outcome<Self> {
        let store = Store::of(env)?;
        let saved = store.saved()?;
        let get = |name: &str| env.get(name).map(str::to_owned);
        let url = get("ENVLOOP_BASE_URL").or_else(|| get("ENVPLATFORM_API_URL")).or(saved.api_url);
        let url = url.as_deref().map(normal).transpose()?;
        let workspace = get("ENVLOOP_WORKSPACE_ID").or(saved.workspace_id);
        let project = get("ENVLOOP_PROJECT_ID").or(saved.project_id);
        let key = match (get("ENVLOOP_API_KEY"), &url) {
            (Some(key), _) => Some(key),
            (None, Some(url)) => store.key(url, [workspace.as_deref(), project.as_deref()])?,
            (None, None) => None,
        };
        if key.as_deref().is_some_and(|key| !key_is_good(key)) {
            return Err(ElFailure::local("INVALID_API_KEY", texts::key_invalid()));
        }
        Ok(Self { url, key, workspace, project })
    }

    pub(super) fn require_url(&self) -> Outcome<&str> {
        self.url.as_deref().ok_or_else(|| {
            ElFailure::local("API_URL_REQUIRED", texts::no_server()).hint(
                "执行 el auth config set base-url http://127.0.0.1:8080",
                "run `el auth config set base-url http://127.0.0.1:8080`",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_have_one_form() {
        for (given, normal_form) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("https://el.example.com/v1", "https://el.example.com"),
            ("https://el.example.com/api/v1/", "https://el.example.com/api"),
        ] {
            assert_eq!(normal(given).unwrap(), normal_form);
        }
        for bad in
            ["http://el.example.com", "ftp://x", "https://u:p@x", "https://x/y", "https://x?a", ""]
        {
            assert!(normal(bad).is_err(), "{bad}");
        }
        assert!(key_is_good("epk_abc.~-") && !key_is_good("a b") && !key_is_good(""));
    }
}
