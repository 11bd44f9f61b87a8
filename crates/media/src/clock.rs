//! Time of media: two clocks, NTP timestamps, ticks of a payload's clock.

/// Moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds of a clock that never decreases.
    pub mono: u64,
    /// Microseconds since 1970 (UTC).
    pub wall: u64,
}

/// Seconds from 1900, where NTP begins, to 1970.
const FROM_1900_TO_1970: u64 = 2_208_988_800;

/// Returns the NTP timestamp (RFC 3550 section 4) of a time in microseconds since 1970: seconds since 1900 in the upper 32 bits, their
/// fraction in the lower.
pub const fn ntp_timestamp(wall: u64) -> u64 {
    let seconds = wall / 1_000_000 + FROM_1900_TO_1970;
    let fraction = ((wall % 1_000_000) << 32) / 1_000_000;
    seconds << 32 | fraction
}

/// Returns the middle 32 bits of an NTP timestamp, by which a report block names a sender report (RFC 3550 section 6.4.1).
pub(crate) const fn middle(ntp: u64) -> u32 {
    (ntp >> 16) as u32
}

/// Converts microseconds to ticks of a clock in hertz, modulo 2^32 as RTP timestamps are.
pub(crate) const fn ticks(micros: u64, clock_rate: u32) -> u32 {
    (micros as u128 * clock_rate as u128 / 1_000_000) as u32
}

/// Converts microseconds to units of 1/65,536 s. A delay that is too long for a report block becomes the longest one
/// that the block can hold.
pub(crate) const fn short_delay(micros: u64) -> u32 {
    let units = (micros as u128) << 16;
    let units = units / 1_000_000;
    if units > u32::MAX as u128 { u32::MAX } else { units as u32 }
}

/// Converts units of 1/65,536 s to microseconds.
pub(crate) const fn short_delay_micros(units: u32) -> u64 {
    (units as u64 * 1_000_000) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntp_begins_in_1900() {
        assert_eq!(ntp_timestamp(0), 2_208_988_800 << 32);
        // Half a second.
        assert_eq!(ntp_timestamp(1_500_000), 2_208_988_801 << 32 | 1 << 31);
        assert_eq!(middle(0x0123_4567_89ab_cdef), 0x4567_89ab);
        let _ = ntp_timestamp(u64::MAX);
    }

    #[test]
    fn units_convert() {
        assert_eq!((ticks(20_000, 8_000), ticks(1_000_000, 90_000), ticks(125, 8_000)), (160, 90_000, 1));
        // 2^32 ticks of 8,000 Hz are 149 hours.
        assert_eq!(ticks((1 << 32) * 125 + 250, 8_000), 2);
        assert_eq!((short_delay(1_000_000), short_delay(1 << 60)), (65_536, u32::MAX));
        assert_eq!((short_delay_micros(65_536), short_delay_micros(u32::MAX) / 1_000_000), (1_000_000, 65_535));
    }
}
