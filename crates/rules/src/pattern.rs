//! Regular expressions as state tables: one step per octet; matching needs no backtracking, memory or lock.

use crate::{Case, Fault};
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::{Input, MatchKind};
use regex_syntax::hir::literal::{ExtractKind, Extractor};
use regex_syntax::hir::{Hir, Look};
use std::ops::Range;

/// Maximum size of the table of one pattern, in bytes.
pub const MAX_PATTERN_TABLE: usize = 1 << 20;

/// A compiled pattern.
pub(crate) struct Pattern {
    table: dense::DFA<Vec<u32>>,
    /// Source text.
    pub(crate) text: Box<str>,
    /// Prefixes of every text that it matches; `None` if the pattern does not determine them.
    pub(crate) prefixes: Option<Vec<Box<[u8]>>>,
}

impl Pattern {
    /// Compiles the octets between the quotes at `span` of a condition.
    pub(crate) fn new(pattern: &str, case: Case, span: &Range<usize>) -> Result<Self, Fault> {
        if let Some(at) = repeated_start(pattern) {
            let at = span.start + at;
            let cure = "write ^\\+ for a + that stands for itself";
            return Err(Fault::new(at..at + 2, "this repeats the beginning of the text", cure));
        }
        let read = read(pattern, case).map_err(|error| unread(&error, span))?;
        let too_large = || {
            let cure = format!(
                "its table would be larger than {} MiB: shorten counted repetitions such as .{{100}}, or split it",
                MAX_PATTERN_TABLE >> 20
            );
            Fault::new(span.clone(), "this pattern is too large", cure)
        };
        // The end of the first match is sufficient.
        let table = table(std::slice::from_ref(&read), MatchKind::LeftmostFirst).ok_or_else(too_large)?;
        Ok(Self { table, text: pattern.into(), prefixes: prefixes(&read) })
    }

    /// Tells whether the pattern matches somewhere in the text.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        let found = self.table.try_search_fwd(&Input::new(text).earliest(true));
        // A search cannot fail: the table has no quit octets and supports this kind of search.
        found.is_ok_and(|found| found.is_some())
    }
}

fn read(pattern: &str, case: Case) -> Result<Hir, Box<regex_syntax::Error>> {
    let mut parser = regex_syntax::ParserBuilder::new();
    parser.unicode(false).utf8(false).case_insensitive(case == Case::Ignored).nest_limit(64);
    parser.build().parse(pattern).map_err(Box::new)
}

/// Builds a table; `None` if it would be too large.
fn table(patterns: &[Hir], kind: MatchKind) -> Option<dense::DFA<Vec<u32>>> {
    let states =
        thompson::Config::new().utf8(false).which_captures(WhichCaptures::None).nfa_size_limit(Some(MAX_PATTERN_TABLE));
    let states = thompson::Compiler::new().configure(states).build_many_from_hir(patterns).ok()?;
    let table = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .match_kind(kind)
        .dfa_size_limit(Some(MAX_PATTERN_TABLE))
        .determinize_size_limit(Some(2 * MAX_PATTERN_TABLE));
    dense::Builder::new().configure(table).build_from_nfa(&states).ok()
}

/// Many patterns as one table: one walk along a text finds all that match.
pub(crate) struct Patterns(dense::DFA<Vec<u32>>);

/// Bit set of the [`Patterns`] that match.
pub(crate) type Found = [u64; Patterns::MOST / 64];

impl Patterns {
    /// Maximum number of patterns.
    pub(crate) const MOST: usize = 256;

    /// Builds the table from patterns that can be read. `None` if it would be too large.
    pub(crate) fn new<'a>(patterns: impl Iterator<Item = &'a str>, case: Case) -> Option<Self> {
        let read: Vec<Hir> = patterns.map(|pattern| read(pattern, case).ok()).collect::<Option<_>>()?;
        if read.len() > Self::MOST {
            return None;
        }
        table(&read, MatchKind::All).map(Self)
    }

    /// Returns the patterns that match somewhere in the text, by index.
    pub(crate) fn found(&self, text: &[u8]) -> Found {
        let (table, mut found) = (&self.0, Found::default());
        // The start cannot fail: the table has no quit octets and supports this kind of search.
        let Ok(mut state) = table.start_state_forward(&Input::new(text)) else { return [u64::MAX; _] };
        let mut last = None;
        let mut note = |state| {
            if !table.is_match_state(state) || last == Some(state) {
                return;
            }
            last = Some(state);
            for place in 0..table.match_len(state) {
                let pattern = table.match_pattern(state, place).as_usize();
                found[pattern / 64] |= 1 << (pattern % 64);
            }
        };
        for octet in text {
            state = table.next_state(state, *octet);
            if table.is_special_state(state) {
                if table.is_dead_state(state) {
                    return found;
                }
                note(state);
            }
        }
        note(table.next_eoi_state(state));
        found
    }
}

impl std::fmt::Debug for Patterns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Patterns({}, {} bytes)", self.0.pattern_len(), self.0.memory_usage())
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pattern({} bytes)", self.table.memory_usage())
    }
}

