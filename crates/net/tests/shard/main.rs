//! Tests of running shards over real sockets on loopback.

mod authority;
mod balancers;
mod bounds;
mod certificates;
mod dedicated;
mod dials;
mod echo;
mod edges;
mod end;
mod given;
mod identities;
mod keep_alive;
mod lifetimes;
mod moves;
mod noise;
mod pressure;
mod relay;
mod shed;
mod streams;
mod turns;
mod udp;
mod unreachable;
