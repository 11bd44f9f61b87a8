//! Validity periods of certificates (RFC 5280 section 4.1.2.5).

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::{DateTime, datetime};
use rustls::pki_types::CertificateDer;
use strowger_config::Fault;
use strowger_message::header::Date;

/// Seconds before the expiry at which the server warns. Automatic renewal has happened by then.
const SOON: i64 = 14 * DAY;
const DAY: i64 = 86_400;

/// Validity period, in seconds since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Validity {
    from: i64,
    until: i64,
}

/// Warns of certificates in a file that are not valid now or expire soon. Peers refuse a chain as soon as one of its
/// certificates has expired.
pub(super) fn faults(chain: &[CertificateDer<'_>], path: &Path, span: Option<std::ops::Range<usize>>) -> Vec<Fault> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    let found = chain.iter().enumerate().filter_map(|(n, certificate)| {
        let name = match n {
            0 => path.display().to_string(),
            _ => format!("certificate number {} of {}", n + 1, path.display()),
        };
        let (message, cure) = Validity::of(certificate)?.words(&name, now)?;
        Some(Fault::warning(span.clone(), message, cure))
    });
    found.collect()
}

impl Validity {
    /// Reads the validity of a certificate. Returns `None` for data that are no certificate, because the loading of the
    /// file reports such data.
    fn of(der: &[u8]) -> Option<Self> {
        const SEQUENCE: u8 = 0x30;
        let expect = |tag: u8, bytes| element(bytes).filter(|(found, _, _)| *found == tag);
        let (_, certificate, _) = expect(SEQUENCE, der)?;
        let (_, mut rest, _) = expect(SEQUENCE, certificate)?;
        // The version is optional, and is present unless it is 1.
        if let Some((0xa0, _, after)) = element(rest) {
            rest = after;
        }
        // Skips serial number, algorithm of the signature and issuer.
        for _ in 0..3 {
            rest = element(rest)?.2;
        }
        let (_, validity, _) = expect(SEQUENCE, rest)?;
        let (tag, from, rest) = element(validity)?;
        let from = time(tag, from)?;
        let (tag, until, _) = element(rest)?;
        Some(Self { from, until: time(tag, until)? })
    }

    /// Returns the fault at `now`, and the cure.
    fn words(self, name: &str, now: i64) -> Option<(String, String)> {
        let renew = "put a new one in its place, and let the server read it: strowger reload";
        if now > self.until {
            return Some((format!("{name} expired on {}: peers refuse it", shown(self.until)), renew.into()));
        }
        if now < self.from {
            let message = format!("{name} is not good before {}: until then peers refuse it", shown(self.from));
            return Some((message, format!("wait, or set the clock of this machine, which shows {}", shown(now))));
        }
        let days = (self.until - now) / DAY;
        let left = match days {
            0 => "today or tomorrow".into(),
            1 => "in 1 day".into(),
            days => format!("in {days} days"),
        };
        (self.until - now < SOON).then(|| (format!("{name} expires on {}, {left}", shown(self.until)), renew.into()))
    }
}

fn shown(seconds: i64) -> String {
    let mut text = Vec::new();
    Date::new(seconds).write(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Splits off the first element of DER. Returns its tag, its content, and the bytes after the element (X.690 section
/// 8.1).
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |n, digit| n << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// Parses UTCTime or GeneralizedTime in the forms of RFC 5280: to the second, in UTC.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0i16, |n, digit| n * 10 + i16::from(digit - b'0'));
    let (year, rest) = match (tag, digits.len()) {
        (0x17, 12) => {
            let year = number(&digits[..2]);
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        (0x18, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let mut parts = rest.chunks(2).map(|two| number(two) as i8);
    let mut next = || parts.next();
    let moment = DateTime::new(year, next()?, next()?, next()?, next()?, next()?, 0).ok()?;
    Some(moment.duration_since(datetime(1970, 1, 1, 0, 0, 0, 0)).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (tag, text, seconds) in [
            (0x17, "700101000000Z", Some(0)),
            (0x17, "941106084937Z", Some(784_111_777)),
            (0x17, "491231235959Z", Some(2_524_607_999)),
            (0x17, "500101000000Z", Some(-631_152_000)),
            (0x17, "240229120000Z", Some(1_709_208_000)),
            (0x18, "20240301000000Z", Some(1_709_251_200)),
            (0x18, "21000228000000Z", Some(4_107_456_000)),
            (0x18, "99991231235959Z", Some(253_402_300_799)),
            (0x17, "241301000000Z", None),
            (0x17, "2402291200Z", None),
            (0x17, "240229120000", None),
            (0x18, "240229120000Z", None),
            (0x17, "24022912000xZ", None),
        ] {
            assert_eq!(time(tag, text.as_bytes()), seconds, "{text}");
        }
    }

    #[test]
    fn a_certificate_is_judged_by_its_times() {
        let validity = Validity { from: 0, until: 100 * DAY };
        let said = |now| validity.words("chain.pem", now).map(|(message, _)| message);
        assert_eq!(said(50 * DAY), None);
        assert_eq!(said(86 * DAY), None, "two weeks are enough");
        assert_eq!(said(88 * DAY).unwrap(), "chain.pem expires on Sat, 11 Apr 1970 00:00:00 GMT, in 12 days");
        assert!(said(100 * DAY).unwrap().contains("expires on"));
        assert!(said(100 * DAY + 1).unwrap().starts_with("chain.pem expired on Sat, 11 Apr 1970 00:00:00 GMT"));
        assert!(said(-1).unwrap().contains("is not good before Thu, 01 Jan 1970 00:00:00 GMT"));
    }

    #[test]
    fn no_bytes_panic() {
        // Beginning of a certificate up to its validity: version, serial number, algorithm, issuer, validity.
        let times = [b"\x17\x0d240229120000Z".as_slice(), b"\x18\x0f20240301000000Z"].concat();
        let validity = [&[0x30, times.len() as u8], &times[..]].concat();
        let body = [b"\xa0\x03\x02\x01\x02\x02\x01\x07\x30\x00\x30\x00".as_slice(), &validity].concat();
        let body = [&[0x30, 0x81, body.len() as u8], &body[..]].concat();
        let whole = [&[0x30, 0x82, 0, body.len() as u8], &body[..]].concat();
        assert_eq!(Validity::of(&whole), Some(Validity { from: 1_709_208_000, until: 1_709_251_200 }));
        for end in 0..whole.len() {
            assert_eq!(Validity::of(&whole[..end]), None);
        }
        for at in 0..whole.len() {
            for byte in [0, 0x30, 0x80, 0x84, 0xff] {
                let mut other = whole.clone();
                other[at] = byte;
                let _any = Validity::of(&other);
            }
        }
    }
}