/// Returns the position of `^+`, which is a valid pattern but does not mean what the author of `^+49` intends.
fn repeated_start(pattern: &str) -> Option<usize> {
    let mut found = pattern.match_indices("^+").map(|(at, _)| at);
    found.find(|at| !pattern[..*at].ends_with(['[', '\\']))
}

/// Returns the prefixes of every match, for a pattern that matches only at the start of the text.
fn prefixes(read: &Hir) -> Option<Vec<Box<[u8]>>> {
    if !read.properties().look_set_prefix().contains(Look::Start) {
        return None;
    }
    let mut extractor = Extractor::new();
    extractor.kind(ExtractKind::Prefix).limit_total(64);
    let found = extractor.extract(read);
    Some(found.literals()?.iter().map(|literal| literal.as_bytes().into()).collect())
}

/// Returns the fault of a malformed pattern, at the octets concerned.
fn unread(error: &regex_syntax::Error, span: &Range<usize>) -> Fault {
    let (what, at) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span()),
        regex_syntax::Error::Translate(error) => (error.kind().to_string(), error.span()),
        other => return Fault::new(span.clone(), format!("this is no pattern: {other}"), CURE),
    };
    let from = (span.start + at.start.offset).min(span.end);
    let to = (span.start + at.end.offset).clamp(from, span.end);
    Fault::new(from..to, format!("this is no pattern: {what}"), CURE)
}

const CURE: &str = "write a regular expression over ASCII without look-around and back-references, and a \\ before a sign that stands for itself";

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str, case: Case) -> Pattern {
        Pattern::new(text, case, &(0..text.len())).expect("a pattern")
    }

    fn found(text: &str, case: Case, within: &[u8]) -> bool {
        pattern(text, case).is_in(within)
    }

    #[test]
    fn a_pattern_is_found_anywhere_unless_it_is_anchored() {
        assert!(found("scan", Case::Exact, b"a scanner"));
        assert!(!found("^scan", Case::Exact, b"a scanner"));
        assert!(!found("scan$", Case::Exact, b"a scanner"));
        assert!(found(r"^(\+|00)[1-9]\d{3,20}$", Case::Exact, b"+4930123456"));
        assert!(!found(r"^(\+|00)[1-9]\d{3,20}$", Case::Exact, b"+4930123456\n"));
        assert!(found("", Case::Exact, b""));
        assert!(found(r"\bcat\b", Case::Exact, b"a cat \xff"));
        assert!(found(".", Case::Exact, b"\xff"));
    }

    /// Checks that the table of many patterns agrees with the table of each pattern.
    #[test]
    fn many_patterns_are_found_as_each_is() {
        let all = [
            "a", "^a", "a$", "^$", "", ".*", "b+", r"\bab\b", "(ab|ba)c", "[^a]", "A", "aa", r"a.{3}b", "$", "^",
            r"\xff",
        ];
        for case in [Case::Exact, Case::Ignored] {
            let many = Patterns::new(all.into_iter(), case).expect("a small table");
            for text in ["", "a", "b", "A", "ab", "aab", "abc", "xbac", "a ab b", "a123b", "\n", "aaaa", "baab\u{ff}"] {
                let found = many.found(text.as_bytes());
                for (place, one) in all.iter().enumerate() {
                    let is_found = found[place / 64] >> (place % 64) & 1 == 1;
                    assert_eq!(is_found, pattern(one, case).is_in(text.as_bytes()), "{one:?} in {text:?}");
                }
            }
        }
        assert!(Patterns::new([r"x.{12}y", r"z.{13}w"].into_iter(), Case::Exact).is_none(), "too large");
        assert!(Patterns::new(std::iter::repeat_n("a", 257), Case::Exact).is_none(), "too many");
    }

    #[test]
    fn case_counts_as_the_field_says() {
        assert!(found("Example", Case::Ignored, b"eXAMPLE.com"));
        assert!(!found("Example", Case::Exact, b"eXAMPLE.com"));
    }

    #[test]
    fn the_fault_of_a_pattern_has_its_position() {
        let fault = Pattern::new("a(b", Case::Exact, &(10..13)).expect_err("an open group");
        assert_eq!((fault.span, &fault.message[..]), (11..12, "this is no pattern: unclosed group"));
        let fault = Pattern::new(r"a(?=b)", Case::Exact, &(10..16)).expect_err("look-around");
        assert!(fault.message.contains("look-around"), "{fault}");
        let fault = Pattern::new(r"(.{1,500}x){1,500}", Case::Exact, &(0..18)).expect_err("too large");
        assert!(fault.message.contains("too large"), "{fault}");
        let fault = Pattern::new(r"x.{40}y", Case::Exact, &(0..7)).expect_err("exponential");
        assert!(fault.message.contains("too large"), "{fault}");
    }

    #[test]
    fn an_anchored_pattern_says_how_its_texts_begin() {
        let prefixes = |text| {
            let found = pattern(text, Case::Exact).prefixes?;
            Some(found.iter().map(|prefix| String::from_utf8_lossy(prefix).into_owned()).collect::<Vec<_>>())
        };
        assert_eq!(prefixes(r"^(\+|00)49"), Some(vec!["+49".into(), "0049".into()]));
        assert_eq!(prefixes(r"^49|50"), None);
        assert_eq!(prefixes(r"49"), None);
    }
}
