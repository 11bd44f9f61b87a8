//! Keys of calls: keyed hashes that no peer knows, equal in all shards and, if calls are kept, in the next process.

use crate::call::{HASHED, LONGEST_TAG};
use crate::context::PURPOSES;
use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};

/// Key of the hashes of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSeed(pub(crate) u64);

impl CallSeed {
    /// Returns the stored form of a tag, by which dialogs are distinguished.
    pub(crate) fn kept_tag(self, tag: &[u8]) -> Cow<'_, [u8]> {
        if tag.len() <= LONGEST_TAG {
            return Cow::Borrowed(tag);
        }
        let hash = self.key_of_call(b"", tag).to_le_bytes();
        Cow::Owned([&[HASHED][..], &hash].concat())
    }

    /// Returns the key of a call.
    pub(crate) fn key_of_call(self, call_id: &[u8], caller_tag: &[u8]) -> u64 {
        let mut hasher = foldhash::quality::FixedState::with_seed(self.0).build_hasher();
        for part in [call_id, caller_tag] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish() & !PURPOSES
    }
}
