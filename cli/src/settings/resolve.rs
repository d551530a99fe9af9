//! From arguments, environment and file to one typed value.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::env;
use super::{ConfigFile, Endpoint, Env, Token};
use crate::failure::{Exit, Failure};
use crate::texts::{self, Lang};

/// The options that stand before or behind every command.
#[derive(Clone, Debug, Default)]
pub struct GlobalArgs {
    /// `--json`
    pub json: bool,
    /// `--explain`
    pub explain: bool,
    /// `--lang`
    pub lang: Option<String>,
    /// `--endpoint`
    pub endpoint: Option<String>,
    /// `-v`, repeated
    pub verbose: u8,
}

/// What every command starts from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Language of texts.
    pub lang: Lang,
    /// Machine output wanted.
    pub json: bool,
    /// Explanations wanted.
    pub explain: bool,
    /// How much diagnostics.
    pub verbose: u8,
    /// The user's folder (`~/.runwhere`).
    pub home: PathBuf,
    /// What `--endpoint` said, for commands that ask no server.
    pub endpoint_argument: Option<String>,
    endpoint: Option<Endpoint>,
    token: Option<Token>,
    embedded: Option<String>,
}

impl Settings {
    /// Resolves everything: arguments win over the environment, which wins over the file.
    ///
    /// # Errors
    /// Exit code 2 for a value that cannot be understood, 1 for an unreadable configuration file.
    pub fn resolve(args: &GlobalArgs, env: &Env) -> Result<Self, Failure> {
        let home = env.runwhere_home().ok_or_else(|| {
            Failure::other("no_home", texts::no_home()).hint(texts::no_home_hint())
        })?;
        let json = match env.get(env::JSON) {
            _ if args.json => true,
            None => false,
            Some(word) => boolean(word).ok_or_else(|| {
                Failure::usage("env_invalid", texts::boolean_invalid(env::JSON, word))
            })?,
        };
        let file = ConfigFile::read(&home)?;
        let endpoint = args
            .endpoint
            .as_deref()
            .or_else(|| env.get(env::ENDPOINT))
            .or_else(|| file.endpoint())
            .map(Endpoint::parse)
            .transpose()?;
        // The stored token belongs to the configured server, in the file or in the variable (as in the published client). It is
        // not handed to whatever else `--endpoint` names on one command line.
        let stored = || {
            let own = env
                .get(env::ENDPOINT)
                .or_else(|| file.endpoint())
                .and_then(|text| Endpoint::parse(text).ok());
            file.token().filter(|_| own == endpoint)
        };
        let token = env.get(env::TOKEN).and_then(Token::new).or_else(stored);
        if let Some(token) = &token
            && !token.is_printable()
        {
            return Err(Failure::usage("token_invalid", texts::token_invalid()));
        }
        Ok(Self {
            lang: lang(args.lang.as_deref(), env)?,
            json,
            explain: args.explain,
            verbose: args.verbose,
            home,
            endpoint_argument: args.endpoint.clone(),
            endpoint,
            token,
            embedded: None,
        })
    }

    /// The configured server, if any.
    #[must_use]
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// The token, if any.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// Server and token, for commands that need both.
    ///
    /// # Errors
    /// Exit code 3 with the advice to log in.
    pub fn login(&self) -> Result<(Endpoint, Token), Failure> {
        match (&self.endpoint, &self.token) {
            (Some(endpoint), Some(token)) => Ok((endpoint.clone(), token.clone())),
            _ => Err(Failure::new(Exit::Server, "not_logged_in", texts::not_logged_in())
                .hint(texts::not_logged_in_hint())),
        }
    }

    /// The same settings for the embedded server of `data_dir`, whose address is another one each time.
    #[must_use]
    pub fn with_embedded(&self, endpoint: Endpoint, token: Token, data_dir: &Path) -> Self {
        Self {
            endpoint: Some(endpoint),
            token: Some(token),
            embedded: Some(format!("embedded:{}", data_dir.display())),
            ..self.clone()
        }
    }

    /// What the embedded server is called in the records of syncs.
    #[must_use]
    pub fn embedded(&self) -> Option<&str> {
        self.embedded.as_deref()
    }
}

fn lang(argument: Option<&str>, env: &Env) -> Result<Lang, Failure> {
    match argument {
        Some(word) => Lang::from_tag(word)
            .ok_or_else(|| Failure::usage("lang_invalid", texts::lang_invalid(word))),
        None => Ok(env
            .get(env::LANGUAGE)
            .and_then(Lang::from_tag)
            .unwrap_or_else(|| texts::lang_of_locale(env.locale()))),
    }
}

/// The value of `RUNWHERE_LANG` where that is no language this program has; the locale decides then.
#[must_use]
pub fn unknown_lang_variable(env: &Env) -> Option<&str> {
    env.get(env::LANGUAGE).filter(|word| Lang::from_tag(word).is_none())
}

/// The language before arguments are parsed, for help pages and for errors in the arguments themselves.
#[must_use]
pub fn early_lang(arguments: &[OsString], env: &Env) -> Lang {
    let mut words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    let mut named = None;
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        if word == "--lang" {
            named = words.next();
        } else if let Some(value) = word.strip_prefix("--lang=") {
            named = Some(value);
        }
    }
    named.and_then(Lang::from_tag).or_else(|| lang(None, env).ok()).unwrap_or_default()
}

