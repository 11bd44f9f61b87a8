//! Expressions with back-references. They need a backtracking search, because no finite set of states knows the text of
//! a group.
//!
//! The search tries all paths from a start in order of preference. The longest match wins, and of several equally long
//! ones the first. The search may take exponential time, as in every implementation; a bound on its moves ends it.

use super::program::{NONE, NodeKind, Program, Side, allows_before, allows_behind};
use super::submatch::{Register, UNSET, record};

/// Stack of the paths still to be tried.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Frames of equal size: node, position, registers, registers before, nodes passed at the position.
    frames: Vec<u32>,
    now: Vec<Register>,
    before: Vec<Register>,
    passed: Vec<u32>,
    pub(super) best: Vec<Register>,
}

impl Ways {
    /// Returns the leftmost match, and of several the longest, within `moves_max` moves. The groups of the match are in
    /// `best`.
    pub(super) fn search(&mut self, program: &Program, text: &[u8], mut moves_max: usize) -> Option<(usize, usize)> {
        for start in 0..=text.len() {
            if let Some(end) = self.longest(program, text, start, &mut moves_max) {
                return Some((start, end));
            }
            if moves_max == 0 {
                return None;
            }
        }
        None
    }

    fn longest(&mut self, program: &Program, text: &[u8], start: usize, moves_left: &mut usize) -> Option<usize> {
        let words = program.nodes.len().div_ceil(32);
        let groups = program.groups;
        let frame = 2 + 4 * groups + words;
        self.now.clear();
        self.now.resize(groups, UNSET);
        self.before.clone_from(&self.now);
        self.passed.clear();
        self.passed.resize(words, 0);
        self.frames.clear();
        let mut best = None;
        let (mut node, mut at) = (program.start, start);
        loop {
            let Some(left) = moves_left.checked_sub(1) else { return best };
            *moves_left = left;
            let next = self.move_on(program, text, node, &mut at, &mut best);
            node = match next {
                [NONE, _] => {
                    if best == Some(text.len()) || self.frames.is_empty() {
                        return best;
                    }
                    let saved = self.frames.split_off(self.frames.len() - frame);
                    at = saved[1] as usize;
                    let (registers, passed) = saved[2..].split_at(4 * groups);
                    let (now, before) = registers.as_chunks::<2>().0.split_at(groups);
                    self.now.copy_from_slice(now);
                    self.before.copy_from_slice(before);
                    self.passed.copy_from_slice(passed);
                    saved[0]
                }
                [one, NONE] => one,
                [one, other] => {
                    self.frames.extend([other, at as u32]);
                    self.frames.extend_from_slice(self.now.as_flattened());
                    self.frames.extend_from_slice(self.before.as_flattened());
                    self.frames.extend_from_slice(&self.passed);
                    one
                }
            };
        }
    }

    /// Returns the next nodes, or none if the path ends here.
    fn move_on(
        &mut self,
        program: &Program,
        text: &[u8],
        node: u32,
        at: &mut usize,
        best: &mut Option<usize>,
    ) -> [u32; 2] {
        const NOWHERE: [u32; 2] = [NONE; 2];
        let what = &program.nodes[node as usize];
        let (before, behind) = (Side::before(text, *at), Side::behind(text, *at));
        if !allows_before(what.conditions, before) || !allows_behind(what.conditions, behind) {
            return NOWHERE;
        }
        let consumed = match what.kind {
            NodeKind::Byte(_) | NodeKind::Set(_) => match text.get(*at) {
                Some(&byte) if program.takes(node, program.fold(byte)) => 1,
                _ => return NOWHERE,
            },
            NodeKind::BackReference(group) => {
                let [from, to] = self.now[group as usize];
                if from == NONE || to == NONE {
                    return NOWHERE;
                }
                let wanted = &text[from as usize..to as usize];
                let there = text[*at..].get(..wanted.len());
                let alike = there.is_some_and(|there| {
                    there.iter().zip(wanted).all(|(&one, &other)| program.fold(one) == program.fold(other))
                });
                if !alike {
                    return NOWHERE;
                }
                wanted.len()
            }
            NodeKind::End => {
                if best.is_none_or(|best| *at > best) {
                    *best = Some(*at);
                    self.best.clone_from(&self.now);
                }
                return NOWHERE;
            }
            NodeKind::Open(_) | NodeKind::Close { .. } | NodeKind::Fork | NodeKind::Position => 0,
        };
        if consumed > 0 {
            *at += consumed;
            self.passed.fill(0);
        } else {
            let (word, bit) = (node as usize / 32, 1 << (node % 32));
            if self.passed[word] & bit != 0 {
                return NOWHERE;
            }
            self.passed[word] |= bit;
            record(what, *at as u32, &mut self.now, &mut self.before);
        }
        if what.consumes() { [what.moves[0], NONE] } else { what.moves }
    }
}
