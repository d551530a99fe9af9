//! What can go wrong with a call, without addresses' queries, header values or bodies.

/// The cause of a failed call, for people. Its text holds no secret.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// No connection, or it broke before an answer.
    #[error("no connection to {host}: {reason}")]
    Connection {
        /// The host.
        host: String,
        /// The innermost reason.
        reason: String,
    },
    /// Nothing came in time.
    #[error("no answer from {host} in time")]
    Timeout {
        /// The host.
        host: String,
    },
    /// The answer began and did not end.
    #[error("the answer of {host} broke off after {bytes} bytes")]
    Cut {
        /// The host.
        host: String,
        /// Bytes read until then.
        bytes: usize,
    },
    /// The provider refused.
    #[error("{host} answered {status}{}", said(.code, .message))]
    Refused {
        /// The host.
        host: String,
        /// The HTTP status.
        status: u16,
        /// The provider's own code; may be empty.
        code: String,
        /// The provider's own sentence; may be empty.
        message: String,
    },
    /// A redirection; signed calls are never sent elsewhere.
    #[error("{host} answered {status}, which sends the call elsewhere; it is not followed")]
    Redirected {
        /// The host.
        host: String,
        /// The HTTP status.
        status: u16,
    },
    /// More than may be read.
    #[error("the answer of {host} is longer than {limit} bytes")]
    TooLong {
        /// The host.
        host: String,
        /// The limit.
        limit: usize,
    },
    /// Something else than JSON.
    #[error("{host} answered {looks} instead of JSON")]
    NotJson {
        /// The host.
        host: String,
        /// What it looks like.
        looks: &'static str,
    },
    /// JSON of another shape.
    #[error("the answer of {host} does not have the documented form: {reason}")]
    Shape {
        /// The host.
        host: String,
        /// Where and what; no values.
        reason: String,
    },
    /// The answer has the form but not the content it must have.
    #[error("{0}")]
    Content(String),
}

fn said(code: &str, message: &str) -> String {
    match (code.is_empty(), message.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!(": {code}"),
        (true, false) => format!(": {message}"),
        (false, false) => format!(": {code}: {message}"),
    }
}

/// The place and the kind of a JSON mistake, without the values that the parser quotes.
pub(super) fn shape_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // Values stand in double quotes, field names in back quotes.
    match text.find('"') {
        Some(quote) => {
            let kind = text[..quote].trim_end_matches([' ', ':']);
            format!("{kind} at line {} column {}", error.line(), error.column())
        }
        None => text,
    }
}

/// What a body that is not JSON looks like.
pub(super) fn looks_like(body: &[u8]) -> &'static str {
    let start = body.iter().position(|byte| !byte.is_ascii_whitespace());
    match start.map(|at| body[at]) {
        None => "nothing",
        Some(b'<') => "HTML or XML",
        Some(_) => "text",
    }
}

/// A provider's sentence, fit to be shown: one line, bounded.
pub(super) fn sentence(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = line.trim();
    match line.char_indices().nth(240) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_mistake_is_told_without_its_values() {
        #[derive(Debug, serde::Deserialize)]
        struct Answer {
            #[expect(dead_code, reason = "only its type matters")]
            token: u32,
        }
        let error = serde_json::from_str::<Answer>(r#"{"token": "s3cret"}"#).unwrap_err();
        let reason = shape_reason(&error);
        assert!(!reason.contains("s3cret") && reason.contains("line 1"), "{reason}");
        let error = serde_json::from_str::<Answer>("{}").unwrap_err();
        assert!(shape_reason(&error).contains("token"));
    }

    #[test]
    fn sentences_are_one_bounded_line() {
        assert_eq!(sentence(" a\nb\u{1b}[31m "), "a b [31m");
        assert!(sentence(&"x".repeat(5000)).chars().count() <= 241);
    }
}
