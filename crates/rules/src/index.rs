//! Index of a list of rules: finds the rules that can match a request. It has a column for each property that many rules
//! test (`Question`), and a bit for each rule.
//!
//! For each value, a column stores the rules that need it; rules without a constraint on the property admit any value. The
//! candidates are the rules that every column admits: the bitwise AND of one row per column. They must still be evaluated.

use crate::constraint::{Constraint, Question, RequestValue, ValueRange};
use crate::field::Facts;
use crate::networks::Networks;
use crate::pattern::{Found, Patterns};
use crate::prefixes::Prefixes;
use crate::texts::{Arena, Texts};
use crate::value::Input;
use crate::{Case, Network};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Maximum number of columns. Each column costs a look-up per decision.
const MAX_COLUMNS: usize = 16;

/// Shorter lists are evaluated rule by rule.
const FEWEST_RULES: usize = 8;

/// Number of rules that must test a property before the property gets a column: first for a cheap property, then for
/// any other.
const FEWEST_ASKING: (usize, usize) = (4, 8);

/// Index of a list of rules.
#[derive(Debug, Default)]
pub(crate) struct Index {
    rules: usize,
    columns: Vec<Column>,
    /// Postings of all columns.
    postings: Vec<Part>,
}

/// Bits of the 64 rules that begin at 64 times `block`.
#[derive(Clone, Copy, Debug)]
struct Part {
    block: u32,
    bits: u64,
}

/// A range of the postings: parts in the order of their blocks.
type Posting = Range<u32>;

#[derive(Debug)]
struct Column {
    question: Question,
    /// Bits of the rules without a constraint on this property, by views.
    open: Box<[[u64; VIEW]]>,
    answers: Answers,
}

#[derive(Debug)]
enum Answers {
    /// Whole texts, then prefixes. The posting of a whole text or prefix includes the postings of its prefixes.
    Texts { whole: Texts, of_whole: Box<[Posting]>, prefixes: Prefixes, of_prefixes: Box<[Posting]> },
    /// Sorted by number.
    Numbers(Box<[(u64, Posting)]>),
    /// The posting of a network includes the postings of the networks around it.
    Networks(Networks, Box<[Posting]>),
    /// One posting per pattern, in their order.
    Patterns(Box<Patterns>, Box<[Posting]>),
}

