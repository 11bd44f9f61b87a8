//! Telephone numbers (RFC 3966).

use super::sip::unescaped;
use super::{UriParams, compare};
use crate::reader::{PHONE, Reader};
use crate::write::Write;

/// A tel URI: `tel:number;parameters`. A local number should have a phone-context; one without is accepted, because emergency and
/// feature numbers have none.
#[derive(Clone, Copy, Debug)]
pub struct TelUri<'a> {
    /// Number with its plus sign and visual separators.
    pub number: &'a [u8],
    /// `phone-context`, `ext`, `isub` and others (RFC 3966 section 3).
    pub params: UriParams<'a>,
}

impl<'a> TelUri<'a> {
    #[inline]
    pub(crate) fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let from = scan.at();
        let global = scan.take(b'+');
        let digits = scan.some(PHONE)?;
        let wrong = |b: &u8| if global { !b.is_ascii_digit() && !is_separator(*b) } else { false };
        if digits.iter().any(wrong) || digits.iter().all(|&b| is_separator(b)) {
            scan.go(from);
            return None;
        }
        let number = scan.since(from);
        let params = UriParams::read(scan)?;
        Some(Self { number, params })
    }

    /// Tells whether this is a number of the public network, with a plus sign (RFC 3966 section 5.1.4).
    pub fn is_global(&self) -> bool {
        self.number.starts_with(b"+")
    }

    /// Returns the number without visual separators.
    pub fn digits(&self) -> impl Iterator<Item = u8> + Clone {
        self.number.iter().copied().filter(|&b| !is_separator(b))
    }

    /// Writes `tel:`, the number with its visual separators, and the parameters.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"tel:");
        out.extend_from_slice(self.number);
        out.extend_from_slice(self.params.text());
    }

    /// See [`super::Uri::write_aor`].
    pub fn write_aor(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"tel:");
        out.extend(self.digits());
    }
}

impl Write for TelUri<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        TelUri::write(self, out);
    }
}

const fn is_separator(b: u8) -> bool {
    matches!(b, b'-' | b'.' | b'(' | b')')
}

/// Returns the dialled number of the user part of a SIP URI or of a tel URI: an optional plus sign, and then digits,
/// `*` and `#`. `None` if it is not a number.
///
/// Escapes are undone (RFC 3261 section 19.1.4); parameters (RFC 3966 section 3), visual separators, slashes and spaces
/// are removed: none of them makes it another number, and gateways ignore them. The other signs that RFC 3261 allows
/// unescaped in a user part (`,`, `&`, `=`, `$`, `?`) end the number: gateways dial the digits before them.
pub fn dialled(user: &[u8]) -> Option<impl Iterator<Item = u8> + Clone> {
    let number = unescaped(user)
        .take_while(|b| !matches!(b, b';' | b',' | b'&' | b'=' | b'$' | b'?'))
        .filter(|b| !is_separator(*b) && !matches!(b, b' ' | b'/'));
    let mut rest = number.clone().enumerate().skip_while(|(place, b)| *place == 0 && *b == b'+').peekable();
    let is_number = rest.peek().is_some() && rest.all(|(_, b)| b.is_ascii_digit() || matches!(b, b'*' | b'#'));
    is_number.then_some(number)
}

/// RFC 3966 section 4: visual separators do not count, hexadecimal digits compare in any case, and both have the same
/// parameters in any order.
impl PartialEq for TelUri<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.digits().map(|b| b.to_ascii_lowercase()).eq(other.digits().map(|b| b.to_ascii_lowercase()))
            && (self.params.text() == other.params.text()
                || !compare::are_many(&self.params, &other.params)
                    && within(&self.params, &other.params)
                    && within(&other.params, &self.params))
    }
}

/// Tells whether every parameter of `a` occurs in `b` with the same value.
fn within(a: &UriParams<'_>, b: &UriParams<'_>) -> bool {
    a.iter().all(|(name, value)| match (value, b.find(name)) {
        (None, Some(None)) => true,
        (Some(value), Some(Some(other))) => {
            compare::equal(value, other, true) || {
                // ext, isub and phone-context may be numbers with separators of their own.
                let plain = |text: &[u8]| text.iter().all(|b| b.is_ascii_digit() || *b == b'+' || is_separator(*b));
                let digits = |text: &'_ [u8]| text.iter().copied().filter(|&b| !is_separator(b)).collect::<Digits>();
                plain(value) && plain(other) && digits(value) == digits(other)
            }
        }
        _ => false,
    })
}

/// Up to 32 digits without allocation; longer ones never match.
#[derive(PartialEq)]
struct Digits([u8; 32], usize);

impl FromIterator<u8> for Digits {
    fn from_iter<T: IntoIterator<Item = u8>>(digits: T) -> Self {
        let mut found = Self([0; 32], 0);
        for b in digits {
            if let Some(slot) = found.0.get_mut(found.1) {
                *slot = b;
            }
            found.1 += 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::dialled;
    use crate::uri::Uri;

    #[test]
    fn a_number_is_read_in_each_of_its_forms() {
        for (user, number) in [
            ("+4930", Some("+4930")),
            ("*1#", Some("*1#")),
            ("+49-30-12", Some("+493012")),
            ("(030)1.2", Some("03012")),
            ("%2B4930", Some("+4930")),
            ("%2b49%2D30", Some("+4930")),
            ("0049%2030", Some("004930")),
            ("00493012;npdi=yes", Some("00493012")),
            ("00493012%3Bnpdi", Some("00493012")),
            ("7042;phone-context=+1-914-555", Some("7042")),
            ("-+49", Some("+49")),
            ("030/12", Some("03012")),
            ("03012,9", Some("03012")),
            ("03012&9=%24?", Some("03012")),
            (",1", None),
            ("", None),
            ("+", None),
            ("-", None),
            (";ext=1", None),
            ("4+9", None),
            ("++49", None),
            ("bob", None),
            ("49x", None),
            ("%zz", None),
            ("49%", None),
            ("49%0a", None),
        ] {
            let read = dialled(user.as_bytes()).map(|number| String::from_utf8(number.collect()).unwrap());
            assert_eq!(read.as_deref(), number, "{user}");
        }
    }

    fn same(a: &str, b: &str) -> bool {
        Uri::parse(a.as_bytes()).unwrap() == Uri::parse(b.as_bytes()).unwrap()
    }

    #[test]
    fn separators_case_and_order_do_not_count() {
        assert!(same("tel:+1-201-555-0123", "TEL:+1(201)5550123"));
        assert!(same("tel:7042;phone-context=Example.com", "tel:70-42;phone-context=example.com"));
        assert!(same("tel:863-1234;phone-context=+1-914-555", "tel:8631234;phone-context=+1914555"));
        assert!(same("tel:+1;a=1;b=2", "tel:+1;b=2;a=1"));
        assert!(same("tel:1A*#", "tel:1a*#"));
    }

    #[test]
    fn digits_and_parameters_count() {
        assert!(!same("tel:+12015550123", "tel:12015550123"));
        assert!(!same("tel:+1;ext=1", "tel:+1"));
        assert!(!same("tel:+1;ext=1", "tel:+1;ext=2"));
    }

    #[test]
    fn refused() {
        for text in ["tel:", "tel:+", "tel:+1A", "tel:()", "tel:alice", "tel:+1@host", "tel:+1;", "tel:1 2"] {
            assert!(Uri::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
