//! `[ban]`: sources that fail too often, and scanners.

use std::net::IpAddr;
use std::time::Duration;

pub use strowger_core::source::Network;

use super::key::{Rule, Text};
use super::reader::{ANY, section};

impl Text for Network {
    const EXPECTED: &'static str = "a network such as \"192.0.2.0/24\" or \"2001:db8::/32\", or one address";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("is {text:?}, which is not a network");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(width), |prefix| prefix.parse().map_err(|_| wrong()))?;
        Self::new(address, prefix).ok_or_else(wrong)
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

section! {
    /// Sources that fail too often, and scanners. An IPv6 source is a network (`limits.ipv6_prefix`). The source of a UDP request can be forged, so
    /// over UDP only credentials with a nonce that was issued to the same source are verified, and only these count as failures.
    pub struct Ban = "ban" {
        /// Ban sources; false: no source is banned.
        pub enabled: bool = true, ANY;
        /// Number of failed authentications of one source within `window` after which the source is banned.
        pub failures: u32 = 10, Rule::number(1, 1_000_000);
        /// Number of failed authentications as one user within `window`, from all sources together, after which the server assumes that the password
        /// of this user is being guessed. From then on, a source that has failed once as this user is not verified again for this user, until there
        /// has been no failure for `duration`. Any other source is accepted with the right password.
        pub account_failures: u32 = 50, Rule::number(1, 1_000_000);
        /// Time within which failures are counted.
        pub window: Duration = Duration::from_secs(60), Rule::time(Duration::from_secs(1), Duration::from_secs(86_400));
        /// Duration of the ban of a source.
        pub duration: Duration = Duration::from_secs(600), Rule::time(Duration::from_secs(1), Duration::from_secs(30 * 86_400));
        /// User-Agent texts of scanners. A request whose User-Agent contains one in its first 256 bytes, in upper or lower case, is dropped. Its
        /// source is banned if the request came over a connection and not through another proxy.
        pub scanners: Vec<String> = ["friendly-scanner", "sipvicious", "sipcli", "sip-scan", "sundayddr", "vaxsipuseragent", "pplsip"].map(String::from).to_vec(), ANY;
        /// Networks that are never banned. The limits for each source apply to these networks too.
        pub exempt: Vec<Network> = ["127.0.0.0/8", "::1/128"].map(|text| Network::from_text(text).expect("both are networks")).to_vec(), ANY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let contains = |network: &str, address: &str| {
            Network::from_text(network).expect(network).contains(address.parse().expect(address))
        };
        assert!(contains("192.0.2.0/24", "192.0.2.255"));
        assert!(!contains("192.0.2.0/24", "192.0.3.0"));
        assert!(contains("0.0.0.0/0", "8.8.8.8"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(contains("127.0.0.0/8", "::ffff:127.1.2.3"));
        assert!(contains("10.0.0.1", "10.0.0.1"));
        assert!(!contains("10.0.0.1", "10.0.0.2"));
    }

    #[test]
    fn what_is_no_network() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "a/8", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(Network::from_text(text).is_err(), "{text}");
        }
    }
}
