//! Answers to challenges, each part of which can be changed: what phones send, and what attackers make of it.

use strowger_core::digest::{Algorithm, Challenge, Ha1, Qop, ResponseInput, response};

use crate::text::{Request, fields, status, unique};

/// Credentials to be written. All fields can be changed before.
#[derive(Debug, Clone)]
pub struct Answer {
    /// `Authorization` or `Proxy-Authorization`.
    pub header: &'static str,
    /// `username`.
    pub user: String,
    /// What the response is computed with.
    pub password: String,
    /// `realm`.
    pub realm: String,
    /// `nonce`.
    pub nonce: String,
    /// `uri`, which the response covers.
    pub uri: String,
    /// What the response covers.
    pub method: String,
    /// `algorithm`.
    pub algorithm: Algorithm,
    /// `qop`; `None` leaves it out, with `nc` and `cnonce`, as phones of RFC 2069 do.
    pub qop: Option<Qop>,
    /// `nc`.
    pub nc: u32,
    /// `cnonce`.
    pub cnonce: String,
    /// Further parameters, with the comma in front.
    pub more: String,
}

/// The values of the challenges of a 401 or 407.
pub fn challenges(refusal: &[u8]) -> Vec<String> {
    let name = if status(refusal) == Some(407) { "Proxy-Authenticate" } else { "WWW-Authenticate" };
    fields(refusal, name)
}

/// Whether the challenges say that the password was right, or not looked at.
pub fn is_stale(refusal: &[u8]) -> bool {
    let values = challenges(refusal);
    !values.is_empty() && values.iter().all(|value| value.contains("stale=true"))
}

impl Answer {
    /// The answer to the first challenge of a 401 or 407 to this request.
    ///
    /// # Panics
    /// There is no challenge, or none that can be read.
    pub fn to(refusal: &[u8], request: &Request, user: &str, password: &str) -> Self {
        let values = challenges(refusal);
        let text = String::from_utf8_lossy(refusal);
        let first = values.first().unwrap_or_else(|| panic!("no challenge in {text}"));
        let challenge = Challenge::parse(first.as_bytes()).unwrap_or_else(|error| panic!("{error:?}: {text}"));
        let owned = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            header: if status(refusal) == Some(407) { "Proxy-Authorization" } else { "Authorization" },
            user: user.into(),
            password: password.into(),
            realm: owned(&challenge.realm.value()),
            nonce: owned(challenge.nonce.raw()),
            uri: request.uri.clone(),
            method: request.method.clone(),
            algorithm: challenge.algorithm().expect("an algorithm that is known"),
            qop: challenge.qop.map(|_| Qop::Auth),
            nc: 1,
            cnonce: "0a4f113b".into(),
            more: String::new(),
        }
    }

    /// The header line, without its end.
    pub fn line(&self) -> String {
        let Self { header, user, realm, nonce, uri, method, algorithm, qop, cnonce, more, .. } = self;
        let nc = format!("{:08x}", self.nc);
        let ha1 = Ha1::new(algorithm.hash, user.as_bytes(), realm.as_bytes(), self.password.as_bytes());
        let input = ResponseInput {
            algorithm: *algorithm,
            qop: *qop,
            nonce: nonce.as_bytes(),
            nc: nc.as_bytes(),
            cnonce: cnonce.as_bytes(),
            method: method.as_bytes(),
            uri: uri.as_bytes(),
            body: b"",
        };
        let value = response(&ha1, &input).hex();
        let counted = qop.map_or(String::new(), |qop| format!(", qop={}, nc={nc}, cnonce=\"{cnonce}\"", qop.name()));
        format!(
            "{header}: Digest username=\"{user}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{uri}\", response=\"{}\", \
             algorithm={algorithm}{counted}{more}",
            value.as_str()
        )
    }

    /// The request as it comes again, with these credentials in place of those it had.
    pub fn on(&self, request: &Request) -> Request {
        let mut again = request.clone();
        again.cseq += 1;
        again.branch = unique("z9hG4bK");
        again.headers.retain(|line| !line.starts_with("Authorization:") && !line.starts_with("Proxy-Authorization:"));
        again.headers.push(self.line());
        again
    }
}
