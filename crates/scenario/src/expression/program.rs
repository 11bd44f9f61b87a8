//! Executable form of an expression: an automaton of nodes with empty moves.

use super::bytes::{ByteSet, is_word};
use super::syntax::condition;

pub(super) const NONE: u32 = u32::MAX;

/// Class of the text next to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Side {
    /// Start or end of the text.
    Edge = 0,
    Word = 1,
    Other = 2,
}

impl Side {
    pub(super) const ALL: [Self; 3] = [Self::Edge, Self::Word, Self::Other];

    pub(super) fn of(byte: u8) -> Self {
        if is_word(byte) { Self::Word } else { Self::Other }
    }

    pub(super) fn before(text: &[u8], at: usize) -> Self {
        if at == 0 { Self::Edge } else { Self::of(text[at - 1]) }
    }

    pub(super) fn behind(text: &[u8], at: usize) -> Self {
        text.get(at).map_or(Self::Edge, |&byte| Self::of(byte))
    }
}

/// Returns whether the preceding side meets the conditions.
pub(super) fn allows_before(conditions: u8, before: Side) -> bool {
    !(conditions & condition::AFTER_WORD != 0 && before != Side::Word
        || conditions & condition::AFTER_NO_WORD != 0 && before == Side::Word
        || conditions & condition::AT_START != 0 && before != Side::Edge)
}

/// Returns whether the following side meets the conditions.
pub(super) fn allows_behind(conditions: u8, behind: Side) -> bool {
    !(conditions & condition::BEFORE_WORD != 0 && behind != Side::Word
        || conditions & condition::BEFORE_NO_WORD != 0 && behind == Side::Word
        || conditions & condition::AT_END != 0 && behind != Side::Edge)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Byte(u8),
    /// Index of a set.
    Set(u32),
    BackReference(u32),
    /// Index of a group, from 0.
    Open(u32),
    /// End of a group; `optional`: directly under an operator that allows none of it.
    Close {
        group: u32,
        optional: bool,
    },
    Fork,
    Position,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramNode {
    pub(super) kind: NodeKind,
    /// Conditions that must all hold at the node's position, see [`condition`].
    pub(super) conditions: u8,
    /// Original of this node, if it is a copy made for a condition.
    pub(super) copy_of: u32,
    /// True for all but the first of the copies that an interval or `+` needs.
    pub(super) later: bool,
    /// Empty moves, the preferred first; of a byte, a set and a back-reference the first is the next node.
    pub(super) moves: [u32; 2],
}

impl ProgramNode {
    /// Returns whether the node consumes text. A back-reference may match an empty text.
    pub(super) fn consumes(&self) -> bool {
        matches!(self.kind, NodeKind::Byte(_) | NodeKind::Set(_) | NodeKind::BackReference(_))
    }

    pub(super) fn empty_moves(&self) -> impl Iterator<Item = u32> + use<> {
        let moves = if self.consumes() { [NONE; 2] } else { self.moves };
        moves.into_iter().filter(|&node| node != NONE)
    }
}

/// Lists of nodes, one for each node.
#[derive(Debug, Default)]
pub(super) struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    pub(super) fn new(nodes: usize, pairs: &[(u32, u32)]) -> Self {
        let mut starts = vec![0u32; nodes + 1];
        for &(at, _) in pairs {
            starts[at as usize + 1] += 1;
        }
        for at in 0..nodes {
            starts[at + 1] += starts[at];
        }
        let mut fill = starts.clone();
        let mut items = vec![0; pairs.len()];
        for &(at, item) in pairs {
            items[fill[at as usize] as usize] = item;
            fill[at as usize] += 1;
        }
        Self { starts, items }
    }

    pub(super) fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.items[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

/// Executable form of an expression.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) nodes: Vec<ProgramNode>,
    pub(super) sets: Vec<ByteSet>,
    pub(super) start: u32,
    /// Ends: first the plain one, then its copies with conditions.
    pub(super) ends: Vec<u32>,
    /// Number of groups in the expression.
    pub(super) groups: usize,
    /// For each group, the group whose nodes it uses: a group directly around another one shares the nodes of that
    /// group.
    pub(super) same_as: Vec<u32>,
    pub(super) back_references: bool,
    /// True if a node has a condition on the preceding side.
    pub(super) looks_before: bool,
    /// Class of each byte. No node distinguishes the bytes of one class.
    pub(super) classes: Box<[u8; 256]>,
    /// One byte of each class.
    pub(super) class_bytes: Vec<u8>,
    pub(super) ignore_case: bool,
    /// Nodes with an empty move to each node.
    pub(super) empty_before: Lists,
    /// Consuming nodes that precede each node.
    pub(super) consuming_before: Lists,
}

impl Program {
    /// Returns whether the node matches this byte, which is folded if case is ignored; false for a back-reference.
    pub(super) fn takes(&self, node: u32, folded: u8) -> bool {
        match self.nodes[node as usize].kind {
            NodeKind::Byte(wanted) => wanted == folded,
            NodeKind::Set(set) => self.sets[set as usize].contains(folded),
            _ => false,
        }
    }

    pub(super) fn fold(&self, byte: u8) -> u8 {
        if self.ignore_case { byte.to_ascii_uppercase() } else { byte }
    }
}
