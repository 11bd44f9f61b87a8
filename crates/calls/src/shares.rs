//! Shares of the table of calls: no account and no source fills it alone, and emergency calls have an eighth beyond it.
//!
//! A call counts for the party that made it (the account whose password was shown, else the source) and for the address
//! of record that it is for. Calls of trusted sources count for no party: an edge proxy carries the calls of all users.
//! An emergency call takes an ordinary place if one is free. Otherwise the call takes a place of that eighth, in which
//! the same rule bounds the sources.

/// Number of calls of a shard that a party may always have, even if few places are free.
const LEAST: u32 = 8;

/// Number of counters of a row. Two rows take 128 KiB for any number of calls. One counter for each party would need
/// memory for each call.
const CELLS: usize = 1 << 14;

/// Divisor of the places: emergency calls have an eighth of them in addition.
const EMERGENCY_SHARE: usize = 8;

/// Minimum number of places for emergency calls, however few calls there may be.
const LEAST_EMERGENCIES: usize = 64;

/// Caller and callee of a call, each as a keyed hash; 0 means that the call counts for no party.
pub type Parties = [u32; 2];

/// Marker in place of the callee for a call that has an emergency place. The hashes of parties are odd.
const EMERGENCY: u32 = 2;

/// Returns the hash of a party from its key. The hash is odd, so it is no marker.
pub const fn party_of(key: u64) -> u32 {
    (key >> 32) as u32 | 1
}

/// Tracked calls by party, as a count-min sketch: it may count too many for a party, never too few.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Both rows; empty while nothing is counted.
    cells: Vec<u32>,
    counted: usize,
    /// Calls on emergency places.
    emergencies: usize,
}

/// Returns the counters of a party, one in each row.
const fn cells_of(party: u32) -> [usize; 2] {
    let other = party.wrapping_mul(0x9e37_79b1) >> 16;
    [party as usize % CELLS, CELLS + other as usize % CELLS]
}

impl Shares {
    pub(crate) fn add(&mut self, parties: Parties) {
        self.emergencies += usize::from(parties[1] == EMERGENCY);
        for party in counted(parties) {
            if self.cells.is_empty() {
                self.cells = vec![0; 2 * CELLS];
            }
            self.counted += 1;
            cells_of(party).into_iter().for_each(|cell| self.cells[cell] += 1);
        }
    }

    pub(crate) fn remove(&mut self, parties: Parties) {
        self.emergencies -= usize::from(parties[1] == EMERGENCY);
        for party in counted(parties) {
            self.counted -= 1;
            cells_of(party).into_iter().for_each(|cell| self.cells[cell] -= 1);
        }
        if self.counted == 0 {
            self.cells = Vec::new();
        }
    }

    /// Tells whether one of these parties has as many calls as places are free, or more.
    pub(crate) fn are_used_up(&self, parties: Parties, free: usize) -> bool {
        let calls =
            |party: u32| cells_of(party).into_iter().map(|cell| self.cells.get(cell).copied().unwrap_or(0)).min();
        let most = u32::try_from(free).unwrap_or(u32::MAX).max(LEAST);
        counted(parties).any(|party| calls(party) >= Some(most))
    }

    /// Returns the number of calls on emergency places.
    pub(crate) const fn emergencies(&self) -> usize {
        self.emergencies
    }

    /// Returns an emergency place for a call of this source; `None` if no such place is free. `is_known`: whether the
    /// source cannot be forged. `places`: number of calls that the shard may track.
    pub(crate) fn emergency_place(&self, places: usize, source: u32, is_known: bool) -> Option<Parties> {
        let share = if is_known { 1 } else { 2 };
        let most = (places / EMERGENCY_SHARE).max(LEAST_EMERGENCIES) / share;
        let free = most.saturating_sub(self.emergencies);
        let place = [source, EMERGENCY];
        (free > 0 && !self.are_used_up(place, free)).then_some(place)
    }
}

/// Returns the parties that are counted.
fn counted(parties: Parties) -> impl Iterator<Item = u32> {
    parties.into_iter().filter(|party| !matches!(*party, 0 | EMERGENCY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_are_counted_apart_and_nothing_is_left_of_them() {
        let mut shares = Shares::default();
        let (alice, bob, uncounted) = (0x1234_5679, 0x9abc_def1, 0);
        assert!(!shares.are_used_up([alice, bob], 0));
        (0..100).for_each(|_| shares.add([alice, uncounted]));
        assert!(shares.are_used_up([alice, uncounted], 100) && !shares.are_used_up([alice, uncounted], 101));
        assert!(!shares.are_used_up([bob, uncounted], 1), "a party without calls has its least share");
        shares.add([bob, alice]);
        shares.remove([bob, alice]);
        (0..100).for_each(|_| shares.remove([alice, uncounted]));
        assert!(shares.cells.is_empty());
    }
}
