//! Translates the tree of an expression to an automaton of nodes with empty moves.
//!
//! The order of nodes is part of the answer. If several paths through the expression give the same longest match, the
//! sub-matches are those of the path that takes the lower-numbered node at each fork. Nodes are numbered in the order
//! in which their part of the expression ends, so a fork comes after its branches, and a path that enters a part comes
//! before one that skips it. The GNU C library fills sub-matches by this rule, for which scenarios were written. The
//! rule of POSIX, longest sub-expressions first, has other results (for example with `(a|ab)(c|bcd)` on `abcd`).
//!
//! Conditions on positions (`^`, `\b`) are moved to the nodes that follow: each node that an empty path reaches after a
//! condition is copied with the condition added. So each node has all conditions for a match at its position.

use super::bytes::{ByteSet, is_word};
use super::error::{ErrorKind, ExpressionError};
use super::program::{Lists, NONE, NodeKind, Program, ProgramNode};
use super::syntax::{Syntax, Tree, condition};

impl Program {
    pub(super) fn new(syntax: &Syntax, ignore_case: bool, nodes_max: usize) -> Result<Self, ExpressionError> {
        let mut builder = Builder {
            nodes: Vec::new(),
            sets: Vec::new(),
            same_as: (0..syntax.groups as u32).collect(),
            back_references: false,
            nodes_max,
        };
        let tree = match &syntax.tree {
            Some(tree) => builder.tree(tree, Round::FIRST)?,
            None => None,
        };
        let end = builder.node(NodeKind::End, 0, Round::FIRST)?;
        let start = match tree {
            Some(part) => {
                builder.connect(&part.holes, end);
                part.first
            }
            None => end,
        };
        builder.order_forks();
        builder.spread_conditions()?;
        Ok(builder.finish(start, end, syntax.groups, ignore_case))
    }
}

/// Part of the automaton whose ends are not connected yet.
struct Part {
    first: u32,
    /// Node and index of its open move.
    holes: Vec<(u32, usize)>,
}

/// Role of the copy that a tree becomes.
#[derive(Clone, Copy)]
struct Round {
    /// True for all but the first copy of this tree or of one around it.
    later: bool,
    /// True for a group directly under an operator that permits zero repetitions, in the first copy that may be
    /// omitted. The copies after it do not count as optional, as in the GNU C library, which the sub-matches of empty
    /// rounds show.
    optional: bool,
}

impl Round {
    const FIRST: Self = Self { later: false, optional: false };

    fn inner(self) -> Self {
        Self { optional: false, ..self }
    }
}

struct Builder {
    nodes: Vec<ProgramNode>,
    sets: Vec<ByteSet>,
    same_as: Vec<u32>,
    back_references: bool,
    nodes_max: usize,
}

impl Builder {
    fn node(&mut self, kind: NodeKind, conditions: u8, round: Round) -> Result<u32, ExpressionError> {
        if self.nodes.len() >= self.nodes_max {
            return Err(ExpressionError { kind: ErrorKind::TooLarge, at: 0 });
        }
        self.nodes.push(ProgramNode { kind, conditions, copy_of: NONE, later: round.later, moves: [NONE; 2] });
        Ok(self.nodes.len() as u32 - 1)
    }

    fn single(&mut self, kind: NodeKind, conditions: u8, round: Round) -> Result<Part, ExpressionError> {
        let first = self.node(kind, conditions, round)?;
        Ok(Part { first, holes: vec![(first, 0)] })
    }

    fn connect(&mut self, holes: &[(u32, usize)], to: u32) {
        for &(node, slot) in holes {
            self.nodes[node as usize].moves[slot] = to;
        }
    }

    fn chain(&mut self, before: Option<Part>, behind: Option<Part>) -> Option<Part> {
        match (before, behind) {
            (Some(before), Some(behind)) => {
                self.connect(&before.holes, behind.first);
                Some(Part { first: before.first, holes: behind.holes })
            }
            (one, other) => one.or(other),
        }
    }

    /// Adds a fork between two parts; a missing part is a path past the fork.
    fn fork(&mut self, one: Option<Part>, other: Option<Part>, round: Round) -> Result<Part, ExpressionError> {
        let fork = self.node(NodeKind::Fork, 0, round)?;
        let mut holes = Vec::new();
        for (slot, part) in [one, other].into_iter().enumerate() {
            match part {
                Some(part) => {
                    self.nodes[fork as usize].moves[slot] = part.first;
                    if holes.len() < part.holes.len() {
                        let fewer = std::mem::replace(&mut holes, part.holes);
                        holes.extend(fewer);
                    } else {
                        holes.extend(part.holes);
                    }
                }
                None => holes.push((fork, slot)),
            }
        }
        Ok(Part { first: fork, holes })
    }

