//! Numbers and addresses that are not to be read by all who read the rows: cut before a row leaves the shard, so that no file has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What is masked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// So many digits at the end of each number become `*`; 0: none.
    pub digits: usize,
    /// The last octet of an IPv4 address becomes 0, and of an IPv6 address all behind its first 48 bits.
    pub addresses: bool,
}

/// So many digits in a row are a number.
const NUMBER: usize = 5;

impl Masks {
    /// A text in which numbers may stand: a user, a header field.
    pub fn numbers(&self, text: &str) -> String {
        if self.digits == 0 {
            return text.to_owned();
        }
        let mut out: Vec<char> = Vec::with_capacity(text.len());
        let mut run = 0;
        let close = |out: &mut Vec<char>, run: usize| {
            if run >= NUMBER {
                let from = out.len() - self.digits.min(run);
                out[from..].fill('*');
            }
        };
        for c in text.chars() {
            if c.is_ascii_digit() {
                run += 1;
            } else {
                close(&mut out, std::mem::take(&mut run));
            }
            out.push(c);
        }
        close(&mut out, run);
        out.into_iter().collect()
    }

    /// A text in which addresses may stand: a host, a Call-ID, a header field.
    pub fn addresses(&self, text: &str) -> String {
        if !self.addresses {
            return text.to_owned();
        }
        let is_part = |c: char| c.is_ascii_hexdigit() || c == '.' || c == ':';
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_part) {
            let (before, from) = rest.split_at(start);
            let (run, behind) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
            out.push_str(before);
            // A name may begin with what could be the beginning of an address.
            let is_alone = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '-');
            match is_alone(before.chars().last()) && is_alone(behind.chars().next()) {
                true => self.write_run(run, &mut out),
                false => out.push_str(run),
            }
            rest = behind;
        }
        out + rest
    }

    /// An address with its port.
    pub fn socket(&self, address: SocketAddr) -> String {
        SocketAddr::new(self.ip(address.ip()), address.port()).to_string()
    }

    /// A text in which both may stand.
    pub fn all(&self, text: &str) -> String {
        // Numbers last: an address has none of five digits, but a port may.
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

    /// What may be an address, alone or with a port behind it.
    fn write_run(&self, run: &str, out: &mut String) {
        if let Ok(ip) = run.parse::<IpAddr>() {
            return out.push_str(&self.ip(ip).to_string());
        }
        match run.split_once(':') {
            Some((host, port)) if host.parse::<Ipv4Addr>().is_ok() => {
                self.write_run(host, out);
                out.push(':');
                out.push_str(port);
            }
            _ => out.push_str(run),
        }
    }
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
            ("x1.2.3.4", "x1.2.3.4"),
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
