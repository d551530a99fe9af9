//! Upload tickets: the address of an upload is its own permission.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Buf, BufMut};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use runwhere_agent::protocol::Digest;
use runwhere_model::{ProjectId, Secret};
use sha2::Sha256;

const VERSION: u8 = 1;
const MAC_BYTES: usize = 32;
const FIXED_BYTES: usize = 1 + 8 + 8 + 32;

/// What may be uploaded: exactly one content, to one project, for a while.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ticket {
    /// Whose.
    pub project: ProjectId,
    /// The content.
    pub sha256: Digest,
    /// Its size.
    pub size: u64,
    /// Until when, in seconds since 1970.
    pub expires: i64,
}

/// Why a ticket is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TicketError {
    /// Not made by us, or changed.
    #[error("the upload address is not valid")]
    Invalid,
    /// Too old.
    #[error("the upload address has expired")]
    Expired,
}

/// Signs and checks tickets.
#[derive(Clone)]
pub struct Tickets {
    mac: Hmac<Sha256>,
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

impl Tickets {
    /// Tickets under a key made of the server's.
    pub fn new(server_key: &Secret) -> Self {
        let mut derive = keyed(server_key.expose().as_bytes());
        derive.update(b"runwhere uploads v1");
        Self { mac: keyed(&derive.finalize().into_bytes()) }
    }

    /// The text of a ticket, for a URL.
    pub fn sign(&self, ticket: &Ticket) -> String {
        let mut data = Vec::with_capacity(FIXED_BYTES + MAC_BYTES + 16);
        data.put_u8(VERSION);
        data.put_i64(ticket.expires);
        data.put_u64(ticket.size);
        data.put_slice(ticket.sha256.as_bytes());
        data.put_slice(ticket.project.as_str().as_bytes());
        let mac = self.over(&data).finalize().into_bytes();
        data.put_slice(&mac);
        URL_SAFE_NO_PAD.encode(data)
    }

    /// The ticket of a text, if it is one of ours and still valid.
    pub fn check(&self, text: &str, now: Timestamp) -> Result<Ticket, TicketError> {
        if text.len() > 512 {
            return Err(TicketError::Invalid);
        }
        let data = URL_SAFE_NO_PAD.decode(text).map_err(|_| TicketError::Invalid)?;
        let at = data.len().checked_sub(MAC_BYTES).filter(|at| *at > FIXED_BYTES);
        let (body, mac) = data.split_at(at.ok_or(TicketError::Invalid)?);
        self.over(body).verify_slice(mac).map_err(|_| TicketError::Invalid)?;
        let mut body = body;
        if body.get_u8() != VERSION {
            return Err(TicketError::Invalid);
        }
        let (expires, size) = (body.get_i64(), body.get_u64());
        let mut sha256 = [0; 32];
        body.copy_to_slice(&mut sha256);
        let project = std::str::from_utf8(body).ok().and_then(|id| ProjectId::new(id).ok());
        let project = project.ok_or(TicketError::Invalid)?;
        if now.as_second() >= expires {
            return Err(TicketError::Expired);
        }
        Ok(Ticket { project, sha256: Digest::from_bytes(sha256), size, expires })
    }

    fn over(&self, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(b"PUT /api/v1/uploads/");
        mac.update(body);
        mac
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_unchanged_tickets_of_this_server_are_taken_and_not_for_ever() {
        let tickets = Tickets::new(&Secret::new("key"));
        let ticket = Ticket {
            project: ProjectId::new("p").unwrap(),
            sha256: Digest::of(b"x"),
            size: 7,
            expires: 100,
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let text = tickets.sign(&ticket);
        assert_eq!(tickets.check(&text, at(99)), Ok(ticket.clone()));
        assert_eq!(tickets.check(&text, at(100)), Err(TicketError::Expired));
        let other = Tickets::new(&Secret::new("other"));
        assert_eq!(other.check(&text, at(1)), Err(TicketError::Invalid));
        let raw = URL_SAFE_NO_PAD.decode(&text).unwrap();
        for index in 0..raw.len() {
            let mut changed = raw.clone();
            changed[index] ^= 1;
            let changed = URL_SAFE_NO_PAD.encode(&changed);
            assert_eq!(tickets.check(&changed, at(1)), Err(TicketError::Invalid), "{index}");
            let cut = URL_SAFE_NO_PAD.encode(&raw[..index]);
            assert_eq!(tickets.check(&cut, at(1)), Err(TicketError::Invalid), "{index}");
        }
        for bad in ["", "x", "%%", &"A".repeat(600)] {
            assert_eq!(tickets.check(bad, at(1)), Err(TicketError::Invalid));
        }
    }
}
