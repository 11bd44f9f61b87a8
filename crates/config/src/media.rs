//! `[media]`: addresses and ports for the media of calls that this server answers itself or bridges.

use std::net::IpAddr;
use std::time::Duration;

use super::key::{Rule, Text};
use super::reader::{ANY, section};

/// Address for media: the one that is bound, and the one that peers are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaAddress {
    /// Address of this machine to bind.
    pub local: IpAddr,
    /// Address in session descriptions; of the family of `local`.
    pub public: IpAddr,
}

/// Word between the two addresses.
const AS: &str = " as ";

impl Text for MediaAddress {
    const EXPECTED: &'static str = "an IP address of this machine such as \"192.0.2.10\", or with the address by which peers reach it, such as \"10.0.0.10 as 203.0.113.5\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let (local, public) = text.split_once(AS).unwrap_or((text, text));
        let address = |part: &str| <IpAddr as Text>::from_text(part.trim());
        let (local, public) = (address(local)?, address(public)?);
        if local.is_ipv4() != public.is_ipv4() {
            return Err(format!("is {text:?}, two addresses of different families"));
        }
        if public.is_unspecified() {
            return Err(format!("is {text:?}, and no peer can send to {public}"));
        }
        Ok(Self { local, public })
    }

    fn to_text(&self) -> String {
        let Self { local, public } = self;
        if local == public { local.to_string() } else { format!("{local}{AS}{public}") }
    }
}

/// Range of UDP ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// First port, at least 1.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

impl PortRange {
    /// Returns the number of pairs of an even port and the next one (RFC 3550 section 11).
    pub const fn pairs(self) -> usize {
        let first = (self.first as usize).next_multiple_of(2);
        (self.last as usize + 1).saturating_sub(first) / 2
    }
}

impl Text for PortRange {
    const EXPECTED: &'static str =
        "the first and the last port, such as \"16384-32767\", with at least an even one and the next";

    fn from_text(text: &str) -> Result<Self, String> {
        let range = text.split_once('-').and_then(|(first, last)| {
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            Some(Self { first, last })
        });
        match range {
            Some(range) if range.first > 0 && range.pairs() > 0 => Ok(range),
            Some(_) => Err(format!("is {text:?}, which has no pair of ports")),
            None => Err(format!("is {text:?}, which is not of the form FIRST-LAST")),
        }
    }

    fn to_text(&self) -> String {
        format!("{}-{}", self.first, self.last)
    }
}

section! {
    /// Media (RTP and RTCP by UDP) of the calls that this server answers itself or bridges, see `answer` and `b2bua` of `[[rule]]`. A stream takes
    /// two ports: an even one for RTP and the next one for RTCP. A bridged call takes them on each side, for audio and for each of `media_types`.
    pub struct Media = "media" {
        /// Addresses for media. A stream is received at the first address of its family with a free port. An address behind NAT is followed by the
        /// public one, which session descriptions show. `[]`: this server answers and bridges no call.
        pub addresses: Vec<MediaAddress> = Vec::new(), ANY.fixed();
        /// Ports of each address. No other program of this machine may use them.
        pub ports: PortRange = PortRange { first: 16_384, last: 32_767 }, ANY.fixed();
        /// Differentiated services code point of the sent packets (RFC 2474); 46: expedited forwarding.
        pub dscp: u8 = 46, Rule::number(0, 63).fixed();
        /// Number of media threads; "auto": one, and a further one when all are more than 70 % busy for three seconds, up to the number of
        /// processors.
        pub threads: Option<u16> = None, Rule::number(1, 64).or("auto").fixed();
        /// Time without a packet from a peer that may send, or without an open stream, after which the call is ended; "never": the call goes on.
        pub timeout: Option<Duration> = Some(Duration::from_secs(60)), Rule::time(Duration::from_secs(5), Duration::from_secs(86_400)).or("never").fixed();
    }
}

impl Media {
    /// Tells whether this server has addresses for media.
    pub fn is_on(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Returns the number of calls with one audio stream that the ports carry if this server answers the calls.
    pub fn calls(&self) -> usize {
        self.addresses.len() * self.ports.pairs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["192.0.2.10", "10.0.0.10 as 203.0.113.5", "0.0.0.0 as 203.0.113.5", "2001:db8::1"] {
            assert_eq!(MediaAddress::from_text(text).map(|address| address.to_text()), Ok(text.to_owned()));
        }
        for (text, part) in [
            ("localhost", "not an IP address"),
            ("0.0.0.0", "no peer can send"),
            ("10.0.0.10 as 2001:db8::1", "different families"),
            ("10.0.0.10 as ", "not an IP address"),
        ] {
            let error = MediaAddress::from_text(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn ports_are_counted_in_pairs() {
        for (text, pairs) in
            [("16384-32767", 8_192), ("101-104", 1), ("102-103", 1), ("65534-65535", 1), ("100-199", 50)]
        {
            assert_eq!(PortRange::from_text(text).map(PortRange::pairs), Ok(pairs), "{text}");
        }
        for text in ["", "100", "101-102", "200-100", "0-1", "1-65536"] {
            assert!(PortRange::from_text(text).is_err(), "{text}");
        }
        let media =
            Media { addresses: vec![MediaAddress::from_text("192.0.2.1").expect("one"); 2], ..Media::default() };
        assert_eq!(media.calls(), 16_384);
    }
}
