//! Remarks of the engine during a run: unsupported parts of a document, troubles of calls, the reason for a stop.

use crate::engine::watch::Watch;
use std::fmt::{Arguments, Write};
use std::sync::{Arc, Mutex};

/// Maximum number of different remarks that are kept; further remarks are only counted.
const KEPT: usize = 64;
/// Limit of reported remarks.
const REPORTED: usize = 5;
/// Maximum number of characters of a remark; later characters are not needed.
const LONGEST: usize = 200;

#[derive(Debug, Default)]
struct Heard {
    /// Remarks with their counts, in the order in which they first came.
    remarks: Vec<(String, u64)>,
    others: u64,
    last: String,
    scratch: String,
}

/// Remarks of all sides of a campaign.
#[derive(Clone, Debug, Default)]
pub(super) struct Remarks(Arc<Mutex<Heard>>);

impl Remarks {
    /// Creates the watch of one more side.
    pub(super) fn watch(&self) -> Box<dyn Watch> {
        Box::new(self.clone())
    }

    /// Returns the newest remark.
    pub(super) fn last(&self) -> String {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).last.clone()
    }

    /// Returns the most frequent remarks, each a sentence with its count.
    pub(super) fn sentences(&self) -> Vec<String> {
        let heard = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let mut remarks: Vec<&(String, u64)> = heard.remarks.iter().collect();
        remarks.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let mut sentences: Vec<String> =
            remarks.iter().take(REPORTED).map(|(text, times)| format!("{times} × {text}")).collect();
        let rest = heard.others + remarks.iter().skip(REPORTED).map(|(_, times)| times).sum::<u64>();
        if rest > 0 {
            sentences.push(format!("{rest} × something else of this kind"));
        }
        sentences
    }
}

impl Watch for Remarks {
    fn warning(&mut self, text: Arguments<'_>) {
        let heard = &mut *self.0.lock().unwrap_or_else(|e| e.into_inner());
        heard.scratch.clear();
        let _ = heard.scratch.write_fmt(text);
        heard.last = crate::printable(&essence(&heard.scratch)).into_owned();
        if let Some((_, times)) = heard.remarks.iter_mut().find(|(known, _)| *known == heard.last) {
            *times += 1;
        } else if heard.remarks.len() < KEPT {
            heard.remarks.push((heard.last.clone(), 1));
        } else {
            heard.others += 1;
        }
    }
}

/// Returns the part of a remark that is the same for every call: the first line, without the Call-ID.
fn essence(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim_end();
    let line = match line.strip_prefix("Call-Id: ").and_then(|rest| rest.split_once(", ")) {
        Some((_, rest)) => rest.to_owned(),
        None => line.to_owned(),
    };
    let named = [" for Call-Id '", ", Call-ID '"].iter().find_map(|mark| line.split_once(mark));
    let line = match named {
        Some((before, rest)) => format!("{before}{}", rest.split_once('\'').map_or("", |(_, rest)| rest)),
        None => line,
    };
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_remarks_are_reported_once_with_their_number() {
        let remarks = Remarks::default();
        let mut watches = [remarks.watch(), remarks.watch()];
        for call in 0..10 {
            watches[call % 2].warning(format_args!("Call-Id: {call}-7@127.0.0.1, play_dtmf is not run"));
        }
        watches[0].warning(format_args!(
            "Aborting call on unexpected message for Call-Id '3-7@x': while expecting '200' (index 3), received 'SIP/2.0 404 Not Found\r\nVia: x'"
        ));
        let want = [
            "10 × play_dtmf is not run",
            "1 × Aborting call on unexpected message: while expecting '200' (index 3), received 'SIP/2.0 404 Not Found",
        ];
        assert_eq!(remarks.sentences(), want);
        assert!(remarks.last().starts_with("Aborting"));
    }

    #[test]
    fn different_remarks_are_bounded() {
        let remarks = Remarks::default();
        let mut watch = remarks.watch();
        (0..1_000).for_each(|call| watch.warning(format_args!("{call}{}", "ä".repeat(300))));
        let sentences = remarks.sentences();
        assert_eq!(
            (sentences.len(), sentences.last().map(String::as_str)),
            (REPORTED + 1, Some("995 × something else of this kind"))
        );
        assert!(sentences[0].chars().count() < LONGEST + 10);
    }
}
