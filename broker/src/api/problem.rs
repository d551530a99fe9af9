//! Errors on the wire: `{"code": int, "message": text, "detail": object}`, in the caller's language.

use axum::Json;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use runwhere_model::Lang;
use serde_json::{Map, Value, json};

use super::runwhere::{QuotaState, Refusal};
use super::text::{Words, plain};
use crate::accounts::AccountError;
use crate::blobs::BlobError;
use crate::logs::LogError;
use crate::store::StoreError;

/// A refusal on its way out. As a response it is empty; the server gives it words, for only
/// there is the language known.
#[derive(Clone, Debug)]
pub struct Problem(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    status: StatusCode,
    code: i64,
    message: Words,
    suggestion: Option<Words>,
    detail: Map<String, Value>,
    retry_after: Option<u32>,
}

impl Problem {
    /// A problem whose code is the status.
    pub fn new(status: StatusCode, message: Words) -> Self {
        Self(Box::new(Parts {
            status,
            code: i64::from(status.as_u16()),
            message,
            suggestion: None,
            detail: Map::new(),
            retry_after: None,
        }))
    }

    /// 422 with a sentence in both languages.
    pub fn invalid(zh: impl Into<String>, en: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, Words::new(zh, en))
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            Words::new("未登录或 token 无效", "not logged in, or the token is not valid"),
        )
        .suggest(
            "执行 runwhere login --endpoint <url> 重新登录",
            "log in with `runwhere login --endpoint <url>`",
        )
    }

    /// 403.
    pub fn forbidden() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            Words::new("当前 token 没有此操作的权限", "this token does not allow this"),
        )
        .suggest("使用具有相应权限的 token", "use a token that has the permission")
    }

    /// 404 of a job.
    pub fn no_job() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            Words::new("任务不存在或无权访问", "there is no such job, or it is not yours"),
        )
    }

    /// 507.
    pub fn storage_full() -> Self {
        Self::new(
            StatusCode::INSUFFICIENT_STORAGE,
            Words::new("服务器磁盘空间不足", "the server's disk is full"),
        )
        .suggest(
            "请管理员清理数据目录所在磁盘后重试",
            "try again once the disk of the data folder has space",
        )
        .reason("storage_full")
    }

    /// The same as an answer to "are you ready": 503.
    pub(crate) fn unready(mut self) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        (self.0.status, self.0.code) = (status, i64::from(status.as_u16()));
        self
    }

    /// 500; the cause is logged, not told.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!(%cause, "a request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Words::new("服务器内部错误", "internal server error"),
        )
    }

    /// Adds what to do.
    #[must_use]
    pub fn suggest(mut self, zh: impl Into<String>, en: impl Into<String>) -> Self {
        self.0.suggestion = Some(Words::new(zh, en));
        self
    }

    /// Adds a stable code for programs.
    #[must_use]
    pub fn reason(self, code: &str) -> Self {
        self.with("error", code)
    }

    /// Adds a field of the detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.detail.insert(key.to_owned(), value.into());
        self
    }

    fn quota(state: QuotaState, confirm: bool) -> Self {
        let QuotaState { current, wanted, limit, overage_unit_price } = state;
        let total = current.saturating_add(wanted);
        let words = if confirm {
            Words::new(
                format!("本次提交后将使用 {total} 张 GPU，超过配额 {limit}"),
                format!("with this, {total} GPUs are in use, above the quota of {limit}"),
            )
        } else {
            Words::new(
                format!("本次提交后将使用 {total} 张 GPU，超过上限 {limit}"),
                format!("with this, {total} GPUs are in use, above the limit of {limit}"),
            )
        };
        let mut problem = Self::new(StatusCode::FORBIDDEN, words)
            .reason(if confirm { "quota_confirmation" } else { "quota_exceeded" })
            .with("current_usage", current)
            .with("quota_limit", limit)
            .with("overage_unit_price", overage_unit_price.map_or(Value::Null, Value::from));
        problem.0.code = 4030;
        if confirm {
            return problem.with("requires_confirmation", true);
        }
        problem.suggest(
            "停止其他任务后重试，或请管理员提高上限",
            "stop other jobs first, or ask for a higher limit",
        )
    }

    /// The response in a language.
    pub fn say(self, lang: Lang) -> Response {
        let mut detail = self.0.detail.clone();
        let message = plain(self.0.message.say(lang));
        if let Some(suggestion) = &self.0.suggestion {
            detail.insert("suggestion".to_owned(), plain(suggestion.say(lang)).into());
        }
        if detail.get("requires_confirmation").is_some() {
            detail.insert("message".to_owned(), message.clone().into());
        }
        let body = json!({ "code": self.0.code, "message": message, "detail": detail });
        let mut response = (self.0.status, Json(body)).into_response();
        if let Some(seconds) = self.0.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Gives words to a response: a problem's own, or those of its status where an error came
    /// without a JSON body.
    pub(crate) fn finish(mut response: Response, lang: Lang) -> Response {
        if let Some(problem) = response.extensions_mut().remove::<Self>() {
            return problem.say(lang);
        }
        let status = response.status();
        let json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| {
            kind.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
        });
        if status.as_u16() < 400 || json {
            return response;
        }
        let (zh, en) = match status.as_u16() {
            404 => ("地址不存在", "there is nothing at this address"),
            405 => ("该地址不支持此请求方法", "this address does not serve this method"),
            408 => ("请求超时", "the request took too long"),
            413 => ("请求体过大", "the request body is too large"),
            415 => ("不支持的请求体类型", "this kind of request body is not served"),
            _ if status.is_server_error() => ("服务器内部错误", "internal server error"),
            _ => ("请求无效", "the request is not valid"),
        };
        let problem = Self::new(status, Words::new(zh, en));
        let mut said = problem.say(lang);
        if let Some(allow) = response.headers_mut().remove("allow") {
            said.headers_mut().insert("allow", allow);
        }
        said
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.0.status;
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let told = |status, message, suggestion: Option<Words>, code: &str| {
            let mut problem = Self::new(status, message).reason(code);
            problem.0.suggestion = suggestion;
            problem
        };
        match refusal {
            Refusal::NotFound => Self::no_job(),
            Refusal::NameTaken { existing } => Self::new(
                StatusCode::CONFLICT,
                Words::new(
                    format!("同名任务 {existing} 尚未结束"),
                    format!("job {existing} of this name has not ended"),
                ),
            )
            .suggest(
                format!("先停止 {existing}，或使用新的 job.name"),
                format!("stop {existing} first, or use another job.name"),
            )
            .reason("name_taken")
            .with("existing_job_id", existing.to_string()),
            Refusal::KeyReused { existing } => Self::new(
                StatusCode::CONFLICT,
                Words::new(
                    format!("同一 Idempotency-Key 已用于另一个请求，其任务为 {existing}"),
                    format!(
                        "this Idempotency-Key came with another request, which made {existing}"
                    ),
                ),
            )
            .suggest("为新的请求使用新的 key", "use a new key for a new request")
            .reason("idempotency_key_reused")
            .with("existing_job_id", existing.to_string()),
            Refusal::Invalid { message, suggestion } => {
                told(StatusCode::UNPROCESSABLE_ENTITY, message, suggestion, "invalid")
            }
            Refusal::NotServed { message, suggestion } => {
                told(StatusCode::UNPROCESSABLE_ENTITY, message, suggestion, "not_served")
            }
            Refusal::Conflict { message, suggestion } => {
                told(StatusCode::CONFLICT, message, suggestion, "conflict")
            }
            Refusal::QuotaConfirmation(state) => Self::quota(state, true),
            Refusal::QuotaExceeded(state) => Self::quota(state, false),
            Refusal::BudgetExceeded { message } => {
                let suggestion = Words::new("请管理员提高预算", "ask for a higher budget");
                told(StatusCode::FORBIDDEN, message, Some(suggestion), "budget_exceeded")
            }
            Refusal::Forbidden => Self::forbidden(),
            Refusal::StorageFull => Self::storage_full(),
            Refusal::Unavailable { message, retry_after } => {
                let mut problem =
                    told(StatusCode::SERVICE_UNAVAILABLE, message, None, "unavailable");
                problem.0.retry_after = retry_after;
                problem
            }
            Refusal::Internal(cause) => Self::internal(cause),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<AccountError> for Problem {
    fn from(error: AccountError) -> Self {
        match error {
            AccountError::Unauthorized => Self::unauthorized(),
            AccountError::Store(error) => error.into(),
            other @ (AccountError::NoSuchKey(_)
            | AccountError::NoSuchProject(_)
            | AccountError::Expiry
            | AccountError::Write(_)) => Self::internal(other),
        }
    }
}

impl From<BlobError> for Problem {
    fn from(error: BlobError) -> Self {
        let bad = |zh: String, en: String, code| {
            Self::new(StatusCode::BAD_REQUEST, Words::new(zh, en))
                .suggest("重新执行 runwhere sync", "run `runwhere sync` again")
                .reason(code)
        };
        match error {
            BlobError::Full => Self::storage_full(),
            BlobError::Missing => Self::new(
                StatusCode::NOT_FOUND,
                Words::new("没有这个文件", "there is no such file"),
            ),
            BlobError::TooLong(want) => bad(
                format!("文件内容超过清单中的 {want} 字节"),
                format!("the content is longer than the {want} bytes of the manifest"),
                "size_mismatch",
            ),
            BlobError::TooShort { want, got } => bad(
                format!("文件内容为 {got} 字节，清单中为 {want} 字节"),
                format!("the content has {got} bytes, the manifest says {want}"),
                "size_mismatch",
            ),
            BlobError::Mismatch => bad(
                "文件内容与清单中的 sha256 不一致".to_owned(),
                "the content has another sha256 than the manifest says".to_owned(),
                "hash_mismatch",
            ),
            BlobError::Gzip => bad(
                "文件内容不是有效的 gzip".to_owned(),
                "the content is not valid gzip".to_owned(),
                "bad_gzip",
            ),
            BlobError::Io(error) => Self::internal(error),
        }
    }
}

impl From<LogError> for Problem {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Full => Self::storage_full(),
            other => Self::internal(other),
        }
    }
}
