//! A cache of bytes with lives and counters: what the server may forget, and what several servers may share.
//!
//! The one rule of use: no shard waits. An [`Engine`](engine::Engine) answers a request at once or under a [`ticket`]; a fetch that finds
//! nothing and one that fails are both answers that the caller lives with.
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
//! * [`request`]: what a cache is asked and what it answers, in the words of no engine in particular; [`error`], why it did not.
//! * [`engine`]: engines of either kind; [`ticket`], how a later answer comes back.
//! * [`local`]: the engine in this process; [`log`], by which its entries outlive it; [`settings`] and [`gauges`] of both.
//! * [`servers`]: where caches in other processes are, whose engines are in `remote`, a feature of this crate; [`waiting`], for threads that
//!   may wait.
//!
//! # Why the local engine is code of our own
//!
//! A cache for millions of subscribers has to meet all of these: a bound in bytes, a life for each entry, eviction by frequency, an entry of
//! 80 bytes in at most 168, and entries that outlive a kill. The libraries meet some. `quick_cache` (S3-FIFO) has weights but no lives and
//! no disk, and an entry is an allocation for the key and one for the value beside its slot. `moka` has lives, weights and frequency, at several
//! pointers, timer nodes and a reference count for each entry, and threads or callers that do its housekeeping; no disk. `foyer` has a disk, as
//! a second level of blocks that may lose what was stored last, and needs a runtime. A database of key and value (`sled`, `redb`) keeps
//! entries and evicts none. What was built here instead is small: cells, two queues and a wheel, under one lock for each partition.
//!
//! # Memory
//!
//! A partition has cells of 64 bytes; an entry is a chain of them, its head in the first. So an entry of 80 bytes takes 128 and 7 to 11
//! of the index, a chain is freed without leaving a hole of its own size, and the bound counts all that is there. The price is paid by
//! large values, which are copied in pieces of 60 bytes: the cache takes values of a megabyte and is made for those of some kilobytes.
//! Cells come from the allocator of the program in chunks of a little less than a power of two: a chunk of 64 KiB that begins at a line of
//! memory would take 85 KiB of mimalloc's.
//!
//! # Speed
//!
//! A fetch waits for memory twice: for a line of the index, and for the entry, whose cells are side by side. Among ten million entries a wait
//! is a quarter of a microsecond, and nearly all that a fetch costs. Two things help. The allocator of the server has the kernel give memory
//! in pages of 2 MB where it can, so less is looked up on the way; the cache does nothing for it. And a fetch is short, some 320 instructions
//! where a processor looks ahead by 500, and branches as expected: so one that follows at once begins to wait while the first still does, the
//! locks of two partitions between them notwithstanding. What is rare in a fetch stands in functions of its own for that.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | requests and answers of a cache | `request.rs`; `engine.rs` |
//! | short fetch from the local cache | `local/partition.rs`, `fetch`; `index.rs`, `guess`; `cells.rs`, `value_of` |
//! | eviction, expiry, memory | `local/partition.rs`; `wheel.rs`; `cells.rs` |
//! | entries that survive a kill | `log/keeper.rs` |
//! | Memcached and Redis | `remote/mod.rs` |

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
pub mod ticket;
pub mod waiting;
