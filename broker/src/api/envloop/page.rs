//! Parameters of lists.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::answer::Error;
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
    let wrong = || Error::new(Code::InvalidLimit, format!("limit is a number from 1 to {most}"));
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
    let bad = || Error::new(Code::InvalidCursor, "use a cursor as an earlier page gave it");
    if text.len() > 1024 {
        return Err(bad());
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
    String::from_utf8(bytes).map(Some).map_err(|_| bad())
}

/// Whether a list of this type can have rows; another known type has none.
pub(super) fn is_train(parameters: &Parameters) -> Result<bool, Error> {
    match given(parameters, "type") {
        None | Some("train") => Ok(true),
        Some("agent" | "sandbox" | "inference") => Ok(false),
        Some(_) => {
            Err(Error::new(Code::InvalidJobType, "type is train, agent, sandbox or inference"))
        }
    }
}
