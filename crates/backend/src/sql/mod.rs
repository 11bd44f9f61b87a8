//! Database servers behind the traits of the floors below: MariaDB, MySQL and PostgreSQL.
//!
//! * [`subscribers`] reads the tables of subscribers that OpenSIPS 3 and Kamailio 5 have, in place.
//! * [`accounting`] writes the rows of calls.
//! * [`bindings`] keeps registrations.
//! * [`calls`] keeps state by number, which is that of calls.
//! * [`lease`] says which process may write bindings and calls.
//! * [`rows`] reads all rows of a query.
//! * [`schema`] makes the tables of this program, and knows their versions.
//!
//! What differs between the servers is in `dialect.rs`, `own_table.rs` and the two drivers; all else is written once.
//!
//! What is asked for each request is prepared, once a connection. Each statement has a deadline, kept also where the server is frozen or its packets vanish: a
//! connection that misses it is dropped, and another is made, with pauses that grow while the server cannot be reached.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | subscribers of other programs: columns, HA1, differences of servers, lost connections | `table.rs`; `dialect.rs`; `credential.rs`; `subscribers.rs`; `back_off.rs` |
//! | own tables: columns, statements, versions | `own_table.rs`; `schema.rs` |
//! | accounting; bindings; kept calls; their connection | `accounting.rs`; `bindings.rs`; `calls.rs`; `writing_connection.rs` |
//! | lease of a shared database: take-over, fence | `lease.rs`, `acquire` |
//! | rows of a data set | `rows.rs` |

pub mod accounting;
mod back_off;
pub mod bindings;
pub mod calls;
mod cell;
mod connection;
mod credential;
mod dialect;
mod error;
pub mod lease;
mod mariadb;
mod own_table;
mod postgresql;
mod realms;
pub mod rows;
mod runtime;
pub mod schema;
mod server;
pub mod subscribers;
mod table;
mod tls;
mod writing_connection;

pub use error::OpenError;
pub use realms::{Realm, Realms};
pub use server::ServerSettings;
