//! Size of a program as it is loaded, which excludes the symbols and debug lines in its file.

/// Begin of an ELF file of 64 bits, least byte first.
const ELF: &[u8] = b"\x7fELF\x02\x01";

/// Type of a segment that is loaded, PT_LOAD.
const LOADED: u64 = 1;

/// Adds up the bytes of the loaded segments of an ELF file. `begin`: beginning of the file, with all program headers. Returns
/// `None` for another file.
pub(super) fn loaded_size(begin: &[u8]) -> Option<u64> {
    if !begin.starts_with(ELF) {
        return None;
    }
    let number = |at: u64, length: usize| -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = begin.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    };
    // e_phoff, e_phentsize and e_phnum; of each header p_type and p_filesz.
    let (first, length, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut sum = 0_u64;
    for place in 0..count {
        let header = first.checked_add(place * length)?;
        if number(header, 4)? == LOADED {
            sum = sum.checked_add(number(header.checked_add(32)?, 8)?)?;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the beginning of a file with segments of these types and lengths.
    fn file(segments: &[(u32, u64)]) -> Vec<u8> {
        let mut begin = vec![0; 64];
        begin[..6].copy_from_slice(ELF);
        begin[32] = 64;
        begin[54] = 56;
        begin[56] = segments.len() as u8;
        for (of, length) in segments {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&of.to_le_bytes());
            header[32..40].copy_from_slice(&length.to_le_bytes());
            begin.extend(header);
        }
        begin
    }

    #[test]
    fn loaded_segments_are_added_up() {
        let whole = file(&[(6, 100), (1, 70_000), (1, 5_000_000), (2, 9)]);
        assert_eq!(loaded_size(&whole), Some(5_070_000));
        assert_eq!(loaded_size(&whole[..whole.len() - 53]), None, "a header is cut off");
        assert_eq!(loaded_size(&file(&[(1, u64::MAX), (1, 1)])), None);
        assert_eq!(loaded_size(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn this_program_is_smaller_than_its_file() {
        let file = std::fs::read(std::env::current_exe().expect("it has a path")).expect("it can be read");
        let size = loaded_size(&file).expect("an ELF file");
        assert!(size > 100_000 && size < file.len() as u64, "{size} of {}", file.len());
    }
}
