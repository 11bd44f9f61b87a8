//! Shards: batched UDP, TCP, TLS and WebSocket around the machines of `core`.

pub mod service;

pub use service::Service;
