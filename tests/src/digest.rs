//! Answers to challenges, with modifiable parts: credentials of phones and of attackers.

use strowger_core::digest::{Algorithm, Challenge, Ha1, Qop, ResponseInput, response};

use crate::text::{Request, fields, status, unique};

/// Credentials to write. All fields can be changed before.
#[derive(Debug, Clone)]
pub struct DigestAnswer {
    /// `Authorization` or `Proxy-Authorization`.
    pub header: &'static str,
    /// `username`.
    pub user: String,
    /// Password for the response.
    pub password: String,
    /// `realm`.
    pub realm: String,
    /// `nonce`.
    pub nonce: String,
    /// `uri`, which is part of the response.
    pub uri: String,
    /// Method, which is part of the response.
    pub method: String,
    /// `algorithm`.
    pub algorithm: Algorithm,
    /// `qop`; `None` leaves it out, with `nc` and `cnonce`, like RFC 2069 phones.
    pub qop: Option<Qop>,
    /// `nc`.
    pub nc: u32,
    /// `cnonce`.
    pub cnonce: String,
    /// Further parameters, with the comma in front.
    pub more: String,
}

/// Returns the values of the challenges of a 401 or 407.
pub fn challenges(refusal: &[u8]) -> Vec<String> {
    let name = if status(refusal) == Some(407) { "Proxy-Authenticate" } else { "WWW-Authenticate" };
    fields(refusal, name)
}

/// Tells whether the challenges say that the nonce is stale, so that the password was right or was not checked.
pub fn is_stale(refusal: &[u8]) -> bool {
    let values = challenges(refusal);
    !values.is_empty() && values.iter().all(|value| value.contains("stale=true"))
}

impl DigestAnswer {
    /// Creates the answer to the first challenge of a 401 or 407 to this request.
    ///
    /// # Panics
    /// There is no challenge, or it cannot be parsed.
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

    /// Returns the header line, without its end.
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

    /// Returns the next attempt of the request, with these credentials in place of earlier ones.
    pub fn on(&self, request: &Request) -> Request {
        let mut again = request.clone();
        again.cseq += 1;
        again.branch = unique("z9hG4bK");
        again.headers.retain(|line| !line.starts_with("Authorization:") && !line.starts_with("Proxy-Authorization:"));
        again.headers.push(self.line());
        again
    }
}
