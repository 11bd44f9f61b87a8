//! Who may register, and where they are: subscribers and the location table, with their databases.
//!
//! The store speaks bytes, texts and numbers; it knows no SIP. What a contact means, which of two URIs are equal, who may
//! replace whom is the registrar's to say (`strowger-core`); the store keeps what it decided, in order, and says when it
//! is kept.
//!
//! * [`location`]: the table that every call reads.
//! * [`journal`]: from that table to a database, in groups, with tickets.
//! * [`subscriber`]: users and their HA1s; [`read_through`], the cache before any database of them.
//! * [`sqlite`], [`sqlite_bindings`], [`sqlite_subscribers`]: both in one SQLite file. Other engines implement
//!   [`journal::BindingEngine`] and [`subscriber::SubscriberEngine`].

#![forbid(unsafe_code)]

pub mod agents;
pub mod binding;
mod generations;
pub mod journal;
pub mod location;
mod partition;
mod queue;
pub mod read_through;
mod schema;
pub mod sqlite;
pub mod sqlite_bindings;
pub mod sqlite_subscribers;
pub mod subscriber;
pub mod ticket;
