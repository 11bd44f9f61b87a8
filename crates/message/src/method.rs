//! Request methods (RFC 3261 section 7.1 and its extensions).

use std::fmt;

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A method. One that the table does not list is [`Method::Other`]; its text is in the message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Method {
            $($(#[$doc])* $name,)*
            /// Any other token: it is routed and answered, but has no rules of its own.
            Other,
        }

        impl Method {
            /// Every listed method.
            pub const KNOWN: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the method of these bytes; methods are case-sensitive (RFC 3261 section 7.1).
            #[inline]
            pub fn of(text: &[u8]) -> Self {
                match text { $($text => Self::$name,)* _ => Self::Other }
            }

            /// Returns the name on the wire; empty for [`Method::Other`].
            pub const fn text(self) -> &'static [u8] {
                match self { $(Self::$name => $text,)* Self::Other => b"" }
            }
        }
    };
}

methods! {
    /// Acknowledges the final response to an INVITE (RFC 3261 sections 13.2.2.4, 17.1.1.3); never answered.
    Ack = b"ACK",
    /// Ends a dialog (RFC 3261 section 15).
    Bye = b"BYE",
    /// Withdraws a request that has no final response yet (RFC 3261 section 9).
    Cancel = b"CANCEL",
    /// Carries application data within a dialog (RFC 6086).
    Info = b"INFO",
    /// Begins a call, or changes one (RFC 3261 sections 13, 14).
    Invite = b"INVITE",
    /// Carries a text message (RFC 3428).
    Message = b"MESSAGE",
    /// Notifies a subscriber of an event (RFC 6665).
    Notify = b"NOTIFY",
    /// Queries the capabilities of the other side (RFC 3261 section 11).
    Options = b"OPTIONS",
    /// Acknowledges a reliable provisional response (RFC 3262).
    Prack = b"PRACK",
    /// Publishes event state (RFC 3903).
    Publish = b"PUBLISH",
    /// Asks the other side to send a request elsewhere (RFC 3515).
    Refer = b"REFER",
    /// Binds contacts to an address-of-record (RFC 3261 section 10).
    Register = b"REGISTER",
    /// Requests notifications of an event (RFC 6665).
    Subscribe = b"SUBSCRIBE",
    /// Changes a session, even before its INVITE is answered (RFC 3311).
    Update = b"UPDATE",
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(self.text()).unwrap_or_default())
    }
}
