//! Names that peers of secure connections must prove, with numbers of one process.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use strowger_core::PeerName;
use strowger_server::peer_names::PeerNames;

/// Names of one process. The numbers of two processes differ.
pub(crate) struct ProcessNames {
    first: NonZeroU32,
    texts: Mutex<Vec<Arc<str>>>,
}

impl ProcessNames {
    /// Creates the names of the process with this number.
    pub(crate) fn new(process: u16) -> Self {
        let first = NonZeroU32::MIN.saturating_add(1_000 * u32::from(process));
        Self { first, texts: Mutex::default() }
    }
}

impl PeerNames for ProcessNames {
    fn text(&self, number: PeerName) -> Option<Arc<str>> {
        let place = number.0.get().checked_sub(self.first.get())?;
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).get(place as usize).cloned()
    }

    fn number(&self, text: &str) -> PeerName {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let place = texts.iter().position(|known| **known == *text).unwrap_or_else(|| {
            texts.push(text.into());
            texts.len() - 1
        });
        PeerName(self.first.saturating_add(place as u32))
    }
}
