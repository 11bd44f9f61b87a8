//! Oracle: the C library's `regcomp` and `regexec`, compared with ours on texts and on generated strings.

pub(crate) mod corpus;
pub(crate) mod strings;

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};
use strings::{Numbers, generate};
use strowger_scenario::expression::{ErrorKind, Expression, Matcher, Options, Span};

pub(crate) const SPANS: usize = 10;
pub(crate) const GENERATED: usize = 10_000;

pub(crate) type Offsets = [(i64, i64); SPANS];

/// Expression compiled by the C library.
pub(crate) struct Library(libc::regex_t);

impl Library {
    pub(crate) fn new(pattern: &CStr, ignore_case: bool) -> Result<Self, i32> {
        // SAFETY: all-zero is a valid regex_t to be filled by regcomp, which reads the pattern up to its NUL.
        let mut compiled = unsafe { std::mem::zeroed() };
        let flags = libc::REG_EXTENDED | if ignore_case { libc::REG_ICASE } else { 0 };
        // SAFETY: as above.
        match unsafe { libc::regcomp(&mut compiled, pattern.as_ptr(), flags) } {
            0 => Ok(Self(compiled)),
            error => Err(error),
        }
    }

    pub(crate) fn captures(&self, text: &CStr) -> Option<Offsets> {
        let mut spans = [libc::regmatch_t { rm_so: -1, rm_eo: -1 }; SPANS];
        // SAFETY: the expression was compiled, the text ends in NUL, and there is room for as many spans as are named.
        let verdict = unsafe { libc::regexec(&self.0, text.as_ptr(), SPANS, spans.as_mut_ptr(), 0) };
        (verdict == 0).then(|| spans.map(|span| (i64::from(span.rm_so), i64::from(span.rm_eo))))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: compiled by regcomp and freed once.
        unsafe { libc::regfree(&mut self.0) }
    }
}

pub(crate) fn captures(expression: &Expression, matcher: &mut Matcher, text: &[u8]) -> Option<Offsets> {
    let mut spans = [None; SPANS];
    let offsets = |span: Option<Span>| span.map_or((-1, -1), |span| (span.start as i64, span.end as i64));
    expression.captures(text, matcher, &mut spans).then(|| spans.map(offsets))
}

/// Returns the code of `regcomp`.
pub(crate) fn code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::CollatingElement => 3,
        ErrorKind::Class => 4,
        ErrorKind::LoneBackslash => 5,
        ErrorKind::BackReference => 6,
        ErrorKind::OpenBracket => 7,
        ErrorKind::OpenGroup => 8,
        ErrorKind::OpenInterval => 9,
        ErrorKind::Interval => 10,
        ErrorKind::Range => 11,
        ErrorKind::TooLarge => 15,
        ErrorKind::NothingToRepeat => 13,
        other => panic!("no code for {other:?}"),
    }
}

pub(crate) fn options(ignore_case: bool) -> Options {
    Options { ignore_case, ..Options::default() }
}

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) searches: AtomicUsize,
    pub(crate) matches: AtomicUsize,
    pub(crate) refused: AtomicUsize,
}

/// Compares on all `texts` and `generated` strings; panics at the first difference.
pub(crate) fn compare(pattern: &[u8], ignore_case: bool, texts: &[CString], generated: usize, tally: &Tally) {
    let shown = || format!("{:?} (ignore case: {ignore_case})", String::from_utf8_lossy(pattern));
    let pattern_c = CString::new(pattern).unwrap();
    let (library, ours) = (Library::new(&pattern_c, ignore_case), Expression::new(pattern, options(ignore_case)));
    let (library, ours) = match (library, ours) {
        (Ok(library), Ok(ours)) => (library, ours),
        (Err(_), Err(_)) => {
            tally.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        (library, ours) => panic!("{}: the library says {:?}, we say {:?}", shown(), library.err(), ours.err()),
    };
    let (mut matcher, mut matches) = (Matcher::new(), 0);
    let mut check = |text: &CStr| {
        let wanted = library.captures(text);
        matches += usize::from(wanted.is_some());
        let found = captures(&ours, &mut matcher, text.to_bytes());
        assert_eq!(found, wanted, "{} on {:?}", shown(), String::from_utf8_lossy(text.to_bytes()));
    };
    texts.iter().for_each(|text| check(text));
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ pattern.len() as u64);
    let mut text = Vec::new();
    for _ in 0..generated {
        generate(pattern, &mut numbers, &mut text);
        text.push(0);
        check(CStr::from_bytes_with_nul(&text).unwrap());
    }
    tally.searches.fetch_add(texts.len() + generated, Ordering::Relaxed);
    tally.matches.fetch_add(matches, Ordering::Relaxed);
}
