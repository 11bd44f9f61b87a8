//! Equivalence of two URIs (RFC 3261 section 19.1.4). Nothing is copied.

use super::UriParams;
use super::sip::{SipUri, hex};

/// Number of parameters or headers up to which each one is searched in the other URI. Larger numbers, which no phone
/// writes, are compared as text.
const MOST: usize = 16;

/// Length in bytes above which a part is compared as text, because each search costs as much as reading it.
const LONG: usize = 1_024;

pub(super) fn sip(a: &SipUri<'_>, b: &SipUri<'_>) -> bool {
    a.secure == b.secure
        && a.host == b.host
        // An omitted port differs from the default port.
        && a.port == b.port
        && optional(a.user, b.user)
        && optional(a.password, b.password)
        && params(a, b)
        && headers(a, b)
}

/// Compares user or password: with case, and an absent one differs from an empty one.
fn optional(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a == b || (!is_long(a, b) && equal(a, b, false)),
        _ => false,
    }
}

fn params(a: &SipUri<'_>, b: &SipUri<'_>) -> bool {
    let (a, b) = (&a.params, &b.params);
    if a.text() == b.text() {
        return true;
    }
    if is_long(a.text(), b.text()) || are_many(a, b) {
        return false;
    }
    // These parameters match only if both URIs have them; the examples of the RFC treat transport in the same way.
    let both_or_none = |name: &[u8]| a.find(name).is_some() == b.find(name).is_some();
    [&b"user"[..], b"ttl", b"method", b"maddr", b"transport"].into_iter().all(both_or_none)
        // Another parameter must match only if both URIs have it.
        && a.iter().all(|(name, value)| match b.find(name) {
            None => true,
            Some(other) => match (value, other) {
                (None, None) => true,
                (Some(value), Some(other)) => equal(value, other, true),
                _ => false,
            },
        })
}

fn is_long(a: &[u8], b: &[u8]) -> bool {
    a.len().max(b.len()) > LONG
}

/// Tells whether either has more parameters than are searched one by one.
pub(super) fn are_many(a: &UriParams<'_>, b: &UriParams<'_>) -> bool {
    [a, b].into_iter().any(|params| params.iter().nth(MOST).is_some())
}

/// Tells whether every header component occurs in both and matches, in any order.
fn headers(a: &SipUri<'_>, b: &SipUri<'_>) -> bool {
    if a.headers == b.headers {
        return true;
    }
    if is_long(a.headers, b.headers) {
        return false;
    }
    let same = |x: (&[u8], &[u8]), y: (&[u8], &[u8])| equal(x.0, y.0, true) && equal(x.1, y.1, true);
    // The number of occurrences must be the same in both URIs; there are few.
    let count = |list: &[u8], wanted| pairs(list).filter(|pair| same(*pair, wanted)).count();
    let pieces = pairs(a.headers).count();
    pieces == pairs(b.headers).count()
        && pieces <= MOST
        && pairs(a.headers).all(|pair| count(a.headers, pair) == count(b.headers, pair))
}

/// Returns the pairs `name=value`, which are joined by `&`.
pub(super) fn pairs(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    text.split(|&b| b == b'&').filter(|p| !p.is_empty()).map(|pair| match memchr::memchr(b'=', pair) {
        Some(n) => (&pair[..n], &pair[n + 1..]),
        None => (pair, &b""[..]),
    })
}

/// Tells whether the texts are equal, where an escape equals its byte unless that byte is reserved (RFC 2396 section
/// 2.2).
pub(super) fn equal(a: &[u8], b: &[u8], any_case: bool) -> bool {
    if a == b {
        return true;
    }
    let (mut a, mut b) = (a, b);
    loop {
        match (next(&mut a), next(&mut b)) {
            (None, None) => return true,
            (Some(x), Some(y)) if x == y => (),
            (Some((x, kept)), Some((y, kept_too))) if any_case && kept == kept_too && x.eq_ignore_ascii_case(&y) => (),
            _ => return false,
        }
    }
}

/// Returns the next byte, unescaped, and whether it differs from the bare one.
#[inline]
fn next(text: &mut &[u8]) -> Option<(u8, bool)> {
    let (&first, rest) = text.split_first()?;
    if first == b'%'
        && let [high, low, rest @ ..] = rest
        && high.is_ascii_hexdigit()
        && low.is_ascii_hexdigit()
    {
        *text = rest;
        let byte = hex(*high) << 4 | hex(*low);
        return Some((
            byte,
            matches!(byte, b';' | b'/' | b'?' | b':' | b'@' | b'&' | b'=' | b'+' | b'$' | b',' | b'%'),
        ));
    }
    *text = rest;
    Some((first, false))
}

