//! Regular expressions of scenarios: the extended ones of POSIX (IEEE 1003.1 XBD chapter 9.4) as `regcomp` with
//! `REG_EXTENDED` and `regexec` of the GNU C library implement them, on bytes, in the C locale.
//!
//! A match is the leftmost one, and of several leftmost ones the longest. Scenarios rely on the library's escapes (`\s
//! \S \w \W \b \B \< \>`), its sub-matches and its reading of odd syntax, so all three are equal to the library's, with
//! which the tests compare them. One difference: SIPp with its screen on uses the locale of the terminal, where `.` can
//! be several bytes.
//!
//! An [`Expression`] is immutable and shared; a [`Matcher`] holds the states made so far and belongs to one thread. A
//! search is linear in the text and allocates nothing once its states are known. Only back-references can take longer.
//!
//! ```
//! use strowger_scenario::expression::{Expression, Matcher, Options};
//!
//! let tag = Expression::new(b"tag=([[:alnum:].\\-]*)", Options::default()).unwrap();
//! let (mut matcher, mut spans) = (Matcher::new(), [None; 10]);
//! let text = b"To: <sip:bob@example.com>;tag=8321-2a;x=y";
//! assert!(tag.captures(text, &mut matcher, &mut spans));
//! assert_eq!(spans[1].unwrap().of(text), b"8321-2a");
//! ```

mod automaton;
mod backreference;
mod bracket;
mod builder;
mod bytes;
mod error;
mod literal;
mod program;
mod submatch;
mod syntax;

use std::sync::atomic::{AtomicUsize, Ordering};

use automaton::{Automaton, Mode, SPECIAL};
use backreference::Ways;
use literal::Literals;
use program::{NONE, Program, Side};
use submatch::{Found, Registers};

pub use error::{ErrorKind, ExpressionError};

/// Syntax options and bounds of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// ASCII letters match in either case (`REG_ICASE`).
    pub ignore_case: bool,
    /// Maximum number of nodes of a compiled expression: about one a character, and more for each copy that an interval
    /// needs. Default 10,000.
    pub nodes_max: usize,
    /// Limit of the nesting of groups, and of operators after an operator (`a+*`). Default 250.
    pub depth_max: usize,
    /// Limit of the states of one expression in a [`Matcher`], bytes. Default 1 MiB.
    pub states_bytes_max: usize,
    /// Limit of moves of one search with back-references, after which it returns no match. Default 10,000,000.
    pub moves_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { ignore_case: false, nodes_max: 10_000, depth_max: 250, states_bytes_max: 1 << 20, moves_max: 10_000_000 }
    }
}

/// Range of a text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

impl Span {
    /// Returns the bytes of this range; `text` MUST be the searched text.
    pub fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start..self.end]
    }
}

/// Compiled expression.
#[derive(Debug)]
pub struct Expression {
    /// Key of its states in every [`Matcher`].
    number: usize,
    program: Program,
    literals: Literals,
    options: Options,
}

