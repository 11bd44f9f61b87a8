//! What a machine is lent for one thing to do.

use crate::transaction::Transactions;
use crate::{Now, Outbox};

/// The moment, the transactions of the shard, which all of its transaction users share, and where what is to be sent goes.
#[derive(Debug)]
pub struct Round<'a> {
    pub now: Now,
    pub tx: &'a mut Transactions,
    pub out: &'a mut Outbox,
}
