//! Running shards, spoken to over real sockets on loopback.

mod echo;
mod end;
mod given;
mod lanes;
mod moves;
mod noise;
mod relay;
mod shed;
mod streams;
mod udp;
mod unreachable;
