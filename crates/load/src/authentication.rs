//! Digest access authentication of scenarios: writes `[authentication]` and checks `verifyauth`.
//!
//! The header equals SIPp's byte for byte: the order `username, realm, cnonce, nc, qop, uri, nonce, response,
//! algorithm, opaque`, commas without spaces, the algorithm as the server spelled it. In addition to SIPp 3.6.1, this
//! module answers the hashes of RFC 8760, and a `-sess` algorithm by the rule for it (RFC 7616 section 3.4.2), for
//! which SIPp computes plain MD5.

use std::io::Write;

use strowger_core::digest::{Algorithm, Ha1, Hash, Qop, ResponseInput, response};
use subtle::ConstantTimeEq;

use crate::aka::{self, AkaError, AkaSecret};

/// Credentials of a client.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    pub username: &'a [u8],
    /// Password; AKA uses K instead.
    pub password: &'a [u8],
    /// Secrets of `AKAv1-MD5`: `aka_K`, `aka_OP` and `aka_AMF`.
    pub aka: Option<&'a AkaSecret>,
}

/// Request that carries the credentials.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a [u8],
    /// Digest URI. SIPp's is `sip:` with the remote address and port, or the value of `-auth_uri`, not the Request-URI.
    pub uri: &'a [u8],
    /// Body, for auth-int.
    pub body: &'a [u8],
    /// Nonce count: 1 for the first answer to a challenge, and one more for each later answer.
    pub count: u32,
    /// Random number, written as hexadecimal.
    pub cnonce: u32,
}

/// Reason why a challenge cannot be answered. SIPp ends the run with such a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticationError {
    #[error("the response has no WWW-Authenticate and no Proxy-Authenticate header to answer")]
    NoChallenge,
    #[error("the challenge is not Digest")]
    Scheme,
    #[error("the challenge has no realm=")]
    Realm,
    #[error("the challenge has no nonce=")]
    Nonce,
    #[error("the challenge asks for an algorithm other than MD5, SHA-256, SHA-512-256 and AKAv1-MD5")]
    Algorithm,
    #[error("AKAv1-MD5 needs aka_K (or password) and aka_OP in [authentication]")]
    NoAkaSecret,
    #[error("AKAv1-MD5: {0}")]
    Aka(#[from] AkaError),
}

/// Returns whether a challenge with this status is answered in `Proxy-Authorization`. The status decides, not the
/// header of the challenge.
pub fn is_proxy(status: u16) -> bool {
    status == 407
}

/// Appends the challenges of a 401 or 407 to `out`, separated by `, `: the values of all its `Proxy-Authenticate`
/// lines, or, if it has none, of its `WWW-Authenticate` lines. A call keeps the challenges until it answers.
///
/// # Errors
/// [`AuthenticationError::NoChallenge`] if the response has neither.
pub fn write_challenges(message: &[u8], out: &mut Vec<u8>) -> Result<(), AuthenticationError> {
    for name in [&b"Proxy-Authenticate"[..], b"WWW-Authenticate"] {
        let start = out.len();
        for value in header_values(message, name) {
            if out.len() > start {
                out.extend(b", ");
            }
            out.extend(value);
        }
        if out.len() > start {
            return Ok(());
        }
    }
    Err(AuthenticationError::NoChallenge)
}

