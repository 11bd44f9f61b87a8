//! Names of a document during parsing: assigns slots to variables and counts their uses.

use super::variable::{Scope, Slot, Variables};

/// Names of one scope, with their numbers of uses.
#[derive(Clone, Default)]
struct Table(Vec<(String, u32)>);

impl Table {
    fn find(&mut self, name: &str) -> Option<u16> {
        let index = self.0.iter().position(|(n, _)| n == name)?;
        self.0[index].1 += 1;
        u16::try_from(index).ok()
    }

    fn add(&mut self, name: &str) -> Option<u16> {
        let index = u16::try_from(self.0.len()).ok()?;
        self.0.push((name.to_owned(), 1));
        Some(index)
    }
}

/// Variables named so far. Each call of [`Names::slot`] counts as a use.
#[derive(Clone, Default)]
pub(super) struct Names {
    call: Table,
    user: Table,
    global: Table,
}

impl Names {
    /// Starts with the global variables of scenarios read before, which need no further use.
    pub(super) fn new(globals: &[String]) -> Self {
        Self { global: Table(globals.iter().map(|name| (name.clone(), 2)).collect()), ..Self::default() }
    }

    /// Returns the slot of a known variable and counts a use.
    pub(super) fn known(&mut self, name: &str) -> Option<Slot> {
        if let Some(index) = self.call.find(name) {
            return Some(Slot { scope: Scope::Call, index });
        }
        self.shared(name)
    }

    fn shared(&mut self, name: &str) -> Option<Slot> {
        if let Some(index) = self.user.find(name) {
            return Some(Slot { scope: Scope::User, index });
        }
        self.global.find(name).map(|index| Slot { scope: Scope::Global, index })
    }

    /// Returns the slot of a variable; a new variable belongs to the call. Returns `None` if there are too many
    /// variables.
    pub(super) fn slot(&mut self, name: &str) -> Option<Slot> {
        self.known(name).or_else(|| Some(Slot { scope: Scope::Call, index: self.call.add(name)? }))
    }

    /// Declares `<User variables>`. A global variable of that name stays global.
    pub(super) fn declare_user(&mut self, name: &str) -> Option<Slot> {
        self.shared(name).or_else(|| Some(Slot { scope: Scope::User, index: self.user.add(name)? }))
    }

    /// Declares `<Global variables>`. Earlier uses of the name stay a variable of the call.
    pub(super) fn declare_global(&mut self, name: &str) -> Option<Slot> {
        let index = self.global.find(name).or_else(|| self.global.add(name))?;
        Some(Slot { scope: Scope::Global, index })
    }

    /// Returns the first variable that is used only once.
    pub(super) fn lonely(&self) -> Option<&str> {
        [&self.call, &self.user, &self.global]
            .into_iter()
            .flat_map(|table| &table.0)
            .find(|(_, places)| *places < 2)
            .map(|(name, _)| name.as_str())
    }

    pub(super) fn finished(&self) -> Variables {
        let names = |table: &Table| table.0.iter().map(|(name, _)| name.clone()).collect();
        Variables { call: names(&self.call), user: names(&self.user), global: names(&self.global) }
    }
}