    fn tree(&mut self, tree: &Tree, round: Round) -> Result<Option<Part>, ExpressionError> {
        Ok(Some(match tree {
            Tree::Byte(byte) => self.single(NodeKind::Byte(*byte), 0, round)?,
            Tree::Set(set) => {
                let index = self.sets.iter().position(|known| known == &**set).unwrap_or_else(|| {
                    self.sets.push(**set);
                    self.sets.len() - 1
                });
                self.single(NodeKind::Set(index as u32), 0, round)?
            }
            Tree::Position(conditions) => self.single(NodeKind::Position, *conditions, round)?,
            Tree::BackReference(group) => {
                self.back_references = true;
                self.single(NodeKind::BackReference(self.same_as[*group]), 0, round)?
            }
            Tree::Concatenation(parts) => {
                let mut whole = None;
                for part in parts {
                    let part = self.tree(part, round.inner())?;
                    whole = self.chain(whole, part);
                }
                return Ok(whole);
            }
            Tree::Alternation(branches) => {
                let mut so_far = None;
                for (number, branch) in branches.iter().enumerate() {
                    let branch = match branch {
                        Some(branch) => self.tree(branch, round.inner())?,
                        None => None,
                    };
                    so_far = if number == 0 { branch } else { Some(self.fork(so_far, branch, round)?) };
                }
                return Ok(so_far);
            }
            Tree::Group { index, body } => {
                let mut body = body.as_deref();
                if let Some(Tree::Group { index: inner, body: innermost }) = body {
                    self.same_as[*inner] = self.same_as[*index];
                    body = innermost.as_deref();
                }
                let open = self.single(NodeKind::Open(*index as u32), 0, Round::FIRST)?;
                let body = match body {
                    Some(body) => self.tree(body, round.inner())?,
                    None => None,
                };
                let close =
                    self.single(NodeKind::Close { group: *index as u32, optional: round.optional }, 0, Round::FIRST)?;
                let opened = self.chain(Some(open), body);
                return Ok(self.chain(opened, Some(close)));
            }
            Tree::Repeat { body, least, most } => return self.repeat(body, *least, *most, round),
        }))
    }

    fn repeat(
        &mut self,
        body: &Tree,
        least: u32,
        most: Option<u32>,
        round: Round,
    ) -> Result<Option<Part>, ExpressionError> {
        let mut whole = None;
        let later = Round { later: true, optional: false };
        for count in 0..least {
            let part = self.tree(body, if count == 0 { round.inner() } else { later })?;
            whole = self.chain(whole, part);
        }
        if most == Some(least) {
            return Ok(whole);
        }
        let first = self.tree(body, Round { later: round.later || least > 0, optional: !round.later })?;
        let tail = match most {
            None => {
                let Some(part) = first else { return Ok(whole) };
                let fork = self.node(NodeKind::Fork, 0, round)?;
                self.connect(&part.holes, fork);
                self.nodes[fork as usize].moves[0] = part.first;
                Some(Part { first: fork, holes: vec![(fork, 1)] })
            }
            // ((x?x)?x)?: the later copies follow the earlier ones.
            Some(most) => {
                let mut tail = Some(self.fork(first, None, round)?);
                for _ in least + 1..most {
                    let part = self.tree(body, later)?;
                    let longer = self.chain(tail, part);
                    tail = Some(self.fork(longer, None, round)?);
                }
                tail
            }
        };
        Ok(self.chain(whole, tail))
    }

    /// Orders the moves of forks: the lower-numbered move is preferred, and of two equal moves one is removed.
    fn order_forks(&mut self) {
        for node in &mut self.nodes {
            if node.kind == NodeKind::Fork {
                node.moves.sort_unstable();
                if node.moves[0] == node.moves[1] {
                    node.moves[1] = NONE;
                }
            }
        }
    }

    fn copy(&mut self, of: u32, conditions: u8) -> Result<u32, ExpressionError> {
        let original = self.nodes[of as usize];
        let copy =
            self.node(original.kind, conditions | original.conditions, Round { later: true, optional: false })?;
        self.nodes[copy as usize].copy_of = of;
        Ok(copy)
    }

