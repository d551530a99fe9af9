//! The signature ACS3-HMAC-SHA256.

use crate::http::{CanonicalCall, hmac_sha256_hex, query_text, sha256_hex};

const ALGORITHM: &str = "ACS3-HMAC-SHA256";

/// A call of the RPC kind: `POST /` with all parameters in the query and no body.
#[derive(Clone, Debug)]
pub(super) struct RpcCall<'a> {
    pub(super) host: &'a str,
    pub(super) action: &'a str,
    pub(super) version: &'a str,
    /// Names and values, in any order.
    pub(super) query: &'a [(String, String)],
}

/// A call's query and headers, ready to be sent.
pub(super) struct Signed {
    pub(super) query: String,
    /// Without `host`, which the client sends itself.
    pub(super) headers: Vec<(&'static str, String)>,
}

/// The keys of a call.
pub(super) struct Keys<'a> {
    pub(super) id: &'a str,
    pub(super) secret: &'a str,
    pub(super) token: Option<&'a str>,
}

/// Signs a call. `date` is `YYYY-MM-DDThh:mm:ssZ`; a nonce is used once.
pub(super) fn sign(call: &RpcCall<'_>, keys: &Keys<'_>, date: &str, nonce: &str) -> Signed {
    let mut pairs: Vec<&(String, String)> = call.query.iter().collect();
    pairs.sort();
    let query = query_text(pairs.into_iter().map(|(name, value)| (name, value)));
    let body = b"";
    let mut headers = vec![
        ("x-acs-action", call.action.to_owned()),
        ("x-acs-content-sha256", sha256_hex(body)),
        ("x-acs-date", date.to_owned()),
        ("x-acs-signature-nonce", nonce.to_owned()),
        ("x-acs-version", call.version.to_owned()),
    ];
    if let Some(token) = keys.token {
        headers.push(("x-acs-security-token", token.to_owned()));
    }
    let signed = std::iter::once(("host", call.host))
        .chain(headers.iter().map(|(name, value)| (*name, value.as_str())));
    let canonical =
        CanonicalCall { method: "POST", path: "/", query: &query, headers: signed.collect(), body };
    let hash = canonical.hash();
    let string = format!("{ALGORITHM}\n{}", hash.sha256);
    let signature = hmac_sha256_hex(keys.secret.as_bytes(), string.as_bytes());
    let names = hash.signed_headers;
    headers.push((
        "authorization",
        format!("{ALGORITHM} Credential={},SignedHeaders={names},Signature={signature}", keys.id),
    ));
    Signed { query, headers }
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
        host: String,
        action: String,
        version: String,
        date: String,
        nonce: String,
        token: Option<String>,
        query: BTreeMap<String, String>,
        authorization: String,
    }

    #[derive(Deserialize)]
    struct Recorded {
        vectors: Vec<Vector>,
    }

    #[test]
    fn equals_the_official_client_byte_for_byte() {
        let recorded: Recorded =
            serde_json::from_str(&fixture("aliyun/signature/vectors.json")).unwrap();
        assert!(recorded.vectors.len() >= 4);
        for vector in recorded.vectors {
            // The order of the parameters is not the caller's to know.
            let query: Vec<(String, String)> = vector.query.into_iter().rev().collect();
            let call = RpcCall {
                host: &vector.host,
                action: &vector.action,
                version: &vector.version,
                query: &query,
            };
            let keys = Keys {
                id: &vector.access_key,
                secret: &vector.secret_key,
                token: vector.token.as_deref(),
            };
            let signed = sign(&call, &keys, &vector.date, &vector.nonce);
            let authorization =
                signed.headers.into_iter().find(|(name, _)| *name == "authorization");
            assert_eq!(authorization.unwrap().1, vector.authorization, "{}", vector.name);
        }
    }
}
