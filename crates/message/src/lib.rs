//! SIP messages as text: parse, view, edit, write.
//!
//! One pass over the received bytes makes an [`Index`]; nothing is copied. A [`Message`] is a view of
//! bytes and index together; typed header views are made when asked for. A change is a list of patches
//! on the received bytes ([`Edit`]), so that whatever is not changed leaves byte for byte as it came.

#![deny(unsafe_code)]
#![forbid(unsafe_op_in_unsafe_fn)]

pub mod build;
pub mod edit;
pub mod error;
pub mod essentials;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod fuzz_views;
pub mod index;
pub mod limits;
pub mod message;
pub mod method;
pub mod name;
#[allow(unsafe_code)]
pub mod scan;
pub mod reader;
pub mod host;
pub mod params;
pub mod header;
pub mod name_addr;
mod typed;
pub mod values;
pub mod uri;
pub mod view;
pub mod write;
pub mod sdp;
pub mod status;

pub use build::{Builder, respond};
pub use edit::Edit;
pub use essentials::Essentials;
pub use error::{Error, Reason};
pub use index::{Index, Line};
pub use limits::Limits;
pub use message::Message;
pub use method::Method;
pub use name::Name;
pub use host::Host;
pub use name_addr::NameAddr;
pub use uri::{SipUri, Uri};
pub use values::{Placed, Values};
pub use write::Write;
pub use view::View;
