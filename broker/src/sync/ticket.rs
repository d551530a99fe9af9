//! Signed permissions to upload one content.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use runwhere_agent::protocol::Digest;
use runwhere_model::{ProjectId, Secret};

/// How long a ticket is good.
const LIFETIME_SECONDS: i64 = 3600;

/// What may be uploaded, by whom, until when.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ticket {
    /// For this project.
    pub project: ProjectId,
    /// This content.
    pub sha256: Digest,
    /// Of this size.
    pub size: u64,
    /// Unix seconds after which it is void.
    pub expires: i64,
}

/// Why a ticket is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TicketError {
    /// Not one of ours, or changed.
    Invalid,
    /// Its time is over.
    Expired,
}

/// Makes and checks tickets.
#[derive(Clone, Debug)]
pub struct Tickets {
    key: Secret,
}

impl Tickets {
    /// With the server's key.
    pub fn new(key: Secret) -> Self {
        Self { key }
    }

    /// A URL-safe text for one upload.
    pub fn issue(&self, project: &ProjectId, sha256: Digest, size: u64, now: Timestamp) -> String {
        let expires = now.as_second().saturating_add(LIFETIME_SECONDS);
        let body = format!("{project}|{sha256}|{size}|{expires}");
        let mac = URL_SAFE_NO_PAD.encode(self.mac(&body).finalize().into_bytes());
        format!("{}.{mac}", URL_SAFE_NO_PAD.encode(body))
    }

    /// What a text allows now.
    pub fn check(&self, text: &str, now: Timestamp) -> Result<Ticket, TicketError> {
        let (body, mac) = text.split_once('.').ok_or(TicketError::Invalid)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TicketError::Invalid);
        let (body, mac) = (decode(body)?, decode(mac)?);
        let body = String::from_utf8(body).map_err(|_| TicketError::Invalid)?;
        // Compared in constant time.
        self.mac(&body).verify_slice(&mac).map_err(|_| TicketError::Invalid)?;
        let ticket = parse(&body).ok_or(TicketError::Invalid)?;
        match now.as_second() < ticket.expires {
            true => Ok(ticket),
            false => Err(TicketError::Expired),
        }
    }

    fn mac(&self, body: &str) -> Hmac<sha2::Sha256> {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(self.key.expose().as_bytes())
            .expect("HMAC takes keys of any length");
        mac.update(b"upload PUT\0");
        mac.update(body.as_bytes());
        mac
    }
}

fn parse(body: &str) -> Option<Ticket> {
    let parts: Vec<&str> = body.split('|').collect();
    let [project, sha256, size, expires] = parts[..] else { return None };
    Some(Ticket {
        project: ProjectId::new(project).ok()?,
        sha256: sha256.parse().ok()?,
        size: size.parse().ok()?,
        expires: expires.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_unchanged_and_unexpired_tickets_pass() {
        let tickets = Tickets::new(Secret::new("a key"));
        let project = ProjectId::new("p1").unwrap();
        let digest = Digest::of(b"content");
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let text = tickets.issue(&project, digest, 7, now);
        let ticket = tickets.check(&text, now).unwrap();
        assert_eq!((ticket.project, ticket.sha256, ticket.size), (project, digest, 7));
        let late: Timestamp = "2026-11-29T13:00:01Z".parse().unwrap();
        assert_eq!(tickets.check(&text, late), Err(TicketError::Expired));
        assert_eq!(
            Tickets::new(Secret::new("another")).check(&text, now),
            Err(TicketError::Invalid)
        );
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            // The last character of a base64 text may hold unused bits; everything else counts.
            let result = tickets.check(&changed, now);
            assert!(result.is_err() || changed == text, "{at}");
        }
    }
}