/// Appends the whole header without line end: `Authorization: Digest …`, or with `proxy` `Proxy-Authorization: Digest
/// …`. `challenges` comes from [`write_challenges`]; if it repeats a parameter, the first value is used.
///
/// # Errors
/// The challenge cannot be answered; `out` is then unchanged.
pub fn write_answer(
    challenges: &[u8],
    proxy: bool,
    credentials: &Credentials<'_>,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<(), AuthenticationError> {
    let start = out.len();
    let name: &[u8] = if proxy { b"Proxy-Authorization: " } else { b"Authorization: " };
    out.extend(name);
    let written = write_value(challenges, credentials, request, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_value(
    challenges: &[u8],
    credentials: &Credentials<'_>,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<(), AuthenticationError> {
    use AuthenticationError as Error;
    if !is_digest(challenges) {
        return Err(Error::Scheme);
    }
    let name = parameter(challenges, b"algorithm").unwrap_or(b"MD5");
    let aka = name.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"AKAv1-MD5"));
    let algorithm = if aka { Algorithm::MD5 } else { algorithm(name).ok_or(Error::Algorithm)? };
    let realm = parameter(challenges, b"realm").ok_or(Error::Realm)?;
    let nonce = parameter(challenges, b"nonce").ok_or(Error::Nonce)?;
    // auth-int is preferred if offered.
    let qop = parameter(challenges, b"qop").and_then(|offered| {
        if contains(offered, b"auth-int") {
            Some(Qop::AuthInt)
        } else {
            contains(offered, b"auth").then_some(Qop::Auth)
        }
    });
    let res;
    let password = if aka {
        res = aka::response(credentials.aka.ok_or(Error::NoAkaSecret)?, nonce)?;
        &res
    } else {
        credentials.password
    };

    let mut cnonce_digits = [0; 8];
    let cnonce = write_number(&mut cnonce_digits, format_args!("{:x}", request.cnonce));
    let mut count_digits = [0; 8];
    let count = write_number(&mut count_digits, format_args!("{:08x}", request.count));
    let ha1 = Ha1::new(algorithm.hash, credentials.username, realm, password);
    let (method, uri, body) = (request.method, request.uri, request.body);
    let answer = response(&ha1, &ResponseInput { algorithm, qop, nonce, nc: count, cnonce, method, uri, body });

    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    put(&[b"Digest username=\"", credentials.username, b"\",realm=\"", realm, b"\""]);
    if let Some(qop) = qop {
        put(&[b",cnonce=\"", cnonce, b"\",nc=", count, b",qop=", qop.name().as_bytes()]);
    } else if algorithm.session {
        put(&[b",cnonce=\"", cnonce, b"\""]);
    }
    put(&[b",uri=\"", uri, b"\",nonce=\"", nonce, b"\",response=\"", answer.hex().as_bytes(), b"\",algorithm=", name]);
    if let Some(opaque) = parameter(challenges, b"opaque").filter(|opaque| !opaque.is_empty()) {
        put(&[b",opaque=\"", opaque, b"\""]);
    }
    Ok(())
}

/// Checks for `verifyauth` that the request's first `Authorization` proves the password. The username is the given one,
/// whatever the header contains, and any nonce is accepted. The method and the body are the request's.
pub fn verify(message: &[u8], username: &[u8], password: &[u8]) -> bool {
    let method = message.split(|&byte| byte == b' ').next().unwrap_or_default();
    let body = memchr::memmem::find(message, b"\r\n\r\n").map_or(&b""[..], |end| &message[end + 4..]);
    let header = authorization(message);
    if !is_digest(header) {
        return false;
    }
    let wanted = |name: &[u8]| parameter(header, name).unwrap_or_default();
    let Some(algorithm) = algorithm(parameter(header, b"algorithm").unwrap_or(b"MD5")) else { return false };
    let ha1 = Ha1::new(algorithm.hash, username, wanted(b"realm"), password);
    let qop = parameter(header, b"qop").and_then(Qop::parse);
    let (nonce, nc, cnonce, uri) = (wanted(b"nonce"), wanted(b"nc"), wanted(b"cnonce"), wanted(b"uri"));
    let answer = response(&ha1, &ResponseInput { algorithm, qop, nonce, nc, cnonce, method, uri, body });
    // Lower case, as in the RFC; SIPp too refuses upper case.
    bool::from(answer.hex().as_bytes().ct_eq(wanted(b"response")))
}

/// Returns the value of a request's first `Authorization`, or an empty value if there is none.
pub(crate) fn authorization(message: &[u8]) -> &[u8] {
    header_values(message, b"Authorization").next().unwrap_or_default()
}

/// Parses an algorithm. SIPp takes every name that begins with MD5 for MD5; this function recognises the session
/// variant.
fn algorithm(name: &[u8]) -> Option<Algorithm> {
    Algorithm::parse(name).or_else(|| {
        let md5 = name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"MD5"));
        md5.then_some(Algorithm { hash: Hash::Md5, session: false })
    })
}

/// Returns whether credentials or a challenge use the Digest scheme.
pub(crate) fn is_digest(value: &[u8]) -> bool {
    value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"Digest"))
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window.eq_ignore_ascii_case(wanted))
}

