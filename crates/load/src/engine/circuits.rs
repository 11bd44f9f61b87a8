//! TDM circuits of a gateway (`-tdmmap`): each open call occupies one.

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Limit of circuits in one map, which takes a byte for each.
const MOST: u64 = 1 << 20;

/// Circuits of `{a-b}{h}{c-d}{e-f}`: from `a.h.c/e` to `b.h.d/f`.
#[derive(Debug)]
pub struct Circuits {
    /// First number, and their count.
    shelves: (u32, u32),
    messages: u32,
    cards: (u32, u32),
    slots: (u32, u32),
    busy: Mutex<Vec<bool>>,
}

impl Circuits {
    /// Parses SIPp's form, `{0-3}{99}{5-8}{1-31}`.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no map of TDM circuits; write {{FROM-TO}}{{N}}{{FROM-TO}}{{FROM-TO}}");
        let inside = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(wrong)?;
        let parts: Vec<&str> = inside.split("}{").collect();
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let range = |text: &str| {
            let (from, to) = text.split_once('-').ok_or_else(wrong)?;
            let (from, to) = (number(from)?, number(to)?);
            let count = to.checked_sub(from).and_then(|more| more.checked_add(1)).ok_or_else(wrong)?;
            Ok::<_, String>((from, count))
        };
        let [shelves, messages, cards, slots] = parts[..] else { return Err(wrong()) };
        let (shelves, messages, cards, slots) = (range(shelves)?, number(messages)?, range(cards)?, range(slots)?);
        let all = u64::from(shelves.1).saturating_mul(cards.1.into()).saturating_mul(slots.1.into());
        if all > MOST {
            return Err(format!("'{text}' are {all} circuits; {MOST} may be"));
        }
        Ok(Self { shelves, messages, cards, slots, busy: Mutex::new(vec![false; all as usize]) })
    }

    fn busy(&self) -> MutexGuard<'_, Vec<bool>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Occupies a free circuit, the first from a random one on.
    pub(super) fn take(&self, random: u64) -> Option<u32> {
        let mut busy = self.busy();
        let all = busy.len();
        let from = (random % all as u64) as usize;
        let free = (from..all).chain(0..from).find(|&place| !busy[place])?;
        busy[free] = true;
        Some(free as u32)
    }

    /// Frees a circuit.
    pub(super) fn give(&self, circuit: u32) {
        if let Some(busy) = self.busy().get_mut(circuit as usize) {
            *busy = false;
        }
    }

    /// Writes the name of a circuit, `[tdmmap]`.
    pub(super) fn name(&self, circuit: u32, out: &mut Vec<u8>) {
        use std::io::Write;
        let (card, slot) = (circuit / self.slots.1, circuit % self.slots.1);
        let _ = write!(
            out,
            "{}.{}.{}/{}",
            self.shelves.0 + card / self.cards.1 % self.shelves.1,
            self.messages,
            self.cards.0 + card % self.cards.1,
            self.slots.0 + slot
        );
    }

    /// Returns the map as a screen shows it: `*` is busy.
    pub fn map(&self) -> String {
        let busy = self.busy();
        let used = busy.iter().filter(|busy| **busy).count();
        let mut text = format!("TDM Circuits in use:  {used}/{}\n", busy.len());
        for line in busy.chunks(self.slots.1 as usize) {
            let circuits: String = line.iter().map(|busy| if *busy { '*' } else { '.' }).collect();
            let _ = writeln!(text, "  {circuits}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Circuits;

    #[test]
    fn circuits_have_names_and_are_used_once() {
        let circuits = Circuits::parse("{0-1}{99}{5-6}{1-2}").expect("it is right");
        let name = |circuit| {
            let mut text = Vec::new();
            circuits.name(circuit, &mut text);
            String::from_utf8(text).expect("it is ASCII")
        };
        let names: Vec<String> = (0..8).map(name).collect();
        let all = ["0.99.5/1", "0.99.5/2", "0.99.6/1", "0.99.6/2", "1.99.5/1", "1.99.5/2", "1.99.6/1", "1.99.6/2"];
        assert_eq!(names, all);
        let mut taken: Vec<u32> = (0..8).filter_map(|_| circuits.take(6)).collect();
        assert_eq!((taken.len(), taken[0], circuits.take(3)), (8, 6, None));
        taken.sort_unstable();
        assert_eq!(taken, (0..8).collect::<Vec<_>>());
        circuits.give(5);
        assert!(circuits.map().contains("7/8\n  **\n  **\n  *.\n  **"), "{}", circuits.map());
        assert_eq!(circuits.take(0), Some(5));
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["", "{0-3}", "{0-3}{99}{5-8}{1}", "{3-0}{99}{5-8}{1-31}", "{0-3}{99}{5-8}{1-4294967295}"] {
            assert!(Circuits::parse(text).is_err(), "{text}");
        }
    }
}
