//! The HTTP signature of Oracle Cloud, version 1, RSA-SHA256, for calls without a body.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

/// An API key with its name.
pub(super) struct Signer {
    key_id: String,
    key: RsaKeyPair,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl Signer {
    /// The signer of a PEM key; the reason where the key cannot be used.
    pub(super) fn new(key_id: String, pem: &str) -> Result<Self, String> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
            "is no PEM private key (with a passphrase it cannot be used)".to_owned()
        })?;
        let key = match &der {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err("is no RSA key".to_owned()),
        };
        // Ring's reason names properties of the key, not the key.
        let key = key.map_err(|error| format!("cannot be used: {error}"))?;
        Ok(Self { key_id, key })
    }

    /// The `Authorization` of a call. `target` is path and query, `date` the `Date` header.
    pub(super) fn authorization(
        &self,
        method: &str,
        target: &str,
        host: &str,
        date: &str,
    ) -> Result<String, String> {
        let string = format!(
            "date: {date}\n(request-target): {} {target}\nhost: {host}",
            method.to_lowercase()
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), string.as_bytes(), &mut signature)
            .map_err(|_| "the key could not sign".to_owned())?;
        Ok(format!(
            "Signature algorithm=\"rsa-sha256\",headers=\"date (request-target) host\",\
             keyId=\"{}\",signature=\"{}\",version=\"1\"",
            self.key_id,
            STANDARD.encode(signature)
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::sources::tests::fixture;

    #[derive(Deserialize)]
    struct Vector {
        name: String,
        key_id: String,
        method: String,
        url: String,
        date: String,
        authorization: String,
    }

    #[derive(Deserialize)]
    struct Recorded {
        vectors: Vec<Vector>,
    }

    #[test]
    fn equals_the_official_client_byte_for_byte() {
        let recorded: Recorded =
            serde_json::from_str(&fixture("oci/signature/vectors.json")).unwrap();
        let pem = fixture("oci/signature/test-key.pem");
        assert!(recorded.vectors.len() >= 2);
        for vector in recorded.vectors {
            let signer = Signer::new(vector.key_id, &pem).unwrap();
            let (host, target) =
                vector.url.strip_prefix("https://").unwrap().split_once('/').unwrap();
            let target = format!("/{target}");
            let ours = signer.authorization(&vector.method, &target, host, &vector.date);
            assert_eq!(ours.unwrap(), vector.authorization, "{}", vector.name);
        }
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        let error = Signer::new("id".into(), "-----BEGIN NOTHING-----\nsecret").unwrap_err();
        assert!(!error.contains("secret"));
    }
}
