//! Credentials: value of an Authorization or Proxy-Authorization header field (RFC 7616 section 3.4).

use std::borrow::Cow;

use super::algorithm::{Algorithm, HashValue, hex_digit};
use super::compute::Qop;
use super::params::{HeaderError, Malformed, Params, Text, scheme};

/// Digest credentials as views into the header field; nothing is copied.
///
/// Each value may be quoted or not. A repeated parameter is refused, because two readers of the message could use
/// different ones of its values.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// `username`; a hash if `userhash` is set.
    pub username: Option<Text<'a>>,
    /// `username*`, an extended value of RFC 5987; [`Credentials::user`] decodes it.
    pub username_ext: Option<Text<'a>>,
    /// Realm of the challenge, in which the user's name and password are valid.
    pub realm: Text<'a>,
    /// Nonce of the challenge.
    pub nonce: Text<'a>,
    /// Request-URI as written by the user agent; proxies may have rewritten the Request-URI of the request since (RFC
    /// 3261 section 22.4 item 5).
    pub uri: Text<'a>,
    /// Hexadecimal digits; [`Credentials::response_value`] reads them.
    pub response: Text<'a>,
    /// Algorithm; `None` if the parameter is missing, which means MD5.
    pub algorithm: Option<Text<'a>>,
    /// Text chosen by the user agent, part of the response with a qop or a `-sess` algorithm.
    pub cnonce: Option<Text<'a>>,
    /// Text of the challenge; ours have none.
    pub opaque: Option<Text<'a>>,
    /// Claimed quality of protection; [`Credentials::qop`] reads it.
    pub qop: Option<Text<'a>>,
    /// Nonce count in hexadecimal digits; [`Credentials::nonce_count`] reads them.
    pub nc: Option<Text<'a>>,
    /// Set by `userhash=true`.
    pub userhash: bool,
}

impl<'a> Credentials<'a> {
    /// Reads the value of a header field, with or without folds.
    ///
    /// # Errors
    /// No Digest credentials, or malformed ones; an unknown algorithm or qop is no error.
    pub fn parse(value: &'a [u8]) -> Result<Self, HeaderError> {
        let (name, params) = scheme(value);
        if !name.eq_ignore_ascii_case(b"Digest") {
            return Err(HeaderError::Scheme);
        }
        let mut realm = None;
        let mut nonce = None;
        let mut uri = None;
        let mut response = None;
        let mut userhash = None;
        let mut read = Self {
            username: None,
            username_ext: None,
            realm: Text::default(),
            nonce: Text::default(),
            uri: Text::default(),
            response: Text::default(),
            algorithm: None,
            cnonce: None,
            opaque: None,
            qop: None,
            nc: None,
            userhash: false,
        };
        for param in Params::new(params) {
            let (name, value) = param.map_err(|Malformed(at)| HeaderError::Syntax(at))?;
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let (slot, name) = match name.len() {
                2 if is("nc") => (&mut read.nc, "nc"),
                3 if is("uri") => (&mut uri, "uri"),
                3 if is("qop") => (&mut read.qop, "qop"),
                5 if is("realm") => (&mut realm, "realm"),
                5 if is("nonce") => (&mut nonce, "nonce"),
                6 if is("cnonce") => (&mut read.cnonce, "cnonce"),
                6 if is("opaque") => (&mut read.opaque, "opaque"),
                8 if is("response") => (&mut response, "response"),
                8 if is("username") => (&mut read.username, "username"),
                8 if is("userhash") => (&mut userhash, "userhash"),
                9 if is("algorithm") => (&mut read.algorithm, "algorithm"),
                9 if is("username*") => (&mut read.username_ext, "username*"),
                // Extensions (auth-param) are ignored (RFC 7616 section 3.4).
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return Err(HeaderError::Twice(name));
            }
        }
        let need = |value: Option<Text<'a>>, name| value.ok_or(HeaderError::Missing(name));
        read.realm = need(realm, "realm")?;
        read.nonce = need(nonce, "nonce")?;
        read.uri = need(uri, "uri")?;
        read.response = need(response, "response")?;
        read.userhash = userhash.is_some_and(|value| value.is("true"));
        match (read.username, read.username_ext) {
            (None, None) => Err(HeaderError::Missing("username")),
            // Both parameters together are an error (RFC 7616 section 3.4), and so is username* together with userhash.
            (Some(_), Some(_)) => Err(HeaderError::Twice("username")),
            (None, Some(_)) if read.userhash => Err(HeaderError::Missing("username")),
            _ => Ok(read),
        }
    }

