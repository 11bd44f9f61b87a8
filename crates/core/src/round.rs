//! Arguments of a machine for one piece of work.

use crate::transaction::Transactions;
use crate::{Now, Outbox};

/// Time, transactions of the shard, which all of its transaction users share, and outbox.
#[derive(Debug)]
pub struct Round<'a> {
    /// Time, read once for the whole round.
    pub now: Now,
    /// Transactions of the shard.
    pub tx: &'a mut Transactions,
    /// Messages that this round sends; the machine adds to them.
    pub out: &'a mut Outbox,
}
