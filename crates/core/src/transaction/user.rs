//! Transaction user (TU) of a transaction (RFC 3261 section 5).

use crate::slots::{GENERATION_BITS, Id};
use serde::{Deserialize, Serialize};

/// Part of the shard that uses a transaction, and its own id of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// None: the request is new, or was answered at once.
    None,
    /// Proxy, and a response context.
    Proxy(Id),
    /// User agent, and the id of a call, of a sent request, or of a request that its owner answers.
    UserAgent(Id),
    /// Suspended request, which waits for an answer of another component.
    Suspended(Id),
    /// Ping that keeps a flow open (RFC 5626 section 4.4), with a number for its question, which is a hash and not a
    /// place in a table.
    Ping(Id),
}

/// [`Role`] in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransactionUser(u64);

/// Position of the number of the role, after the id.
const ROLE: u32 = 32 + GENERATION_BITS;

impl TransactionUser {
    /// No user: [`Role::None`].
    pub const NONE: Self = Self(0);

    /// Creates a user.
    pub const fn new(role: Role) -> Self {
        let (number, id) = match role {
            Role::None => return Self::NONE,
            Role::Proxy(id) => (1, id),
            Role::UserAgent(id) => (2, id),
            Role::Suspended(id) => (3, id),
            Role::Ping(id) => (4, id),
        };
        Self(number << ROLE | id.to_u64())
    }

    /// Returns the role, which gets the responses and events of the transaction.
    #[inline]
    pub const fn role(self) -> Role {
        let id = Id::from_u64(self.0 & ((1 << ROLE) - 1));
        match self.0 >> ROLE {
            1 => Role::Proxy(id),
            2 => Role::UserAgent(id),
            3 => Role::Suspended(id),
            4 => Role::Ping(id),
            _ => Role::None,
        }
    }
}

impl std::fmt::Debug for TransactionUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.role().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_and_its_id_fit_in_eight_bytes() {
        let largest = Id { slot: u32::MAX, generation: (1 << GENERATION_BITS) - 1 };
        for id in [Id { slot: 0, generation: 1 }, largest] {
            let roles = [Role::Proxy(id), Role::UserAgent(id), Role::Suspended(id), Role::Ping(id)];
            assert_eq!(roles.map(|role| TransactionUser::new(role).role()), roles);
        }
        assert_eq!(
            (TransactionUser::new(Role::None), TransactionUser::NONE.role()),
            (TransactionUser::NONE, Role::None)
        );
        assert_eq!(size_of::<TransactionUser>(), 8);
    }
}