fn boolean(word: &str) -> Option<bool> {
    match word.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
        "" | "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn home(config: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.toml"), config).unwrap();
        folder
    }

    fn resolve(
        args: GlobalArgs,
        folder: &tempfile::TempDir,
        vars: &[(&str, &str)],
    ) -> Result<Settings, Failure> {
        let path = folder.path().to_str().unwrap();
        let env = Env::of(vars.iter().copied().chain([("RUNWHERE_HOME", path)]));
        Settings::resolve(&args, &env)
    }

    #[test]
    fn arguments_win_over_environment_over_file() {
        let folder = home("endpoint = \"http://file\"\ntoken = \"from-file\"\n");
        let settings = resolve(GlobalArgs::default(), &folder, &[]).unwrap();
        assert_eq!(settings.endpoint().unwrap().to_string(), "http://file");
        assert_eq!(settings.token().unwrap().reveal(), "from-file");

        let vars = [("RUNW_ENDPOINT", "http://env"), ("RUNW_TOKEN", "from-env")];
        let settings = resolve(GlobalArgs::default(), &folder, &vars).unwrap();
        assert_eq!(settings.endpoint().unwrap().to_string(), "http://env");
        assert_eq!(settings.token().unwrap().reveal(), "from-env");

        let args = GlobalArgs { endpoint: Some("http://arg".into()), ..Default::default() };
        let settings = resolve(args, &folder, &vars).unwrap();
        assert_eq!(settings.endpoint().unwrap().to_string(), "http://arg");
    }

    #[test]
    fn the_stored_token_is_not_sent_to_another_endpoint() {
        let folder = home("endpoint = \"http://file/\"\ntoken = \"from-file\"\n");
        let at =
            |endpoint: &str| GlobalArgs { endpoint: Some(endpoint.into()), ..Default::default() };
        assert!(resolve(at("http://other"), &folder, &[]).unwrap().token().is_none());
        let settings = resolve(at("http://file"), &folder, &[]).unwrap();
        assert!(settings.token().is_some(), "the same address, spelled without the slash");
        let vars = [("RUNW_ENDPOINT", "http://moved")];
        assert!(resolve(GlobalArgs::default(), &folder, &vars).unwrap().token().is_some());
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let folder = home("endpoint = \"http://file\"\ntoken = \"t\"\n");
        let vars = [("RUNW_ENDPOINT", ""), ("RUNW_TOKEN", ""), ("RUNWHERE_JSON", "")];
        let settings = resolve(GlobalArgs::default(), &folder, &vars).unwrap();
        assert_eq!(settings.endpoint().unwrap().to_string(), "http://file");
        assert!(!settings.json);
    }

    #[test]
    fn json_by_variable_reads_the_usual_words() {
        let folder = home("");
        for (word, on) in [("1", true), ("true", true), ("YES", true), ("0", false), ("off", false)]
        {
            let settings =
                resolve(GlobalArgs::default(), &folder, &[("RUNWHERE_JSON", word)]).unwrap();
            assert_eq!(settings.json, on, "{word}");
        }
        assert!(resolve(GlobalArgs::default(), &folder, &[("RUNWHERE_JSON", "maybe")]).is_err());
    }

    #[test]
    fn language_comes_from_argument_then_variable_then_locale() {
        let folder = home("");
        let vars = [("RUNWHERE_LANG", "zh"), ("LANG", "en_US.UTF-8")];
        let args = GlobalArgs { lang: Some("en".into()), ..Default::default() };
        assert_eq!(resolve(args, &folder, &vars).unwrap().lang, Lang::En);
        assert_eq!(resolve(GlobalArgs::default(), &folder, &vars).unwrap().lang, Lang::Zh);
        assert_eq!(resolve(GlobalArgs::default(), &folder, &vars[1..]).unwrap().lang, Lang::En);
        assert_eq!(
            resolve(GlobalArgs::default(), &folder, &[("LANG", "C")]).unwrap().lang,
            Lang::Zh
        );
        let args = GlobalArgs { lang: Some("fr".into()), ..Default::default() };
        assert_eq!(resolve(args, &folder, &[]).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn without_login_the_advice_is_to_log_in() {
        let folder = home("");
        let failure = resolve(GlobalArgs::default(), &folder, &[]).unwrap().login().unwrap_err();
        assert_eq!((failure.exit, failure.code.as_str()), (Exit::Server, "not_logged_in"));
        assert!(
            failure
                .hint
                .as_ref()
                .unwrap()
                .get(Lang::Zh)
                .contains("runwhere login --endpoint <url>")
        );
    }

    #[test]
    fn the_early_language_is_found_anywhere_before_a_double_dash() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let env = Env::default();
        assert_eq!(early_lang(&words("runwhere submit --lang en"), &env), Lang::En);
        assert_eq!(early_lang(&words("runwhere --lang=en"), &env), Lang::En);
        assert_eq!(early_lang(&words("runwhere -- --lang en"), &env), Lang::Zh);
    }
}
