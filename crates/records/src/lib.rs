//! Append-only files of records with checksums: a kill, a full disk or a damaged byte destroys only the affected
//! record.
//!
//! The one rule of use: records that belong together go into one [`Writer::write`]. After a kill the file has all or none of them.
//!
//! A file begins with its name (7 bytes), its version and a random salt, twice. Records follow: length of the payload
//! (u32), kind (u8), checksum of kind and payload (u32), checksum of these 9 bytes (u32), payload; numbers
//! little-endian. Both checksums are CRC-32 with the salt as start values. A killed process leaves complete records and
//! at most one cut one, which a reader skips. After damage a reader searches, byte by byte, for the next record whose
//! two checksums are right. Payloads contain bytes of peers: without the salt no peer can forge a record in its
//! Call-ID. `format.rs` has the format, including that of earlier versions, which can be read.
//!
//! ```
//! use strowger_records::{Reader, Writer};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("calls");
//! let mut writer = Writer::create(&path, *b"EXAMPLE\x01")?;
//! writer.write(|records| {
//!     records.push(7, |out| out.extend_from_slice(b"first"));
//!     records.push(7, |out| out.extend_from_slice(b"second"));
//! })?;
//! // A cut record, as after a kill.
//! std::fs::OpenOptions::new().append(true).open(&path).and_then(|mut file| std::io::Write::write_all(&mut file, &[9; 6]))?;
//! let (mut reader, version) = Reader::open(&path, *b"EXAMPLE")?;
//! assert_eq!(version, 1);
//! assert_eq!(reader.next(), Some((7, &b"first"[..])));
//! assert_eq!(reader.next(), Some((7, &b"second"[..])));
//! assert_eq!(reader.next(), None);
//! assert!(reader.damage().is_some());
//! // The next writer appends after the last complete record.
//! let (mut writer, damage) = Writer::append(&path, *b"EXAMPLE\x01")?;
//! assert!(damage.is_some());
//! writer.write(|records| records.push(7, |out| out.extend_from_slice(b"third")))?;
//! assert_eq!(Reader::open(&path, *b"EXAMPLE")?.0.count(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod checksum;
#[cfg(any(test, feature = "disk"))]
pub mod disk;
mod format;
mod reader;
mod segment;
mod writer;

pub use self::reader::{OpenError, Reader};
pub use self::segment::Segment;
pub use self::writer::{Medium, Records, Writer};

/// Name and version at the beginning of a file.
pub type Magic = [u8; 8];

/// Longest payload in bytes; a greater length is damage.
pub const LONGEST: u32 = 64 << 20;

/// Bytes before each payload, in newly written files.
pub const HEAD: usize = 13;
