//! Request bodies: bounded, and errors that name the field.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::problem::Problem;
use super::text::Words;

/// Bound of ordinary bodies.
pub(crate) const SMALL: usize = 2 << 20;
/// Bound of a body with a manifest.
pub(crate) const MANIFEST: usize = 64 << 20;
/// A body that pauses longer is given up.
pub(crate) const PAUSE: Duration = Duration::from_secs(60);

/// Reads a whole body.
pub(crate) async fn read(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let mut stream = body.into_data_stream();
    let mut whole = Vec::new();
    while let Some(chunk) = next(&mut stream).await? {
        if whole.len() + chunk.len() > limit {
            return Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                Words::new(
                    format!("请求体超过 {limit} 字节"),
                    format!("the request body has more than {limit} bytes"),
                ),
            ));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.into())
}

/// The next piece of a body, waiting a bounded time.
pub(crate) async fn next(
    stream: &mut axum::body::BodyDataStream,
) -> Result<Option<Bytes>, Problem> {
    match tokio::time::timeout(PAUSE, stream.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(Some(Err(_))) => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            Words::new("请求体不完整", "the request body is not complete"),
        )),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            Words::new("请求体传输超时", "the request body paused for too long"),
        )),
    }
}

/// A typed body.
pub(crate) fn typed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // The error's own text may show values.
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Problem::invalid(
            format!("请求体第 {line} 行第 {column} 列不是期望的 JSON"),
            format!("the request body is not the expected JSON at line {line}, column {column}"),
        )
    })
}

/// The fields of a JSON object; an empty body has none.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Problem> {
        if body.is_empty() {
            return Ok(Self(Map::new()));
        }
        match typed::<Value>(body)? {
            Value::Object(map) => Ok(Self(map)),
            _ => Err(Problem::invalid(
                "请求体必须是 JSON 对象",
                "the request body must be a JSON object",
            )),
        }
    }

    pub(crate) fn text(&self, field: &str) -> Result<Option<String>, Problem> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(wrong(field, "字符串", "a string")),
        }
    }

    pub(crate) fn required(&self, field: &str) -> Result<String, Problem> {
        self.text(field)?.filter(|text| !text.is_empty()).ok_or_else(|| {
            Problem::invalid(format!("缺少字段 {field}"), format!("the field {field} is missing"))
                .with("field", field)
        })
    }

    pub(crate) fn flag(&self, field: &str) -> Result<bool, Problem> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(wrong(field, "布尔值", "true or false")),
        }
    }

    pub(crate) fn whole(&self, field: &str) -> Result<Option<u64>, Problem> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let number = value.as_u64();
                number.map(Some).ok_or_else(|| wrong(field, "非负整数", "a whole number from 0"))
            }
        }
    }
}

fn wrong(field: &str, zh: &str, en: &str) -> Problem {
    Problem::invalid(format!("字段 {field} 必须是{zh}"), format!("the field {field} must be {en}"))
        .with("field", field)
}
