//! Crusoe's signature, version 1.0.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};

use crate::http::hmac_sha256;

/// Secrets may end in bits that stand for nothing.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// The `Authorization` of a call. `query` holds plain values; `date` is RFC 3339, sent as
/// `X-Crusoe-Timestamp`. The reason where the secret is not what Crusoe gives out.
pub(super) fn authorization(
    access_key: &str,
    secret_key: &str,
    method: &str,
    path: &str,
    query: &[(&str, &str)],
    date: &str,
) -> Result<String, String> {
    let secret = LENIENT
        .decode(secret_key.trim_end_matches('='))
        .map_err(|_| "the secret key is not base64url".to_owned())?;
    let mut pairs = query.to_vec();
    pairs.sort_unstable();
    let query: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let payload = format!("{path}\n{}\n{method}\n{date}\n", query.join("&"));
    let signature = URL_SAFE_NO_PAD.encode(hmac_sha256(&secret, payload.as_bytes()));
    Ok(format!("Bearer 1.0:{access_key}:{signature}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::sources::tests::fixture;

    #[derive(Deserialize)]
    struct Vector {
        name: String,
        access_key: String,
        secret_key: String,
        method: String,
        path: String,
        query: BTreeMap<String, String>,
        date: String,
        authorization: String,
    }

    #[derive(Deserialize)]
    struct Recorded {
        vectors: Vec<Vector>,
    }

    #[test]
    fn equals_the_documented_algorithm() {
        let recorded: Recorded =
            serde_json::from_str(&fixture("crusoe/signature/vectors.json")).unwrap();
        assert!(recorded.vectors.len() >= 2);
        for vector in recorded.vectors {
            let query: Vec<(&str, &str)> =
                vector.query.iter().rev().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let ours = authorization(
                &vector.access_key,
                &vector.secret_key,
                &vector.method,
                &vector.path,
                &query,
                &vector.date,
            );
            assert_eq!(ours.unwrap(), vector.authorization, "{}", vector.name);
        }
    }
}
