//! What can go wrong between this program and a server.

use serde_json::Value;

use super::View;
use crate::failure::{Exit, Failure};
use crate::texts;

/// An answer with status 400 or above.
#[derive(Clone, Debug)]
pub struct ServerError {
    /// HTTP status.
    pub status: u16,
    /// `code` of the error body.
    pub code: Option<i64>,
    /// `message` of the error body.
    pub message: Option<String>,
    /// `detail` of the error body, null when absent.
    pub detail: Value,
}

impl ServerError {
    /// Reads an error answer; bodies of any shape are accepted.
    #[must_use]
    pub fn read(status: u16, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let view = View(&body);
        Self {
            status,
            code: view.integer("code"),
            message: view.text("message"),
            detail: view.get("detail").cloned().unwrap_or(Value::Null),
        }
    }

    /// Whether the server wants the user's word before it goes beyond a quota.
    #[must_use]
    pub fn wants_confirmation(&self) -> bool {
        self.code == Some(4030)
            && match &self.detail["requires_confirmation"] {
                Value::Bool(flag) => *flag,
                Value::Null => false,
                _ => true,
            }
    }
}

/// A failed call.
#[derive(Clone, Debug)]
pub enum ApiError {
    /// The server answered with an error.
    Server(ServerError),
    /// The server could not be reached, or the connection broke. `sent`: the request may have arrived.
    Network {
        /// What happened, without secrets.
        reason: String,
        /// Whether the request may have had its effect.
        sent: bool,
    },
    /// The server answered with something that is no JSON object.
    Unreadable {
        /// HTTP status.
        status: u16,
    },
    /// The server pointed elsewhere; this program does not follow.
    Redirect {
        /// HTTP status.
        status: u16,
        /// Where to, if it said so.
        location: Option<String>,
    },
}

impl ApiError {
    /// The HTTP status of an error answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Server(error) => Some(error.status),
            _ => None,
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Server(error) => server_failure(&error),
            ApiError::Network { reason, sent } => {
                Self::new(Exit::Network, "network", texts::network(reason))
                    .hint(texts::network_hint())
                    .detail("request_may_have_arrived", sent)
            }
            ApiError::Unreadable { status } => {
                Self::new(Exit::Server, "answer_unreadable", texts::answer_unreadable(status))
                    .hint(texts::answer_unreadable_hint())
                    .detail("status", status)
            }
            ApiError::Redirect { status, location } => {
                let location = location.unwrap_or_else(|| "?".to_owned());
                Self::new(Exit::Server, "redirect", texts::redirected(status, &location))
                    .hint(texts::redirected_hint())
                    .detail("status", status)
                    .detail("location", location)
            }
        }
    }
}

fn server_failure(error: &ServerError) -> Failure {
    let detail = View(&error.detail);
    let message = match &error.message {
        Some(message) => texts::Text::same(message.clone()),
        None if error.status == 404 => texts::job_unknown(),
        None => texts::server_status(error.status),
    };
    let code =
        detail.first_text(&["error", "code", "reason"]).unwrap_or_else(|| match error.status {
            401 | 403 => "not_allowed".to_owned(),
            404 => "not_found".to_owned(),
            409 => "conflict".to_owned(),
            429 => "throttled".to_owned(),
            500.. => "server_error".to_owned(),
            _ => "refused".to_owned(),
        });
    let mut failure = Failure::new(Exit::Server, code, message).detail("status", error.status);
    if let Some(code) = error.code {
        failure = failure.detail("server_code", code);
    }
    if !error.detail.is_null() {
        failure = failure.detail("detail", error.detail.clone());
    }
    match detail.first_text(&["suggestion", "hint"]) {
        Some(suggestion) => failure.hint(texts::Text::same(suggestion)),
        None if error.status == 401 => failure.hint(texts::not_logged_in_hint()),
        None if error.status >= 500 => failure.hint(texts::network_hint()),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::texts::Lang;

    #[test]
    fn any_error_body_gives_a_sentence_and_exit_code_three() {
        for body in
            [&b""[..], b"<html>", b"[]", b"\"x\"", b"{\"detail\":\"x\"}", b"{\"message\":null}"]
        {
            let failure = Failure::from(ApiError::Server(ServerError::read(500, body)));
            assert_eq!(failure.exit, Exit::Server);
            assert!(!failure.message.get(Lang::Zh).is_empty());
        }
    }

    #[test]
    fn a_missing_job_reads_as_in_the_document() {
        let failure = Failure::from(ApiError::Server(ServerError::read(404, b"{}")));
        assert_eq!(failure.message.get(Lang::Zh), "任务不存在或无权访问");
    }

    #[test]
    fn confirmation_needs_code_and_flag() {
        let error = |body: Value| ServerError::read(403, body.to_string().as_bytes());
        assert!(
            error(json!({"code": 4030, "detail": {"requires_confirmation": true}}))
                .wants_confirmation()
        );
        assert!(!error(json!({"code": 4030, "detail": {}})).wants_confirmation());
        assert!(
            !error(json!({"code": 4031, "detail": {"requires_confirmation": true}}))
                .wants_confirmation()
        );
    }
}
