//! Contact (RFC 3261 section 20.10) with the parameters of RFC 5626 and RFC 5627.

use super::view;
use crate::name_addr::NameAddr;
use crate::reader::{Field, Reader, is, strict_number};
use crate::write::Write;
use std::ops::Deref;

/// A contact. The lone `*` of a REGISTER is not one: see [`crate::Message::contact_star`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contact<'a> {
    /// Address with all parameters, the parsed ones included. If it has none, the fields below are written instead.
    pub addr: NameAddr<'a>,
    /// Preference in thousandths, 0 to 1,000.
    pub q: Option<u16>,
    /// Seconds; a value that is not a number counts as 3,600 (RFC 3261 section 20.10).
    pub expires: Option<u32>,
    /// Raw `+sip.instance`, with its quotes and angle brackets (RFC 5626 section 4.1).
    pub instance: Option<&'a [u8]>,
    /// `reg-id` (RFC 5626 section 4.2).
    pub reg_id: Option<u32>,
}

view!(Contact);

impl<'a> Contact<'a> {
    /// Creates a contact with an address alone.
    pub const fn new(addr: NameAddr<'a>) -> Self {
        Self { addr, q: None, expires: None, instance: None, reg_id: None }
    }

    /// `+sip.instance` without quotes: `<urn:uuid:...>`.
    pub fn instance_id(&self) -> Option<&'a [u8]> {
        let text = self.instance?;
        Some(text.strip_prefix(b"\"").and_then(|t| t.strip_suffix(b"\"")).unwrap_or(text))
    }

    /// Writes the address in angle brackets and its parameters, or the fields if it has none.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        self.addr.write(out);
        if self.addr.params.is_empty() {
            self.write_made(out);
        }
    }

    /// Writes the fields of a contact that was created, not parsed.
    fn write_made(&self, out: &mut Vec<u8>) {
        if let Some(q) = self.q {
            out.extend_from_slice(b";q=");
            write_q(q, out);
        }
        if let Some(instance) = self.instance {
            out.extend_from_slice(b";+sip.instance=");
            out.extend_from_slice(instance);
        }
        if let Some(id) = self.reg_id {
            out.extend_from_slice(b";reg-id=");
            id.write(out);
        }
        if let Some(seconds) = self.expires {
            out.extend_from_slice(b";expires=");
            seconds.write(out);
        }
    }
}

impl<'a> Deref for Contact<'a> {
    type Target = NameAddr<'a>;

    fn deref(&self) -> &NameAddr<'a> {
        &self.addr
    }
}

impl<'a> Field<'a> for Contact<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let (mut q, mut expires, mut instance, mut reg_id) = (None, None, None, None);
        let addr = NameAddr::read_with(scan, |name, value, _| {
            let text = value.unwrap_or_default();
            match name.len() {
                1 if is(name, b"q") => {
                    q = read_q(text);
                    return q.is_some();
                }
                6 if is(name, b"reg-id") => {
                    reg_id = strict_number(text).filter(|&n| n > 0);
                    return reg_id.is_some();
                }
                7 if is(name, b"expires") => expires = Some(strict_number(text).unwrap_or(3600)),
                13 if is(name, b"+sip.instance") => instance = value,
                _ => (),
            }
            true
        })?;
        Some(Self { addr, q, expires, instance, reg_id })
    }
}

/// Reads a qvalue, `0` to `1` with up to three decimals (RFC 3261 section 25.1), in thousandths; more decimals are cut
/// off.
pub fn read_q(text: &[u8]) -> Option<u16> {
    let (whole, decimals) = match text {
        [b'0' | b'1'] => (text[0], &b""[..]),
        [b'0' | b'1', b'.', decimals @ ..] => (text[0], decimals),
        // Some devices omit the zero.
        [b'.', decimals @ ..] if !decimals.is_empty() => (b'0', decimals),
        _ => return None,
    };
    if !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |n: usize| decimals.get(n).map_or(0, |d| (d - b'0') as u16);
    let q = (whole - b'0') as u16 * 1000 + digit(0) * 100 + digit(1) * 10 + digit(2);
    (q <= 1000).then_some(q)
}

/// Writes a q of thousandths in its shortest form; more than 1,000 is written as 1.
pub fn write_q(q: u16, out: &mut Vec<u8>) {
    if q >= 1000 {
        out.push(b'1');
        return;
    }
    let digits = [b'0', b'.', b'0' + (q / 100) as u8, b'0' + (q / 10 % 10) as u8, b'0' + (q % 10) as u8];
    let len = match q {
        0 => 1,
        q if q % 100 == 0 => 3,
        q if q % 10 == 0 => 4,
        _ => 5,
    };
    out.extend_from_slice(&digits[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let text = b"\"Mr. W\" <sip:w@worcester.example;transport=tcp> ; q=0.7; expires=3600;reg-id=2;+sip.instance=\"<urn:uuid:1>\"";
        let contact = Contact::parse(text).unwrap();
        assert_eq!((contact.q, contact.expires, contact.reg_id), (Some(700), Some(3600), Some(2)));
        assert_eq!(contact.instance_id(), Some(&b"<urn:uuid:1>"[..]));
        assert_eq!(Contact::parse(b"<sip:a@b>;expires=280297596632815").unwrap().expires, Some(3600));
        assert_eq!(Contact::parse(b"sip:+1972@gw1.example.net;unknownparam").unwrap().params.iter().count(), 1);
        for text in [
            &b"\"Joe\" <sip:joe@example.org>;;;;"[..],
            b"*",
            b"<sip:a@b>;q=2",
            b"<sip:a@b>;q",
            b"<sip:a@b>;reg-id=0",
            b"sip:a@b?x=y",
        ] {
            assert!(Contact::parse(text).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn q_values() {
        for (text, q) in
            [("0", 0), ("1", 1000), ("1.000", 1000), ("0.5", 500), ("0.33", 330), ("0.007", 7), (".5", 500), ("0.", 0)]
        {
            assert_eq!(read_q(text.as_bytes()), Some(q));
        }
        for text in ["", "2", "1.001", "-0", "0.x", ".", "01"] {
            assert_eq!(read_q(text.as_bytes()), None);
        }
        for q in 0..=1000 {
            let mut out = Vec::new();
            write_q(q, &mut out);
            assert_eq!(read_q(&out), Some(q));
        }
    }

    #[test]
    fn created_values_are_written_from_their_fields() {
        let mut made = Contact::new(NameAddr::parse(b"sip:a@b").unwrap());
        (made.q, made.expires) = (Some(250), Some(60));
        let mut out = Vec::new();
        made.write(&mut out);
        assert_eq!(out, b"<sip:a@b>;q=0.25;expires=60");
    }
}