/// The rules that a value of the request admits.
#[derive(Clone, Copy, Debug)]
enum Admitted<'a> {
    /// The rest of one posting.
    One(&'a [Part]),
    /// The postings of the patterns found.
    Patterns(&'a [Posting], Found),
}

/// Rules of a column, grouped by the value that each needs.
#[derive(Default)]
struct Needs {
    whole: BTreeMap<Box<str>, Vec<usize>>,
    prefixes: BTreeMap<Box<[u8]>, Vec<usize>>,
    numbers: BTreeMap<u64, Vec<usize>>,
    networks: BTreeMap<Network, Vec<usize>>,
    patterns: BTreeMap<Box<str>, Vec<usize>>,
    asking: BTreeSet<usize>,
}

impl Index {
    /// Builds the index from the constraints of each rule.
    pub(crate) fn new(rules: &[Vec<Constraint>]) -> Self {
        let mut index = Self { rules: rules.len(), ..Self::default() };
        if rules.len() < FEWEST_RULES {
            return index;
        }
        let mut asked: HashMap<&Question, usize> = HashMap::new();
        for constraint in rules.iter().flatten() {
            *asked.entry(&constraint.question).or_default() += 1;
        }
        // The columns are in the order of the rules, so that the index does not depend on hashes.
        let mut questions: Vec<(&Question, usize)> = Vec::new();
        for question in rules.iter().flatten().map(|constraint| &constraint.question) {
            let fewest = if question.is_cheap() { FEWEST_ASKING.0 } else { FEWEST_ASKING.1 };
            questions
                .extend(asked.remove(question).filter(|asking| *asking >= fewest).map(|asking| (question, asking)));
        }
        questions.sort_by_key(|(_, asking)| std::cmp::Reverse(*asking));
        for (question, _) in questions.into_iter().take(MAX_COLUMNS) {
            let column = index.column(question, &needs(rules, question));
            index.columns.extend(column);
        }
        index.postings.shrink_to_fit();
        index
    }

    /// Returns the rules that can match, in order.
    pub(crate) fn candidates<F: Facts + ?Sized>(&self, input: &Input<'_, F>) -> Candidates<'_> {
        let mut admitted = [Admitted::One(&[]); MAX_COLUMNS];
        for (column, admitted) in self.columns.iter().zip(&mut admitted) {
            *admitted = self.admitted(column, column.question.ask(input));
        }
        Candidates { index: self, admitted, bits: [0; VIEW], at: VIEW, end: 0 }
    }

    /// Returns the rules that need this value. Rules that admit any value are not among them.
    fn admitted<'a>(&'a self, column: &'a Column, value: Option<RequestValue<'_>>) -> Admitted<'a> {
        let posting = match (&column.answers, value) {
            (Answers::Texts { whole, of_whole, prefixes, of_prefixes }, Some(RequestValue::Text(text))) => {
                match whole.find(text, Case::Ignored) {
                    Some(id) => of_whole.get(id as usize),
                    None => prefixes.longest(text).and_then(|(_, id)| of_prefixes.get(id as usize)),
                }
            }
            (Answers::Numbers(numbers), Some(RequestValue::Number(number))) => {
                numbers.binary_search_by_key(&number, |(known, _)| *known).ok().map(|place| &numbers[place].1)
            }
            (Answers::Networks(networks, postings), Some(RequestValue::Address(address))) => {
                networks.longest(address).and_then(|id| postings.get(id as usize))
            }
            (Answers::Patterns(patterns, postings), Some(RequestValue::Text(text))) => {
                return Admitted::Patterns(postings, patterns.found(text));
            }
            _ => None,
        };
        Admitted::One(posting.map_or(&[], |posting| self.parts(posting)))
    }

    fn parts(&self, posting: &Posting) -> &[Part] {
        self.postings.get(posting.start as usize..posting.end as usize).unwrap_or_default()
    }

    /// Builds a column; `None` if it would be too large.
    fn column(&mut self, question: &Question, needs: &Needs) -> Option<Column> {
        let mut open = vec![[0; VIEW]; self.rules.div_ceil(64 * VIEW)];
        for rule in (0..self.rules).filter(|rule| !needs.asking.contains(rule)) {
            open[rule / 64 / VIEW][rule / 64 % VIEW] |= 1 << (rule % 64);
        }
        let answers = match question {
            Question::Text(_) => self.texts(needs),
            Question::Address(_) => self.networks(needs),
            Question::Matched(text) => self.patterns(needs, text.case())?,
            Question::Number(_) | Question::Flag(_) | Question::TextIn(..) | Question::AddressIn(..) => {
                let posting = |(number, rules): (&u64, &Vec<usize>)| (*number, self.posting(rules));
                Answers::Numbers(needs.numbers.iter().map(posting).collect())
            }
        };
        Some(Column { question: question.clone(), open: open.into(), answers })
    }

    fn patterns(&mut self, needs: &Needs, case: Case) -> Option<Answers> {
        let patterns = Patterns::new(needs.patterns.keys().map(|text| &**text), case)?;
        let postings = needs.patterns.values().map(|rules| self.posting(rules)).collect();
        Some(Answers::Patterns(Box::new(patterns), postings))
    }

    fn texts(&mut self, needs: &Needs) -> Answers {
        let rows: Vec<(&[u8], u32)> = needs.prefixes.keys().map(AsRef::as_ref).zip(0..).collect();
        let prefixes = Prefixes::new(&rows);
        let of_prefix: Vec<&Vec<usize>> = needs.prefixes.values().collect();
        let with_prefixes = |text: &[u8], mut rules: Vec<usize>| {
            prefixes.each(text, |_, id| rules.extend(of_prefix[id as usize]));
            rules
        };
        let of_whole = needs.whole.iter().map(|(text, rules)| {
            let rules = with_prefixes(text.as_bytes(), rules.clone());
            self.posting(&rules)
        });
        let of_whole = of_whole.collect();
        let of_prefixes = needs.prefixes.keys().map(|prefix| {
            let rules = with_prefixes(prefix, Vec::new());
            self.posting(&rules)
        });
        let of_prefixes = of_prefixes.collect();
        let mut arena = Arena::default();
        for text in needs.whole.keys() {
            arena.push(text).expect("conditions are short");
        }
        Answers::Texts { whole: Texts::new(arena), of_whole, prefixes, of_prefixes }
    }

    fn networks(&mut self, needs: &Needs) -> Answers {
        let rows: Vec<(Network, u32)> = needs.networks.keys().copied().zip(0..).collect();
        let networks = Networks::new(&rows);
        let rules_of: Vec<&Vec<usize>> = needs.networks.values().collect();
        let postings = rows.iter().map(|(network, _)| {
            let around = networks.each(network.address()).filter(|(other, _)| other.holds(network));
            let rules: Vec<usize> = around.flat_map(|(_, id)| rules_of[id as usize]).copied().collect();
            self.posting(&rules)
        });
        let postings = postings.collect();
        Answers::Networks(networks, postings)
    }

    fn posting(&mut self, rules: &[usize]) -> Posting {
        let mut blocks: BTreeMap<usize, u64> = BTreeMap::new();
        for rule in rules {
            *blocks.entry(rule / 64).or_default() |= 1 << (rule % 64);
        }
        let place = |postings: &Vec<Part>| u32::try_from(postings.len()).expect("postings are few");
        let start = place(&self.postings);
        self.postings.extend(
            blocks.into_iter().map(|(block, bits)| Part { block: u32::try_from(block).expect("rules are few"), bits }),
        );
        start..place(&self.postings)
    }

    /// Returns the number of properties that are looked up before a rule is evaluated.
    pub(crate) const fn questions(&self) -> usize {
        self.columns.len()
    }
}

