//! What a machine is lent for one thing to do.

use crate::transaction::Transactions;
use crate::{Now, Outbox};

/// The moment, the transactions of the shard, which all of its transaction users share, and where what is to be sent goes.
#[derive(Debug)]
pub struct Round<'a> {
    /// Read once for the whole round.
    pub now: Now,
    /// Those of the shard.
    pub tx: &'a mut Transactions,
    /// What this round sends; the machine adds to it.
    pub out: &'a mut Outbox,
}
