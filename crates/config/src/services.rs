//! Addresses of the services that the server uses: databases, caches, control and metrics. Peers MUST NOT name them as targets.

use strowger_cache::servers::Endpoint;
use strowger_store::database_url::DatabaseAddress;

use super::Config;
use super::ban::Network;
use super::database::Database;
use super::key::Text;

impl Config {
    /// Returns host and port of each database and cache of this configuration, and of control and metrics.
    pub fn services(&self) -> Vec<(String, u16)> {
        let (store, sets) = (&self.store, &self.sets);
        let tables =
            [store.subscribers.as_ref(), store.bindings.as_ref(), self.accounting.server(), self.dialogs.server()];
        let of_sets = sets.iter().filter_map(|set| set.database.as_ref().and_then(Database::server));
        let databases = tables.into_iter().flatten().chain(of_sets);
        let databases = databases.filter_map(|url| match &url.address {
            DatabaseAddress::Host { host, port } => Some((host.clone(), *port)),
            DatabaseAddress::Socket(_) => None,
        });
        let of_cache = |cache: &super::CacheTable| {
            let port = cache.service().map_or(0, |service| service.port());
            let servers = cache.servers.iter().filter_map(move |server| match server.clone().or_port(port) {
                Endpoint::Tcp(host, port) => Some((host, port)),
                Endpoint::Unix(_) => None,
            });
            servers.collect::<Vec<_>>()
        };
        let caches = self.caches.iter().flat_map(of_cache);
        let own = [self.control.listen, self.metrics.listen].into_iter().flatten();
        databases.chain(caches).chain(own.map(|address| (address.ip().to_string(), address.port()))).collect()
    }

    /// Returns the networks of every `[[source]]`.
    pub fn source_networks(&self) -> impl Iterator<Item = Network> {
        let networks = self.sources.iter().flat_map(|source| &source.networks);
        networks.filter_map(|network| Network::from_text(network).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    #[test]
    fn each_service_is_known() {
        let text = "accounting.cdr = true\naccounting.to = \"sql\"\naccounting.database = \"mysql://u:p@db1/d\"\n\
                    store.subscribers = \"postgresql://u:p@192.0.2.1:7/d\"\nstore.bindings = \"mysql://u:p@db3/d\"\n\
                    dialogs.track = true\ndialogs.database = \"mysql://u:p@db4/d\"\n\
                    metrics.listen = \"127.0.0.1:9060\"\ncontrol.listen = \"[::1]:9061\"\n\
                    [[set]]\nname = \"a\"\ndatabase = \"mysql://u:p@db5/d\"\nquery = \"SELECT 1 AS `key`\"\n\
                    [[cache]]\nname = \"r\"\nengine = \"redis\"\nservers = [\"c1\", \"/run/x\"]\nmode = \"cluster\"\n\
                    [[cache]]\nname = \"s\"\nengine = \"redis\"\nservers = [\"c2\"]\nmode = \"sentinel\"\n\
                    [[cache]]\nname = \"m\"\nengine = \"memcached\"\nservers = [\"c3\", \"c4:9\"]\n\
                    [[source]]\nname = \"g\"\nnetworks = [\"192.0.2.9\", \"10.0.0.0/8\", \"::1/128\"]\n";
        let (config, _) =
            Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
        let mut services: Vec<String> =
            config.services().into_iter().map(|(host, port)| format!("{host} {port}")).collect();
        services.sort_unstable();
        let want = [
            "127.0.0.1 9060",
            "192.0.2.1 7",
            "::1 9061",
            "c1 6379",
            "c2 26379",
            "c3 11211",
            "c4 9",
            "db1 3306",
            "db3 3306",
            "db4 3306",
            "db5 3306",
        ];
        assert_eq!(services, want);
        let sources: Vec<String> = config.source_networks().map(|network| network.to_string()).collect();
        assert_eq!(sources, ["192.0.2.9/32", "10.0.0.0/8", "::1/128"]);
    }
}
