//! A view for each header field: one file, one noun.
//!
//! Every view has `parse`, which takes a whole value, and `write`, which writes it in normal form. Values
//! of a list are read by [`crate::values::Values`].

pub mod authentication_info;
pub mod call_id;
pub mod contact;
pub mod credentials;
pub mod cseq;
pub mod date;
pub mod event;
pub mod hop;
pub mod identity;
pub mod info;
pub mod media_type;
pub mod mime_version;
pub mod number;
pub mod party;
pub mod privacy;
pub mod rack;
pub mod reason;
pub mod replaces;
pub mod retry_after;
pub mod session;
pub mod subscription_state;
pub mod text;
pub mod timestamp;
pub mod tokens;
pub mod via;
pub mod warning;
pub mod weighted;

pub use authentication_info::AuthenticationInfo;
pub use call_id::CallId;
pub use contact::Contact;
pub use credentials::Credentials;
pub use cseq::CSeq;
pub use date::Date;
pub use event::Event;
pub use hop::Hop;
pub use identity::Identity;
pub use info::Info;
pub use media_type::MediaType;
pub use mime_version::MimeVersion;
pub use number::{DeltaSeconds, MaxForwards, Number};
pub use party::Party;
pub use privacy::Privacy;
pub use rack::RAck;
pub use reason::ReasonValue;
pub use replaces::Replaces;
pub use retry_after::RetryAfter;
pub use session::{Refresher, SessionExpires};
pub use subscription_state::SubscriptionState;
pub use text::Text;
pub use timestamp::Timestamp;
pub use tokens::Token;
pub use via::Via;
pub use warning::Warning;
pub use weighted::Weighted;

/// Common methods of all views: `parse` of a whole value, and [`crate::write::Write`] from their own `write`.
macro_rules! view {
    ($name:ident) => {
        impl<'a> $name<'a> {
            /// Reads a whole value, folded or not.
            ///
            /// # Errors
            /// The value violates its grammar; the offset counts from the start of `text`.
            #[inline]
            pub fn parse(text: &'a [u8]) -> Result<Self, $crate::Error> {
                $crate::reader::whole(text)
            }
        }

        impl $crate::write::Write for $name<'_> {
            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                $name::write(self, out);
            }
        }
    };
}
pub(crate) use view;
