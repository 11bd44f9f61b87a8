//! Digest access authentication: RFC 7616 with the algorithms of RFC 8760, and RFC 2617 for old peers.
//!
//! Nothing here does I/O, reads a clock or draws randomness: time, secret and entropy of a nonce are arguments. A server needs three calls
//! of [`Authenticator`]:
//!
//! 1. without credentials: [`Authenticator::write_challenges`] writes one header line per offered algorithm;
//! 2. [`Credentials::parse`] on the header value, then [`Authenticator::check`], which costs one MAC and no look-up, so that a forged nonce
//!    never reaches the subscriber database;
//! 3. with the stored [`Ha1Set`] (or `None` for an unknown user) [`Authenticator::decide`] returns an [`Authentication`].
//!
//! [`Authenticator::verify`] does 2 and 3 at once if the subscriber is known already.
//!
//! A user agent parses each [`Challenge`], takes the [`strongest`] and writes its [`ChallengeAnswer`].

mod algorithm;
mod answer;
mod authenticator;
mod challenge;
mod compute;
mod credentials;
mod nonce;
mod params;
mod replay;

pub use algorithm::{Algorithm, Hash, HashValue};
pub use answer::{ChallengeAnswer, ChallengeAnswerError, Secret};
pub use authenticator::{
    Authentication, Authenticator, BadRequest, ChallengeParams, CheckedCredentials, DigestSettings, SignedRequest,
    Staleness, UriCheck,
};
pub use challenge::{Challenge, ChallengeHeader, QopOffer, strongest};
pub use compute::{Ha1, Ha1Set, Qop, ResponseInput, a2_hash, response, session_ha1, userhash};
pub use credentials::Credentials;
pub use nonce::{NONCE_LEN, Nonce, NonceKey, NonceText};
pub use params::{HeaderError, Text};
pub use replay::{Admission, Count, ReplaySettings, ReplayTable};
