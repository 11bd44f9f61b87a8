//! Conversion of the configuration to the settings of the network side.

use crate::authorities;
use crate::media_capacity::MediaCapacity;
use std::sync::Arc;
use std::time::Duration;

use strowger_config::{CertificateFiles, Config, Identity, Listener, Scheduling};
use strowger_core::log_limiter::LogLimiter;
use strowger_dns::{ResolverSettings, Speaks};
use strowger_net::media::MediaSettings;
use strowger_net::tls::{self, Certificate};
use strowger_net::{Bounds, Lifetimes, Listener as NetListener, NetSettings, Shards, UdpSettings};

/// Returns the settings of the resolver.
pub(crate) fn resolver(config: &Config) -> ResolverSettings {
    let (dns, defaults) = (&config.dns, ResolverSettings::default());
    ResolverSettings {
        deadline: dns.timeout.saturating_mul(defaults.attempts as u32),
        timeout: dns.timeout,
        speaks: Speaks::of(config.listeners.iter().map(|listener| listener.transport)),
        stale: dns.serve_stale,
        ..defaults
    }
}

/// Returns the settings of the network side at its start. `secret` is the key of the hash that maps calls to shards,
/// random at each start.
pub(crate) fn net(config: &Config, secret: u32) -> NetSettings {
    let (server, limits) = (&config.server, &config.limits);
    NetSettings {
        node: server.node,
        secret,
        shards: match server.shards {
            Some(shards) => Shards::Fixed(usize::from(shards)),
            None => Shards::Auto { most: cores() },
        },
        ipv6_prefix: limits.ipv6_prefix,
        udp: UdpSettings {
            receive_buffer: server.udp_receive_buffer,
            icmp_errors: server.icmp_errors,
            ..UdpSettings::default()
        },
        scheduling: strowger_net::Scheduling {
            sched_batch: server.scheduling == Scheduling::Batch,
            ..strowger_net::Scheduling::default()
        },
        tls: tls_client(config),
        bounds: bounds(config),
        log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, limits.ipv6_prefix)),
        ..NetSettings::default()
    }
}

/// Returns the number of processors of this process.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the settings of the media threads; `None` if this server answers no call.
pub(crate) fn media(config: &Config) -> Option<MediaSettings> {
    let media = &config.media;
    media.is_on().then(|| MediaSettings {
        addresses: media.addresses.iter().map(|address| address.local).collect(),
        ports: media.ports.first..=media.ports.last,
        dscp: media.dscp,
        threads: media.threads.unwrap_or(1),
        most_threads: media.threads.unwrap_or_else(|| u16::try_from(cores()).unwrap_or(u16::MAX)),
        most_pairs: MediaCapacity::here(config).descriptors,
        timeout: media.timeout,
    })
}

/// Returns the bounds of the network side, which may change at run time.
pub(crate) fn bounds(config: &Config) -> Bounds {
    let (limits, timers) = (&config.limits, config.timer_settings());
    Bounds {
        limits: config.message_limits(),
        connections: limits.connections,
        connections_per_source: limits.connections_per_source,
        connection_memory: limits.connection_memory,
        connection_memory_per_source: limits.connection_memory_per_source,
        idle_timeout: limits.idle_connection_timeout.unwrap_or(NEVER),
        lifetimes: Lifetimes {
            other: limits.unregistered_connection_timeout,
            transaction: Duration::from_millis(timers.t1_64().max(timers.c)),
        },
        answer_timeout: Duration::from_millis(timers.t1_64()),
        // The largest message must fit.
        write_queue: Bounds::default().write_queue.max(limits.message_size),
        ..Bounds::default()
    }
}

/// Returns the settings for verifying servers in outbound connections.
pub(crate) fn tls_client(config: &Config) -> tls::Client {
    tls::Client {
        authorities: authorities::outbound(&config.tls),
        unverified: !config.tls.outbound_verify,
        certificate: config.tls.files().map(certificate),
        ..tls::Client::default()
    }
}

/// Returns the listeners of the network side, in the order of [`Config::listeners`].
pub(crate) fn listeners(config: &Config) -> Vec<NetListener> {
    config.listeners.iter().map(net_listener).collect()
}

/// A hundred years: longer than the life of a process, and short enough for any clock.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

fn net_listener(listener: &Listener) -> NetListener {
    NetListener {
        advertised: listener.advertise.as_ref().map(ToString::to_string),
        network: listener.network.clone(),
        tls: listener.identity.as_ref().map(tls_server),
        balancers: listener.proxy_protocol_from.clone(),
        ..NetListener::new(listener.transport, listener.address)
    }
}

fn tls_server(identity: &Identity) -> tls::Server {
    let certificates = identity.certificates.iter().cloned().map(certificate).collect();
    let client_authorities = identity.client_ca.clone();
    tls::Server { certificates, client_authorities, revoked: None, versions: tls::Versions::All }
}

fn certificate(files: CertificateFiles) -> Certificate {
    Certificate::new(files.certificate, files.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::Source;

    /// A default belongs to the network side; the configuration must not state another one.
    #[test]
    fn the_defaults_are_those_of_the_network_side() {
        let config = Config::default();
        let (ours, theirs) = (net(&config, 1), NetSettings::default());
        assert_eq!((ours.node, ours.udp.receive_buffer), (theirs.node, theirs.udp.receive_buffer));
        let (ours, theirs) = (ours.bounds, theirs.bounds);
        assert_eq!((ours.connections, ours.idle_timeout), (theirs.connections, theirs.idle_timeout));
        assert_eq!(ours.connection_memory, theirs.connection_memory);
        assert_eq!(ours.connection_memory_per_source, theirs.connection_memory_per_source);
        assert_eq!((ours.answer_timeout, ours.lifetimes), (theirs.answer_timeout, theirs.lifetimes));
        assert_eq!(ours.write_queue, theirs.write_queue);
    }

    /// Process tests cannot observe these settings without a faulty machine.
    #[test]
    fn what_no_peer_can_see_arrives_at_the_network_side() {
        let text = "server.node = 7\nlimits.message_size = \"2MiB\"";
        let (config, _) = Config::read(Source { text, ..Default::default() }).expect("right");
        let net = net(&config, 1);
        assert_eq!((net.node, net.bounds.write_queue), (7, 2 << 20));
    }

    #[test]
    fn media_threads_get_their_settings() {
        let of = |text: &str| {
            let (config, _) = Config::read(Source { text, ..Default::default() }).expect("right");
            media(&config)
        };
        assert!(of("").is_none());
        let all = "media.addresses = [\"10.0.0.1 as 192.0.2.1\"]\nmedia.ports = \"20000-20099\"\nmedia.dscp = 34\n\
                   media.threads = 3\nmedia.timeout = \"10s\"\n";
        let own = of(all).expect("an address");
        assert_eq!((own.addresses.len(), own.addresses[0].to_string().as_str()), (1, "10.0.0.1"));
        assert_eq!((own.ports.clone(), own.dscp, own.threads, own.most_threads), (20_000..=20_099, 34, 3, 3));
        assert_eq!((own.timeout, own.capacity()), (Some(Duration::from_secs(10)), 50));
        let own = of("media.addresses = [\"::1\"]\nmedia.timeout = \"never\"").expect("an address");
        assert_eq!((own.threads, own.timeout, own.dscp), (1, None, 46));
        assert_eq!(usize::from(own.most_threads), cores());
    }
}
