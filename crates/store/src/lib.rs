//! Subscribers, the location table, kept calls and rows of accounting: their tables and writers, and the contracts of the engines that keep
//! them.
//!
//! The one rule of use: no shard waits. What takes time is asked for with a [`ticket`], which comes back with the result; what a 200
//! promises is kept only when its ticket has come back.
//!
//! The store speaks bytes, texts and numbers; it knows no SIP. What a contact means, which of two URIs are equal, who may
//! replace which is the registrar's to say (`strowger-core`); the store keeps what it decided, in order, and says when it
//! is kept.
//!
//! * [`location`]: the table that every call reads.
//! * [`journal`]: from that table to a database, in groups, with tickets; [`clock`]: by which time bindings end.
//! * [`group`]: the writer under it, for any kind of row; [`lasting_failure`]: when one is worth a line of the log.
//! * [`subscriber`]: users and their HA1s; [`cached_subscribers`], the users of any database; [`read_through`], the cache before it, for
//!   any kind of question; [`second_level`], one more that several servers may share; [`credential_cache`], where users who are registered stand
//!   alone.
//! * [`calls`]: the call store, which keeps the state of calls beyond the process; [`accounting`]: rows that are written of calls.
//!
//! Engines implement [`journal::BindingEngine`], [`read_through::Engine`], [`subscriber::SubscriberWatch`], [`calls::Engine`] and
//! [`accounting::sink::Sink`]. They are in `strowger-backend`; [`database_url`] says where a database server is.
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
