//! `[auth]`: digest authentication (RFC 7616, RFC 8760).

use std::path::PathBuf;
use std::time::Duration;

use strowger_core::digest::Hash;

use super::cache::CacheTable;
use super::key::{Rule, words};
use super::name::Reference;
use super::reader::{ANY, section};
use super::secret::Secret;
use super::set::SetTable;

words! {
    /// Hash of the digest (RFC 7616 section 3.2, RFC 8760).
    pub enum Algorithm {
        /// MD5 (RFC 1321); the only hash of old phones.
        Md5 = "MD5",
        /// SHA-256 (RFC 6234).
        Sha256 = "SHA-256",
        /// SHA-512 cut to 256 bits (RFC 7616 section 3.2).
        Sha512_256 = "SHA-512-256",
    }
}

words! {
    /// Quality of protection (RFC 7616 section 3.4).
    pub enum Qop {
        /// Protects method and URI.
        Auth = "auth",
        /// Protects the body as well.
        AuthInt = "auth-int",
    }
}

words! {
    /// Comparison of the `uri` parameter with the Request-URI.
    pub enum UriCheck {
        /// No comparison.
        Off = "off",
        /// Same user and same host, whatever the port and parameters. Any `uri` for REGISTER: To names the user of the binding.
        Loose = "loose",
        /// Same bytes.
        Exact = "exact",
    }
}

/// A tested phone, and whether it registers if a listener offers this list.
type Tried = (&'static str, fn(&[Algorithm]) -> bool);

/// Tested phones, as in the table of docs/phones.md.
const TRIED: [Tried; 4] = [
    ("baresip 1.0", |offered| offered == [Algorithm::Md5]),
    ("SIPp 3.6 and sipsak 0.9.8", |offered| offered.first() == Some(&Algorithm::Md5)),
    ("JsSIP 3.13 and SIP.js 0.21", |offered| offered.last() == Some(&Algorithm::Md5)),
    ("Linphone 5.1", |offered| offered.contains(&Algorithm::Md5)),
];

impl Algorithm {
    /// Returns the tested phones that cannot register if a listener offers this list.
    pub(super) fn shuts_out(offered: &[Self]) -> Vec<&'static str> {
        TRIED.iter().filter(|(_, registers)| !registers(offered)).map(|(phone, _)| *phone).collect()
    }

    /// Returns the hash function of the algorithm.
    pub const fn hash(self) -> Hash {
        match self {
            Self::Md5 => Hash::Md5,
            Self::Sha256 => Hash::Sha256,
            Self::Sha512_256 => Hash::Sha512_256,
        }
    }
}

section! {
    /// Digest authentication (RFC 7616, RFC 8760).
    pub struct Auth = "auth" {
        /// Algorithms offered, one challenge each, in this order (RFC 8760 section 2.3); a `[[listener]]` may have a list of its own. MD5 alone is
        /// the only list with which every tested phone registers: baresip 1.0 refuses a list with an algorithm that it does not know, SIPp 3.6 and
        /// sipsak use the first algorithm of the list, JsSIP 3.13 and SIP.js 0.21 the last one, and all of these phones know only MD5; Linphone 5.1
        /// finds MD5 at any position (docs/phones.md). The disadvantage of MD5: an attacker who reads a request can test several times as many
        /// passwords a second as with SHA-256. TLS and long random passwords protect in both cases. Passwords are stored for all three, so that
        /// another list needs no new ones.
        pub algorithms: Vec<Algorithm> = vec![Algorithm::Md5], ANY;
        /// Protection offered (RFC 7616 section 3.3).
        pub qop: Vec<Qop> = vec![Qop::Auth], ANY;
        /// Lifetime of a nonce. Credentials with an older nonce are answered with `stale=true`, so that the phone retries without asking its user.
        pub nonce_lifetime: Duration = Duration::from_secs(300), Rule::time(Duration::from_secs(5), Duration::from_secs(86_400)).fixed();
        /// Number of used nonces that are remembered against replay, 40 to 60 bytes each. When the table is full, correct credentials with a further
        /// nonce are answered as stale. One user may hold at most as many nonces as are still free, so at most half of all.
        pub used_nonces: usize = 1_000_000, Rule::number(1_024, 1 << 28).fixed();
        /// Accept credentials without qop, as phones of RFC 2069 send them; each such request uses up a nonce.
        pub without_qop: bool = true, ANY;
        /// Comparison of the `uri` in credentials with the Request-URI (RFC 7616 section 3.4.6), so that intercepted credentials cannot be used to
        /// call another number. "off" if a proxy before this server rewrites numbers or domains.
        pub uri_check: UriCheck = UriCheck::Loose, ANY;
        /// Key for nonces and for the route tokens of calls; servers that replace one another need the same secret. At least 16 characters. The
        /// environment variable STROWGER_AUTH_SECRET takes precedence. "": the server draws a secret at its first start and keeps it next to the
        /// database.
        pub secret: Option<Secret> = None, ANY.or("").fixed();
        /// File whose first line is the secret, instead of `secret`.
        pub secret_file: Option<PathBuf> = None, ANY.or("").fixed();
        /// The authenticated user must be the user in From, except in a REGISTER (RFC 3261 section 22.1). False: a user may call under the name of
        /// any other.
        pub user_must_match: bool = true, ANY;
        /// Name of a `[[set]]` of texts with the numbers that an account may show, in From and in P-Preferred-Identity, P-Asserted-Identity and
        /// Remote-Party-ID (RFC 3325): for a PBX with numbers behind one account. The keys of the set are users ("pbx", or "pbx@example.org", which
        /// is looked up first), and its values are lists such as "+49301234560, +4930123*, +49301200..+49301299"; the first single number is the
        /// account's own number. "*" is any number. Each account may also show its own address-of-record. "": an account may show only its
        /// address-of-record.
        pub identities: Option<Reference<SetTable>> = None, ANY.or("");
        /// Allow a user to register for another user, whom the To of the REGISTER names; for a PBX that registers its numbers by one password. Each
        /// user can then receive the calls of every other user of the same realm. False: To must name the authenticated user.
        pub register_for_others: bool = false, ANY;
        /// Callers whose From is of a local domain must authenticate (RFC 3261 section 22.3).
        pub calls: bool = true, ANY;
        /// A `[[cache]]` with the credentials of registered users. A verified REGISTER stores the credentials there for the lifetime of the
        /// registration, and its 200 is sent when they are stored. Other requests of users are verified from the cache alone, without the database: a
        /// user without an entry is challenged again, like an unknown user. The end of the registration removes the entry. Servers that share the
        /// cache accept users whom one of them has registered. The cache holds HA1s: an attacker who can read the cache can act as any user in it.
        pub credential_cache: Option<Reference<CacheTable>> = None, ANY.or("").fixed();
        /// A REGISTER whose credentials cannot be stored in `credential_cache` is answered 500. False: it is answered 200. The user can then be
        /// called, but the server challenges each request of the user until the phone registers again.
        pub credential_cache_required: bool = true, ANY;
    }
}

impl Auth {
    /// Tells whether `secret` or `secret_file` is set.
    pub const fn has_secret(&self) -> bool {
        self.secret.is_some() || self.secret_file.is_some()
    }
}
