//! Database servers behind the traits of `strowger-store`: MariaDB, MySQL and PostgreSQL.
//!
//! [`subscribers`] reads the tables of subscribers that OpenSIPS 3 and Kamailio 5 have, in place; [`rows`] all rows of a query. What differs between the servers is in
//! `dialect.rs` and in the two drivers; all else is written once.
//!
//! Every statement is prepared, once a connection. Each has a deadline, kept also where the server is frozen or its packets vanish: a
//! connection that misses it is dropped, and another is made, with pauses that grow while the server cannot be reached.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod back_off;
mod connection;
mod credential;
mod dialect;
mod error;
mod mariadb;
mod postgresql;
mod realms;
pub mod rows;
mod server;
pub mod subscribers;
mod table;
mod tls;

pub use error::OpenError;
pub use realms::{Realm, Realms};
pub use server::ServerSettings;