    /// Copies the nodes that empty moves reach after a condition, with the condition added.
    fn spread_conditions(&mut self) -> Result<(), ExpressionError> {
        // The copies are numbered in the order of a walk along empty moves from each node in turn.
        let mut seen = vec![false; self.nodes.len()];
        let mut todo = Vec::new();
        for root in 0..self.nodes.len() as u32 {
            todo.push(root);
            while let Some(node) = todo.pop() {
                if node as usize >= seen.len() {
                    seen.resize(self.nodes.len(), false);
                }
                if std::mem::replace(&mut seen[node as usize], true) {
                    continue;
                }
                let ProgramNode { kind, conditions, moves, .. } = self.nodes[node as usize];
                let is_source = conditions != 0
                    && !matches!(
                        kind,
                        NodeKind::Byte(_) | NodeKind::Set(_) | NodeKind::BackReference(_) | NodeKind::End
                    )
                    && moves[0] != NONE
                    && !self.nodes[moves[0] as usize].later;
                if is_source {
                    self.copy_behind(node, node, node, conditions)?;
                }
                let moves: Vec<u32> = self.nodes[node as usize].empty_moves().collect();
                todo.extend(moves.iter().rev());
            }
        }
        Ok(())
    }

    /// Copies the nodes that empty moves reach from `original` and appends the copies to `copy`. `root` is the start of
    /// the walk.
    fn copy_behind(&mut self, original: u32, copy: u32, root: u32, conditions: u8) -> Result<(), ExpressionError> {
        let (mut original, mut copy, mut conditions) = (original, copy, conditions);
        loop {
            let from = self.nodes[original as usize];
            match (from.kind, from.moves) {
                (NodeKind::End, _) => return Ok(()),
                (NodeKind::Byte(_) | NodeKind::Set(_) | NodeKind::BackReference(_), moves) => {
                    self.nodes[copy as usize].moves = moves;
                    return Ok(());
                }
                (_, [to, NONE]) => {
                    // A loop has returned to the root, so the copy that was begun at the root is used.
                    if original == root && copy != original {
                        self.nodes[copy as usize].moves = [to, NONE];
                        return Ok(());
                    }
                    conditions |= from.conditions;
                    let to_copy = self.copy(to, conditions)?;
                    self.nodes[copy as usize].moves = [to_copy, NONE];
                    (original, copy) = (to, to_copy);
                }
                (_, [one, other]) => {
                    self.nodes[copy as usize].moves = [NONE; 2];
                    let known = (0..self.nodes.len() as u32)
                        .rev()
                        .take_while(|&at| self.nodes[at as usize].copy_of != NONE)
                        .find(|&at| {
                            self.nodes[at as usize].copy_of == one && self.nodes[at as usize].conditions == conditions
                        });
                    let one_copy = match known {
                        Some(known) => known,
                        None => {
                            let one_copy = self.copy(one, conditions)?;
                            self.copy_behind(one, one_copy, root, conditions)?;
                            one_copy
                        }
                    };
                    let other_copy = self.copy(other, conditions)?;
                    let mut moves = [one_copy, other_copy];
                    moves.sort_unstable();
                    self.nodes[copy as usize].moves = moves;
                    (original, copy) = (other, other_copy);
                }
            }
        }
    }

    fn finish(self, start: u32, end: u32, groups: usize, ignore_case: bool) -> Program {
        let nodes = self.nodes;
        let mut ends = vec![end];
        let (mut empty, mut consuming) = (Vec::new(), Vec::new());
        let mut conditions = 0;
        for (at, node) in nodes.iter().enumerate() {
            let at = at as u32;
            if node.kind == NodeKind::End && at != end {
                ends.push(at);
            }
            conditions |= node.conditions;
            if node.consumes() {
                consuming.push((node.moves[0], at));
            }
            empty.extend(node.empty_moves().map(|to| (to, at)));
        }
        let used: Vec<bool> =
            (0..=255u8).map(|byte| nodes.iter().any(|node| node.kind == NodeKind::Byte(byte))).collect();
        let words = conditions
            & (condition::AFTER_WORD | condition::AFTER_NO_WORD | condition::BEFORE_WORD | condition::BEFORE_NO_WORD)
            != 0;
        let mut classes = Box::new([0; 256]);
        let mut class_bytes: Vec<u8> = Vec::new();
        for byte in 0..=255u8 {
            let folded = if ignore_case { byte.to_ascii_uppercase() } else { byte };
            let alike = |known: &u8| {
                *known == folded
                    || !used[usize::from(*known)]
                        && !used[usize::from(folded)]
                        && self.sets.iter().all(|set| set.contains(*known) == set.contains(folded))
                        && (!words || is_word(*known) == is_word(folded))
            };
            let class = class_bytes.iter().position(alike).unwrap_or_else(|| {
                class_bytes.push(folded);
                class_bytes.len() - 1
            });
            classes[usize::from(byte)] = class as u8;
        }
        Program {
            empty_before: Lists::new(nodes.len(), &empty),
            consuming_before: Lists::new(nodes.len(), &consuming),
            nodes,
            sets: self.sets,
            start,
            ends,
            groups,
            same_as: self.same_as,
            back_references: self.back_references,
            looks_before: conditions & condition::AFTER != 0,
            classes,
            class_bytes,
            ignore_case,
        }
    }
}
