//! Database servers as engines of the store: MariaDB, MySQL and PostgreSQL.
//!
//! * [`subscribers`] reads the tables of subscribers of OpenSIPS 3 and Kamailio 5, in place.
//! * [`accounting`] writes the rows of calls.
//! * [`bindings`] stores registrations.
//! * [`calls`] stores state by number, used for calls.
//! * [`lease`] grants one process the right to write bindings or calls.
//! * [`rows`] reads all rows of a query.
//! * [`schema`] creates and migrates the tables of this program.
//!
//! The differences between the servers are in `dialect.rs`, `own_table.rs` and the two drivers; all other code is
//! common.
//!
//! Each connection prepares the statements of requests once. Each statement has a deadline, even if the server is
//! frozen or its packets are lost: a connection that misses it is dropped, and another one is opened, with growing
//! pauses while the server is unreachable.
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

use crate::technology::{PlaceKind, Technology};

/// Row of the table of technologies.
pub(crate) const TECHNOLOGY: Technology = Technology {
    name: "sql",
    place: PlaceKind::Server,
    bindings: Some(|place, table, journal, clock| {
        let (server, lease) = (place.server()?, place.lease()?);
        let kept = bindings::keep(server, place.durability, place.patience, table, journal, clock, lease);
        let (journal, loaded) = kept?;
        Ok((Some(journal), loaded))
    }),
    calls: Some(|place| {
        let settings = calls::CallSettings { node: place.node, form: place.form, patience: place.patience };
        Ok(Box::new(calls::ServerCalls::open(place.server()?, settings, place.lease()?)?))
    }),
    accounting: Some(|place| {
        Ok(Box::new(accounting::ServerSink::new(place.server()?, place.patience, place.removes)?))
    }),
};
