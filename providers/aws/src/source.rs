//! The source.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::{Credentials, SharedHttpClient};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use runwhere_model::{Currency, OfferScope, OfferSheet, ProviderError, ProviderId, SourceTerms};
use runwhere_providers::OfferSource;
use runwhere_providers::http::{Http, Policy, Request, Session};
use runwhere_providers::sources::{
    AwsSettings, SecretSetting, SettingError, SheetBuilder, SourceContext, SourceSettings, base_url,
};
use secrecy::{ExposeSecret, SecretString};

use crate::file::{EXTRACT, GpuRows};
use crate::{ec2, file, map};

/// One partition of AWS.
#[derive(Debug)]
pub struct Aws {
    http: Http,
    files: String,
    partition: Partition,
    regions: Vec<String>,
    account: Option<Account>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Partition {
    World,
    China,
}

impl Partition {
    fn of(region: &str) -> Self {
        if region.starts_with("cn-") { Self::China } else { Self::World }
    }

    fn currency(self) -> Currency {
        match self {
            Self::World => Currency::USD,
            Self::China => Currency::CNY,
        }
    }

    fn files(self) -> &'static str {
        match self {
            Self::World => "https://pricing.us-east-1.amazonaws.com",
            Self::China => "https://pricing.cn-north-1.amazonaws.com.cn",
        }
    }

    fn path(self, region: &str) -> String {
        let part = match self {
            Self::World => "aws",
            Self::China => "cn",
        };
        format!("/offers/v1.0/{part}/AmazonEC2/current/{region}/index.csv")
    }
}

#[derive(Debug)]
struct Account {
    profile: Option<String>,
    endpoint: Option<String>,
    key: Option<(SecretString, SecretString)>,
    client: SharedHttpClient,
}

/// Builds AWS sources; to be handed to `runwhere_providers::sources::sources`.
pub fn foreign(
    id: &ProviderId,
    settings: &SourceSettings,
    context: &SourceContext<'_>,
) -> Option<Result<Arc<dyn OfferSource>, SettingError>> {
    match settings {
        SourceSettings::Aws(settings) => {
            Some(Aws::new(id, settings, context).map(|source| Arc::new(source) as _))
        }
        _ => None,
    }
}

impl Aws {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &AwsSettings,
        context: &SourceContext<'_>,
    ) -> Result<Self, SettingError> {
        let Some(first) = settings.regions.first() else {
            return Err(SettingError::new(
                "regions",
                "is empty: name the regions; each has a price file of some hundred megabytes",
            ));
        };
        let partition = Partition::of(first);
        if let Some(other) = settings.regions.iter().find(|r| Partition::of(r) != partition) {
            return Err(SettingError::new(
                "regions",
                format!("{first} and {other} are of two partitions; make a provider for each"),
            ));
        }
        let plain = |region: &&String| {
            region.is_empty() || !region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if let Some(odd) = settings.regions.iter().find(plain) {
            return Err(SettingError::new("regions", format!("{odd:?} is no name of a region")));
        }
        let account = settings.account.then(|| Account::new(settings, context)).transpose()?;
        Ok(Self {
            // A whole price file is one call.
            http: context.http(id).with_policy(Policy {
                longest_attempt: Duration::from_secs(3600),
                ..Policy::default()
            }),
            files: base_url(settings.price_endpoint.as_deref(), partition.files())?,
            partition,
            regions: settings.regions.clone(),
            account,
        })
    }

    async fn prices(
        &self,
        session: &Session<'_>,
        region: &str,
        sheet: &mut SheetBuilder,
    ) -> Result<Vec<file::Priced>, ProviderError> {
        const CALL: &str = "price file";
        let path = self.partition.path(region);
        let url = format!("{}{path}", self.files);
        let kept = session
            .extracted(CALL, &format!("{path} {EXTRACT}"), |_| Request::get(&url), &|| {
                Box::new(GpuRows::default())
            })
            .await?;
        let text = std::str::from_utf8(&kept).map_err(|_| session.malformed(CALL, "not UTF-8"))?;
        let read = file::read(text, region, self.partition.currency())
            .map_err(|reason| session.malformed(CALL, reason))?;
        for (row, reason) in read.rejected {
            sheet.reject(format!("{region} {row}"), reason);
        }
        Ok(read.priced)
    }
}

