//! Running shards, spoken to over real sockets on loopback.

mod echo;
mod moves;
mod relay;
mod streams;
mod udp;
