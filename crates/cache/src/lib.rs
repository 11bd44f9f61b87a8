//! Caches of byte strings with lifetimes, and counters: data that the server may lose, and data that several servers
//! share.
//!
//! The one rule of use: no shard waits. A [`CacheHandle`](engine::CacheHandle) answers a request at once or with a
//! [`ticket`]. A fetch may find nothing or fail; the caller must work without the value.
//!
//! ```
//! use strowger_cache::local::LocalCache;
//! use strowger_cache::request::{Count, Floor, Life};
//! use strowger_cache::settings::LocalSettings;
//!
//! let cache = LocalCache::new(LocalSettings::default());
//! let now = 5_000;
//! cache.store(b"ha1:alice", b"939e7578ed9e3c518a452acee763bce9", Life::ms(60_000), now)?;
//! let mut value = Vec::new();
//! assert!(cache.fetch(b"ha1:alice", now + 59_999, &mut value)?);
//! assert!(!cache.fetch(b"ha1:alice", now + 60_000, &mut value)?);
//!
//! let call = Count { by: 1, floor: Floor::Zero, life: Life::ms(1_000) };
//! assert_eq!(cache.count(b"calls:192.0.2.1", call, now)?.0, 1);
//! assert_eq!(cache.count(b"calls:192.0.2.1", Count { by: -5, ..call }, now)?.0, 0);
//! # Ok::<(), strowger_cache::error::CacheError>(())
//! ```
//!
//! * [`request`]: requests and answers, the same for all engines; [`error`]: failures.
//! * [`engine`]: the engines behind one type; [`ticket`]: later answers.
//! * [`local`]: the engine in this process; [`log`]: its entries on disk; [`settings`] and [`gauges`] of both.
//! * [`servers`]: addresses of cache servers, whose clients are the feature `remote`; [`waiting`]: requests of threads that may wait.
//!
//! The decisions 16 and 17 in `docs/decisions` have the reasons for engines of our own.
//!
//! # Memory
//!
//! A partition has cells of 64 bytes; an entry is a chain of cells. So an entry of 80 bytes takes 128 bytes of cells,
//! and 7 to 11 bytes of the index. A freed chain can be used for entries of any size, and the bound of the cache
//! includes all this memory. Large values are copied in pieces of 60 bytes: the cache accepts values of a megabyte and
//! is made for kilobytes. Cells come from the allocator of the program in chunks of a little less than a power of two:
//! mimalloc would use 85 KiB for a chunk of 64 KiB that is aligned to a cache line.
//!
//! # Speed
//!
//! A fetch waits for memory twice: for a line of the index, and for the entry, whose cells are adjacent. Among ten
//! million entries such a wait takes a quarter of a microsecond, and the two waits are nearly all of the time of the
//! fetch. Two things help. The allocator of the server can use pages of 2 MB, which shortens address translation. And a
//! fetch has about 320 instructions with predictable branches, fewer than the 500 of a processor's look-ahead window:
//! the next fetch begins to wait while the first still waits, despite the locks of two partitions. For that reason rare
//! code of a fetch is in functions of its own.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | requests and answers of a cache | `request.rs`; `engine.rs` |
//! | short fetch from the local cache | `local/partition.rs`, `fetch`; `index.rs`, `guess`; `cells.rs`, `value_of` |
//! | eviction, expiry, memory | `local/partition.rs`; `wheel.rs`; `cells.rs` |
//! | entries that survive a kill | `log/keeper.rs` |
//! | Memcached and Redis; server of a key | `remote/mod.rs`; `remote/cluster.rs`, `chosen`; `spread.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod engine;
pub mod error;
pub mod gauges;
pub mod local;
pub mod log;
#[cfg(feature = "remote")]
pub mod remote;
pub mod request;
pub mod servers;
pub mod settings;
pub mod spread;
pub mod ticket;
pub mod waiting;
