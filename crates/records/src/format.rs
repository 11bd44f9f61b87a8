//! Bytes of a file: its header, and the head of each record.
//!
//! A salted file begins with two equal copies of 20 bytes: name (7), version with [`SALTED`] (1), salt (8), CRC-32 of
//! these 16 (4). One copy may be damaged without loss. The two halves of the salt are the start values of the two
//! checksums of each record. A head has 13 bytes: length of the payload (u32), kind (u8), checksum of kind and payload
//! (u32), checksum of these 9 bytes (u32).
//!
//! The salt is a secret of the file. A peer writes parts of payloads, such as a Call-ID; without the salt it cannot write bytes that a search
//! for the next record takes for a record.
//!
//! Earlier versions wrote plain files: name and version alone, heads of 9 bytes without their own checksum, no salt.
//! Plain files are read and continued in their format, and never searched.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::{HEAD, LONGEST, Magic, checksum};

/// Bits in the version of a salted file. Two of them: one flipped bit makes no version of a plain file.
const SALTED: u8 = 0xc0;

/// Bytes of a copy: name, version, salt, checksum.
const COPY: usize = 20;

/// Start values of the two checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salt {
    head: u32,
    payload: u32,
}

impl Salt {
    /// Returns a random salt. [`RandomState`] gets its keys from the system.
    pub(crate) fn random() -> Self {
        let bits = RandomState::new().build_hasher().finish();
        Self { head: bits as u32, payload: (bits >> 32) as u32 }
    }
}

/// Format of the records in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Plain,
    Salted(Salt),
}

/// Head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: u32,
    pub(crate) kind: u8,
    sum: u32,
}

/// Kind of a file by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// File of records, with its format and version.
    Records(Format, u8),
    /// A kill cut the file within these bytes.
    Cut,
    /// File of another kind.
    Other,
}

impl Format {
    /// Maximum number of bytes before the first record.
    pub(crate) const LONGEST_BEGINNING: usize = 2 * COPY;

    /// Returns the number of bytes before the first record.
    pub(crate) const fn beginning_length(self) -> usize {
        match self {
            Self::Plain => size_of::<Magic>(),
            Self::Salted(_) => Self::LONGEST_BEGINNING,
        }
    }

    /// Returns the number of bytes before each payload.
    pub(crate) const fn head_length(self) -> usize {
        match self {
            Self::Plain => 9,
            Self::Salted(_) => HEAD,
        }
    }

    /// Appends the bytes before the first record.
    pub(crate) fn write_beginning(self, magic: Magic, out: &mut Vec<u8>) {
        let Self::Salted(salt) = self else { return out.extend(magic) };
        let mut copy = magic.to_vec();
        copy[7] |= SALTED;
        copy.extend(salt.head.to_le_bytes());
        copy.extend(salt.payload.to_le_bytes());
        copy.extend(checksum::of(!0, &[&copy]).to_le_bytes());
        out.extend_from_slice(&copy);
        out.extend_from_slice(&copy);
    }

    /// Determines the kind of a file. `bytes`: its first [`Format::LONGEST_BEGINNING`] bytes, or all of them.
    pub(crate) fn read_beginning(bytes: &[u8], name: [u8; 7]) -> Beginning {
        let copy = |at: usize| {
            let copy = bytes.get(at..at + COPY)?;
            let (body, sum) = copy.split_last_chunk()?;
            let salt = Salt { head: number(&body[8..]), payload: number(&body[12..]) };
            let is_whole = body.starts_with(&name) && checksum::of(!0, &[body]) == u32::from_le_bytes(*sum);
            is_whole.then(|| Beginning::Records(Self::Salted(salt), body[7] & !SALTED))
        };
        let is_whole = bytes.len() >= Self::LONGEST_BEGINNING;
        let version = bytes.get(7).copied().filter(|_| bytes.starts_with(&name));
        let plain = || version.filter(|version| version & SALTED == 0).map(|v| Beginning::Records(Self::Plain, v));
        let found = copy(0).filter(|_| is_whole).or_else(plain).or_else(|| copy(COPY).filter(|_| is_whole));
        let is_cut = bytes.len() < size_of::<Magic>() || !is_whole && version.is_some();
        found.unwrap_or(if is_cut { Beginning::Cut } else { Beginning::Other })
    }

    /// Returns the checksum of a record.
    fn sum(self, kind: u8, payload: &[u8]) -> u32 {
        let start = if let Self::Salted(salt) = self { salt.payload } else { !0 };
        checksum::of(start, &[&[kind], payload])
    }

    /// Writes the head of a record into these [`Format::head_length`] bytes.
    pub(crate) fn write_head(self, kind: u8, length: u32, payload: &[u8], head: &mut [u8]) {
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4] = kind;
        head[5..9].copy_from_slice(&self.sum(kind, payload).to_le_bytes());
        if let Self::Salted(salt) = self {
            let (body, own_sum) = head.split_at_mut(9);
            own_sum.copy_from_slice(&checksum::of(salt.head, &[body]).to_le_bytes());
        }
    }

    /// Reads a head. Returns `None` if these bytes are no head.
    pub(crate) fn read_head(self, bytes: &[u8]) -> Option<Head> {
        let (body, own_sum) = bytes.split_at_checked(9)?;
        let head = Head { length: number(body), kind: body[4], sum: number(&body[5..]) };
        let is_head = match self {
            Self::Plain => true,
            Self::Salted(_) if head.length > LONGEST => false,
            Self::Salted(salt) => own_sum.len() == 4 && checksum::of(salt.head, &[body]) == number(own_sum),
        };
        Some(head).filter(|head| is_head && head.length <= LONGEST)
    }

    /// Tells whether the head was written for this payload.
    pub(crate) fn belongs(self, head: Head, payload: &[u8]) -> bool {
        self.sum(head.kind, payload) == head.sum
    }
}

/// Reads the number in the first four bytes; 0 if there are fewer.
fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: [u8; 7] = *b"RECORDS";

    #[test]
    fn a_beginning_is_read_with_any_bit_flipped() {
        let format = Format::Salted(Salt::random());
        let mut bytes = Vec::new();
        format.write_beginning(*b"RECORDS\x03", &mut bytes);
        assert_eq!(bytes.len(), format.beginning_length());
        let read = |bytes: &[u8]| Format::read_beginning(bytes, NAME);
        assert_eq!(read(&bytes), Beginning::Records(format, 3));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped), Beginning::Records(format, 3), "bit {bit}");
        }
        (0..bytes.len()).for_each(|length| assert_eq!(read(&bytes[..length]), Beginning::Cut, "{length}"));
        assert_eq!(read(b"a text of another program, which is long enough"), Beginning::Other);
        assert_eq!(read(b"a short text"), Beginning::Other);
    }

    #[test]
    fn files_of_earlier_versions_are_plain() {
        for rest in [&b""[..], &[0; 50]] {
            let bytes = [&b"RECORDS\x02"[..], rest].concat();
            assert_eq!(Format::read_beginning(&bytes, NAME), Beginning::Records(Format::Plain, 2));
        }
    }

    #[test]
    fn two_files_have_two_salts() {
        assert_ne!(Salt::random(), Salt::random());
    }
}
