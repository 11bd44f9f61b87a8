//! Shipped systems.

/// Embedded files of a folder.
macro_rules! files {
    ($folder:literal: $($file:literal),+ $(,)?) => {
        ($folder, &[$(($file, include_str!(concat!("../../systems/", $folder, "/", $file)))),+])
    };
}

/// Files of a system: name and text.
pub type Files = &'static [(&'static str, &'static str)];

/// Names of the shipped systems and their files.
pub const SHIPPED: &[(&str, Files)] = &[
    files!("echo": "driver.toml"),
    files!("external": "driver.toml"),
    files!("kamailio": "caches.cfg", "connections.cfg", "dispatcher.list", "driver.toml", "overload.cfg", "proxy.cfg", "record-route.cfg", "register.cfg", "relay.cfg", "stress.cfg"),
    files!("kamailio-rtpengine": "b2bua.cfg", "driver.toml", "start.sh"),
    files!("media-floor": "driver.toml"),
    files!("opensips": "driver.toml", "record-route.cfg", "register.cfg", "relay.cfg"),
    files!("pjsip-perf": "driver.toml", "measure.sh"),
    files!("strowger": "b2bua.toml", "caches-local-kept.toml", "caches-local.toml", "caches-memcached.toml", "caches-none.toml", "caches-redis-cluster.toml", "caches-redis.toml", "connections-tls.toml", "connections.toml", "driver.toml", "overload-tls.toml", "overload.toml", "proxy.toml", "record-route.toml", "register.toml", "relay.toml", "stress-a.toml", "stress-b.toml", "stress-c.toml", "stress-d.toml", "stress-e.toml", "stress-f.toml", "stress-g.toml", "stress-h.toml", "stress-i.toml", "stress-j.toml", "stress-k.toml"),
    files!("strowger-pair": "caches-redis.toml", "driver.toml"),
    files!("strowger-stack": "driver.toml"),
];
