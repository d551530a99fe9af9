//! Parameters of lists.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::answer::Error;
use crate::api::text::words;
use crate::runners::Code;

const DEFAULT: usize = 25;
const MOST: usize = 100;

pub(super) type Parameters = HashMap<String, String>;

/// A parameter that is not empty.
pub(super) fn given<'a>(parameters: &'a Parameters, name: &str) -> Option<&'a str> {
    parameters.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

/// How many rows are wanted.
pub(super) fn limit(parameters: &Parameters) -> Result<usize, Error> {
    limit_to(parameters, DEFAULT, MOST)
}

pub(super) fn limit_to(
    parameters: &Parameters,
    default: usize,
    most: usize,
) -> Result<usize, Error> {
    let wrong = || {
        let why = words!("limit 是 1 到 {most} 的数", "limit is a number from 1 to {most}");
        Error::new(Code::InvalidLimit, why)
    };
    match parameters.get("limit") {
        None => Ok(default),
        Some(text) => {
            text.parse().ok().filter(|limit| (1..=most).contains(limit)).ok_or_else(wrong)
        }
    }
}

/// Text that clients pass back unread.
pub(super) fn opaque(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// The text in a cursor of a request.
pub(super) fn cursor(parameters: &Parameters) -> Result<Option<String>, Error> {
    let Some(text) = given(parameters, "cursor") else { return Ok(None) };
    let bad = || {
        let why =
            words!("请原样使用上一页给出的 cursor", "use a cursor as an earlier page gave it");
        Error::new(Code::InvalidCursor, why)
    };
    if text.len() > 1024 {
        return Err(bad());
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
    String::from_utf8(bytes).map(Some).map_err(|_| bad())
}

/// The refusal of a cursor that another list gave.
pub(super) fn foreign_cursor() -> Error {
    let why = words!("cursor 不属于此列表", "not a cursor of this list");
    Error::new(Code::InvalidCursor, why)
}

/// The refusal of a body that is no such JSON; the error's own text may show values.
pub(super) fn not_expected(error: &serde_json::Error) -> Error {
    let (line, column) = (error.line(), error.column());
    let why = words!(
        "请求体第 {line} 行第 {column} 列不是期望的 JSON",
        "the request is not the expected JSON at line {line}, column {column}"
    );
    Error::new(Code::BadRequest, why)
}

/// The refusal of a word of a status that is none.
pub(super) fn status_unknown(code: Code, known: &[&str]) -> Error {
    let known = known.join(", ");
    Error::new(code, words!("status 是 {known} 之一", "status is one of {known}"))
}

/// Whether a list of this type can have rows; another known type has none.
pub(super) fn is_train(parameters: &Parameters) -> Result<bool, Error> {
    match given(parameters, "type") {
        None | Some("train") => Ok(true),
        Some("agent" | "sandbox" | "inference") => Ok(false),
        Some(_) => {
            let why = words!(
                "type 是 train、agent、sandbox 或 inference",
                "type is train, agent, sandbox or inference"
            );
            Err(Error::new(Code::InvalidJobType, why))
        }
    }
}
