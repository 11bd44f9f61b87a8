//! The queue between two shards and the bell of one, as `strowger-net` has them, under [loom](https://docs.rs/loom). Their tests, at the foot of each
//! file, see every order that the steps of two threads may have, and everything that the memory model lets a load return.
#![cfg(loom)]

#[path = "../../crates/net/src/bell.rs"]
mod bell;
#[path = "../../crates/net/src/ring.rs"]
mod ring;
#[path = "../../crates/net/src/sync.rs"]
mod sync;
