//! Several documents in one run, each with its share of the calls. Each document has its own generators and schedule,
//! so that the mix is even at every moment and repeatable.

use super::plan::{Plan, Work};
use super::profile;
use crate::engine::pace::Part;
use std::path::{Path, PathBuf};
use strowger_measure::DocumentName;

/// Document of a run with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub path: PathBuf,
    pub share: u32,
}

/// Parses `FILE` or `FILE:SHARE`, for each document. A file name may contain a colon: if the whole text names a file,
/// it is that file.
///
/// # Errors
/// A share is 0, missing or given twice.
pub fn parse(texts: &[impl AsRef<str>]) -> Result<Vec<Document>, String> {
    let mut documents: Vec<(Document, bool)> = Vec::new();
    for text in texts.iter().map(AsRef::as_ref) {
        let parted = text.rsplit_once(':').filter(|_| !Path::new(text).exists());
        let shared = parted.and_then(|(path, share)| Some((path, share.parse::<u32>().ok()?)));
        let (path, share) = shared.map_or((text, None), |(path, share)| (path, Some(share)));
        if share == Some(0) {
            return Err(format!("{text}: a share of 0 makes no calls; leave the document out"));
        }
        if documents.iter().any(|(known, _)| known.path == Path::new(path)) {
            return Err(format!("{path} is named twice; add its shares up"));
        }
        documents.push((Document { path: path.into(), share: share.unwrap_or(1) }, share.is_some()));
    }
    let without = documents.iter().find(|(_, has_share)| !has_share);
    if let (Some((document, _)), true) = (without, documents.iter().any(|(_, has_share)| *has_share)) {
        let path = document.path.display();
        return Err(format!("{path} has no share; write {path}:N, or give none of the documents a share"));
    }
    Ok(documents.into_iter().map(|(document, _)| document).collect())
}

/// Returns the names of documents in reports: file names, or whole paths where file names are equal.
pub(super) fn names(documents: &[Document]) -> Vec<String> {
    let base = |path: &Path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let name = |document: &Document| {
        let short = base(&document.path);
        let several = documents.iter().filter(|other| base(&other.path) == short).count() > 1;
        if several { document.path.display().to_string() } else { short }
    };
    documents.iter().map(name).collect()
}

/// Returns the names with their shares.
pub(super) fn titles(documents: &[Document]) -> Vec<DocumentName> {
    let title = |(name, document): (String, &Document)| DocumentName { name, share: document.share };
    names(documents).into_iter().zip(documents).map(title).collect()
}

impl Plan {
    /// Returns each document's fraction of all calls, or 1 for work without several documents.
    pub(super) fn fractions(&self) -> Vec<f64> {
        let documents = self.documents();
        let all: f64 = documents.iter().map(|document| f64::from(document.share)).sum();
        if documents.is_empty() { vec![1.0] } else { documents.iter().map(|one| f64::from(one.share) / all).collect() }
    }

    /// Returns the documents of the plan, if there are several.
    pub(super) fn documents(&self) -> &[Document] {
        match &self.work {
            Work::Documents(documents) => documents,
            _ => &[],
        }
    }

    /// Splits the plan into one for each document, with its share of calls, rate and concurrent calls. Returns work
    /// without several documents as one plan.
    pub(super) fn parted(&self) -> Vec<Self> {
        let documents = self.documents();
        if documents.is_empty() {
            return vec![self.clone()];
        }
        let all: u64 = documents.iter().map(|document| u64::from(document.share)).sum();
        let (mut before, mut plans) = (0, Vec::new());
        for (place, document) in documents.iter().enumerate() {
            let share = Share { before, own: u64::from(document.share), all };
            before += share.own;
            plans.push(Self {
                work: Work::Document(document.path.clone()),
                profile: share.profile(&self.profile, place),
                calls: self.calls.map(|calls| share.of(calls)),
                limit: share.of(self.limit).max(1),
                ..self.clone()
            });
        }
        plans
    }
}

/// Share of a whole.
#[derive(Clone, Copy)]
struct Share {
    before: u64,
    own: u64,
    all: u64,
}

impl Share {
    /// Returns this share's part of a number. The parts of all shares add up to the number.
    fn of(self, number: u64) -> u64 {
        let up_to =
            |weight: u64| (u128::from(number) * u128::from(weight) + u128::from(self.all) / 2) / u128::from(self.all);
        (up_to(self.before + self.own) - up_to(self.before)) as u64
    }

