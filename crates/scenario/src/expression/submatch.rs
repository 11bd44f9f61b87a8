//! Finds the path through the expression that gave the match, and so the match of each group.

use super::automaton::Automaton;
use super::program::{NONE, NodeKind, Program, ProgramNode, Side};

/// Start and end of a group's match, [`NONE`] without one.
pub(super) type Register = [u32; 2];

pub(super) const UNSET: Register = [NONE; 2];

/// Registers of the groups along one path.
#[derive(Debug, Default)]
pub(super) struct Registers {
    pub(super) now: Vec<Register>,
    /// Registers when a group last closed on a non-empty match.
    before: Vec<Register>,
    /// Visit of the position in which each node was last passed by empty moves.
    passed: Vec<u32>,
    visit: u32,
}

/// Updates the registers for a passed node.
pub(super) fn record(node: &ProgramNode, at: u32, now: &mut [Register], before: &mut [Register]) {
    match node.kind {
        NodeKind::Open(group) => {
            if let Some(register) = now.get_mut(group as usize) {
                *register = [at, NONE];
            }
        }
        NodeKind::Close { group, optional } => {
            let group = group as usize;
            if group >= now.len() {
                return;
            }
            if now[group][0] != at {
                now[group][1] = at;
                before.copy_from_slice(now);
            } else if optional && before[group][0] != NONE {
                // An empty round of a loop restores the registers of the last round that matched something, including
                // those of inner groups.
                now.copy_from_slice(before);
            } else {
                now[group][1] = at;
            }
        }
        _ => {}
    }
}

/// Match whose groups are wanted.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) text: &'a [u8],
    pub(super) start: usize,
    /// Backward states from start to end, one a position.
    pub(super) path: &'a [u32],
    /// Automaton of the states.
    pub(super) states: &'a Automaton,
    /// End that was reached.
    pub(super) end_node: u32,
}

impl Registers {
    /// Walks from the start of the match to its end, at each fork by the preferred move from which the end is
    /// reachable, and fills `groups` registers.
    pub(super) fn walk(&mut self, program: &Program, found: Found<'_>, groups: usize) {
        let Found { text, start, path, states, end_node } = found;
        self.reset(program, groups);
        let (mut node, mut offset) = (program.start, 0);
        let side = |offset: usize| {
            if program.looks_before { Side::before(text, start + offset) } else { Side::Edge }
        };
        let mut before = side(0);
        let mut empty_moves = 0;
        loop {
            let what = &program.nodes[node as usize];
            if what.consumes() {
                offset += 1;
                if offset >= path.len() {
                    return;
                }
                before = side(offset);
                node = what.moves[0];
                self.visit += 1;
                empty_moves = 0;
                continue;
            }
            if what.kind == NodeKind::Fork && program.nodes[what.moves[0] as usize].moves[0] == node {
                // A loop over one byte, which is by far the most frequent loop, is taken in one step.
                let body = what.moves[0];
                if program.nodes[body as usize].consumes() {
                    let from = offset;
                    let mut state = NONE;
                    while offset + 1 < path.len()
                        && (path[offset] == state || states.reaches(path[offset], before, body))
                    {
                        if !program.looks_before {
                            state = path[offset];
                        }
                        offset += 1;
                        before = side(offset);
                    }
                    if offset > from {
                        self.visit += 1;
                        empty_moves = 0;
                    }
                }
            }
            record(what, (start + offset) as u32, &mut self.now, &mut self.before);
            if node == end_node && offset + 1 == path.len() {
                return;
            }
            self.passed[node as usize] = self.visit;
            empty_moves += 1;
            let mut leads = what.moves.into_iter().filter(|&to| to != NONE && states.reaches(path[offset], before, to));
            let Some(first) = leads.next() else { return };
            // After a round of a loop that matched nothing the other move is taken, so that the walk ends.
            node = if self.passed[first as usize] == self.visit { leads.next().unwrap_or(first) } else { first };
            // Some nested loops over nothing would never end (and do not in the C library).
            if empty_moves > 4 * program.nodes.len() {
                return;
            }
        }
    }

    fn reset(&mut self, program: &Program, groups: usize) {
        self.now.clear();
        self.now.resize(groups, UNSET);
        self.before.clear();
        self.before.resize(groups, UNSET);
        if self.passed.len() < program.nodes.len() || self.visit > u32::MAX / 2 {
            self.passed.clear();
            self.passed.resize(program.nodes.len(), 0);
            self.visit = 0;
        }
        self.visit += 1;
    }
}
