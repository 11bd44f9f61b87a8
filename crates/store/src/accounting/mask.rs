//! Masks for numbers and addresses in rows that many people may read: applied before a row leaves the shard, so that
//! neither sink nor spool has the full values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Settings of the masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// Number of digits at the end of each number that become `*`; 0: none.
    pub digits: usize,
    /// True if the last octet of an IPv4 address becomes 0, and so do all bits of an IPv6 address after the first 48.
    pub addresses: bool,
}

/// Fewest digits of a number.
const NUMBER: usize = 5;

/// Separators within a number (RFC 3966, visual-separator).
const SEPARATORS: [char; 4] = ['-', '.', '(', ')'];

impl Masks {
    /// Masks numbers in a text, such as a header field. An address does not count as a number, because addresses have a
    /// mask of their own.
    pub fn numbers(&self, text: &str) -> String {
        let is_address = |run: &str| run.trim_matches(SEPARATORS).parse::<Ipv4Addr>().is_ok();
        self.numbers_but(text, is_address)
    }

    /// Masks the user part of a URI, without escapes. Here a text like an address is a number.
    pub fn user(&self, text: &str) -> String {
        self.numbers_but(text, |_| false)
    }

    fn numbers_but(&self, text: &str, is_other: impl Fn(&str) -> bool) -> String {
        if self.digits == 0 {
            return text.to_owned();
        }
        let is_part = |c: char| c.is_ascii_digit() || SEPARATORS.contains(&c);
        with_runs(text, is_part, |run, out| match is_other(run) {
            true => out.push_str(run),
            false => self.write_number(run, out),
        })
    }

    /// Masks addresses in a text: a host, a Call-ID, a header field.
    pub fn addresses(&self, text: &str) -> String {
        if !self.addresses {
            return text.to_owned();
        }
        // IPv6 addresses are masked first, because such an address may end with the form of an IPv4 address.
        let of_v6 = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
        let text = with_runs(text, of_v6, |run, out| self.write_address::<Ipv6Addr>(run, &[&['.'], &['.', ':']], out));
        let of_v4 = |c: char| c.is_ascii_digit() || c == '.';
        with_runs(&text, of_v4, |run, out| self.write_address::<Ipv4Addr>(run, &[&['.']], out))
    }

    /// Masks an address with its port.
    pub fn socket(&self, address: SocketAddr) -> String {
        SocketAddr::new(self.ip(address.ip()), address.port()).to_string()
    }

    /// Masks addresses and numbers in a text.
    pub fn all(&self, text: &str) -> String {
        // Numbers are masked last: an address has no run of five digits, but a port may have one.
        self.numbers(&self.addresses(text))
    }

    fn ip(&self, ip: IpAddr) -> IpAddr {
        match ip {
            ip if !self.addresses => ip,
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                Ipv4Addr::new(a, b, c, 0).into()
            }
            IpAddr::V6(ip) => {
                let [a, b, c, ..] = ip.segments();
                Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into()
            }
        }
    }

    /// Writes a run of characters, and masks it if it is a number.
    fn write_number(&self, run: &str, out: &mut String) {
        let digits = run.chars().filter(char::is_ascii_digit).count();
        if digits < NUMBER {
            return out.push_str(run);
        }
        let (shown, mut seen) = (digits.saturating_sub(self.digits), 0);
        out.extend(run.chars().map(|c| {
            seen += usize::from(c.is_ascii_digit());
            if c.is_ascii_digit() && seen > shown { '*' } else { c }
        }));
    }

    /// Writes a run of characters, and masks it if it is an address, alone or between the characters `around`, as at
    /// the end of a sentence.
    fn write_address<A: FromStr + Into<IpAddr>>(&self, run: &str, around: &[&[char]], out: &mut String) {
        let mut alone = around.iter().map(|around| run.trim_matches(*around));
        match alone.find_map(|text| Some((text, text.parse::<A>().ok()?.into()))) {
            Some((text, ip)) => out.push_str(&run.replacen(text, &self.ip(ip).to_string(), 1)),
            None => out.push_str(run),
        }
    }
}

/// Returns the text, with each run of matching characters replaced by the output of `write`.
fn with_runs(text: &str, is_part: impl Fn(char) -> bool, mut write: impl FnMut(&str, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(&is_part) {
        let (before, from) = rest.split_at(start);
        let (run, behind) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        out.push_str(before);
        write(run, &mut out);
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lose_their_last_digits() {
        let masks = Masks { digits: 3, addresses: false };
        for (text, masked) in [
            ("+4930123456", "+4930123***"),
            ("12345", "12***"),
            ("1234", "1234"),
            ("alice", "alice"),
            ("+1-201-555-0123", "+1-201-555-0***"),
            ("+1(201)555.01-2-3", "+1(201)555.0*-*-*"),
            ("sip:(201)5550123@host-1.example.org", "sip:(201)5550***@host-1.example.org"),
            ("12-34", "12-34"),
            ("host-192.0.2.77.", "host-192.0.2.77."),
            ("\u{661}12345\u{661}", "\u{661}12***\u{661}"),
            ("\"Desk\" <sip:+15551234567@example.org>", "\"Desk\" <sip:+15551234***@example.org>"),
            ("", ""),
        ] {
            assert_eq!(masks.numbers(text), masked);
            assert_eq!(masks.addresses(text), text);
        }
        assert_eq!(Masks { digits: 32, addresses: false }.numbers("+493012"), "+******");
        assert_eq!(Masks::default().all("+4930123456@192.0.2.7"), "+4930123456@192.0.2.7");
    }

    #[test]
    fn addresses_lose_their_hosts() {
        let masks = Masks { digits: 0, addresses: true };
        for (text, masked) in [
            ("192.0.2.77", "192.0.2.0"),
            ("192.0.2.77:5060", "192.0.2.0:5060"),
            ("sip:alice@192.0.2.77:50600;lr", "sip:alice@192.0.2.0:50600;lr"),
            ("[2001:db8:1:2::7]", "[2001:db8:1::]"),
            ("f00d@198.51.100.9", "f00d@198.51.100.0"),
            ("example.org", "example.org"),
            ("a.b.c.d", "a.b.c.d"),
            ("12:34", "12:34"),
            ("x1.2.3.4", "x1.2.3.0"),
            ("f00d192.0.2.77", "f00d192.0.2.0"),
            ("a-192.0.2.77-b 192.0.2.78.", "a-192.0.2.0-b 192.0.2.0."),
            ("sip:192.0.2.77", "sip:192.0.2.0"),
            ("192.0.2.77.example.org", "192.0.2.0.example.org"),
            ("1.2.3.4.5", "1.2.3.4.5"),
            ("x-2001:db8:1:2::7.", "x-2001:db8:1::."),
            ("sip:2001:db8:1:2::7: it", "sip:2001:db8:1::: it"),
            ("::ffff:192.0.2.77", "::"),
            ("10:20:30 00:11:22:33:44:55", "10:20:30 00:11:22:33:44:55"),
            ("", ""),
        ] {
            assert_eq!(masks.addresses(text), masked);
        }
        let socket = |text: &str| masks.socket(text.parse().unwrap());
        assert_eq!(
            (socket("192.0.2.77:5060"), socket("[2001:db8:1:2::7]:9")),
            ("192.0.2.0:5060".into(), "[2001:db8:1::]:9".into())
        );
    }
}