/// Returns the value of the first `name=value` or `name="value"`; as in SIPp without escapes, and with no space around
/// the equals sign.
fn parameter<'a>(header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut from = 0;
    loop {
        let equals = from + memchr::memchr(b'=', &header[from..])?;
        let (before, value) = (&header[..equals], &header[equals + 1..]);
        from = equals + 1;
        let (value, end) = match value.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = memchr::memchr(b'"', quoted).unwrap_or(quoted.len());
                (&quoted[..end], equals + 2 + end)
            }
            None => {
                let end = value.iter().position(|byte| b" ,\r\n".contains(byte)).unwrap_or(value.len());
                (&value[..end], equals + 1 + end)
            }
        };
        let is_it = before.len() >= name.len() && before[before.len() - name.len()..].eq_ignore_ascii_case(name);
        let stands_alone = before.len() == name.len()
            || before.get(before.len().wrapping_sub(name.len() + 1)).is_some_and(|&byte| b" ,\t\r\n\"".contains(&byte));
        if is_it && stands_alone {
            return Some(value);
        }
        // Continues after the value, so that quoted text is not taken for a parameter.
        from = from.max(end.min(header.len()));
    }
}

/// Returns the values of all lines of a header; the name ignores case, folded lines stay folded.
fn header_values<'a>(message: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let head = &message[..memchr::memmem::find(message, b"\r\n\r\n").unwrap_or(message.len())];
    let mut rest = head;
    std::iter::from_fn(move || {
        loop {
            let line_end = memchr::memmem::find(rest, b"\r\n")?;
            rest = &rest[line_end + 2..];
            let colon = memchr::memchr(b':', rest).filter(|_| rest.len() > name.len());
            let Some(colon) = colon.filter(|&colon| rest[..colon].trim_ascii_end().eq_ignore_ascii_case(name)) else {
                continue;
            };
            let value = &rest[colon + 1..];
            let mut end = 0;
            loop {
                end += memchr::memmem::find(&value[end..], b"\r\n").unwrap_or(value.len() - end);
                match value.get(end + 2) {
                    Some(b' ' | b'\t') => end += 2,
                    _ => return Some(value[..end].trim_ascii()),
                }
            }
        }
    })
}

