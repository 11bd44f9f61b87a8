//! Bytes that every match contains. The search looks for them first, which is much faster.

use memchr::memmem::Finder;

use super::bytes::ByteSet;
use super::program::{NodeKind, Program};
use super::syntax::{Tree, condition};

/// Bytes that a match needs.
#[derive(Debug, Default)]
pub(super) struct Literals {
    /// Set if the expression is only these bytes.
    pub(super) whole: Option<Finder<'static>>,
    /// Bytes at the start of every match.
    pub(super) prefix: Option<Finder<'static>>,
    /// Bytes somewhere in every match.
    pub(super) inside: Option<Finder<'static>>,
    /// True if a match begins at the start of the text.
    pub(super) anchored: bool,
    /// First bytes that a match can have, as they are in the text; `None` if a match can be empty.
    pub(super) first: Option<FirstByte>,
}

/// Possible first bytes of a match.
#[derive(Debug)]
pub(super) enum FirstByte {
    One(u8),
    Two(u8, u8),
    Many(ByteSet),
}

impl FirstByte {
    /// Returns the first position from `from` on.
    pub(super) fn find(&self, text: &[u8], from: usize) -> Option<usize> {
        let rest = text.get(from..)?;
        let offset = match self {
            Self::One(byte) => memchr::memchr(*byte, rest),
            Self::Two(one, other) => memchr::memchr2(*one, *other, rest),
            Self::Many(set) => rest.iter().position(|&byte| set.contains(byte)),
        };
        offset.map(|offset| from + offset)
    }
}

#[derive(Default)]
struct Runs {
    run: Vec<u8>,
    /// True while the first run is not over.
    leading: bool,
    prefix: Vec<u8>,
    longest: Vec<u8>,
}

impl Runs {
    fn end_run(&mut self) {
        if self.leading {
            self.prefix.clone_from(&self.run);
        }
        self.leading = false;
        if self.run.len() > self.longest.len() {
            self.longest.clone_from(&self.run);
        }
        self.run.clear();
    }

    fn tree(&mut self, tree: &Tree) {
        match tree {
            Tree::Byte(byte) => self.run.push(*byte),
            Tree::Concatenation(parts) => parts.iter().for_each(|part| self.tree(part)),
            Tree::Group { body: Some(body), .. } => self.tree(body),
            Tree::Group { body: None, .. } => {}
            Tree::Repeat { body, least: 1.., .. } => {
                self.end_run();
                self.tree(body);
                self.end_run();
            }
            Tree::Repeat { .. } | Tree::Set(_) | Tree::Position(_) | Tree::BackReference(_) | Tree::Alternation(_) => {
                self.end_run();
            }
        }
    }
}

impl Literals {
    pub(super) fn of(tree: Option<&Tree>, program: &Program) -> Self {
        let mut literals = Self { first: first_byte(program), ..Self::default() };
        let Some(tree) = tree else { return literals };
        literals.anchored = is_anchored(tree);
        if program.ignore_case {
            return literals;
        }
        let mut runs = Runs { leading: true, ..Runs::default() };
        runs.tree(tree);
        let whole = runs.leading && program.groups == 0;
        runs.end_run();
        let finder = |bytes: &[u8]| Finder::new(bytes).into_owned();
        if whole {
            literals.whole = Some(finder(&runs.prefix));
        } else {
            literals.prefix = (runs.prefix.len() > 1).then(|| finder(&runs.prefix));
            literals.inside =
                (!runs.longest.is_empty() && runs.longest.len() > runs.prefix.len()).then(|| finder(&runs.longest));
        }
        literals
    }
}

fn is_anchored(tree: &Tree) -> bool {
    match tree {
        Tree::Position(conditions) => conditions & condition::AT_START != 0,
        Tree::Concatenation(parts) => parts.first().is_some_and(is_anchored),
        Tree::Group { body: Some(body), .. } => is_anchored(body),
        Tree::Alternation(branches) => branches.iter().all(|branch| branch.as_ref().is_some_and(is_anchored)),
        Tree::Repeat { body, least: 1.., .. } => is_anchored(body),
        _ => false,
    }
}

fn first_byte(program: &Program) -> Option<FirstByte> {
    let mut seen = vec![false; program.nodes.len()];
    let mut todo = vec![program.start];
    let mut folded = ByteSet::default();
    while let Some(node) = todo.pop() {
        if std::mem::replace(&mut seen[node as usize], true) {
            continue;
        }
        let what = &program.nodes[node as usize];
        match what.kind {
            NodeKind::End | NodeKind::BackReference(_) => return None,
            NodeKind::Byte(byte) => folded.insert(byte),
            NodeKind::Set(set) => folded = folded.union(&program.sets[set as usize]),
            _ => todo.extend(what.empty_moves()),
        }
    }
    let set = ByteSet::where_(|byte| folded.contains(program.fold(byte)));
    let mut bytes = (1..=255).filter(|&byte| set.contains(byte));
    Some(match (bytes.next(), bytes.next(), bytes.next()) {
        (Some(one), None, None) => FirstByte::One(one),
        (Some(one), Some(other), None) => FirstByte::Two(one, other),
        _ => FirstByte::Many(set),
    })
}
