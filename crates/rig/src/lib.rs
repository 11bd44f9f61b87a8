//! Engine rig: servers without sockets, threads or waiting, for tests of decisions.
//!
//! A [`Site`] runs the engines of a server from the text of a configuration file, the same text that a process reads.
//! Phones and peers are [`Line`]s: sockets and connections of a network in memory. The clock is virtual: it stands still
//! while messages are handled, and a wait of an hour takes no time. A [`Phone`] writes requests, credentials and
//! responses.
//!
//! ```
//! use strowger_rig::Site;
//!
//! let site = Site::start("listen = [\"udp:127.0.0.1:5060\"]\ndomains = [\"example.org\"]\n");
//! site.add_user("bob@example.org", "bob");
//! let (bob, caller) = (site.phone("bob"), site.foreign_phone());
//! bob.register();
//! caller.send(&caller.text(&caller.call("MESSAGE", "sip:bob@example.org")));
//! let got = bob.next();
//! bob.respond(&got, 200, "");
//! assert_eq!(caller.answer().status(), 200);
//! ```
//!
//! The rig frames streams as the server does and reports closed ports and connections. Its TLS is plain text, and it has no bounds of
//! connections and no disk: tests of those start a process.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | start, reload, restart and drain of a server | `host.rs` |
//! | clock, datagrams, connections, names | `world.rs`; `connections.rs` |
//! | names that peers must prove, without certificates | `names.rs` |
//! | subscribers; credentials | `users.rs`; `credentials.rs` |
//! | orders to media threads and their events, without media | `media.rs` |
//! | messages by hand; the tests of `core` share the file | `text.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod connections;
mod credentials;
mod host;
mod line;
mod log;
mod media;
mod moves;
mod names;
mod phone;
mod site;
pub mod text;
mod users;
mod world;

pub use credentials::credentials;
pub use line::{Line, Listener};
pub use phone::{Call, Phone};
pub use site::Site;
pub use text::Got;
pub use users::ha1s;
