//! Names while a document is read: variables become slots, and how often each is named is counted.

use super::variable::{Scope, Slot, Variables};

/// One scope: names with the number of places that name them.
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

/// The variables named so far. Each call of [`Names::slot`] counts as one more place.
#[derive(Clone, Default)]
pub(super) struct Names {
    call: Table,
    user: Table,
    global: Table,
}

impl Names {
    /// With the global variables of scenarios read before, which need not be named again.
    pub(super) fn new(globals: &[String]) -> Self {
        Self { global: Table(globals.iter().map(|name| (name.clone(), 2)).collect()), ..Self::default() }
    }

    /// The slot of a variable that is known, counted.
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

    /// The slot of a variable, one of the call if it is new. `None` if there are too many.
    pub(super) fn slot(&mut self, name: &str) -> Option<Slot> {
        self.known(name).or_else(|| Some(Slot { scope: Scope::Call, index: self.call.add(name)? }))
    }

    /// `<User variables>`. A global variable of that name stays global.
    pub(super) fn declare_user(&mut self, name: &str) -> Option<Slot> {
        self.shared(name).or_else(|| Some(Slot { scope: Scope::User, index: self.user.add(name)? }))
    }

    /// `<Global variables>`. What was used before under this name stays a variable of the call.
    pub(super) fn declare_global(&mut self, name: &str) -> Option<Slot> {
        let index = self.global.find(name).or_else(|| self.global.add(name))?;
        Some(Slot { scope: Scope::Global, index })
    }

    /// The first variable that is named only once.
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
