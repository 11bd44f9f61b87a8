//! `[dialogs]`: calls that the server keeps track of.

use std::time::Duration;

use super::key::Rule;
use super::reader::{ANY, section};

/// RFC 4028 section 4: no shorter one.
const SHORTEST: Duration = Duration::from_secs(90);
const LONGEST: Duration = Duration::from_secs(86_400);

section! {
    /// Calls that the server keeps track of, from their INVITE to the end of their dialogs.
    pub struct Dialogs = "dialogs" {
        /// Keep track of each call that this server forwards and stays on the way of (`proxy.record_route`): its dialogs, early ones
        /// too, and how both parties are reached. They are counted, listed and ended by operators, and end after `lifetime`.
        pub track: bool = false, ANY;
        /// A tracked dialog ends so long after its answer: the server sends a BYE to both parties. At most
        /// `proxy.route_lifetime`, by which that BYE is let through as a party's own would be.
        pub lifetime: Duration = Duration::from_secs(12 * 3_600), Rule::time(Duration::from_secs(1), Duration::from_secs(30 * 86_400));
        /// Session timer (RFC 4028) that the server asks for where the parties of a tracked call ask for none or for a longer one, as far as
        /// their Min-SE lets it: a call that they do not refresh in this time has ended. "never": the server asks for none. What the
        /// parties agree on counts in any case. A call ends so without a BYE of the server.
        pub session_expires: Option<Duration> = None, Rule::time(SHORTEST, LONGEST).or("never");
        /// Shortest session timer that the server accepts in a tracked call: an INVITE or UPDATE with a shorter one is answered 422, or if its
        /// sender knows no session timers goes on with this one (RFC 4028 section 8.1).
        pub min_session_expires: Duration = SHORTEST, Rule::time(SHORTEST, LONGEST);
        /// Tracked calls that have not ended, of all shards together; a call beyond them is answered 503.
        pub calls: usize = 1_000_000, Rule::number(1, 100_000_000);
        /// How often servers that count calls together (`call_limit.cache`) tell each other how many they have.
        pub count_interval: Duration = Duration::from_millis(100), Rule::time(Duration::from_millis(10), Duration::from_secs(60));
        /// How long what a server has told counts at the others: so long the calls of one that died are counted, and so long after the last
        /// answer of the cache those of the others. More than a few times `count_interval`.
        pub count_lifetime: Duration = Duration::from_secs(5), Rule::time(Duration::from_secs(1), Duration::from_secs(3_600));
    }
}
