//! Stamp of a packet: a mark at the beginning of its payload, followed by the time of sending.
//!
//! A packet of a sample file that has the mark is stamped when it is sent. A relay that does not convert the sound passes the stamp on, so that the
//! receiver knows the delay of the packet, if both use the clock of one machine.

use std::time::{SystemTime, UNIX_EPOCH};
use strowger_net::clock;

/// Mark at the beginning of a payload.
const MARK: [u8; 8] = *b"\xff\xfeSTAMP\xff";

/// Length of the mark and of the time, which is in microseconds since 1970-01-01 UTC in network byte order.
const LENGTH: usize = MARK.len() + size_of::<u64>();

/// Length of the RTP header of packets that can be stamped: without contributors and extension (RFC 3550 section 5.1).
const HEADER: usize = 12;

/// Length of a packet of 20 ms of G.711.
const PACKET: usize = 160;

/// Longest delay of a packet, microseconds. A longer one is a difference of two clocks.
const LONGEST: u64 = 60_000_000;

/// Returns 20 ms of silence in G.711 (mu-law) whose packets are stamped.
pub fn stamped_sound() -> Vec<u8> {
    let mut sound = vec![0xff; PACKET];
    sound[..MARK.len()].copy_from_slice(&MARK);
    sound
}

/// Writes the current time into a payload that has the mark.
pub(super) fn write(payload: &mut [u8]) {
    if payload.starts_with(&MARK)
        && let Some(time) = payload.get_mut(MARK.len()..LENGTH)
    {
        time.copy_from_slice(&wall().to_be_bytes());
    }
}

/// Returns the time of sending of a stamped packet of RTP, microseconds since 1970-01-01 UTC.
pub(super) fn read(datagram: &[u8]) -> Option<u64> {
    let time = datagram.get(HEADER..HEADER + LENGTH)?.strip_prefix(&MARK)?;
    Some(u64::from_be_bytes(time.try_into().ok()?))
}

/// Returns by how much the time since 1970 is ahead of [`clock::micros`], microseconds.
pub(super) fn ahead() -> u64 {
    wall().wrapping_sub(clock::micros())
}

/// Returns the delay of a packet from its time of sending and its time of arrival, both in microseconds since 1970. `None`: the clocks do not
/// agree.
pub(super) fn delay(sent: u64, arrived: u64) -> Option<u64> {
    Some(arrived.saturating_sub(sent)).filter(|delay| *delay <= LONGEST)
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_packets_have_a_stamp() {
        let stamped = |payload: &[u8]| {
            let mut datagram = [&[0x80; HEADER], payload].concat();
            write(&mut datagram[HEADER..]);
            read(&datagram)
        };
        let before = wall();
        let sent = stamped(&stamped_sound()).expect("it has the mark");
        assert!((before..=wall()).contains(&sent), "{before} {sent}");
        assert_eq!((stamped(&[0xff; PACKET]), stamped(&MARK), stamped(&[])), (None, None, None));
        assert_eq!((delay(1_000, 1_250), delay(1_000, 900), delay(1, LONGEST + 2)), (Some(250), Some(0), None));
    }
}
