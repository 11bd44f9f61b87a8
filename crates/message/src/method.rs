//! Request methods (RFC 3261 section 7.1 and its extensions).

use std::fmt;

macro_rules! methods {
    ($($name:ident = $text:literal,)*) => {
        /// A method. Those that no table names are [`Method::Other`]; their text stands in the message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Method { $($name,)* Other }

        impl Method {
            /// Every method with a name of its own.
            pub const KNOWN: &'static [Self] = &[$(Self::$name,)*];

            /// The method of these bytes; methods are case-sensitive (RFC 3261 section 7.1).
            #[inline]
            pub fn of(text: &[u8]) -> Self {
                match text { $($text => Self::$name,)* _ => Self::Other }
            }

            /// Its name on the wire; empty for [`Method::Other`].
            pub const fn text(self) -> &'static [u8] {
                match self { $(Self::$name => $text,)* Self::Other => b"" }
            }
        }
    };
}

methods! {
    Ack = b"ACK",
    Bye = b"BYE",
    Cancel = b"CANCEL",
    Info = b"INFO",
    Invite = b"INVITE",
    Message = b"MESSAGE",
    Notify = b"NOTIFY",
    Options = b"OPTIONS",
    Prack = b"PRACK",
    Publish = b"PUBLISH",
    Refer = b"REFER",
    Register = b"REGISTER",
    Subscribe = b"SUBSCRIBE",
    Update = b"UPDATE",
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(self.text()).unwrap_or_default())
    }
}