#[cfg(test)]
mod tests {
    use crate::uri::Uri;

    fn same(a: &str, b: &str) -> bool {
        let (x, y) = (Uri::parse(a.as_bytes()).unwrap(), Uri::parse(b.as_bytes()).unwrap());
        let (there, back) = (x.eq(&y), y.eq(&x));
        assert_eq!(there, back, "{a} {b}: not symmetric");
        there
    }

    #[test]
    fn the_equivalent_ones_of_the_rfc() {
        for (a, b) in [
            ("sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtLanTa.CoM;Transport=tcp"),
            ("sip:carol@chicago.com", "sip:carol@chicago.com;newparam=5"),
            ("sip:carol@chicago.com", "sip:carol@chicago.com;security=on"),
            ("sip:carol@chicago.com;newparam=5", "sip:carol@chicago.com;security=on"),
            (
                "sip:biloxi.com;transport=tcp;method=REGISTER?to=sip:bob%40biloxi.com",
                "sip:biloxi.com;method=REGISTER;transport=tcp?to=sip:bob%40biloxi.com",
            ),
            (
                "sip:alice@atlanta.com?subject=project%20x&priority=urgent",
                "sip:alice@atlanta.com?priority=urgent&subject=project%20x",
            ),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
    }

    #[test]
    fn the_different_ones_of_the_rfc() {
        for (a, b) in [
            ("SIP:ALICE@AtLanTa.CoM;Transport=udp", "sip:alice@AtLanTa.CoM;Transport=UDP"),
            ("sip:bob@biloxi.com", "sip:bob@biloxi.com:5060"),
            ("sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp"),
            ("sip:bob@biloxi.com", "sip:bob@biloxi.com:6000;transport=tcp"),
            ("sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting"),
            ("sip:bob@phone21.boxesbybob.com", "sip:bob@192.0.2.4"),
            ("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off"),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
    }

    /// Checks that no peer can make a comparison take seconds.
    #[test]
    fn a_great_many_parts_are_compared_as_they_stand() {
        for (first, between) in [(';', ";"), ('?', "&")] {
            for (n, found) in [(16, true), (17, false), (10_000, false)] {
                let parts: Vec<String> = (0..n).map(|i| format!("p{i}=1")).collect();
                let there = format!("sip:a@b{first}{}", parts.join(between));
                let back = parts.iter().rev().cloned().collect::<Vec<_>>().join(between);
                assert!(same(&there, &there));
                assert_eq!(same(&there, &format!("sip:a@b{first}{back}")), found, "{n} after {first}");
            }
        }
        let phone = |n: i32| (0..n).map(|i| format!(";p{i}=1")).collect::<String>();
        assert!(same(&format!("tel:+1{};x", phone(15)), &format!("tel:+1;x{}", phone(15))));
        assert!(!same(&format!("tel:+1{};x", phone(16)), &format!("tel:+1;x{}", phone(16))));
    }

    #[test]
    fn long_parts_are_compared_as_they_stand() {
        for (n, found) in [(1_000, true), (2_000, false)] {
            let x = "x".repeat(n);
            for (a, b) in [
                (format!("sip:{x}a@b"), format!("sip:{x}%61@b")),
                (format!("sip:a@b;p={x}a"), format!("sip:a@b;p={x}A")),
                (format!("sip:a@b?p={x}a"), format!("sip:a@b?p={x}%61")),
            ] {
                assert!(same(&a, &a) && same(&b, &b));
                assert_eq!(same(&a, &b), found, "{n}");
            }
        }
    }

    #[test]
    fn other_differences_count() {
        for (a, b) in [
            ("sip:a@b", "sips:a@b"),
            ("sip:a@b", "sip:b"),
            ("sip:a:x@b", "sip:a@b"),
            ("sip:a:x@b", "sip:a:X@b"),
            ("sip:a@b;user=phone", "sip:a@b"),
            ("sip:a@b;ttl=1", "sip:a@b"),
            ("sip:a@b;method=INVITE", "sip:a@b"),
            ("sip:a@b;maddr=192.0.2.1", "sip:a@b"),
            // An escaped reserved character differs from the bare one.
            ("sip:a%2Bb@c", "sip:a+b@c"),
            ("sip:a%00@c", "sip:a@c"),
            ("sip:a@b;x", "sip:a@b;x=1"),
            ("sip:a@b?x=1&x=1&y=2", "sip:a@b?x=1&y=2&y=2"),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("sip:a%2bb@c", "sip:a%2Bb@c"),
            ("sip:a@[2001:DB8:0::1]", "sip:a@[2001:db8::1]"),
            ("sip:a@b;LR", "sip:a@b;%6cr"),
            ("sip:a@b;gr=x", "sip:a@b"),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
    }
}
