//! The canonical form of a call, as the signatures of several clouds hash it.

use super::digest::sha256_hex;

/// What is signed of a call.
#[derive(Clone, Debug)]
pub struct CanonicalCall<'a> {
    /// `GET` or `POST`.
    pub method: &'a str,
    /// Encoded.
    pub path: &'a str,
    /// Encoded, in the order that the signature wants.
    pub query: &'a str,
    /// Names in lower case, in any order.
    pub headers: Vec<(&'a str, &'a str)>,
    /// As it is sent.
    pub body: &'a [u8],
}

/// A call's hash and what it covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CanonicalHash {
    /// The names of the headers, in order, with semicolons between them.
    pub signed_headers: String,
    /// Lower-case hexadecimal digits.
    pub sha256: String,
}

impl CanonicalCall<'_> {
    /// The hash of method, path, query, headers, their names, and the body's hash, each on its line.
    pub fn hash(mut self) -> CanonicalHash {
        self.headers.sort_unstable();
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        let signed_headers = names.join(";");
        let lines: String =
            self.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let canonical = format!(
            "{}\n{}\n{}\n{lines}\n{signed_headers}\n{}",
            self.method,
            self.path,
            self.query,
            sha256_hex(self.body)
        );
        CanonicalHash { sha256: sha256_hex(canonical.as_bytes()), signed_headers }
    }
}