/// Groups the rules by the value of a property that they need.
fn needs(rules: &[Vec<Constraint>], question: &Question) -> Needs {
    let mut needs = Needs::default();
    for (rule, constraints) in rules.iter().enumerate() {
        let Some(constraint) = constraints.iter().find(|constraint| constraint.question == *question) else { continue };
        needs.asking.insert(rule);
        for answer in &constraint.answers {
            match answer {
                ValueRange::Whole(text) => needs.whole.entry(text.clone()).or_default().push(rule),
                ValueRange::Prefix(text) => needs.prefixes.entry(text.clone()).or_default().push(rule),
                ValueRange::Number(number) => needs.numbers.entry(*number).or_default().push(rule),
                ValueRange::Within(network) => needs.networks.entry(*network).or_default().push(rule),
                ValueRange::Pattern(text) => needs.patterns.entry(text.clone()).or_default().push(rule),
            }
        }
    }
    needs
}

/// Iterator over the rules that can match one request.
pub(crate) struct Candidates<'a> {
    index: &'a Index,
    /// Admitted rules of each column.
    admitted: [Admitted<'a>; MAX_COLUMNS],
    /// Remaining candidates in the blocks of the view.
    bits: [u64; VIEW],
    /// Current block of the view, and the first block after the view.
    at: usize,
    end: usize,
}

/// Number of blocks per view: a few vector instructions per column evaluate them together.
const VIEW: usize = 16;

/// Returns the indices of the bits that are set.
fn each(found: &Found) -> impl Iterator<Item = usize> + '_ {
    found.iter().enumerate().flat_map(|(word, bits)| {
        let mut bits = *bits;
        std::iter::from_fn(move || {
            let place = (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(place)
        })
    })
}

impl Candidates<'_> {
    /// Evaluates the next view.
    fn advance(&mut self) {
        let start = self.end;
        self.end += VIEW;
        self.at = 0;
        for (block, bits) in self.bits.iter_mut().enumerate() {
            *bits = match self.index.rules.saturating_sub((start + block) * 64) {
                left @ 0..64 => (1 << left) - 1,
                _ => u64::MAX,
            };
        }
        let index = self.index;
        for (column, answer) in index.columns.iter().zip(&mut self.admitted) {
            let mut admitted = column.open[start / VIEW];
            match answer {
                Admitted::One(parts) => {
                    while let Some((part, rest)) = parts.split_first()
                        && (part.block as usize) < self.end
                    {
                        admitted[part.block as usize - start] |= part.bits;
                        *parts = rest;
                    }
                }
                Admitted::Patterns(postings, found) => {
                    for posting in each(found).filter_map(|place| postings.get(place)) {
                        let in_view = |part: &&Part| (start..self.end).contains(&(part.block as usize));
                        for part in index.parts(posting).iter().filter(in_view) {
                            admitted[part.block as usize - start] |= part.bits;
                        }
                    }
                }
            }
            self.bits.iter_mut().zip(admitted).for_each(|(bits, admitted)| *bits &= admitted);
        }
    }
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            while let Some(bits) = self.bits.get_mut(self.at) {
                if *bits != 0 {
                    let rule = bits.trailing_zeros() as usize;
                    *bits &= *bits - 1;
                    return Some((self.end - VIEW + self.at) * 64 + rule);
                }
                self.at += 1;
            }
            if self.end * 64 >= self.index.rules {
                return None;
            }
            self.advance();
        }
    }
}
