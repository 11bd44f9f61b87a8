//! `[dialogs]`: calls that the server keeps track of.

use std::time::Duration;

use super::key::Rule;
use super::reader::{ANY, section};

section! {
    /// Calls that the server keeps track of, from their INVITE to the end of their dialogs.
    pub struct Dialogs = "dialogs" {
        /// Keep track of each call that this server forwards and stays on the way of (`proxy.record_route`): its dialogs, early ones
        /// too, and how both parties are reached. They are counted, listed and ended by operators, and end after `lifetime`.
        pub track: bool = false, ANY;
        /// A tracked dialog ends so long after its answer: the server sends a BYE to both parties.
        pub lifetime: Duration = Duration::from_secs(12 * 3_600), Rule::time(Duration::from_secs(1), Duration::from_secs(30 * 86_400));
        /// Tracked calls that have not ended, of all shards together; a call beyond them is answered 503.
        pub calls: usize = 1_000_000, Rule::number(1, 100_000_000);
    }
}
