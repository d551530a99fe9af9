//! How a broker with a certificate of its own is trusted.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;

type Result<T, E = Error> = std::result::Result<T, E>;

/// TLS that trusts the system's authorities and, besides, each certificate of a PEM bundle: as an
/// authority, and as the broker's own certificate.
///
/// # Errors
/// One sentence for people: no PEM, no certificate in it, or a certificate that is damaged.
pub(crate) fn client_config(ca_pem: &str) -> Result<ClientConfig, String> {
    let named = CertificateDer::pem_slice_iter(ca_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("ca_pem is not PEM: {error}"))?;
    if named.is_empty() {
        return Err("ca_pem holds no certificate".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Named::new(named, Arc::clone(&provider))
        .map_err(|error| format!("ca_pem cannot be used: {error}"))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The usual verification, and one exception: a server may show a certificate that is itself marked
/// as an authority, as `openssl req -x509` makes them, if exactly that one was named.
#[derive(Debug)]
struct Named {
    usual: Verifier,
    named: Vec<CertificateDer<'static>>,
}

impl Named {
    fn new(named: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Result<Self> {
        Ok(Self { usual: Verifier::new_with_extra_roots(named.clone(), provider)?, named })
    }
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified> {
        let usual = &self.usual;
        match usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // Errors of any name of their own, an expired certificate among them, stay. What is
            // left here is about what kind of certificate it is; its dates were looked at before.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.named.iter().any(|named| named == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid> {
        self.usual.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid> {
        self.usual.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    fn params(ca: bool) -> CertificateParams {
        let mut params = CertificateParams::new(["broker.example".to_owned()]).unwrap();
        if ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        params
    }

    fn self_signed(ca: bool) -> CertificateDer<'static> {
        params(ca).self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn check(
        named: &CertificateDer<'static>,
        shown: &CertificateDer<'_>,
        name: &str,
        year: u64,
    ) -> Result<(), Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Named::new(vec![named.clone()], provider).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_556_952));
        verifier.verify_server_cert(shown, &[], &name, &[], now).map(drop)
    }

    #[test]
    fn exactly_the_named_certificate_may_be_an_authority() {
        let named = self_signed(true);
        assert_eq!(check(&named, &named, "broker.example", 2030), Ok(()));
        // Another one with the same names, of another key.
        assert!(check(&named, &self_signed(true), "broker.example", 2030).is_err());
        // Signed by the named one, but itself an authority that nobody named.
        let issuer =
            CertifiedIssuer::self_signed(params(true), KeyPair::generate().unwrap()).unwrap();
        let below = |ca| {
            let key = KeyPair::generate().unwrap();
            params(ca).signed_by(&key, &issuer).unwrap().der().clone()
        };
        assert!(check(issuer.der(), &below(true), "broker.example", 2030).is_err());
        assert_eq!(check(issuer.der(), &below(false), "broker.example", 2030), Ok(()));
    }

    #[test]
    fn names_and_dates_count_as_usual() {
        let named = self_signed(true);
        for (name, year) in [
            ("other.example", 2030),
            ("127.0.0.1", 2030),
            ("broker.example", 2050),
            ("broker.example", 2010),
        ] {
            assert!(check(&named, &named, name, year).is_err(), "{name} {year}");
        }
        let plain = self_signed(false);
        assert_eq!(check(&plain, &plain, "broker.example", 2030), Ok(()));
        assert!(check(&plain, &plain, "other.example", 2030).is_err());
    }

    #[test]
    fn a_bundle_without_certificates_is_refused() {
        for pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n"] {
            assert!(client_config(pem).is_err(), "{pem:?}");
        }
    }
}
