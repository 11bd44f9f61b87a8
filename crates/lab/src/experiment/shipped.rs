//! Shipped experiments.

/// Names and texts of the shipped experiments.
pub const SHIPPED: &[(&str, &str)] = &[
    ("b2bua", include_str!("../../experiments/b2bua.toml")),
    ("b2bua-calls", include_str!("../../experiments/b2bua-calls.toml")),
    ("caches", include_str!("../../experiments/caches.toml")),
    ("caches-entries", include_str!("../../experiments/caches-entries.toml")),
    ("connections", include_str!("../../experiments/connections.toml")),
    ("connections-calls", include_str!("../../experiments/connections-calls.toml")),
    ("connections-idle", include_str!("../../experiments/connections-idle.toml")),
    ("overload", include_str!("../../experiments/overload.toml")),
    ("proxy", include_str!("../../experiments/proxy.toml")),
    ("registration-storm", include_str!("../../experiments/registration-storm.toml")),
    ("relay", include_str!("../../experiments/relay.toml")),
    ("rfc7502", include_str!("../../experiments/rfc7502.toml")),
    ("stack", include_str!("../../experiments/stack.toml")),
    ("stress", include_str!("../../experiments/stress.toml")),
];
