//! A view for each header field: one file, one noun.
//!
//! Every view has `parse`, which takes a whole value, and `write`, which writes it in normal form. Values
//! of a list are read by [`crate::values::Values`].

pub mod call_id;
pub mod contact;
pub mod cseq;
pub mod number;
pub mod party;
pub mod tokens;
pub mod via;

pub use call_id::CallId;
pub use contact::Contact;
pub use cseq::CSeq;
pub use number::{DeltaSeconds, MaxForwards, Number};
pub use party::Party;
pub use tokens::Token;
pub use via::Via;

/// What every view has: `parse` of a whole value, and [`crate::write::Write`] from its own `write`.
macro_rules! view {
    ($name:ident) => {
        impl<'a> $name<'a> {
            /// Reads a whole value, folded or not.
            ///
            /// # Errors
            /// It does not follow its grammar; the offset counts from the start of `text`.
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