fn write_number<'a>(digits: &'a mut [u8; 8], number: std::fmt::Arguments<'_>) -> &'a [u8] {
    let mut left = &mut digits[..];
    let fits = left.write_fmt(number);
    debug_assert!(fits.is_ok(), "32 bits are 8 digits");
    let used = 8 - left.len();
    &digits[..used]
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request<'_> =
        Request { method: b"INVITE", uri: b"sip:127.0.0.1:38528", body: b"", count: 1, cnonce: 0x6b8b_4567 };
    const JOE: Credentials<'_> = Credentials { username: b"joe", password: b"secret", aka: None };

    fn answer(challenge: &str, proxy: bool, credentials: &Credentials<'_>, request: &Request<'_>) -> String {
        let mut out = b"X: 1\r\n".to_vec();
        write_answer(challenge.as_bytes(), proxy, credentials, request, &mut out).unwrap();
        String::from_utf8(out).unwrap().strip_prefix("X: 1\r\n").unwrap().to_owned()
    }

    fn joe(challenge: &str, uri: &str) -> String {
        answer(challenge, false, &JOE, &Request { uri: uri.as_bytes(), ..REQUEST })
    }

    /// Compares with the lines that SIPp 3.6.1 wrote for the same challenge.
    #[test]
    fn lines_are_sipp_s() {
        assert_eq!(
            joe("Digest realm=\"r.test\", nonce=\"abc123\"", "sip:127.0.0.1:38528"),
            "Authorization: Digest username=\"joe\",realm=\"r.test\",uri=\"sip:127.0.0.1:38528\",nonce=\"abc123\",\
             response=\"517cef8d1e3bb55e51fdd700b0f22e15\",algorithm=MD5"
        );
        assert_eq!(
            joe("Digest realm=\"r.test\", nonce=\"abc123\", qop=auth", "sip:127.0.0.1:58528"),
            joe("digest realm=r.test,qop=\"auth\",nonce=abc123", "sip:127.0.0.1:58528")
        );
        assert_eq!(
            joe(
                "Digest realm=\"r.test\", nonce=\"abc123\", qop=\"auth,auth-int\", opaque=\"op\"",
                "sip:127.0.0.1:47973"
            ),
            "Authorization: Digest username=\"joe\",realm=\"r.test\",cnonce=\"6b8b4567\",nc=00000001,qop=auth-int,\
             uri=\"sip:127.0.0.1:47973\",nonce=\"abc123\",response=\"01fa5af985a30b4378144d8d58fd4595\",algorithm=MD5,\
             opaque=\"op\""
        );
        let proxy = "Digest realm=\"r.test\", nonce=\"abc123\", opaque=\"zz\", stale=FALSE, algorithm=md5, qop=\"auth\", domain=\"sip:x\"";
        assert_eq!(
            answer(proxy, true, &JOE, &Request { uri: b"sip:127.0.0.1:38176", ..REQUEST }),
            "Proxy-Authorization: Digest username=\"joe\",realm=\"r.test\",cnonce=\"6b8b4567\",nc=00000001,qop=auth,\
             uri=\"sip:127.0.0.1:38176\",nonce=\"abc123\",response=\"ac1b2ff6f94d04001914f61095fc8dd1\",algorithm=md5,\
             opaque=\"zz\""
        );
        // An empty opaque is omitted; a quote in a value ends it.
        assert_eq!(
            joe(
                "Digest realm=\"r.test\", nonce=\"abc123\", opaque=\"\", algorithm=MD5, qop=\"auth-int\"",
                "sip:127.0.0.1:49037"
            ),
            "Authorization: Digest username=\"joe\",realm=\"r.test\",cnonce=\"6b8b4567\",nc=00000001,qop=auth-int,\
             uri=\"sip:127.0.0.1:49037\",nonce=\"abc123\",response=\"000e4e9aab10bdd00c55d7502116e136\",algorithm=MD5"
        );
        assert_eq!(
            joe("Digest realm=\"a\\\"b\", nonce=\"abc123\"", "sip:127.0.0.1:50250"),
            "Authorization: Digest username=\"joe\",realm=\"a\\\",uri=\"sip:127.0.0.1:50250\",nonce=\"abc123\",\
             response=\"0889aef03b8b8076cdff6ac8d0e2162a\",algorithm=MD5"
        );
        // The first of two challenges.
        assert_eq!(
            joe("Digest realm=\"one\", nonce=\"n1\", Digest realm=\"two\", nonce=\"n2\"", "sip:127.0.0.1:48667"),
            "Authorization: Digest username=\"joe\",realm=\"one\",uri=\"sip:127.0.0.1:48667\",nonce=\"n1\",\
             response=\"c5a5457cf20b7ea1deeb1cd91a1e66ac\",algorithm=MD5"
        );
        assert!(
            joe("Digest realm=\"r\", cnonce=\"xx\", nonce=\"n\", uri=\"sip:q\"", "sip:a").contains(",nonce=\"n\",")
        );
    }

    #[test]
    fn aka_is_answered_as_by_sipp() {
        let secret = AkaSecret {
            key: 0xfec8_6ba6_eb70_7ed0_8905_757b_1bb4_4b8f_u128.to_be_bytes(),
            operator: 0xdbc5_9adc_b6f9_a0ef_7354_77b7_fadf_8374_u128.to_be_bytes(),
            management: [0x72, 0x5c],
        };
        let alice = Credentials { username: b"alice@ims.example.com", password: b"", aka: Some(&secret) };
        let challenge = "Digest realm=\"ims.example.com\", nonce=\"n3yNAhrM9NshPM/wx/caaq5KOptMl3JcnKvD6ZuvcoE=\", \
                         algorithm=AKAv1-MD5, qop=\"auth\"";
        let request = Request { method: b"REGISTER", uri: b"sip:127.0.0.1:39914", ..REQUEST };
        assert_eq!(
            answer(challenge, false, &alice, &request),
            "Authorization: Digest username=\"alice@ims.example.com\",realm=\"ims.example.com\",cnonce=\"6b8b4567\",\
             nc=00000001,qop=auth,uri=\"sip:127.0.0.1:39914\",nonce=\"n3yNAhrM9NshPM/wx/caaq5KOptMl3JcnKvD6ZuvcoE=\",\
             response=\"455fb6e386defe1fc4a22a424f7503a1\",algorithm=AKAv1-MD5"
        );
        let other = AkaSecret { management: [0; 2], ..secret };
        let mut out = Vec::new();
        let wrong = Credentials { aka: Some(&other), ..alice };
        assert_eq!(
            write_answer(challenge.as_bytes(), false, &wrong, &request, &mut out),
            Err(AuthenticationError::Aka(AkaError::Mac))
        );
        assert_eq!(
            write_answer(challenge.as_bytes(), false, &JOE, &request, &mut out),
            Err(AuthenticationError::NoAkaSecret)
        );
        assert!(out.is_empty());
    }

    #[test]
    fn unanswerable_challenges() {
        let refused = |challenge: &str| {
            let mut out = Vec::new();
            let error = write_answer(challenge.as_bytes(), false, &JOE, &REQUEST, &mut out).unwrap_err();
            assert!(out.is_empty());
            error
        };
        assert_eq!(refused("Basic realm=\"r\""), AuthenticationError::Scheme);
        assert_eq!(refused("Digest nonce=\"n\""), AuthenticationError::Realm);
        assert_eq!(refused("Digest nonce=\"abc\", realm = \"r.test\" , qop=\"auth\""), AuthenticationError::Realm);
        assert_eq!(refused("Digest realm=\"r\""), AuthenticationError::Nonce);
        assert_eq!(refused("Digest realm=\"r\", nonce=\"n\", algorithm=SHA-1"), AuthenticationError::Algorithm);
        assert_eq!(refused(""), AuthenticationError::Scheme);
        assert_eq!(
            write_challenges(b"SIP/2.0 401 No\r\nX: 1\r\n\r\n", &mut Vec::new()),
            Err(AuthenticationError::NoChallenge)
        );
    }

    #[test]
    fn challenges_are_taken_from_the_proxy_first_and_joined() {
        let message =
            b"SIP/2.0 407 No\r\nWWW-Authenticate: Digest a=1\r\nproxy-authenticate:Digest b=\"2\",\r\n c=3\r\n\
                        Proxy-Authenticate: Digest d=4\r\n\r\nProxy-Authenticate: body\r\n";
        let mut out = Vec::new();
        write_challenges(message, &mut out).unwrap();
        assert_eq!(out, b"Digest b=\"2\",\r\n c=3, Digest d=4");
        assert_eq!(
            (parameter(&out, b"c"), parameter(&out, b"b"), parameter(&out, b"x")),
            (Some(&b"3"[..]), Some(&b"2"[..]), None)
        );
        let folded = "Digest realm=\"r.test\",\r\n nonce=\"abc123\"";
        assert!(joe(folded, "sip:127.0.0.1:58404").contains("response=\"604841db1c94d05aef40845149f1d4a4\""));
        assert!(is_proxy(407) && !is_proxy(401));
    }

    #[test]
    fn our_answers_verify_with_every_hash() {
        for algorithm in ["MD5", "MD5-sess", "SHA-256", "SHA-256-sess", "SHA-512-256"] {
            for qop in ["", ", qop=\"auth\"", ", qop=\"auth-int\""] {
                let challenge = format!("Digest realm=\"r.test\", nonce=\"n1\", algorithm={algorithm}{qop}");
                let request = Request { method: b"REGISTER", body: b"body", ..REQUEST };
                let line = answer(&challenge, false, &JOE, &request);
                let message =
                    format!("REGISTER sip:r.test SIP/2.0\r\nVia: v\r\n{line}\r\nContent-Length: 4\r\n\r\nbody");
                assert!(verify(message.as_bytes(), b"joe", b"secret"), "{challenge}");
                assert!(!verify(message.as_bytes(), b"joe", b"other"), "{challenge}");
                assert!(!verify(message.replace("REGISTER sip", "INVITE sip").as_bytes(), b"joe", b"secret"));
                let other_body = message.replace("\r\n\r\nbody", "\r\n\r\nbodz");
                assert_eq!(verify(other_body.as_bytes(), b"joe", b"secret"), !qop.contains("int"), "{challenge}");
            }
        }
    }

    #[test]
    fn verification_judges_as_sipp_does() {
        let line =
            answer("Digest realm=\"r.test\", nonce=\"n1\"", false, &JOE, &Request { method: b"REGISTER", ..REQUEST });
        let check = |line: &str| {
            let message = format!("REGISTER sip:r.test SIP/2.0\r\nVia: v\r\n{line}\r\nContent-Length: 0\r\n\r\n");
            verify(message.as_bytes(), b"joe", b"secret")
        };
        assert!(check(&line));
        assert!(check(&line.replace("username=\"joe\"", "username=\"zed\"")));
        assert!(check(&line.replace("Authorization", "authorization")));
        assert!(!check(&format!("Proxy-{line}")) && !check(&format!("X-{line}")) && !check("X: 1"));
        assert!(!check("Authorization: Basic abc") && !check(&line.replace("algorithm=MD5", "algorithm=SHA-1")));
        assert!(!check(&line.to_uppercase().replace("AUTHORIZATION", "Authorization")));
        let wrong = line.replace("response=\"", "response=\"0");
        assert!(!check(&format!("{wrong}\r\n{line}")) && check(&format!("{line}\r\n{wrong}")));
    }
}
