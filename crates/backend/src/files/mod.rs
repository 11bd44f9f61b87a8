//! Engines with files of their own: folders of JSON lines and CSV, segments of kept calls, and the files of waiting
//! accounting rows.

pub mod accounting;
pub mod calls;
pub mod form;
pub mod quarantine;
pub mod spool;

use crate::technology::{PlaceKind, Technology};

/// Row of the table of technologies: segments of kept calls.
pub(crate) const SEGMENTS: Technology = Technology {
    name: "segments",
    place: PlaceKind::Folder,
    bindings: None,
    calls: Some(|place| {
        let settings = calls::FolderSettings { wait: place.patience, ..calls::FolderSettings::new(&place.path) };
        Ok(Box::new(calls::Folder::open(settings)?))
    }),
    accounting: None,
};

/// Row of the table of technologies: a JSON object a line.
pub(crate) const JSON_LINES: Technology = Technology {
    name: "json",
    place: PlaceKind::Folder,
    bindings: None,
    calls: None,
    accounting: Some(|place| Ok(Box::new(accounting::Files::new(&place.path, form::Form::Json)))),
};

/// Row of the table of technologies: CSV.
pub(crate) const CSV: Technology = Technology {
    name: "csv",
    accounting: Some(|place| Ok(Box::new(accounting::Files::new(&place.path, form::Form::Csv)))),
    ..JSON_LINES
};
