//! Storage engines that implement the contracts of `strowger-store`: a module for each technology, a file for each
//! purpose.
//!
//! | | [`sqlite`] | [`sql`]: MariaDB, MySQL, PostgreSQL | [`files`] |
//! |---|---|---|---|
//! | bindings, a `BindingEngine` of the journal | [`sqlite::bindings`] | [`sql::bindings`] | |
//! | subscribers, a `LookupEngine` | [`sqlite::subscribers`] | [`sql::subscribers`] | |
//! | kept calls, a `CallEngine` | [`sqlite::calls`] | [`sql::calls`] | [`files::calls`] |
//! | rows of accounting, a `Sink` | [`sqlite::accounting`] | [`sql::accounting`] | [`files::accounting`] |
//! | rows of data sets | [`sqlite::rows`] | [`sql::rows`] | |
//!
//! To add a technology, add a folder to this crate and a row to the [table](technology::TECHNOLOGIES) by which the
//! process opens engines. The contracts are tested for each row (`tests/suite/engines.rs`), and for the row of a toy
//! technology.
//!
//! [`accounting`] writes accounting rows to any sink. Engines block: threads of the store and of this crate call them,
//! never a shard.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | table of the technologies; place of data | `technology.rs`, `TECHNOLOGIES`, `DataPlace` |
//! | tables of the SQLite file; one that another program overwrites | `sqlite/schema.rs`; `database_header.rs` |
//! | second server on a database file | `files/src/lock.rs`; `backend/src/sqlite/bindings.rs` |
//! | subscribers of other programs: columns, HA1, differences of servers, lost connections | `sql/table.rs`; `dialect.rs`; `credential.rs`; `subscribers.rs`; `back_off.rs` |
//! | own tables of a database server: columns, statements, versions | `sql/own_table.rs`; `schema.rs` |
//! | accounting, bindings and kept calls of a database server; their connection | `sql/accounting.rs`; `bindings.rs`; `calls.rs`; `writing_connection.rs` |
//! | lease of a shared database: take-over, fence | `sql/lease.rs`, `acquire` |
//! | rows of a data set | `sql/rows.rs`; `sqlite/rows.rs` |
//! | folder of kept calls: segments, compaction | `files/calls/mod.rs`; `segments.rs` |
//! | writer of rows: spool, quarantine | `accounting/writer.rs`; `files/spool.rs`; `files/quarantine.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod accounting;
pub mod files;
pub mod sql;
pub mod sqlite;
pub mod technology;
