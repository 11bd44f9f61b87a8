//! Phone that answers challenges, and the server that judges its answers.

use super::*;

/// User agent that knows one password and counts its uses of a nonce.
pub(super) struct Phone {
    pub(super) user: &'static str,
    pub(super) password: &'static str,
    pub(super) challenge: String,
    pub(super) nc: u32,
}

impl Phone {
    pub(super) fn new(user: &'static str, password: &'static str) -> Self {
        Self { user, password, challenge: String::new(), nc: 0 }
    }

    /// Takes the strongest challenge of a server.
    pub(super) fn take(&mut self, lines: &[u8]) {
        let lines = std::str::from_utf8(lines).expect("ASCII");
        let values: Vec<&str> =
            lines.lines().map(|line| line.strip_prefix("WWW-Authenticate: ").expect("the header asked for")).collect();
        let challenges: Vec<_> =
            values.iter().map(|value| Challenge::parse(value.as_bytes()).expect("valid")).collect();
        let best = strongest(&challenges).expect("one is supported");
        let index = challenges.iter().position(|other| std::ptr::eq(other, best)).expect("one of them");
        self.challenge = values[index].to_owned();
        self.nc = 0;
    }

    pub(super) fn answer(&mut self) -> Vec<u8> {
        self.nc += 1;
        self.answer_with(self.nc)
    }

    pub(super) fn answer_with(&self, nc: u32) -> Vec<u8> {
        let mut out = Vec::new();
        ChallengeAnswer {
            user: self.user.as_bytes(),
            secret: Secret::Password(self.password.as_bytes()),
            method: b"REGISTER",
            uri: b"sip:example.org",
            body: b"body",
            cnonce: b"0a4f113b",
            nc,
        }
        .write(&Challenge::parse(self.challenge.as_bytes()).expect("valid"), &mut out)
        .expect("supported");
        out
    }
}

/// Offered algorithms unless a test sets others.
const OFFERED: &[Algorithm] = &[Algorithm::MD5, Algorithm::SHA_256];

pub(super) const ATTEMPT: SignedRequest<'_> = SignedRequest {
    method: b"REGISTER",
    uri: b"sip:example.org",
    body: b"body",
    to_registrar: true,
    source: SOURCE,
    source_is_proven: false,
    algorithms: OFFERED,
};

pub(super) fn judge(server: &Authenticator, now: u64, header: &[u8], ha1: Option<&Ha1Set>) -> Authentication {
    server.verify(at(now), REALM, &ATTEMPT, &Credentials::parse(header).expect("valid"), ha1)
}

pub(super) fn demand(realm: &[u8], entropy: u64, stale: bool) -> ChallengeParams<'_> {
    ChallengeParams {
        header: ChallengeHeader::WwwAuthenticate,
        algorithms: OFFERED,
        realm,
        source: SOURCE,
        entropy,
        stale,
    }
}

pub(super) fn challenge(server: &Authenticator, now: u64, entropy: u64) -> Vec<u8> {
    challenge_by(OFFERED, server, now, entropy)
}

pub(super) fn challenge_by(algorithms: &[Algorithm], server: &Authenticator, now: u64, entropy: u64) -> Vec<u8> {
    let mut out = Vec::new();
    server.write_challenges(at(now), &ChallengeParams { algorithms, ..demand(REALM, entropy, false) }, &mut out);
    out
}

pub(super) fn bob() -> (Phone, Ha1Set) {
    (Phone::new("bob", "zanzibar"), Ha1Set::of_password(b"bob", REALM, b"zanzibar"))
}

pub(super) fn server() -> Authenticator {
    Authenticator::new(DigestSettings::default(), b"one secret", 1, STARTED)
}
