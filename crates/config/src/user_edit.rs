//! Edit of the user part of a Request-URI: translation by a data set, removed and inserted characters.

use strowger_rules::{SetId, SetNames};

use super::name::Reference;
use super::rule_text::UserText;
use super::set::SetTable;

/// Edit of the user part of a Request-URI. The fields apply in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserEdit {
    /// Set whose value replaces the user part.
    pub translate: Option<SetId>,
    /// Number of leading characters to remove.
    pub strip: u8,
    /// Text to put before the user part.
    pub prepend: Box<str>,
}

impl UserEdit {
    /// Returns the edit that the keys describe, or `None` if they change nothing.
    pub(super) fn of(
        translate: Option<&Reference<SetTable>>,
        strip: u8,
        prepend: &UserText,
        names: &SetNames,
    ) -> Option<Self> {
        let translate = translate.and_then(|set| names.id(set.name()));
        let edits = translate.is_some() || strip > 0 || !prepend.as_str().is_empty();
        edits.then(|| Self { translate, strip, prepend: prepend.as_str().into() })
    }
}
