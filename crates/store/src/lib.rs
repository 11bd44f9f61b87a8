//! Subscribers and the location table, with their databases: which users there are, and where they are reached.
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
//! * [`sqlite`], [`sqlite_bindings`], [`sqlite_subscribers`]: both in one SQLite file; [`sqlite_rows`]: queries to
//!   files of other programs. Other engines implement
//!   [`journal::BindingEngine`], [`read_through::Engine`] and [`subscriber::SubscriberWatch`]; those for the subscribers of database
//!   servers are in `strowger-sql`, and [`database_url`] says where such a server is.
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

pub mod binding;
pub mod cached_subscribers;
pub mod clock;
pub mod credential_cache;
pub mod database_header;
pub mod database_url;
pub mod error;
pub mod group;
pub mod journal;
pub mod lasting_failure;
pub mod location;
pub mod own_file;
mod partition;
mod queue;
pub mod read_through;
mod schema;
pub mod second_level;
pub mod sqlite;
pub mod sqlite_bindings;
pub mod sqlite_rows;
pub mod sqlite_subscribers;
pub mod subscriber;
pub mod ticket;
pub mod user_agent_texts;
