//! Names that peers of secure connections must prove by their certificates (RFC 5922), and their numbers in targets.

use crate::bounds;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard};
use strowger_core::PeerName;

/// Process-wide table; its lock is held only for a look-up. Beyond the bound the oldest names are forgotten: a pending connection for such a name is
/// not made, and the name gets another number when it is used again.
pub struct PeerNames {
    known: Mutex<Interned>,
    bounds: bounds::Current,
}

#[derive(Default)]
struct Interned {
    /// Number of forgotten names: the first of `texts` has the number `forgotten + 1`.
    forgotten: u32,
    texts: VecDeque<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl PeerNames {
    pub(crate) fn new(bounds: bounds::Current) -> Self {
        Self { known: Mutex::default(), bounds }
    }

    #[cfg(test)]
    pub(crate) fn at_most(names: usize) -> Self {
        let bounds = crate::Bounds { names, ..Default::default() };
        Self::new(Arc::new(arc_swap::ArcSwap::from_pointee(bounds)))
    }

    /// Returns the number of this name, in any case and with or without the dot of the root.
    pub fn intern(&self, name: &str) -> PeerName {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let mut known = self.lock();
        let known = &mut *known;
        let number = match known.numbers.get(&*name) {
            Some(number) => *number,
            None => {
                let most = self.bounds.load().names.max(1);
                // At most two names are forgotten at a time: after a reduction the number approaches the bound
                // gradually, and the oldest names are forgotten first.
                let surplus = (known.texts.len() + 1).saturating_sub(most).min(2);
                for oldest in known.texts.drain(..surplus) {
                    known.numbers.remove(&oldest);
                    known.forgotten = known.forgotten.wrapping_add(1);
                }
                let text: Arc<str> = name.into();
                known.texts.push_back(text.clone());
                let number = known.forgotten.wrapping_add(known.texts.len() as u32);
                known.numbers.insert(text, number);
                number
            }
        };
        PeerName(NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX))
    }

    /// Returns the name of this number, unless it was forgotten.
    pub fn text(&self, name: PeerName) -> Option<Arc<str>> {
        let known = self.lock();
        known.texts.get(name.0.get().wrapping_sub(known.forgotten).wrapping_sub(1) as usize).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Interned> {
        self.known.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_until_it_is_forgotten() {
        let names = PeerNames::at_most(3);
        let [a, b] = ["a.test", "b.test"].map(|n| names.intern(n));
        assert!(a != b && names.intern("A.Test.") == a);
        assert_eq!((names.text(a).as_deref(), names.text(b).as_deref()), (Some("a.test"), Some("b.test")));
        let [c, d] = ["c", "d"].map(|n| names.intern(n));
        assert_eq!((names.text(a), names.text(b).as_deref()), (None, Some("b.test")));
        assert_eq!((names.text(c).as_deref(), names.text(d).as_deref()), (Some("c"), Some("d")));
        let again = names.intern("a.test");
        assert!(again != a && names.text(again).as_deref() == Some("a.test") && names.text(b).is_none());
        assert_eq!(names.text(PeerName(NonZeroU32::MAX)), None);
        let known = names.lock();
        assert_eq!((known.texts.len(), known.numbers.len()), (3, 3));
    }

    #[test]
    fn where_the_bound_has_fallen_two_go_for_each_that_comes() {
        let names = PeerNames::at_most(6);
        let numbers: Vec<PeerName> = (0..6).map(|n| names.intern(&n.to_string())).collect();
        names.bounds.store(Arc::new(crate::Bounds { names: 2, ..Default::default() }));
        let known = || numbers.iter().filter(|number| names.text(**number).is_some()).count();
        assert!(names.intern("5") == numbers[5] && known() == 6, "nothing goes before another name comes");
        let counts = ["6", "7", "8", "9", "10"].map(|name| {
            let number = names.intern(name);
            assert_eq!(names.text(number).as_deref(), Some(name));
            (known(), names.lock().texts.len())
        });
        assert_eq!(counts, [(4, 5), (2, 4), (0, 3), (0, 2), (0, 2)]);
    }
}
