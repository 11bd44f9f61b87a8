//! Subscribers, the location table, kept calls and accounting rows: their tables and writers, and the contracts of the
//! engines that store them.
//!
//! The one rule of use: no shard waits. A slow operation has a [`ticket`], which comes back with the result; the server
//! sends a 200 only when its ticket has come back.
//!
//! The store handles bytes, texts and numbers, but no SIP. The registrar (`strowger-core`) decides about Contacts,
//! equal URIs and replacements; the store saves its decisions in order, and reports when they are durable.
//!
//! * [`location`]: the table that every call reads.
//! * [`journal`]: writes changes of that table to a database, in groups, with tickets; [`clock`]: the time by which
//!   bindings end.
//! * [`group`]: group writer for rows of any kind; [`lasting_failure`]: log lines about a failure that lasts.
//! * [`subscriber`]: users and their HA1s; [`cached_subscribers`]: users of any database; [`read_through`]: the cache in
//!   front of it, for look-ups of any kind (questions); [`second_level`]: a cache that several servers share; [`credential_cache`]:
//!   credentials of registered users in a cache alone.
//! * [`calls`]: the call store, which preserves the state of calls beyond the process; [`accounting`]: rows of calls.
//!
//! Engines implement [`journal::BindingEngine`], [`read_through::LookupEngine`], [`subscriber::SubscriberWatch`],
//! [`calls::CallEngine`] and [`accounting::sink::Sink`]. They are in `strowger-backend`. [`database_url`] parses the
//! address of a database server.
//!
//! ```
//! use strowger_store::binding::Binding;
//! use strowger_store::location::{LocationSettings, LocationTable, UpdateStatus, Step};
//! use strowger_store::ticket::Ticket;
//!
//! let table = LocationTable::new(LocationSettings::default());
//! let now = 5_000;
//! let phone = Binding { uri: b"sip:alice@192.0.2.1", expires_at: now + 60_000, ..Binding::EMPTY };
//! let update = table.update::<()>(
//!     b"sip:alice@example.com",
//!     now,
//!     5,
//!     Ticket::NONE,
//!     |current| Ok(if current.is_empty() { vec![Step::Add(phone)] } else { vec![] }),
//! );
//! // No journal was started on this table: the change is final, the 200 may leave.
//! assert_eq!(update, Ok(UpdateStatus::Done));
//! table.lookup(b"sip:alice@example.com", now, &mut |b| assert_eq!(b.uri(), b"sip:alice@192.0.2.1"));
//! assert!(!table.is_registered(b"sip:alice@example.com", now + 60_000));
//! ```
//!
//! # Look-ups
//!
//! A shard asks the cache first ([`read_through`]). On a miss the question goes to the database with a ticket. Equal
//! questions in flight are asked once. Each shard has its own non-blocking connection to a database server, so a
//! question and its answer wake no other thread. While this connection is busy, the look-up threads send the questions,
//! with up to `store.lookup_connections` batches at a time. SQLite calls block, so with SQLite only these threads send
//! questions.
//!
//! *Deadlines*: each look-up has a deadline, kept within 50 ms; if it is missed, the answer is 500. After several
//!   consecutive missed deadlines, further look-ups fail at once, and the last question is repeated until the database
//!   answers in time.
//! *Stale answers*: if the database fails or does not answer within 200 ms, an answer past its lifetime
//!   stays usable for another `store.serve_stale`, so known users see no outage.
//! *Changes*: a watch reads which answers have changed. A notice voids one answer, and a new version voids
//!   all answers; for a database without both, only the lifetime limits an answer. A voided answer is never used again.
//!   SQLite has notices, which triggers write, so they cover changes by any program.
//! *Shared caches* ([`second_level`]) are asked between memory and database. With `auth.credential_cache`
//!   ([`credential_cache`]) only REGISTERs are judged by the database; the cache holds the credentials as long as the
//!   bindings.
//!
//! # Registrations
//!
//! Under the lock of a partition the registrar decides, the change is applied in memory, and the change enters the
//! queue of the [`journal`]. So changes have the same order on disk and in memory. A writer thread commits groups; with
//! `durability = "power-loss"` it syncs. When the commit has returned, the tickets come back and the 200s are sent. If
//! a group failed, memory is rolled back to its earlier state and 500s are sent. So each 200 means a committed change.
//!
//! The end of a binding is a time of the monotonic clock, so a step of the system clock ends no binding; only the
//! stored rows have system time.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | cached answers, slow and dead databases | `read_through.rs`, `cached`; `read_through/deadlines.rs`; `change_watch.rs`; `asker.rs`; `local.rs` |
//! | answers that a changed user voids | `backend/src/sqlite/schema.rs`, `THIRD`; `read_through/cache.rs`, `void` |
//! | spelling of a user | `subscriber.rs`, `parts_of` |
//! | cache between memory and database | `second_level.rs`; `second_level/codec.rs` |
//! | clock of bindings | `clock.rs` |
//! | commit with unknown outcome; failed commit | `journal/writer.rs`, `Repair` |
//! | domain that becomes an alias | `location/rename.rs` |
//! | writing in groups | `group.rs` |
//! | kept calls: groups, failures, final rows (last words) | `calls/writing.rs` |
//! | rows and columns of accounting; masks | `accounting/cdr.rs`; `mask.rs` |
//! | URL of a database server | `database_url.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod accounting;
pub mod binding;
pub mod cached_subscribers;
pub mod calls;
pub mod clock;
pub mod credential_cache;
pub mod database_url;
pub mod error;
pub mod group;
pub mod journal;
pub mod lasting_failure;
pub mod location;
mod partition;
mod queue;
pub mod read_through;
pub mod second_level;
pub mod subscriber;
pub mod ticket;
pub mod user_agent_texts;
