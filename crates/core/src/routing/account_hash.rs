//! Account of a party, as stated by a route token.
//!
//! A sender chooses its From, and may change it within a dialog (RFC 4916). So a route token states the account for
//! which the server wrote the token. After the removal of that account the token is invalid, with any From.

use super::uri_target::plain;
use crate::siphash::{SipKey, Strong};
use serde::{Deserialize, Serialize};
use strowger_message::Uri;

/// Keyed hash of the address-of-record of an account, in four bytes. If two accounts have the same hash, the removal of one invalidates the
/// tokens of both; the other party then authenticates again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AccountHash(u32);

impl AccountHash {
    /// Bytes in a route token.
    pub(super) const LEN: usize = 4;

    /// The party has no account here.
    pub const NONE: Self = Self(0);

    pub(super) const fn of_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    pub(super) const fn to_bytes(self) -> [u8; Self::LEN] {
        self.0.to_be_bytes()
    }
}

/// Key of the hashes of accounts, the same on all servers with one secret.
#[derive(Clone, Copy)]
pub(super) struct AccountKey(SipKey);

impl std::fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccountKey(..)")
    }
}

impl AccountKey {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(SipKey::derive(secret, b"strowger record-route account"))
    }

    /// Returns the hash of a user name and a domain as stored in the database.
    pub(super) fn of_user(&self, name: &[u8], domain: &[u8]) -> AccountHash {
        self.hash(|hash| hash.part(name), domain)
    }

    /// Returns the hash of the user that a URI names in this domain; [`AccountHash::NONE`] if it names no user.
    pub(super) fn of_uri(&self, uri: &Uri<'_>, domain: &[u8]) -> AccountHash {
        match uri.address().and_then(|uri| uri.user) {
            Some(user) => self.hash(|hash| plain(user, hash), domain),
            None => AccountHash::NONE,
        }
    }

    fn hash(&self, user: impl FnOnce(&mut Strong), domain: &[u8]) -> AccountHash {
        let mut hash = self.0.begin();
        user(&mut hash);
        hash.part_lower(domain.strip_suffix(b".").unwrap_or(domain));
        match AccountHash::of_bytes(hash.bytes()) {
            AccountHash::NONE => AccountHash(1),
            account => account,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_one_hash_however_a_uri_spells_it() {
        let key = AccountKey::new(b"secret");
        let of_uri = |text: &str| key.of_uri(&Uri::parse(text.as_bytes()).expect("a URI"), b"example.org");
        let alice = key.of_user(b"alice", b"EXAMPLE.org");
        for uri in ["sip:alice@example.org", "sips:%61lice@192.0.2.1:5061;x=y", "sip:alice:pw@example.org"] {
            assert_eq!(of_uri(uri), alice, "{uri}");
        }
        assert_eq!(of_uri("sip:a%20b@example.org"), key.of_user(b"a b", b"example.org"));
        for uri in ["sip:Alice@example.org", "sip:alic@eexample.org"] {
            assert_ne!(of_uri(uri), alice, "{uri}");
        }
        assert_ne!(key.of_user(b"alice", b"example.net"), alice);
        for uri in ["sip:example.org", "tel:+4930", "urn:service:sos"] {
            assert_eq!(of_uri(uri), AccountHash::NONE, "{uri}");
        }
        assert_ne!(AccountKey::new(b"other").of_user(b"alice", b"example.org"), alice);
    }
}