    /// Returns the decoded user name; none if `username*` is not valid UTF-8 in the encoding of RFC 5987.
    ///
    /// With `userhash` the name is the hexadecimal value of [`userhash`](super::userhash).
    pub fn user(&self) -> Option<Cow<'a, [u8]>> {
        match (self.username, self.username_ext) {
            (Some(name), _) => Some(name.value()),
            (None, Some(extended)) => ext_value(extended.raw()).map(Cow::Owned),
            (None, None) => None,
        }
    }

    /// Returns the claimed algorithm, MD5 if the parameter is missing; `None` if the algorithm is unknown.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm.map_or(Some(Algorithm::MD5), |name| Algorithm::parse(name.raw()))
    }

    /// Returns the claimed quality of protection: `Some(None)` if the parameter is missing, `None` if the quality is
    /// unknown.
    pub fn qop(&self) -> Option<Option<Qop>> {
        self.qop.map_or(Some(None), |token| Qop::parse(token.raw()).map(Some))
    }

    /// Returns the nonce count; `None` if the parameter is missing, or is not one to eight hexadecimal digits.
    pub fn nonce_count(&self) -> Option<u32> {
        let digits = self.nc?.raw();
        if digits.is_empty() || digits.len() > 8 {
            return None;
        }
        digits.iter().try_fold(0, |count, &digit| Some(count << 4 | u32::from(hex_digit(digit)?)))
    }

    /// Returns the response as a value of its algorithm's hash.
    pub fn response_value(&self) -> Option<HashValue> {
        HashValue::from_hex(self.algorithm()?.hash, self.response.raw())
    }
}

/// Decodes a value such as `UTF-8''J%C3%A4s` (RFC 5987 section 3.2).
fn ext_value(text: &[u8]) -> Option<Vec<u8>> {
    let mut parts = text.splitn(3, |&b| b == b'\'');
    let (charset, _language, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    if !charset.eq_ignore_ascii_case(b"UTF-8") {
        return None;
    }
    let mut out = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'%' => out.push(hex_digit(*bytes.next()?)? << 4 | hex_digit(*bytes.next()?)?),
            _ => out.push(byte),
        }
    }
    std::str::from_utf8(&out).is_ok().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "Digest username=\"bob\",\r\n realm=\"biloxi.com\", nonce=\"abc\", uri=\"sip:biloxi.com\",\
        qop=auth, nc=0000000a, cnonce=\"0a4f113b\", response=\"6629fae49393a05397450978507c4ef1\", opaque=\"\"";

    #[test]
    fn every_parameter_of_a_usual_line() {
        let read = Credentials::parse(LINE.as_bytes()).expect("valid");
        assert_eq!(read.user().as_deref(), Some(&b"bob"[..]));
        assert_eq!(read.realm.raw(), b"biloxi.com");
        assert_eq!(read.uri.raw(), b"sip:biloxi.com");
        assert_eq!(read.algorithm(), Some(Algorithm::MD5));
        assert_eq!(read.qop(), Some(Some(Qop::Auth)));
        assert_eq!(read.nonce_count(), Some(10));
        assert!(read.opaque.is_some_and(|opaque| opaque.is_empty()));
        assert!(read.response_value().is_some());
    }

    #[test]
    fn quotes_where_they_do_not_belong() {
        let line = LINE.replace("qop=auth", "qop=\"auth\", ALGORITHM=\"md5\"").replace("nc=0000000a", "nc=\"a\"");
        let read = Credentials::parse(line.as_bytes()).expect("lenient");
        assert_eq!(read.algorithm(), Some(Algorithm::MD5));
        assert_eq!(read.qop(), Some(Some(Qop::Auth)));
        assert_eq!(read.nonce_count(), Some(10));
    }

    #[test]
    fn refusals_name_their_reason() {
        let parse = |line: &str| Credentials::parse(line.as_bytes()).map(|_| ());
        assert_eq!(parse("NoOneKnowsThisScheme opaque-data=here"), Err(HeaderError::Scheme));
        assert_eq!(parse(""), Err(HeaderError::Scheme));
        assert_eq!(parse("Digest"), Err(HeaderError::Missing("realm")));
        assert_eq!(parse(&LINE.replace("uri=", "url=")), Err(HeaderError::Missing("uri")));
        assert_eq!(parse(&LINE.replace("username=", "name=")), Err(HeaderError::Missing("username")));
        assert_eq!(parse(&format!("{LINE}, realm=x")), Err(HeaderError::Twice("realm")));
        assert_eq!(parse(&format!("{LINE}, username*=UTF-8''x")), Err(HeaderError::Twice("username")));
        assert!(matches!(parse(&LINE[..LINE.len() - 1]), Err(HeaderError::Syntax(_))));
    }

    #[test]
    fn nonce_counts_that_are_none() {
        for bad in ["", "000000001", "xyz", "-1"] {
            let line = LINE.replace("0000000a", &format!("\"{bad}\""));
            assert_eq!(Credentials::parse(line.as_bytes()).expect("valid").nonce_count(), None, "{bad}");
        }
    }

    #[test]
    fn extended_username() {
        // RFC 7616 section 3.9.2.
        let line = LINE.replace("username=\"bob\"", "username*=UTF-8''J%C3%A4s%C3%B8n%20Doe");
        let read = Credentials::parse(line.as_bytes()).expect("valid");
        assert_eq!(read.user().as_deref(), Some("J\u{e4}s\u{f8}n Doe".as_bytes()));
        for bad in ["UTF-8''%C3", "UTF-8''%", "UTF-8''%zz", "ISO-8859-1''a", "a"] {
            assert_eq!(ext_value(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn userhash_takes_the_plain_username() {
        let line = format!("{LINE}, userhash=TRUE");
        assert!(Credentials::parse(line.as_bytes()).expect("valid").userhash);
        let line = line.replace("username=\"bob\"", "username*=UTF-8''bob");
        assert_eq!(Credentials::parse(line.as_bytes()).map(|_| ()), Err(HeaderError::Missing("username")));
    }
}
