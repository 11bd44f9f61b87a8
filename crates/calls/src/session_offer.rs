//! Session timer that a request offers (RFC 4028), and the values that its 2xx may agree on.

use serde::{Deserialize, Serialize};
use strowger_message::header::SessionExpires;
use strowger_message::{Message, Name};

/// Session timer that a request offered when it left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionOffer {
    /// Seconds of its Session-Expires; 0: it has none.
    expires: u32,
    /// Seconds of its Min-SE; 0: it has none.
    least: u32,
}

/// Shortest session timer, in seconds (RFC 4028 section 5).
const SHORTEST: u32 = 90;

impl SessionOffer {
    pub(crate) fn of(request: &Message<'_>) -> Self {
        let seconds = |name| request.header(name).and_then(|value| SessionExpires::parse(value).ok());
        let seconds = |name| seconds(name).map_or(0, |timer| timer.seconds);
        Self { expires: seconds(Name::SessionExpires), least: seconds(Name::MinSe) }
    }

    /// Tells whether a 2xx may agree on this number of seconds: no less than Min-SE, no more than was offered (RFC 4028
    /// sections 5 and 9).
    pub(crate) fn allows(self, seconds: u32) -> bool {
        seconds >= self.least.max(SHORTEST) && (self.expires == 0 || seconds <= self.expires)
    }
}
