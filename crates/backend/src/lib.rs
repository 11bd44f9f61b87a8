//! Engines that keep what `strowger-store` names: a module for each technology, in it a file for each purpose.
//!
//! | | [`sqlite`] | [`sql`]: MariaDB, MySQL, PostgreSQL | [`files`] |
//! |---|---|---|---|
//! | bindings, a `BindingEngine` of the journal | [`sqlite::bindings`] | [`sql::bindings`] | |
//! | subscribers, an `Engine` of the look-ups | [`sqlite::subscribers`] | [`sql::subscribers`] | |
//! | kept calls, an `Engine` of the call store | [`sqlite::calls`] | [`sql::calls`] | [`files::calls`] |
//! | rows of accounting, a `Sink` | [`sqlite::accounting`] | [`sql::accounting`] | [`files::accounting`] |
//! | rows of data sets | [`sqlite::rows`] | [`sql::rows`] | |
//!
//! [`accounting`] is the writer of rows, by any sink. An engine blocks: threads of the store and of this crate call it, no shard does.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod accounting;
pub mod files;
pub mod sql;
pub mod sqlite;
