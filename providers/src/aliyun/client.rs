//! The source and its calls.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::header::HeaderName;
use runwhere_model::{ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::config::{Settings, Site};
use super::sign::{Keys, RpcCall, sign};
use super::{file, read};
use crate::http::{Http, InvalidRequest, Policy, Refusal, Request, Session};
use crate::provider::{OfferSource, Result};
use crate::sources::{
    AccessKeys, KeyPart, SettingError, SheetBuilder, SourceContext, base_url, wanted,
};

const FILES: &str = "https://g.alicdn.com";
pub(super) const ECS: &str = "2014-05-26";
pub(super) const BSS: &str = "2017-12-14";

/// Alibaba Cloud: one account of one site, or that site's public price file.
#[derive(Debug)]
pub struct Aliyun {
    pub(super) http: Http,
    pub(super) settings: Settings,
    keys: Option<AccessKeys>,
    /// All calls go here, where it is set.
    base: Option<String>,
}

impl Aliyun {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let (key, secret, token) =
            (&settings.access_key_id, &settings.access_key_secret, &settings.security_token);
        let keys = AccessKeys::find(
            KeyPart::new(key, "access_key_id", "ALIBABA_CLOUD_ACCESS_KEY_ID"),
            KeyPart::new(secret, "access_key_secret", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"),
            Some(KeyPart::new(token, "security_token", "ALIBABA_CLOUD_SECURITY_TOKEN")),
            context.env,
        )?;
        if keys.is_none() && settings.price_file.is_none() {
            return Err(SettingError::new(
                "access_key_id",
                "is missing: set a key, or price_file to read the public price file instead",
            ));
        }
        if let Some(version) = &settings.price_file
            && !version.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        {
            return Err(SettingError::new("price_file", "is a version such as 2.0.421"));
        }
        let base = settings.endpoint.as_deref().map(|url| base_url(Some(url), "")).transpose()?;
        let secrets = keys.iter().flat_map(AccessKeys::secrets);
        // About 500 calls a minute are allowed for most of the interfaces.
        let policy = Policy { interval: Some(Duration::from_millis(130)), ..Policy::default() };
        Ok(Self {
            http: context
                .http(id)
                .with_policy(policy.max_body(512 << 20))
                .with_refusal(refusal)
                .with_secrets(secrets),
            settings: settings.clone(),
            keys,
            base,
        })
    }

    pub(super) fn site(&self) -> Site {
        self.settings.site
    }

    /// A signed call of the RPC kind.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        session: &Session<'_>,
        host: &str,
        version: &str,
        action: &'static str,
        query: &[(&str, &str)],
    ) -> Result<T> {
        let query: Vec<(String, String)> =
            query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let base = self.base.clone().unwrap_or_else(|| format!("https://{host}"));
        session.json(action, |now| self.signed(&base, version, action, &query, now)).await
    }

    fn signed(
        &self,
        base: &str,
        version: &str,
        action: &str,
        query: &[(String, String)],
        now: Timestamp,
    ) -> std::result::Result<Request, InvalidRequest> {
        let keys = self
            .keys
            .as_ref()
            .ok_or_else(|| InvalidRequest::Credential("there is no access key".to_owned()))?;
        let content = "application/x-www-form-urlencoded";
        let host = Request::get(base)?.host();
        let mut nonce = [0u8; 16];
        getrandom::fill(&mut nonce)
            .map_err(|_| InvalidRequest::Credential("no random numbers".to_owned()))?;
        let call = RpcCall { host: &host, action, version, query };
        let signed = sign(
            &call,
            &Keys { id: keys.id(), secret: keys.secret(), token: keys.token() },
            &now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            &hex::encode(nonce),
        );
        let mut request = Request::post(&format!("{base}/?{}", signed.query), content, "")?;
        // What is not signed is not sent.
        request.headers.clear();
        for (name, value) in signed.headers {
            request = request.header(HeaderName::from_static(name), &value)?;
        }
        Ok(request)
    }

    async fn price_file(&self, version: &str, scope: &OfferScope) -> Result<OfferSheet> {
        const CALL: &str = "price file";
        let folder = match self.site() {
            Site::Cn => "ecs-price-info",
            Site::Intl => "ecs-price-info-intl",
        };
        let path = format!("/aliyun/{folder}/{version}/price/download/instancePrice.json");
        let url = format!("{}{path}", self.base.as_deref().unwrap_or(FILES));
        let session = self.http.session();
        let observed_at = self.http.now();
        let body = session.cached(CALL, &path, |_| Request::get(&url)).await?;
        let parsed = session.parse(CALL, &body)?;
        let source = format!("Aliyun public price file {version}");
        let mut sheet = SheetBuilder::new(self.id().clone(), source, observed_at);
        let regions = wanted(scope, &self.settings.regions);
        file::offers(parsed, self.site().currency(), regions, &mut sheet)
            .map_err(|reason| session.malformed(CALL, reason))?;
        Ok(sheet.finish())
    }
}

fn refusal(status: u16, body: &[u8]) -> Option<Refusal> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        code: Option<String>,
        #[serde(default)]
        message: Option<String>,
        success: Option<bool>,
    }
    // Only BSS answers 200 and means no.
    if status < 400 && !body.windows(9).take(4096).any(|part| part == b"\"Success\"") {
        return None;
    }
    let said: Answer = serde_json::from_slice(body).ok()?;
    if status < 400 && said.success != Some(false) {
        return None;
    }
    let code = said.code?;
    let kind = match code.as_str() {
        code if code.starts_with("Throttling") => Some(ErrorKind::Throttle),
        code if code.starts_with("InvalidAccessKeyId")
            || code.starts_with("SignatureDoesNotMatch") =>
        {
            Some(ErrorKind::Auth)
        }
        code if code.starts_with("Forbidden")
            || code == "NoPermission"
            || code == "NotAuthorized" =>
        {
            Some(ErrorKind::Auth)
        }
        "InvalidAction" => Some(ErrorKind::Auth),
        "ServiceUnavailable" | "InternalError" => Some(ErrorKind::Transient),
        "InvalidSecurityToken.Expired" | "IncompleteSignature" => Some(ErrorKind::Auth),
        _ if status < 400 => Some(ErrorKind::Invalid),
        _ => None,
    };
    Some(Refusal { code, message: said.message.unwrap_or_default(), kind })
}

#[async_trait]
impl OfferSource for Aliyun {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        match (&self.keys, &self.settings.price_file) {
            (None, Some(version)) => self.price_file(version, scope).await,
            _ => read::account(self, scope).await,
        }
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms {
            refresh: Duration::from_secs(1800),
            min_rows: if self.settings.regions.is_empty() { 20 } else { 0 },
            readings_per_hour: 12,
            ..SourceTerms::default()
        }
    }
}
