//! CRC-32 (ISO 3309, as in zip and gzip).

/// Returns the checksum of these byte strings, in this order, from a start value; the usual CRC-32 starts with `!0`.
pub(crate) fn of(start: u32, parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(start, |crc, bytes| step(crc, bytes))
}

fn step(crc: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut n = 0;
        while n < 256 {
            let mut value = n as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[n] = value;
            n += 1;
        }
        table
    };
    bytes.iter().fold(crc, |crc, byte| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_usual_one() {
        assert_eq!(of(!0, &[b"1", b"23456789"]), 0xcbf4_3926);
    }
}
