//! The variables of a document: names become slots while it is read, so that a running call indexes arrays.

/// Where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scope {
    /// One value a call; the rule.
    Call,
    /// One value a user (`<User variables="…"/>`), kept from one call of that user to the next.
    User,
    /// One value a process (`<Global variables="…"/>`, `-set`), shared by every scenario of the run.
    Global,
}

/// A variable: which array, which place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    pub scope: Scope,
    /// Below the length of the list of that scope in [`Variables`].
    pub index: u16,
}

/// The variables of one scenario. The names are for displays and messages; steps hold [`Slot`]s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// Names in the order of their slots.
    pub call: Vec<String>,
    pub user: Vec<String>,
    /// Starts with the names of [`super::Environment::globals`], in that order, so that scenarios of one run agree.
    pub global: Vec<String>,
}

impl Variables {
    /// The list of a scope.
    pub fn names(&self, scope: Scope) -> &[String] {
        match scope {
            Scope::Call => &self.call,
            Scope::User => &self.user,
            Scope::Global => &self.global,
        }
    }

    /// The name of a slot of this scenario.
    pub fn name(&self, slot: Slot) -> &str {
        self.names(slot.scope).get(usize::from(slot.index)).map_or("", String::as_str)
    }

    /// The slot of a name, the innermost scope first. Not for the path of a message.
    pub fn find(&self, name: &str) -> Option<Slot> {
        [Scope::Call, Scope::User, Scope::Global].into_iter().find_map(|scope| {
            let index = self.names(scope).iter().position(|n| n == name)?;
            Some(Slot { scope, index: u16::try_from(index).ok()? })
        })
    }
}
