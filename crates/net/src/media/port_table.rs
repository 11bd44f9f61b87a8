//! Table of the ports of media, which the media threads share: a pair belongs to the thread that has bound it, until it is closed.

use super::MediaSettings;
use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_media::session::PortPair;

/// Ports of all addresses. The lock is held for a search in memory, and never on the way of a packet.
pub(super) struct PortTable {
    /// First port of the range, even.
    first: u16,
    /// Pairs of each address.
    pairs: usize,
    /// Pairs that may be bound at a time.
    most: usize,
    state: Mutex<State>,
}

struct State {
    /// Tells which pairs are bound: those of the first address, then those of the next one.
    bound: Vec<bool>,
    /// Tells which pairs wait for the sessions of an earlier process, which claim them.
    reserved: Vec<bool>,
    count: usize,
    /// Number of the next pair to bind, for each address. An ended call's ports rest as long as possible.
    next: Vec<usize>,
}

/// Reason for which there is no pair to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// All pairs of the address are bound.
    Ports,
    /// As many pairs are bound as may be ([`MediaSettings::most_pairs`]).
    Descriptors,
}

impl PortTable {
    pub(super) fn new(settings: &MediaSettings) -> Self {
        let ((first, pairs), addresses) = (settings.pairs(), settings.addresses.len());
        let none = vec![false; pairs * addresses];
        let state = State { bound: none.clone(), reserved: none, count: 0, next: vec![0; addresses] };
        Self { first, pairs, most: settings.most_pairs, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of pairs of each address.
    pub(super) const fn pairs(&self) -> usize {
        self.pairs
    }

    /// Takes the next free pair of an address. Returns its place.
    pub(super) fn take(&self, address: usize) -> Result<usize, Shortage> {
        let mut state = self.lock();
        if state.count >= self.most {
            return Err(Shortage::Descriptors);
        }
        let (from, of_address) = (state.next[address], address * self.pairs);
        let mut numbers = (from..self.pairs).chain(0..from);
        let is_free = |place: usize| !state.bound[place] && !state.reserved[place];
        let free = numbers.find(|number| is_free(of_address + number)).ok_or(Shortage::Ports)?;
        state.next[address] = (free + 1) % self.pairs;
        state.bound[of_address + free] = true;
        state.count += 1;
        Ok(of_address + free)
    }

    /// Gives back a pair that was taken.
    pub(super) fn release(&self, place: usize) {
        let mut state = self.lock();
        state.bound[place] = false;
        state.count -= 1;
    }

    /// Reserves a pair for its claim, or ends the reservation.
    pub(super) fn reserve(&self, ports: PortPair, is_reserved: bool) {
        let mut state = self.lock();
        let place = self.place(ports).and_then(|place| state.reserved.get_mut(place));
        place.into_iter().for_each(|reserved| *reserved = is_reserved);
    }

    /// Takes this pair. Returns its place; `None` if it is not in the range, or no longer free.
    pub(super) fn claim(&self, ports: PortPair) -> Option<usize> {
        let mut state = self.lock();
        let place = self.place(ports).filter(|place| state.bound.get(*place) == Some(&false))?;
        state.reserved[place] = false;
        if state.count == self.most {
            return None;
        }
        state.bound[place] = true;
        state.count += 1;
        Some(place)
    }

    /// Returns the number of pairs that may still be bound.
    pub(super) fn free(&self) -> usize {
        let state = self.lock();
        state.bound.len().min(self.most).saturating_sub(state.count)
    }

    /// Returns the port of RTP of the pair at this place.
    pub(super) const fn rtp(&self, place: usize) -> u16 {
        self.first + 2 * (place % self.pairs) as u16
    }

    /// Returns the place of a pair.
    #[inline]
    pub(super) fn place(&self, ports: PortPair) -> Option<usize> {
        let offset = ports.rtp.checked_sub(self.first)?;
        let (number, address) = (usize::from(offset / 2), usize::from(ports.address));
        (offset % 2 == 0 && number < self.pairs).then_some(address * self.pairs + number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn table(most_pairs: usize) -> PortTable {
        PortTable::new(&MediaSettings {
            addresses: vec![IpAddr::from([127, 0, 43, 1]), IpAddr::from([127, 0, 43, 2])],
            ports: 20_000..=20_007,
            dscp: 0,
            threads: 1,
            most_threads: 2,
            most_pairs,
            timeout: None,
        })
    }

    #[test]
    fn a_pair_rests_as_long_as_possible() {
        let table = table(usize::MAX);
        assert_eq!([table.take(1), table.take(1), table.take(0)], [Ok(4), Ok(5), Ok(0)]);
        table.release(4);
        assert_eq!((table.free(), table.rtp(5), table.rtp(0)), (6, 20_002, 20_000));
        assert_eq!([table.take(1), table.take(1), table.take(1)], [Ok(6), Ok(7), Ok(4)]);
        assert_eq!((table.take(1), table.take(0)), (Err(Shortage::Ports), Ok(1)));
        let ports = |address, rtp| PortPair { thread: 1, address, rtp };
        let places = [ports(0, 20_000), ports(1, 20_006), ports(0, 20_001), ports(0, 20_008), ports(0, 19_998)];
        assert_eq!(places.map(|ports| table.place(ports)), [Some(0), Some(7), None, None, None]);
    }

    #[test]
    fn a_reserved_pair_waits_for_its_claim() {
        let table = table(3);
        let ports = |address, rtp| PortPair { thread: 0, address, rtp };
        for other in [ports(0, 20_000), ports(0, 20_002), ports(2, 20_000), ports(0, 30_000)] {
            table.reserve(other, true);
        }
        assert_eq!(
            (table.take(0), table.claim(ports(0, 20_000)), table.claim(ports(0, 20_000))),
            (Ok(2), Some(0), None)
        );
        assert_eq!((table.claim(ports(2, 20_000)), table.claim(ports(0, 30_000))), (None, None));
        table.reserve(ports(0, 20_002), false);
        table.release(2);
        assert_eq!([table.take(0), table.take(0)], [Ok(3), Ok(1)], "a reservation that has ended");
        assert_eq!(table.claim(ports(1, 20_000)), None, "no descriptor is left");
    }

    #[test]
    fn as_many_are_bound_as_descriptors_carry() {
        let table = table(2);
        assert_eq!([table.take(0), table.take(1), table.take(0)], [Ok(0), Ok(4), Err(Shortage::Descriptors)]);
        assert_eq!(table.free(), 0);
        table.release(0);
        assert_eq!((table.free(), table.take(0)), (1, Ok(1)));
    }
}
