//! SIP messages as text: parse, view, edit, write.
//!
//! The one rule of use: bytes and index belong together. A [`Message`], its views and an [`Edit`] refer to the bytes
//! that this [`Index`] parsed; parse other bytes first.
//!
//! One pass over the received bytes makes an [`Index`]; nothing is copied. A [`Message`] is a view of bytes and index
//! together; typed header views are created on demand. A change is a list of patches on the received bytes ([`Edit`]);
//! all other bytes stay as they were received. New messages are written line by line ([`Builder`], [`respond`]).
//! Session descriptions are in [`sdp`], and [`frame`] finds messages in a stream.
//!
//! The crate knows text and nothing else: no transactions, no sockets, no clock. Malformed input gives an [`Error`]
//! with the position of the fault and the status code of the response; it never panics. Create an [`Index`], an
//! [`Edit`] and an output buffer once and use them for each message: then nothing is allocated.
//!
//! ```
//! use strowger_message::header::{MaxForwards, Via};
//! use strowger_message::{Builder, Edit, Host, Index, Limits, Message, Method, Name, Uri, respond};
//!
//! let bytes = b"INVITE sip:bob@example.org SIP/2.0\r\n\
//!     Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK776asdhds\r\n\
//!     Max-Forwards: 70\r\n\
//!     From: Alice <sip:alice@example.org>;tag=1928301774\r\n\
//!     To: Bob <sip:bob@example.org>\r\n\
//!     Call-ID: a84b4c76e66710\r\n\
//!     CSeq: 314159 INVITE\r\n\
//!     X-Color:   green\r\n\
//!     Content-Length: 0\r\n\r\n";
//!
//! // Index: where the lines are.
//! let mut index = Index::new();
//! index.parse(bytes, &Limits::default())?;
//! let message = Message::new(bytes, &index);
//! assert_eq!(message.method(), Some(Method::Invite));
//! assert_eq!(message.header_named(b"x-color"), Some(&b"green"[..]));
//!
//! // Views: a header field is read when it is asked for.
//! assert_eq!(message.from()?.tag, Some(&b"1928301774"[..]));
//! assert_eq!(message.cseq()?.number, 314_159);
//! assert_eq!(message.via()?.host, Host::parse(b"192.0.2.1")?);
//! let Uri::Sip(uri) = message.uri()? else { panic!("its scheme is sip") };
//! assert_eq!((uri.user, uri.port), (Some(&b"bob"[..]), None));
//!
//! // Edit: a proxy's Via on top, a hop less, and everything else as it came.
//! let via = Via { branch: Some(b"z9hG4bKproxy1"), ..Via::new(b"UDP", Host::parse(b"proxy.example.org")?, None) };
//! let mut edit = Edit::new();
//! edit.prepend(&index, Name::Via, |out| via.write(out));
//! edit.set(&index, Name::MaxForwards, |out| MaxForwards(69).write(out));
//! let mut forwarded = Vec::new();
//! edit.write(&message, &mut forwarded);
//! let forwarded = String::from_utf8_lossy(&forwarded);
//! assert!(forwarded.starts_with(
//!     "INVITE sip:bob@example.org SIP/2.0\r\n\
//!      Via: SIP/2.0/UDP proxy.example.org;branch=z9hG4bKproxy1\r\n\
//!      Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK776asdhds\r\n\
//!      Max-Forwards: 69\r\n"
//! ));
//! assert!(forwarded.contains("X-Color:   green\r\n"));
//!
//! // Write: an answer with the lines of its request, and a request of our own.
//! let mut ringing = Vec::new();
//! respond(&message, 180, None, Some(b"a6c85cf"), &mut ringing).finish(b"");
//! assert!(ringing.starts_with(b"SIP/2.0 180 Ringing\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch="));
//! index.parse(&ringing, &Limits::default())?;
//! let ringing = Message::new(&ringing, &index);
//! assert_eq!((ringing.status(), ringing.to()?.tag), (Some(180), Some(&b"a6c85cf"[..])));
//!
//! let mut ping = Vec::new();
//! let length = Builder::request(&mut ping, Method::Options, &Uri::parse(b"sip:example.org")?)
//!     .via(&via)
//!     .max_forwards(70)
//!     .line(b"From", b"<sip:proxy.example.org>;tag=1")
//!     .line(b"To", b"<sip:example.org>")
//!     .call_id(b"ping-1")
//!     .cseq(1, Method::Options)
//!     .finish(b"");
//! assert_eq!(length, ping.len());
//! assert!(ping.ends_with(b"Call-ID: ping-1\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"));
//! # Ok::<(), strowger_message::Error>(())
//! ```
//!
//! # Forms of a message
//!
//! An [`Index`] also tells the form of its message (`index::Form`). In the *canonical* form all readers find the same lines and the
//! same body: CRLF after each line, no folding, no control octets, one plain Content-Length, no repeated line that may occur once.
//! Nearly all messages are canonical. A *loose* one (bare LF, folds, no Content-Length in a datagram) is rewritten and indexed again
//! before routing; an ambiguous one (a bare CR) is refused. So the next hop reads the same message as this server.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | index of a message, its start line; scan by SIMD and its safe twin | `index.rs`, `Index`; `start_line.rs`; `scan.rs` |
//! | canonical form | `canonical.rs` |
//! | patches on the received bytes | `edit.rs` |
//! | messages in a stream | `frame.rs` |
//! | typed views of header fields | `typed.rs`; `view.rs`; `header/<name>.rs` |
//! | lists of values in a header field | `values.rs` |
//! | text that a message is built of | `build.rs`; `write.rs` |

#![deny(unsafe_code)]
#![forbid(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod build;
pub mod canonical;
pub mod edit;
pub mod error;
pub mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz_views;
pub mod header;
pub mod host;
pub mod index;
pub mod limits;
pub mod mandatory_headers;
pub mod message;
pub mod method;
pub mod name;
pub mod name_addr;
mod octet;
pub mod params;
pub mod reader;
#[allow(unsafe_code)]
pub mod scan;
pub mod sdp;
mod start_line;
pub mod status;
mod typed;
pub mod uri;
pub mod values;
pub mod view;
pub mod write;

pub use build::{Builder, respond};
pub use edit::Edit;
pub use error::{Error, Reason};
pub use host::Host;
pub use index::{Form, Index, Line};
pub use limits::Limits;
pub use mandatory_headers::MandatoryHeaders;
pub use message::Message;
pub use method::Method;
pub use name::Name;
pub use name_addr::NameAddr;
pub use uri::{SipUri, Uri};
pub use values::{Placed, Values};
pub use view::View;
pub use write::Write;
