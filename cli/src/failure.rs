//! How a command fails: exit code, machine-readable code, sentence, remedy.

use serde_json::{Map, Value, json};

use crate::texts::{Lang, Text};

/// The documented exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything worked.
    Ok = 0,
    /// Something on this machine went wrong.
    Other = 1,
    /// The arguments or an input file are wrong.
    Usage = 2,
    /// The server answered with an error, or there is no login.
    Server = 3,
    /// The server could not be reached.
    Network = 4,
    /// The followed job did not succeed.
    JobFailed = 10,
    /// Interrupted by the user.
    Interrupted = 130,
}

/// A failed command. Printed once, at the very end, by [`crate::entry`].
#[derive(Debug)]
pub struct Failure(Box<Account>);

/// What a [`Failure`] tells.
#[derive(Debug)]
pub struct Account {
    /// Exit code of the process.
    pub exit: Exit,
    /// Stable machine-readable word.
    pub code: String,
    /// What went wrong.
    pub message: Text,
    /// What to do about it.
    pub hint: Option<Text>,
    /// Further fields of the JSON form.
    pub details: Map<String, Value>,
    /// Everything was already said; only the exit code is left.
    pub silent: bool,
}

impl std::ops::Deref for Failure {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.0
    }
}

impl Failure {
    /// A failure with a code of its own.
    pub fn new(exit: Exit, code: impl Into<String>, message: Text) -> Self {
        let (code, hint, details) = (code.into(), None, Map::new());
        Self(Box::new(Account { exit, code, message, hint, details, silent: false }))
    }

    /// Wrong arguments or input: exit code 2.
    pub fn usage(code: impl Into<String>, message: Text) -> Self {
        Self::new(Exit::Usage, code, message)
    }

    /// Something on this machine went wrong: exit code 1.
    pub fn other(code: impl Into<String>, message: Text) -> Self {
        Self::new(Exit::Other, code, message)
    }

    /// Ends the process with `exit`, without another word.
    #[must_use]
    pub fn silent(exit: Exit) -> Self {
        let mut failure = Self::new(exit, "", Text::same(""));
        failure.0.silent = true;
        failure
    }

    /// The same with another exit code.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.0.exit = exit;
        self
    }

    /// Adds the remedy.
    #[must_use]
    pub fn hint(mut self, hint: Text) -> Self {
        self.0.hint = Some(hint);
        self
    }

    /// Adds a field to the JSON form.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(key.to_owned(), value.into());
        self
    }

    /// The JSON form: `{"error":{"code","message","hint",…}}`.
    #[must_use]
    pub fn to_json(&self, lang: Lang) -> Value {
        let mut error = self.details.clone();
        error.insert("code".to_owned(), json!(self.code));
        error.insert("message".to_owned(), json!(self.message.get(lang)));
        error.insert(
            "hint".to_owned(),
            self.hint.as_ref().map_or(Value::Null, |hint| json!(hint.get(lang))),
        );
        error.insert("exit_code".to_owned(), json!(self.exit as u8));
        json!({ "error": error })
    }
}

/// What commands return.
pub type Outcome<T = ()> = Result<T, Failure>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texts;

    #[test]
    fn the_json_form_carries_code_message_hint_and_details() {
        let failure = Failure::usage("yaml_missing", texts::yaml_missing("a.yaml"))
            .hint(texts::yaml_missing_hint())
            .detail("path", "a.yaml");
        let json = failure.to_json(Lang::En);
        assert_eq!(json["error"]["code"], "yaml_missing");
        assert_eq!(json["error"]["path"], "a.yaml");
        assert_eq!(json["error"]["exit_code"], 2);
        assert!(json["error"]["hint"].is_string());
    }
}
