//! Variables of a document. Parsing assigns slots to names, so that a running call indexes arrays.

/// Scope of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scope {
    /// One value a call; the default.
    Call,
    /// One value a user (`<User variables="…"/>`), kept from one call of that user to the next.
    User,
    /// One value a process (`<Global variables="…"/>`, `-set`), shared by every scenario of the run.
    Global,
}

/// Variable, as the array that has it and its index in that array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    pub scope: Scope,
    /// Index below the length of that scope's list in [`Variables`].
    pub index: u16,
}

/// Variables of one scenario. The names are for displays and messages; steps hold [`Slot`]s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// Names in the order of their slots.
    pub call: Vec<String>,
    pub user: Vec<String>,
    /// Names that start with those of [`super::Environment::globals`], in that order, so that scenarios of one run
    /// agree.
    pub global: Vec<String>,
}

impl Variables {
    /// Returns the list of a scope.
    pub fn names(&self, scope: Scope) -> &[String] {
        match scope {
            Scope::Call => &self.call,
            Scope::User => &self.user,
            Scope::Global => &self.global,
        }
    }

    /// Returns the name of a slot of this scenario.
    pub fn name(&self, slot: Slot) -> &str {
        self.names(slot.scope).get(usize::from(slot.index)).map_or("", String::as_str)
    }

    /// Returns the slot of a name, the innermost scope first. Too slow for the path of a message.
    pub fn find(&self, name: &str) -> Option<Slot> {
        [Scope::Call, Scope::User, Scope::Global].into_iter().find_map(|scope| {
            let index = self.names(scope).iter().position(|n| n == name)?;
            Some(Slot { scope, index: u16::try_from(index).ok()? })
        })
    }
}
