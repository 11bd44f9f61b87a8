//! SIP messages as text: parse, view, edit, write.
//!
//! One pass over the received bytes makes an [`Index`]; nothing is copied. A [`Message`] is a view of
//! bytes and index together; typed header views are made when asked for. A change is a list of patches
//! on the received bytes ([`Edit`]), so that whatever is not changed leaves byte for byte as it came.

#![deny(unsafe_code)]
#![forbid(unsafe_op_in_unsafe_fn)]

pub mod build;
pub mod canonical;
pub mod edit;
pub mod error;
pub mod essentials;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod fuzz_views;
pub mod header;
pub mod host;
pub mod index;
pub mod limits;
pub mod message;
pub mod method;
pub mod name;
pub mod name_addr;
pub mod params;
pub mod reader;
#[allow(unsafe_code)]
pub mod scan;
pub mod sdp;
pub mod status;
mod typed;
pub mod uri;
pub mod values;
pub mod view;
pub mod write;

pub use build::{Builder, respond};
pub use edit::Edit;
pub use error::{Error, Reason};
pub use essentials::Essentials;
pub use host::Host;
pub use index::{Form, Index, Line};
pub use limits::Limits;
pub use message::Message;
pub use method::Method;
pub use name::Name;
pub use name_addr::NameAddr;
pub use uri::{SipUri, Uri};
pub use values::{Placed, Values};
pub use view::View;
pub use write::Write;
