//! Bounds for the prose of comments, a crate at a time: beginnings of doc comments, and things named by a clause.

use std::fs;

use super::{root, sources};

/// Largest share of doc comments that may begin with a preposition or a relative word, in percent.
const BAD_BEGINNINGS: f64 = 3.0;

/// Largest number of clauses with "what" in 10,000 words.
const CLAUSES: f64 = 10.0;

/// First words of doc comments that begin badly.
const BAD: [&str; 21] = [
    "What", "Which", "Of", "By", "That", "Those", "With", "For", "In", "At", "From", "To", "Where", "Whose", "Whom",
    "Who", "As", "On", "Beside", "Until", "Since",
];

/// Words after "what" in a clause, beside all that end in "s" or "ed".
const AFTER_WHAT: [&str; 23] = [
    "is", "was", "are", "were", "has", "had", "have", "they", "it", "he", "a", "an", "the", "we", "this", "that",
    "one", "of", "cannot", "can", "must", "may", "come",
];

/// Figures of the comments of some files, with the offending lines.
#[derive(Default)]
struct Prose {
    words: usize,
    docs: usize,
    /// `place: text` of each doc comment that begins badly.
    beginnings: Vec<String>,
    /// `place: text` of each clause.
    clauses: Vec<String>,
}

impl Prose {
    /// Adds the comments of a file.
    fn add(&mut self, place: &str, text: &str) {
        let mut is_doc = false;
        for (number, line) in text.lines().map(str::trim).enumerate() {
            let at = || format!("{place}:{}: {line}", number + 1);
            let begins = !is_doc && is_doc_line(line);
            is_doc = is_doc_line(line);
            if begins {
                self.docs += 1;
                let first = line[3..].trim_start().split(|c| !is_word(c)).next().unwrap_or_default();
                self.beginnings.extend(BAD.contains(&first).then(at));
            }
            if line.starts_with("//") {
                let comment = line.trim_start_matches(['/', '!']);
                self.words += comment.split_whitespace().count();
                self.clauses.extend((0..clauses(comment)).map(|_| at()));
            }
        }
    }

    /// Returns the figures above their bounds, each with its lines.
    fn faults(&self, name: &str) -> Vec<String> {
        let share = percent(self.beginnings.len(), self.docs);
        let clauses = percent(self.clauses.len(), self.words) * 100.0;
        let mut faults = Vec::new();
        if share > BAD_BEGINNINGS {
            let lines = self.beginnings.join("\n  ");
            faults
                .push(format!("{name}: {share:.1} % of doc comments begin badly, {BAD_BEGINNINGS} % may:\n  {lines}"));
        }
        if clauses > CLAUSES {
            let lines = self.clauses.join("\n  ");
            faults.push(format!(
                "{name}: {clauses:.1} clauses with \"what\" in 10,000 words, {CLAUSES} may be:\n  {lines}"
            ));
        }
        faults
    }
}

fn percent(part: usize, all: usize) -> f64 {
    part as f64 / all.max(1) as f64 * 100.0
}

fn is_doc_line(line: &str) -> bool {
    line.starts_with("///") || line.starts_with("//!")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Counts the clauses with "what" in a line.
fn clauses(line: &str) -> usize {
    let mut count = 0;
    for (at, _) in line.match_indices("hat ") {
        let before = &line[..at];
        let is_what = before.ends_with(['w', 'W']) && !before[..before.len() - 1].ends_with(is_word);
        let next = line[at + 4..].split(|c| !is_word(c)).next().unwrap_or_default();
        let is_lower = next.bytes().all(|byte| byte.is_ascii_lowercase());
        let has_ending = is_lower && (next.len() > 1 && next.ends_with('s') || next.len() > 2 && next.ends_with("ed"));
        count += usize::from(is_what && (has_ending || AFTER_WHAT.contains(&next)));
    }
    count
}

/// Returns the figures of all files below a folder.
fn prose(folder: &str) -> Prose {
    let mut prose = Prose::default();
    for (path, text) in sources(&[folder]) {
        let place = path.strip_prefix(root()).expect("below the root").display().to_string();
        prose.add(&place, &text);
    }
    prose
}

#[test]
fn comments_are_plain() {
    let crates = fs::read_dir(root().join("crates")).expect("the crates").map(|entry| entry.expect("and its entries"));
    let crates = crates.map(|entry| format!("crates/{}/src", entry.file_name().to_string_lossy()));
    let others = ["tests", "benches", "examples"].map(str::to_owned);
    let (mut seen, mut faults) = (0, Vec::new());
    for folder in crates.chain(others).filter(|folder| root().join(folder).is_dir()) {
        let prose = prose(&folder);
        seen += prose.docs;
        faults.extend(prose.faults(&folder));
    }
    assert!(seen > 10_000, "{seen}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn bad_beginnings_and_clauses_are_counted() {
    let bad = "/// Of the tables.\nfn a() {}\n//! By name, as what is kept shows.\n\n    // What the peer sent; whatever what\n";
    let good = "/// Tables of the call.\n/// Of a second line.\nfn a() { \"// what is\"; } // what is\n/// Office, and somewhat is what\n";
    let mut prose = Prose::default();
    prose.add("bad", bad);
    let lines =
        |of: &[String]| of.iter().filter_map(|line| line.split(": ").next()).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!((prose.words, prose.docs), (16, 2));
    assert_eq!(lines(&prose.beginnings), ["bad:1", "bad:3"]);
    assert_eq!(lines(&prose.clauses), ["bad:3", "bad:5"]);
    let faults = prose.faults("bad");
    assert!(faults.len() == 2 && faults[0].contains("100.0 %") && faults[1].contains("1250.0 clauses"), "{faults:#?}");

    let mut prose = Prose::default();
    prose.add("good", good);
    assert_eq!((prose.words, prose.docs), (13, 2));
    assert!(prose.faults("good").is_empty(), "{:?}", prose.faults("good"));
    // One of a hundred is below the bounds, one of ten above.
    let repeat =
        |count| format!("{bad}{}", "/// A sentence of nine words without any such clause.\nfn a() {}\n".repeat(count));
    for (count, expected) in [(1_000, 0), (300, 0), (100, 1), (10, 2)] {
        let mut prose = Prose::default();
        prose.add("mixed", &repeat(count));
        assert_eq!(prose.faults("mixed").len(), expected, "{count}: {}", prose.faults("mixed").join("\n"));
    }
}
