//! Credentials by hand (RFC 7616).

use crate::text::{fields, status};
use strowger_core::digest::{Challenge, ChallengeAnswer, Secret, strongest};

/// Returns the header line, without its end, with the credentials of a user for a request: method, URI, body.
/// `challenge`: a 401 or 407, whose strongest known algorithm is used; `nc`: nonce count.
///
/// # Panics
/// There is no challenge, or no algorithm of it is known.
pub fn credentials(
    challenge: &[u8],
    user: &str,
    password: &[u8],
    (method, uri, body): (&str, &str, &[u8]),
    nc: u32,
) -> String {
    let (name, line) = match status(challenge) {
        Some(401) => ("WWW-Authenticate", "Authorization"),
        Some(407) => ("Proxy-Authenticate", "Proxy-Authorization"),
        _ => panic!("no challenge: {}", String::from_utf8_lossy(challenge)),
    };
    let values = fields(challenge, name);
    let challenges: Vec<_> = values.iter().filter_map(|value| Challenge::parse(value.as_bytes()).ok()).collect();
    let answer = ChallengeAnswer {
        user: user.as_bytes(),
        secret: Secret::Password(password),
        method: method.as_bytes(),
        uri: uri.as_bytes(),
        body,
        cnonce: b"cnonce",
        nc,
    };
    let mut text = format!("{line}: ").into_bytes();
    answer.write(strongest(&challenges).expect("one that is known"), &mut text).expect("it can be answered");
    String::from_utf8(text).expect("text")
}
