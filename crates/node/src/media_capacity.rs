//! Calls that the ports of media and the descriptors of the process carry.

use strowger_config::Config;
use strowger_net::descriptors;

/// Descriptors of a server for other things than connections and media: files, listeners, databases, threads.
pub(crate) const OTHERS: usize = 256;

/// Limit of descriptors that nearly every system grants.
const GRANTED: usize = 1_024;

/// Pairs of ports of media that a server can have: a call takes one for each audio stream and peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaCapacity {
    /// Pairs of `media.ports` at all addresses.
    pub ports: usize,
    /// Pairs for which there are descriptors, two for each. The others are kept for connections: those of `limits.connections`, at most half of all.
    pub descriptors: usize,
    /// Limit of descriptors (RLIMIT_NOFILE) that carries all ports.
    pub wanted_limit: usize,
}

impl MediaCapacity {
    /// Returns the capacity of a server with this configuration on this machine. Raises the limit of descriptors to the most that the system admits.
    pub fn here(config: &Config) -> Self {
        Self::of(config, descriptors::raise().unwrap_or(GRANTED))
    }

    /// Returns the capacity of a server with this configuration and this limit of descriptors.
    pub fn of(config: &Config, limit: usize) -> Self {
        let (ports, others) = (config.media.calls(), config.limits.connections.saturating_add(OTHERS));
        Self {
            ports,
            descriptors: (limit - others.min(limit / 2)) / 2,
            wanted_limit: (2 * ports).saturating_add(others.min(2 * ports)),
        }
    }

    /// Tells whether all ports have descriptors.
    pub const fn is_enough(&self) -> bool {
        self.descriptors >= self.ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::Source;

    fn config(connections: usize) -> Config {
        let text = format!(
            "media.addresses = [\"192.0.2.1\"]\nmedia.ports = \"20000-29999\"\nlimits.connections = {connections}\n"
        );
        Config::read(Source { text: &text, ..Source::default() }).expect("right").0
    }

    #[test]
    fn connections_keep_their_descriptors() {
        let few = config(1_000);
        let of = |limit| MediaCapacity::of(&few, limit);
        assert_eq!(of(20_000), MediaCapacity { ports: 5_000, descriptors: 9_372, wanted_limit: 11_256 });
        assert!(of(20_000).is_enough() && of(11_256).is_enough() && !of(11_254).is_enough());
        // Of a few descriptors, half are for connections.
        assert_eq!(of(1_024).descriptors, 256);
        let many = config(500_000);
        let of = |limit| MediaCapacity::of(&many, limit);
        assert_eq!(of(1_024), MediaCapacity { ports: 5_000, descriptors: 256, wanted_limit: 20_000 });
        assert!(of(20_000).is_enough() && !of(19_998).is_enough());
    }
}
