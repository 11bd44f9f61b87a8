//! Values of arguments, and their parsers. An error is a part of a sentence, with its cure.

use std::fmt;
use std::ops::RangeInclusive;

use strowger_config::{Advertised, Domain, ListenAddress};
use strowger_core::Transport;

/// Value of `init --advertise`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Advertise {
    None,
    As(Advertised),
}

/// NAME@DOMAIN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressOfRecord {
    pub name: String,
    pub domain: Domain,
}

impl fmt::Display for AddressOfRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.domain)
    }
}

pub(super) fn listen(text: &str) -> Result<ListenAddress, String> {
    text.parse().map_err(|error| {
        format!("it {error}; write TRANSPORT:ADDRESS:PORT such as udp:192.0.2.10:5060 or tls:[2001:db8::10]:5061")
    })
}

pub(super) fn transport(text: &str) -> Result<Transport, String> {
    Transport::of(text.as_bytes()).ok_or_else(|| "it is no transport; write udp, tcp, tls, ws or wss".to_owned())
}

pub(super) fn domain(text: &str) -> Result<Domain, String> {
    text.parse().map_err(|error| format!("it {error}; write a domain alone, such as example.org"))
}

pub(super) fn advertise(text: &str) -> Result<Advertise, String> {
    match text {
        "none" => Ok(Advertise::None),
        _ => text.parse().map(Advertise::As).map_err(|error| {
            format!("it {error}; write HOST or HOST:PORT such as sip.example.org or 203.0.113.5:5060, or none")
        }),
    }
}

pub(crate) fn address_of_record(text: &str) -> Result<AddressOfRecord, String> {
    let cure = "write NAME@DOMAIN such as alice@example.org";
    let text = text.strip_prefix("sip:").unwrap_or(text);
    let (name, domain) = text.rsplit_once('@').ok_or_else(|| format!("it has no @; {cure}"))?;
    // The unreserved and user-unreserved characters of RFC 3261 section 25.1, which need no escape in a SIP URI.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/".contains(&byte);
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(format!("{name:?} cannot stand before the @ of a SIP address; {cure}"));
    }
    let domain = domain.parse().map_err(|error| format!("its domain {error}; {cure}"))?;
    Ok(AddressOfRecord { name: name.to_owned(), domain })
}

/// Returns a parser of a whole number in this range.
pub(crate) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("'{text}' is no whole number from {} to {}", range.start(), range.end()))
    }
}
