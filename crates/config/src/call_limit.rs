//! `[[call_limit]]`: limits of concurrent calls, for rules, failures and gateway groups that name them.

use std::sync::Arc;

use super::cache::CacheTable;
use super::key::{Rule, words};
use super::name::{Name, Reference};
use super::reader::{ANY, section};

words! {
    /// Property by which a limit counts calls.
    pub enum CountedPer {
        /// No property: one count of all calls, such as those of a gateway or a tariff.
        All = "all",
        /// Authenticated user; with its domain where domains have realms of their own.
        User = "user",
        /// Group of peers (`[[source]]`).
        SourceGroup = "source.group",
        /// Source address: an IPv4 address, or an IPv6 network of `limits.ipv6_prefix` bits.
        SourceAddress = "source.address",
        /// Caller, by user and host of the URI in From.
        Caller = "from.uri",
        /// Callee, by user and host of the Request-URI.
        Callee = "request.uri",
        /// Next hop of the rule, failure or gateway group that names the limit, by host and port of its URI.
        Gateway = "gateway",
    }
}

words! {
    /// Result for a request that would exceed the limit.
    pub enum OverLimit {
        /// The server answers it with the status of the limit.
        Answer = "answer",
        /// The rule does not apply to the request, and the next rule is evaluated, which may name another gateway.
        NextRule = "next-rule",
    }
}

words! {
    /// Counting while the counts of other servers are unknown.
    pub enum WithoutCache {
        /// Only the calls of this server are counted.
        Local = "local",
        /// Each call exceeds the limit.
        Refuse = "refuse",
    }
}

section! {
    /// Limit of concurrent calls, each counted from its INVITE to its end. All rules, failures and gateway groups that name the limit share its
    /// count. Repeat the table for each limit.
    pub struct CallLimitTable = "call_limit" {
        /// Name in rules, failures and gateway groups.
        pub name: Name = Name::UNSET, ANY.required();
        /// Property by which calls are counted: the limit applies to each value of the property separately. A call without this property is not
        /// counted. "gateway": a call counts under its current next hop, until the call ends or is tried at another next hop; a next hop without room
        /// is skipped.
        pub per: CountedPer = CountedPer::All, ANY;
        /// Most calls at a time.
        pub most: u32 = 1, Rule::number(1, 100_000_000).required();
        /// Status of the answer to a call beyond the limit.
        pub status: u16 = 503, Rule::number(400, 699);
        /// Effect on a call of a rule if the limit is full, or if no target of the rule has room. A failure whose limit is full is skipped in any
        /// case.
        pub over: OverLimit = OverLimit::Answer, ANY;
        /// A `[[cache]]` through which several servers count their calls together: every 0.1 s each server stores the number of its calls and reads
        /// the numbers of the other servers. Calls that several servers begin within that time may exceed `most`. "": this server counts alone.
        pub cache: Option<Reference<CacheTable>> = None, ANY.or("");
        /// `server.node` of each server that counts through `cache`, including this server; each needs another value.
        pub servers: Vec<u16> = Vec::new(), Rule::number(0, 65_535);
        /// Counting after the cache has not answered for 5 s.
        pub without_cache: WithoutCache = WithoutCache::Local, ANY;
    }
}

/// Returns those limits of `all` that `names` names.
pub(super) fn named(names: &[Reference<CallLimitTable>], all: &[Arc<CallLimitTable>]) -> Box<[Arc<CallLimitTable>]> {
    let limit = |name: &Reference<CallLimitTable>| all.iter().find(|limit| limit.name == *name.name()).cloned();
    names.iter().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Source};
    use super::*;

    fn read(lines: &str) -> Result<Config, super::super::Report> {
        let text = format!(
            "server.node = 2\n[[cache]]\nname = \"near\"\n[[cache]]\nname = \"far\"\nengine = \"redis\"\nservers = [\"192.0.2.1\"]\n\
             [[call_limit]]\nname = \"all\"\nmost = 1\n{lines}"
        );
        Config::read(Source { text: &text, ..Source::default() }).map(|(config, _)| config)
    }

    #[test]
    fn servers_that_cannot_count_together_are_told() {
        let config = read("cache = \"far\"\nservers = [1, 2]\nwithout_cache = \"refuse\"");
        let config = config.unwrap_or_else(|report| panic!("{report}"));
        let limit = &config.call_limits[0];
        assert_eq!((&limit.servers[..], limit.without_cache), (&[1, 2][..], WithoutCache::Refuse));
        for (lines, line, cure) in [
            ("servers = [1, 2]", 11, "cache = \"shared\""),
            ("cache = \"near\"\nservers = [1, 2]", 11, "of Redis or Memcached"),
            ("cache = \"far\"", 8, "servers = [2, 3]"),
            ("cache = \"far\"\nservers = [1, 3]", 12, "servers = [2, 3]"),
            ("cache = \"far\"\nservers = [2]", 12, "leave `cache` out"),
            ("cache = \"none\"\nservers = [1, 2]", 11, "cache"),
        ] {
            let report = read(lines).expect_err(lines);
            let fault = report.faults().iter().find(|fault| fault.cure.contains(cure));
            let fault = fault.unwrap_or_else(|| panic!("{lines}\n{report}"));
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(line), "{lines}\n{report}");
        }
    }
}
