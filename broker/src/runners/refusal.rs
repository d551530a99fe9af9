//! Why a request is refused: a stable code, and a sentence that says what to do.

use std::fmt;

use runwhere_engine::Permission;

use crate::api::text::{Words, words};
use crate::store::StoreError;

macro_rules! codes {
    ($($name:ident = $word:literal, $status:literal;)*) => {
        /// A code of the published client's list, with the status it goes with.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Code {
            $(#[doc = concat!("`", $word, "`, ", stringify!($status), ".")] $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }
        }
    };
}

codes! {
    Unauthenticated = "UNAUTHENTICATED", 401;
    PermissionDenied = "PERMISSION_DENIED", 403;
    WorkspaceDenied = "WORKSPACE_ACCESS_DENIED", 403;
    ProjectDenied = "PROJECT_ACCESS_DENIED", 403;
    AccessDenied = "ACCESS_DENIED", 403;
    HumanSessionRequired = "HUMAN_SESSION_REQUIRED", 403;
    RunnerNotFound = "RUNNER_NOT_FOUND", 404;
    RunnerAmbiguous = "RUNNER_VERSION_AMBIGUOUS", 409;
    RunnerHashMismatch = "RUNNER_HASH_MISMATCH", 409;
    InvalidRunner = "INVALID_RUNNER", 422;
    RunnerGpuUnavailable = "RUNNER_GPU_UNAVAILABLE", 422;
    RunnerEnvironment = "INVALID_RUNNER_ENVIRONMENT", 422;
    UnsupportedHardware = "UNSUPPORTED_HARDWARE", 422;
    CapacityExceeded = "TRAIN_JOB_CAPACITY_EXCEEDED", 503;
    InsufficientBalance = "INSUFFICIENT_BALANCE", 402;
    PriceMissing = "PRICE_MISSING", 409;
    InvalidTrials = "INVALID_TRIALS", 422;
    UnsupportedCommand = "UNSUPPORTED_COMMAND", 422;
    InvalidCommand = "INVALID_COMMAND", 422;
    InvalidSpec = "INVALID_TRAIN_JOB_SPEC", 422;
    BackendSelection = "UNSUPPORTED_TRAINING_BACKEND_SELECTION", 422;
    InvalidTag = "INVALID_TAG", 422;
    InvalidMetadata = "INVALID_TRAIN_JOB_METADATA", 422;
    InvalidRequestId = "INVALID_REQUEST_ID", 422;
    RequestConflict = "JOB_REQUEST_CONFLICT", 409;
    InvalidProfile = "INVALID_PROFILE", 422;
    ProfileRunnerUnsupported = "PROFILE_RUNNER_UNSUPPORTED", 422;
    ProfileHashMismatch = "PROFILE_HASH_MISMATCH", 409;
    DatasetRevisionNotFound = "DATASET_REVISION_NOT_FOUND", 404;
    ResourceNotFound = "RESOURCE_NOT_FOUND", 404;
    JobNotFound = "JOB_NOT_FOUND", 404;
    TrialNotFound = "TRIAL_NOT_FOUND", 404;
    ArtifactNotFound = "ARTIFACT_NOT_FOUND", 404;
    CheckpointNotFound = "CHECKPOINT_NOT_FOUND", 404;
    ArtifactNotReady = "ARTIFACT_NOT_READY", 409;
    JobActionUnsupported = "JOB_ACTION_UNSUPPORTED", 409;
    StopFailed = "TRIAL_STOP_FAILED", 503;
    InvalidCursor = "INVALID_CURSOR", 400;
    InvalidLimit = "INVALID_LIMIT", 400;
    InvalidJobStatus = "INVALID_JOB_STATUS", 400;
    InvalidTrialStatus = "INVALID_TRIAL_STATUS", 400;
    InvalidJobType = "INVALID_JOB_TYPE", 400;
    InvalidLogQuery = "INVALID_LOG_QUERY", 400;
    InvalidLogSource = "INVALID_LOG_SOURCE", 400;
    LogCursorInvalid = "LOG_CURSOR_INVALID", 400;
    LogStorage = "LOG_STORAGE_UNAVAILABLE", 503;
    ResourceInUse = "RESOURCE_IN_USE", 409;
    VersionConflict = "VERSION_CONFLICT", 409;
    InvalidBillingWindow = "INVALID_BILLING_WINDOW", 400;
    InvalidGroupBy = "INVALID_GROUP_BY", 400;
    LoginExpired = "AUTH_LOGIN_EXPIRED", 410;
    LoginBusy = "AUTH_LOGIN_BUSY", 429;
    RequestTooLarge = "REQUEST_TOO_LARGE", 413;
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405;
    BadRequest = "BAD_REQUEST", 400;
    NotFound = "NOT_FOUND", 404;
    RsiUnconfigured = "RSI_CONTROL_UNCONFIGURED", 503;
    ProfileNotFound = "PROFILE_NOT_FOUND", 404;
    ServingUnavailable = "SERVING_UNAVAILABLE", 503;
    ProviderUnavailable = "PROVIDER_UNAVAILABLE", 503;
    StoreUnavailable = "STORE_UNAVAILABLE", 503;
    Internal = "INTERNAL_SERVER_ERROR", 500;
}

/// A refusal on its way to the wire.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    /// What programs go by.
    pub code: Code,
    /// For people; holds no secret.
    pub message: Words,
    /// The field or thing it is about.
    pub field: Option<String>,
    /// Seconds after which to try again.
    pub retry_after: Option<u32>,
}

impl Refused {
    /// A refusal with a sentence.
    pub fn new(code: Code, message: Words) -> Self {
        Self { code, message, field: None, retry_after: None }
    }

    /// The same, naming a field.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The same, to be tried again.
    #[must_use]
    pub fn retry(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// A fault of ours; the cause is logged, not told.
    pub fn internal(cause: impl fmt::Display) -> Self {
        tracing::error!(%cause, "A request failed");
        Self::new(Code::Internal, words!("服务器内部错误", "internal server error"))
    }

    /// A permission is missing.
    pub fn lacking(permission: Permission) -> Self {
        let word = serde_json::to_value(permission);
        let word = word.ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default();
        Self::new(Code::PermissionDenied, words!("此 key 没有权限 {word}", "this key lacks {word}"))
    }

    fn disk_full() -> Self {
        let why = words!("服务器磁盘空间不足", "the server's disk is full");
        Self::new(Code::StoreUnavailable, why).retry(30)
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::disk_full(),
            other => Self::internal(other),
        }
    }
}

impl From<crate::blobs::BlobError> for Refused {
    fn from(error: crate::blobs::BlobError) -> Self {
        match error {
            crate::blobs::BlobError::Full => Self::disk_full(),
            other => Self::internal(other),
        }
    }
}
