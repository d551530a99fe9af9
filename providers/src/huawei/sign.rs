//! The signature SDK-HMAC-SHA256.

use crate::http::{CanonicalCall, encode_component, hmac_sha256_hex, query_text};

const ALGORITHM: &str = "SDK-HMAC-SHA256";

/// What is signed of a call.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) method: &'a str,
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    /// `YYYYMMDDTHHMMSSZ`, sent as `X-Sdk-Date`.
    pub(super) date: &'a str,
    pub(super) content_type: Option<&'a str>,
    pub(super) body: &'a [u8],
}

/// The query as it is signed and must be sent.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    query_text(pairs)
}

/// The `Authorization` of a call.
pub(super) fn authorization(access_key: &str, secret_key: &str, call: &Call<'_>) -> String {
    let path = call.path.split('/').map(encode_component).collect::<Vec<_>>().join("/");
    // The signed path ends with a slash, the sent one does not.
    let path = if path.ends_with('/') { path } else { format!("{path}/") };
    let mut headers = vec![("host", call.host), ("x-sdk-date", call.date)];
    headers.extend(call.content_type.map(|value| ("content-type", value)));
    let query = query(call.query);
    let canonical =
        CanonicalCall { method: call.method, path: &path, query: &query, headers, body: call.body };
    let hash = canonical.hash();
    let string = format!("{ALGORITHM}\n{}\n{}", call.date, hash.sha256);
    let signature = hmac_sha256_hex(secret_key.as_bytes(), string.as_bytes());
    let names = hash.signed_headers;
    format!("{ALGORITHM} Access={access_key}, SignedHeaders={names}, Signature={signature}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::sources::tests::fixture;

    #[derive(Deserialize)]
    struct Vector {
        name: String,
        access_key: String,
        secret_key: String,
        method: String,
        host: String,
        path: String,
        query: Vec<(String, String)>,
        content_type: Option<String>,
        date: String,
        body: String,
        uri: String,
        authorization: String,
    }

    #[derive(Deserialize)]
    struct Recorded {
        vectors: Vec<Vector>,
    }

    #[test]
    fn equals_the_official_client_byte_for_byte() {
        let recorded: Recorded =
            serde_json::from_str(&fixture("huawei/signature/vectors.json")).unwrap();
        assert!(recorded.vectors.len() >= 3);
        for vector in recorded.vectors {
            let pairs: Vec<(&str, &str)> =
                vector.query.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let call = Call {
                method: &vector.method,
                host: &vector.host,
                path: &vector.path,
                query: &pairs,
                date: &vector.date,
                content_type: vector.content_type.as_deref(),
                body: vector.body.as_bytes(),
            };
            let ours = authorization(&vector.access_key, &vector.secret_key, &call);
            assert_eq!(ours, vector.authorization, "{}", vector.name);
            let sent = match query(&pairs) {
                query if query.is_empty() => vector.path.clone(),
                query => format!("{}?{query}", vector.path),
            };
            assert_eq!(sent, vector.uri, "{}", vector.name);
        }
    }
}
