//! `config.toml` in the user's folder: `endpoint` and `token`, as the published client keeps them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use runwhere_broker::serve::read_settings;

use super::Token;
use crate::failure::Failure;
use crate::texts;

/// The configuration file. Keys it does not know are kept.
#[derive(Debug, Default)]
pub struct ConfigFile {
    path: PathBuf,
    table: toml::Table,
}

impl ConfigFile {
    /// Reads `config.toml` in `home`; a missing file is an empty one.
    ///
    /// # Errors
    /// Exit code 2 when the file is no TOML, 1 when it cannot be read. The text never quotes the file: it holds a token.
    pub fn read(home: &Path) -> Result<Self, Failure> {
        let path = home.join("config.toml");
        let text = match read_settings(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Failure::other(
                    "config_unreadable",
                    texts::file_unreadable(path.display(), error),
                ));
            }
        };
        let table = text.parse::<toml::Table>().map_err(|_| {
            Failure::usage("config_invalid", texts::config_invalid(path.display()))
                .hint(texts::config_invalid_hint())
        })?;
        Ok(Self { path, table })
    }

    /// The stored address.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.text("endpoint")
    }

    /// The stored token.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.text("token").and_then(Token::new)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.table.get(key).and_then(toml::Value::as_str).filter(|text| !text.is_empty())
    }

    /// Stores address and token.
    ///
    /// # Errors
    /// Exit code 1 when the file cannot be written.
    pub fn save_login(&mut self, endpoint: &str, token: &Token) -> Result<(), Failure> {
        self.table.insert("endpoint".into(), endpoint.into());
        self.table.insert("token".into(), token.reveal().into());
        self.write()
    }

    /// Forgets address and token. Returns whether there was anything to forget.
    ///
    /// # Errors
    /// Exit code 1 when the file cannot be written.
    pub fn forget_login(&mut self) -> Result<bool, Failure> {
        let had = self.table.remove("token").is_some() | self.table.remove("endpoint").is_some();
        if had {
            self.write()?;
        }
        Ok(had)
    }

    fn write(&self) -> Result<(), Failure> {
        write_private(&self.path, self.table.to_string().as_bytes()).map_err(|error| {
            Failure::other("config_unwritable", texts::file_unwritable(self.path.display(), error))
        })
    }
}

/// Makes `dir` (0700) with its parents.
///
/// # Errors
/// What the file system answers.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// Replaces `path` by `bytes` in one step (0600, folder 0700): another process sees the old or the new content, never a part.
///
/// # Errors
/// What the file system answers; the old content then stands.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    private_dir(dir)?;
    let temporary = dir.join(format!(".{}.tmp", uuid::Uuid::new_v4().simple()));
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(dir)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_stored_privately_and_keeps_foreign_keys() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        fs::write(home.join("config.toml"), "theme = \"dark\"\n").unwrap();
        let mut file = ConfigFile::read(&home).unwrap();
        file.save_login("http://a", &Token::new("secret").unwrap()).unwrap();

        let stored = fs::read_to_string(home.join("config.toml")).unwrap();
        assert!(stored.contains("theme = \"dark\""));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home), 0o700);
        assert_eq!(mode(&home.join("config.toml")), 0o600);
        assert_eq!(fs::read_dir(&home).unwrap().count(), 1, "no temporary file stays");

        let again = ConfigFile::read(&home).unwrap();
        assert_eq!(again.endpoint(), Some("http://a"));
        assert_eq!(again.token().unwrap().reveal(), "secret");
    }

    #[test]
    fn a_damaged_file_is_named_but_never_quoted() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.toml"), "token = \"s3cret\nx").unwrap();
        let failure = ConfigFile::read(folder.path()).unwrap_err();
        let shown = format!("{failure:?}");
        assert!(shown.contains("config.toml") && !shown.contains("s3cret"));
    }

    #[test]
    fn logout_forgets_address_and_token() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = ConfigFile::read(folder.path()).unwrap();
        file.save_login("http://a", &Token::new("t").unwrap()).unwrap();
        assert!(file.forget_login().unwrap());
        assert!(!file.forget_login().unwrap());
        let again = ConfigFile::read(folder.path()).unwrap();
        assert_eq!((again.endpoint(), again.token()), (None, None));
    }
}
