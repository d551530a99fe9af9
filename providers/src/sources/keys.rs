//! The access key of an account: a name, a secret and, for temporary keys, a token.

use secrecy::{ExposeSecret, SecretString};

use super::secret::SecretSetting;
use super::settings::SettingError;

/// Where one part of a key may stand.
#[derive(Clone, Copy, Debug)]
pub struct KeyPart<'a> {
    /// What the settings say.
    pub setting: Option<&'a SecretSetting>,
    /// The setting's name.
    pub field: &'static str,
    /// The variable of the environment that is read without a setting.
    pub variable: &'static str,
}

impl<'a> KeyPart<'a> {
    /// A part by its setting and what it is called there and in the environment.
    pub fn new(
        setting: &'a Option<SecretSetting>,
        field: &'static str,
        variable: &'static str,
    ) -> Self {
        Self { setting: setting.as_ref(), field, variable }
    }

    fn find(self, env: &Env<'_>) -> Result<Option<SecretString>, SettingError> {
        SecretSetting::find(self.setting, self.field, &[self.variable], env)
    }

    fn need(self, env: &Env<'_>) -> Result<SecretString, SettingError> {
        SecretSetting::need(self.setting, self.field, &[self.variable], env)
    }
}

type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// A key. Its `Debug` shows nothing of it.
#[derive(Clone, Debug)]
pub struct AccessKeys {
    id: SecretString,
    secret: SecretString,
    token: Option<SecretString>,
}

impl AccessKeys {
    /// The key; a part that is missing is an error that says where to put it.
    pub fn need(
        id: KeyPart<'_>,
        secret: KeyPart<'_>,
        token: Option<KeyPart<'_>>,
        env: &Env<'_>,
    ) -> Result<Self, SettingError> {
        let (id, secret) = (id.need(env)?, secret.need(env)?);
        let token = token.map(|token| token.find(env)).transpose()?.flatten();
        Ok(Self { id, secret, token })
    }

    /// The key; `None` where there is nothing of it, an error where there is only a half.
    pub fn find(
        id: KeyPart<'_>,
        secret: KeyPart<'_>,
        token: Option<KeyPart<'_>>,
        env: &Env<'_>,
    ) -> Result<Option<Self>, SettingError> {
        match (id.find(env)?, secret.find(env)?) {
            (None, None) => Ok(None),
            _ => Self::need(id, secret, token, env).map(Some),
        }
    }

    /// The key's name.
    pub fn id(&self) -> &str {
        self.id.expose_secret()
    }

    /// What calls are signed with.
    pub fn secret(&self) -> &str {
        self.secret.expose_secret()
    }

    /// What temporary keys send along.
    pub fn token(&self) -> Option<&str> {
        self.token.as_ref().map(ExposeSecret::expose_secret)
    }

    /// What no error may show.
    pub fn secrets(&self) -> impl Iterator<Item = SecretString> + use<> {
        [Some(self.secret.clone()), self.token.clone()].into_iter().flatten()
    }
}