    /// Returns this share's part of a profile. Each document starts a little later than the previous one, so that their
    /// calls do not coincide.
    fn profile(self, parts: &[Part], place: usize) -> Vec<Part> {
        let part = self.own as f64 / self.all as f64;
        let rate = profile::rate(parts, 0);
        let wait = if rate > 0.0 && place > 0 { (place as f64 * 1e6 / rate).min(1e6) as u64 } else { 0 };
        let mut shared = Vec::with_capacity(parts.len() + 1);
        if wait > 0 {
            shared.push(Part::Ramp { from: 0.0, to: 0.0, micros: wait });
        }
        shared.extend(parts.iter().map(|one| match *one {
            Part::Hold { rate } => Part::Hold { rate: rate * part },
            Part::Ramp { from, to, micros } => Part::Ramp { from: from * part, to: to * part, micros },
            Part::Burst { calls } => Part::Burst { calls: self.of(calls) },
        }));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::pace::{Arrivals, Pace};

    fn document(path: &str, share: u32) -> Document {
        Document { path: path.into(), share }
    }

    #[test]
    fn documents_and_shares_of_the_command_line() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let odd = folder.path().join("call:70").display().to_string();
        std::fs::write(&odd, "").expect("the folder can be written");
        assert_eq!(parse(&["a.xml:70", "b/c:d.xml:30"]), Ok(vec![document("a.xml", 70), document("b/c:d.xml", 30)]));
        assert_eq!(parse(&["a.xml", "b.xml"]), Ok(vec![document("a.xml", 1), document("b.xml", 1)]));
        assert_eq!(parse(&[&odd]), Ok(vec![document(&odd, 1)]));
        assert_eq!(parse(&[&format!("{odd}:5")]), Ok(vec![document(&odd, 5)]));
        assert_eq!(parse(&["C:x.xml"]), Ok(vec![document("C:x.xml", 1)]));
        for (texts, part) in [
            (&["a.xml:70", "b.xml"][..], "b.xml has no share; write b.xml:N"),
            (&["a.xml:0"], "makes no calls"),
            (&["a.xml:1", "a.xml:2"], "named twice"),
        ] {
            assert!(parse(texts).is_err_and(|error| error.contains(part)), "{texts:?}");
        }
        assert_eq!(
            names(&[document("x/a.xml", 1), document("y/a.xml", 1), document("y/b.xml", 1)]),
            ["x/a.xml", "y/a.xml", "b.xml"]
        );
    }

    #[test]
    fn each_window_has_the_shares_that_were_asked_for() {
        let mut plan = Plan::to("192.0.2.1".parse().expect("a target"));
        plan.work = Work::Documents(vec![document("a", 70), document("b", 30), document("c", 1)]);
        plan.profile = vec![Part::Hold { rate: 101.0 }];
        (plan.calls, plan.limit) = (Some(1_000), 10);
        let plans = plan.parted();
        let calls: Vec<u64> = plans.iter().filter_map(|plan| plan.calls).collect();
        assert_eq!((calls.iter().sum::<u64>(), &calls[..]), (1_000, &[693, 297, 10][..]));
        assert_eq!(plans.iter().map(|plan| plan.limit).collect::<Vec<_>>(), [7, 3, 1]);
        let due = |plan: &Plan| -> Vec<u64> {
            let mut pace = Pace::profile(plan.profile.clone(), 0, Arrivals::Fixed, 1);
            std::iter::from_fn(|| pace.due(10_000_000)).collect()
        };
        let due: Vec<Vec<u64>> = plans.iter().map(due).collect();
        for second in 0..10 {
            let begun = due.iter().map(|all| all.iter().filter(|&&at| at / 1_000_000 == second).count());
            for (begun, share) in begun.zip([70, 30, 1]) {
                assert!(begun.abs_diff(share) <= 1, "{begun} of {share} in second {second}");
            }
        }
        let first: Vec<u64> = due.iter().map(|all| all[0]).collect();
        assert_eq!(first, [0, 9_900, 19_801], "they do not begin at once");
        let burst = Plan { profile: vec![Part::Burst { calls: 10 }], ..plan };
        let bursts: Vec<Vec<Part>> = burst.parted().into_iter().map(|plan| plan.profile).collect();
        assert_eq!(bursts, [[Part::Burst { calls: 7 }], [Part::Burst { calls: 3 }], [Part::Burst { calls: 0 }]]);
    }
}