impl Expression {
    /// Compiles an expression. A NUL ends the expression, as in C.
    ///
    /// # Errors
    /// An error of `regcomp`, with its offset; an expression beyond the bounds of `options`.
    pub fn new(pattern: &[u8], options: Options) -> Result<Self, ExpressionError> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let syntax = syntax::parse(until_nul(pattern), options.ignore_case, options.depth_max)?;
        let program = Program::new(&syntax, options.ignore_case, options.nodes_max)?;
        let literals = Literals::of(syntax.tree.as_ref(), &program);
        Ok(Self { number: NEXT.fetch_add(1, Ordering::Relaxed), program, literals, options })
    }

    /// Returns the number of groups, without the whole match.
    pub fn groups(&self) -> usize {
        self.program.groups
    }

    /// Returns whether the expression matches somewhere in the text. A NUL ends the text, as in C.
    pub fn is_match(&self, text: &[u8], matcher: &mut Matcher) -> bool {
        self.find(text, matcher).is_some()
    }

    /// Returns the leftmost longest match.
    pub fn find(&self, text: &[u8], matcher: &mut Matcher) -> Option<Span> {
        let mut spans = [None];
        self.captures(text, matcher, &mut spans);
        spans[0]
    }

    /// Writes the leftmost longest match to `spans[0]` and its groups to the spans after it. Groups beyond the length
    /// of `spans` are omitted; spans beyond the number of groups are `None`. Without a match all spans are `None`.
    pub fn captures(&self, text: &[u8], matcher: &mut Matcher, spans: &mut [Option<Span>]) -> bool {
        spans.fill(None);
        let text = until_nul(text);
        if let Some(whole) = &self.literals.whole {
            let Some(start) = whole.find(text) else { return false };
            if let Some(span) = spans.first_mut() {
                *span = Some(Span { start, end: start + whole.needle().len() });
            }
            return true;
        }
        if self.literals.inside.as_ref().is_some_and(|inside| inside.find(text).is_none()) {
            return false;
        }
        let program = &self.program;
        if program.back_references {
            let Some((start, end)) = matcher.ways.search(program, text, self.options.moves_max) else { return false };
            self.fill(&matcher.ways.best, start, end, spans);
            return true;
        }
        if matcher.caches.len() <= self.number {
            matcher.caches.resize_with(self.number + 1, || None);
        }
        let cache = matcher.caches[self.number].get_or_insert_with(|| Box::new(Cache::new(program)));
        let limit = self.options.states_bytes_max;
        let Some((start, end, end_node)) = self.leftmost_longest(text, cache) else { return false };
        let groups = program.groups.min(spans.len().saturating_sub(1));
        if groups > 0 {
            if cache.one_end.bytes() > limit {
                cache.one_end.clear();
            }
            matcher.path.clear();
            matcher.path.resize(end + 1 - start, 0);
            let mut state = cache.one_end.at_end(program, end_node);
            matcher.path[end - start] = state;
            for at in (start..end).rev() {
                if state & SPECIAL != 0 && cache.one_end.state(state).stays {
                    matcher.path[..=at - start].fill(state);
                    break;
                }
                let class = program.classes[usize::from(text[at])];
                state = match cache.one_end.known_step(state, class) {
                    Some(next) => next,
                    // The later states must stay, so the memory is bounded at the next search only.
                    None => cache.one_end.step(program, state, class, None),
                };
                matcher.path[at - start] = state;
            }
            let found = Found { text, start, path: &matcher.path, states: &cache.one_end, end_node };
            matcher.registers.walk(program, found, groups);
        } else {
            matcher.registers.now.clear();
        }
        self.fill(&matcher.registers.now, start, end, spans);
        true
    }

    fn fill(&self, registers: &[submatch::Register], start: usize, end: usize, spans: &mut [Option<Span>]) {
        let Some((whole, groups)) = spans.split_first_mut() else { return };
        *whole = Some(Span { start, end });
        for (span, &group) in groups.iter_mut().zip(&self.program.same_as) {
            *span = registers
                .get(group as usize)
                .filter(|[start, end]| *start != NONE && *end != NONE)
                .map(|&[start, end]| Span { start: start as usize, end: end as usize });
        }
    }

    /// Returns start, end, and the end node of the longest match.
    fn leftmost_longest(&self, text: &[u8], cache: &mut Cache) -> Option<(usize, usize, u32)> {
        // Starts are tried one by one while that is cheap. After that, a backward search finds the leftmost start.
        let mut budget = 4 * text.len() + 256;
        let mut from = 0;
        loop {
            let start = self.next_start(text, from)?;
            let (found, scanned) = self.longest(text, start, &mut cache.forward);
            if let Some((end, end_node)) = found {
                return Some((start, end, end_node));
            }
            if self.literals.anchored {
                return None;
            }
            from = start + 1;
            budget = match budget.checked_sub(scanned + 1) {
                Some(budget) => budget,
                None => {
                    let any_end = cache.any_end.get_or_insert_with(|| Automaton::new(&self.program, Mode::AnyEnd));
                    let start = self.leftmost(text, from, any_end)?;
                    let (end, end_node) = self.longest(text, start, &mut cache.forward).0?;
                    return Some((start, end, end_node));
                }
            };
        }
    }

    /// Returns the first position from `from` on where a match could begin.
    fn next_start(&self, text: &[u8], from: usize) -> Option<usize> {
        if self.literals.anchored {
            return (from == 0).then_some(0);
        }
        if let Some(prefix) = &self.literals.prefix {
            return prefix.find(text.get(from..)?).map(|offset| from + offset);
        }
        match &self.literals.first {
            Some(first) => first.find(text, from),
            None => (from <= text.len()).then_some(from),
        }
    }

    /// Returns the end of the longest match from `start` with its end node, and the number of bytes read.
    fn longest(&self, text: &[u8], start: usize, states: &mut Automaton) -> (Option<(usize, u32)>, usize) {
        let program = &self.program;
        let limit = Some(self.options.states_bytes_max);
        let mut found = None;
        let mut state = states.at_start(program, Side::before(text, start));
        let mut at = start;
        loop {
            if state & SPECIAL != 0 {
                let what = states.state(state);
                if what.dead {
                    break;
                }
                let halts = what.halts;
                if what.stays && halts[0] == halts[1] && halts[0] == halts[2] {
                    if halts[0] != NONE {
                        found = Some((text.len(), halts[0]));
                    }
                    break;
                }
                let end = halts[Side::behind(text, at) as usize];
                if end != NONE {
                    found = Some((at, end));
                }
            }
            let Some(&byte) = text.get(at) else { break };
            let class = program.classes[usize::from(byte)];
            state = match states.known_step(state, class) {
                Some(next) => next,
                None => states.step(program, state, class, limit),
            };
            at += 1;
        }
        (found, at - start)
    }

    /// Returns the leftmost position from `from` on where a match begins.
    fn leftmost(&self, text: &[u8], from: usize, states: &mut Automaton) -> Option<usize> {
        let program = &self.program;
        let limit = Some(self.options.states_bytes_max);
        let mut leftmost = None;
        let mut state = states.at_end(program, program.ends[0]);
        let mut at = text.len();
        while at >= from {
            if state & SPECIAL != 0 && states.state(state).starts[Side::before(text, at) as usize] {
                leftmost = Some(at);
            }
            if at == 0 {
                break;
            }
            at -= 1;
            let class = program.classes[usize::from(text[at])];
            state = match states.known_step(state, class) {
                Some(next) => next,
                None => states.step(program, state, class, limit),
            };
        }
        leftmost
    }
}

/// States of one expression.
#[derive(Debug)]
struct Cache {
    forward: Automaton,
    one_end: Automaton,
    any_end: Option<Automaton>,
}

impl Cache {
    fn new(program: &Program) -> Self {
        Self {
            forward: Automaton::new(program, Mode::Forward),
            one_end: Automaton::new(program, Mode::OneEnd),
            any_end: None,
        }
    }
}

/// Search memory of one thread: states of all expressions that it used, and scratch space.
#[derive(Debug, Default)]
pub struct Matcher {
    caches: Vec<Option<Box<Cache>>>,
    registers: Registers,
    /// Backward states of the positions of a match.
    path: Vec<u32>,
    ways: Ways,
}

impl Matcher {
    /// Makes a memory without states; they are allocated by the first search of each expression.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Returns the text up to the first NUL, as C reads it.
fn until_nul(text: &[u8]) -> &[u8] {
    memchr::memchr(0, text).map_or(text, |end| &text[..end])
}
