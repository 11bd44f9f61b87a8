//! `[emergency]`: emergency calls (RFC 5031), which pass before authentication.

use super::gateway_group::RouteTarget;
use super::identity::{EmergencyNumber, Identities};
use super::reader::{ANY, section};

section! {
    /// Emergency calls: requests for `urn:service:sos` and its subservices (RFC 5031), and calls of users to the numbers in `numbers`. They need no
    /// password, count under no limit, skip rules and filters, and are accepted from a banned source. By default no number and no target is set.
    pub struct Emergency = "emergency" {
        /// Numbers that are dialled in an emergency, such as "112" and "110". They are emergency numbers for callers whose From is of a local domain
        /// or anonymous (RFC 3323), for a phone at the address from which it registered, and for a trusted `[[source]]`.
        pub numbers: Vec<EmergencyNumber> = Vec::new(), ANY;
        /// Next hop of emergency calls: a URI, which replaces the Request-URI if it has a user, or the name of a `[[gateway_group]]`, whose targets
        /// are tried in order. A request for a service URN keeps its Request-URI and gets a Route that names the target. "": emergency calls are
        /// treated like other calls.
        pub target: Option<RouteTarget> = None, ANY.or("");
        /// P-Asserted-Identity of emergency calls, in the form of `rule.identity`; the account is the user of From, although no password proves it.
        /// "": the P-Asserted-Identity of the caller is forwarded.
        pub identity: Option<Identities> = None, ANY.or("");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Source};

    #[test]
    fn numbers_need_a_target() {
        let read = |text: &str| Config::read(Source { text, ..Source::default() });
        let report = read("[emergency]\nnumbers = [\"112\"]").expect_err("no target").to_string();
        assert!(report.contains("emergency has no target"), "{report}");
        let (config, _) = read("[emergency]\nnumbers = [\"1-1-2\"]\ntarget = \"sip:192.0.2.1\"").expect("right");
        assert_eq!(config.emergency.numbers[0].as_str(), "112");
        assert!(read("[emergency]\nnumbers = [\"help\"]\ntarget = \"sip:192.0.2.1\"").is_err());
        let report = read("[emergency]\ntarget = \"west\"").expect_err("no group").to_string();
        assert!(report.contains("there is no [[gateway_group]] table"), "{report}");
        let report = read("\nproxy.emergency_target = \"sip:192.0.2.1\"").expect_err("it moved").to_string();
        assert!(report.contains("write target in [emergency]"), "{report}");
    }
}
