//! The signature TC3-HMAC-SHA256.

use jiff::Timestamp;

use crate::http::{CanonicalCall, hmac_sha256, hmac_sha256_hex};

const ALGORITHM: &str = "TC3-HMAC-SHA256";
/// The content type that is signed, and so must be sent.
pub(super) const CONTENT_TYPE: &str = "application/json";

/// The `Authorization` of a `POST /` with this body at this second.
pub(super) fn authorization(
    secret_id: &str,
    secret_key: &str,
    service: &str,
    host: &str,
    body: &[u8],
    now: Timestamp,
) -> String {
    let canonical = CanonicalCall {
        method: "POST",
        path: "/",
        query: "",
        headers: vec![("content-type", CONTENT_TYPE), ("host", host)],
        body,
    };
    let hash = canonical.hash();
    let date = now.strftime("%Y-%m-%d").to_string();
    let scope = format!("{date}/{service}/tc3_request");
    let string = format!("{ALGORITHM}\n{}\n{scope}\n{}", now.as_second(), hash.sha256);
    let by_date = hmac_sha256(format!("TC3{secret_key}").as_bytes(), date.as_bytes());
    let by_service = hmac_sha256(&by_date, service.as_bytes());
    let key = hmac_sha256(&by_service, b"tc3_request");
    let signature = hmac_sha256_hex(&key, string.as_bytes());
    let names = hash.signed_headers;
    format!(
        "{ALGORITHM} Credential={secret_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::sources::tests::fixture;

    #[derive(Deserialize)]
    struct Vector {
        name: String,
        secret_id: String,
        secret_key: String,
        host: String,
        timestamp: i64,
        body: String,
        content_type: String,
        authorization: String,
    }

    #[derive(Deserialize)]
    struct Recorded {
        vectors: Vec<Vector>,
    }

    #[test]
    fn equals_the_official_client_byte_for_byte() {
        let recorded: Recorded =
            serde_json::from_str(&fixture("tencent/signature/vectors.json")).unwrap();
        assert!(recorded.vectors.len() >= 3);
        for vector in recorded.vectors {
            assert_eq!(vector.content_type, CONTENT_TYPE);
            let now = Timestamp::from_second(vector.timestamp).unwrap();
            let ours = authorization(
                &vector.secret_id,
                &vector.secret_key,
                "cvm",
                &vector.host,
                vector.body.as_bytes(),
                now,
            );
            assert_eq!(ours, vector.authorization, "{}", vector.name);
        }
    }
}