impl Account {
    fn new(settings: &AwsSettings, context: &SourceContext<'_>) -> Result<Self, SettingError> {
        let find = |setting: &Option<SecretSetting>, field| {
            SecretSetting::find(setting.as_ref(), field, &[], context.env)
        };
        let key = match (
            find(&settings.access_key_id, "access_key_id")?,
            find(&settings.secret_access_key, "secret_access_key")?,
        ) {
            (Some(id), Some(secret)) => Some((id, secret)),
            (None, None) => None,
            (None, Some(_)) => return Err(SettingError::new("access_key_id", "is missing")),
            (Some(_), None) => return Err(SettingError::new("secret_access_key", "is missing")),
        };
        let endpoint =
            settings.endpoint.as_deref().map(|url| base_url(Some(url), "")).transpose()?;
        let client = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        Ok(Self { profile: settings.profile.clone(), endpoint, key, client })
    }

    async fn ec2(&self, region: &str) -> Client {
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .http_client(self.client.clone());
        if let Some(profile) = &self.profile {
            loader = loader.profile_name(profile);
        }
        if let Some(endpoint) = &self.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let Some((id, secret)) = &self.key {
            let (id, secret) = (id.expose_secret(), secret.expose_secret());
            loader =
                loader.credentials_provider(Credentials::new(id, secret, None, None, "settings"));
        }
        Client::new(&loader.load().await)
    }
}

#[async_trait]
impl OfferSource for Aws {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet, ProviderError> {
        let session = self.http.session();
        let now = self.http.now();
        let mut sheet = SheetBuilder::new(self.id().clone(), "AWS price files and EC2", now);
        let wanted: Vec<&String> = match scope.regions.is_empty() {
            true => self.regions.iter().collect(),
            false => self.regions.iter().filter(|r| scope.regions.contains(r)).collect(),
        };
        let mut failure = None;
        let mut read_one = wanted.is_empty();
        for region in wanted {
            let priced = match self.prices(&session, region, &mut sheet).await {
                Ok(priced) => priced,
                Err(error) => {
                    sheet.failed(format!("list prices in {region}"), &error);
                    failure = Some(error);
                    // Spot prices and offerings stand on their own.
                    Vec::new()
                }
            };
            let mut facts = None;
            if let Some(account) = &self.account {
                match ec2::facts(&account.ec2(region).await, self.id(), now).await {
                    Ok(read) => facts = Some(read),
                    Err(error) => {
                        sheet.failed(format!("types, zones and spot in {region}"), &error);
                        failure = Some(error);
                    }
                }
            }
            read_one |= !priced.is_empty() || facts.is_some();
            map::region(region, self.partition.currency(), priced, facts.as_ref(), &mut sheet);
        }
        match failure {
            Some(error) if !read_one => Err(error),
            _ => Ok(sheet.finish()),
        }
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms {
            refresh: Duration::from_secs(if self.account.is_some() { 900 } else { 6 * 3600 }),
            spot_max_age: Duration::from_secs(3600),
            min_rows: 1,
            readings_per_hour: 12,
            ..SourceTerms::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::config::endpoint::{DefaultResolver, Params, ResolveEndpoint};
    use runwhere_providers::SystemClock;
    use runwhere_providers::http::{HttpClient, NoCache};

    use super::*;

    fn source(region: &str) -> Aws {
        let settings = AwsSettings { regions: vec![region.to_owned()], ..AwsSettings::default() };
        let client = HttpClient::loopback().unwrap();
        let context = SourceContext {
            client: &client,
            clock: Arc::new(SystemClock),
            cache: Arc::new(NoCache),
            env: &|_| None,
        };
        Aws::new(&ProviderId::new("aws").unwrap(), &settings, &context).unwrap()
    }

    #[tokio::test]
    async fn pr_028_chinese_regions_are_asked_at_hosts_of_their_own_partition() {
        let host = |aws: &Aws| aws.files.split('/').nth(2).unwrap().to_owned();
        for region in ["cn-north-1", "cn-northwest-1"] {
            assert!(host(&source(region)).ends_with(".amazonaws.com.cn"), "{region}");
            assert_eq!(source(region).partition.currency(), Currency::CNY);
            let ec2 = Params::builder().region(region).build().unwrap();
            let ec2 = DefaultResolver::new().resolve_endpoint(&ec2).await.unwrap();
            assert_eq!(ec2.url(), format!("https://ec2.{region}.amazonaws.com.cn"));
        }
        for region in ["us-east-1", "ap-southeast-1"] {
            assert!(host(&source(region)).ends_with(".amazonaws.com"), "{region}");
        }
    }
}
