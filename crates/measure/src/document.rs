//! Figures of each document of a run with several.

use super::{Page, Run};
use serde::{Deserialize, Serialize};

/// Document and its share of the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentName {
    pub name: String,
    pub share: u32,
}

/// Sum of the calls of a document, without the warm-up.
#[derive(Clone, Debug)]
pub struct DocumentTotals {
    pub document: DocumentName,
    pub totals: Page,
}

impl Run {
    /// Returns the documents of the run in the order of the command line, if it has several. Each is summed over all
    /// generators.
    pub fn documents(&self) -> Vec<DocumentTotals> {
        let mut all: Vec<DocumentTotals> = Vec::new();
        for one in self.generators.iter().flat_map(|generator| &generator.documents) {
            match all.iter_mut().find(|known| known.document.name == one.document.name) {
                Some(known) => known.totals.add_beside(&one.totals),
                None => all.push(one.clone()),
            }
        }
        all
    }
}
