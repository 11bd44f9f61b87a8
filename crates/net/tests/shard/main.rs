//! Running shards, spoken to over real sockets on loopback.

mod echo;
mod moves;
mod noise;
mod relay;
mod streams;
mod udp;
