//! Automaton states, made when first reached: each is a set of nodes of the [`Program`] with its table of steps.
//!
//! *Forward* states hold the consuming nodes and the ends at a position, counted from a start. They show where the
//! longest match ends. *Backward* states hold the consuming nodes that match the next byte and from which an end is
//! reached. The nodes with empty moves to them are all nodes that reach the end from a position: these show where a
//! match may start ([`Mode::AnyEnd`]) and which paths reach the end that was found ([`Mode::OneEnd`]). So a search is
//! linear in the text.

use std::collections::HashMap;

use super::program::{NONE, NodeKind, Program, Side, allows_before, allows_behind};

/// Step that is not known yet.
const UNKNOWN: u32 = u32::MAX;
/// Flag of a step to a state that needs a check, because the state ends a match, is dead, or leads to itself on every
/// byte.
pub(super) const SPECIAL: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Forward,
    /// Back from an end that the forward states found.
    OneEnd,
    /// Back from every position as a possible end.
    AnyEnd,
}

/// State without its table.
#[derive(Clone, Debug)]
pub(super) struct State {
    nodes: Box<[u32]>,
    /// Forward: the end at this position, by the side that follows; [`NONE`] if there is no end.
    pub(super) halts: [u32; 3],
    /// Backward, any end: true if a match may start at this position, by the side that precedes.
    pub(super) starts: [bool; 3],
    /// True if no match is reachable.
    pub(super) dead: bool,
    /// True if every step leads to this state again.
    pub(super) stays: bool,
}

/// States of one mode.
#[derive(Debug)]
pub(super) struct Automaton {
    mode: Mode,
    /// Binary logarithm of the number of steps of a state, one for each class of bytes.
    shift: u32,
    steps: Vec<u32>,
    pub(super) states: Vec<State>,
    /// Backward: bit sets of the nodes that reach the end, for each state and each preceding side.
    reach: Vec<u64>,
    /// Words of one such set.
    words: usize,
    /// Number of sets of a state: three if a condition on the preceding side exists, else one.
    reaches: usize,
    known: HashMap<Box<[u32]>, u32>,
    /// First states. Forward: by the preceding side. Backward: by the end's index, or the first for any end.
    first: Vec<u32>,
    bytes: usize,
    stack: Vec<u32>,
    /// Marks of a walk along empty moves.
    seen: Vec<u64>,
}

impl Automaton {
    pub(super) fn new(program: &Program, mode: Mode) -> Self {
        let first = match mode {
            Mode::Forward => 3,
            Mode::OneEnd => program.ends.len(),
            Mode::AnyEnd => 1,
        };
        Self {
            mode,
            shift: program.class_bytes.len().next_power_of_two().trailing_zeros(),
            steps: Vec::new(),
            states: Vec::new(),
            reach: Vec::new(),
            words: program.nodes.len().div_ceil(64),
            reaches: if program.looks_before { 3 } else { 1 },
            known: HashMap::new(),
            first: vec![UNKNOWN; first],
            bytes: 0,
            stack: Vec::new(),
            seen: vec![0; program.nodes.len().div_ceil(64)],
        }
    }

    /// Returns the memory in bytes, approximately.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes all states. States held by the caller are void.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
        self.states.clear();
        self.reach.clear();
        self.known.clear();
        self.first.fill(UNKNOWN);
        self.bytes = 0;
    }

    #[inline]
    fn number(&self, id: u32) -> usize {
        ((id & !SPECIAL) >> self.shift) as usize
    }

    #[inline]
    pub(super) fn state(&self, id: u32) -> &State {
        &self.states[self.number(id)]
    }

    /// Returns the next state, or `None` if [`Self::step`] must make it.
    #[inline]
    pub(super) fn known_step(&self, id: u32, class: u8) -> Option<u32> {
        let next = self.steps[(id & !SPECIAL) as usize + usize::from(class)];
        (next != UNKNOWN).then_some(next)
    }

    /// Returns whether `node` reaches the end of the expression from a position in this state, preceded by `before`.
    #[inline]
    pub(super) fn reaches(&self, id: u32, before: Side, node: u32) -> bool {
        let state = self.number(id);
        let set = if self.reaches == 1 { 0 } else { before as usize };
        let word = (state * self.reaches + set) * self.words + node as usize / 64;
        self.reach[word] & (1 << (node % 64)) != 0
    }

    /// Returns the forward state at a start.
    pub(super) fn at_start(&mut self, program: &Program, before: Side) -> u32 {
        let before = if program.looks_before { before } else { Side::Edge };
        if self.first[before as usize] == UNKNOWN {
            let mut nodes = Vec::new();
            self.follow(program, program.start, before, &mut nodes);
            self.first[before as usize] = self.intern(program, nodes);
        }
        self.first[before as usize]
    }

    /// Returns the backward state at an end: the end of the match that stopped there, or, for any end, the end of the
    /// text.
    pub(super) fn at_end(&mut self, program: &Program, end: u32) -> u32 {
        let slot = program.ends.iter().position(|&known| known == end).unwrap_or(0);
        if self.first[slot] == UNKNOWN {
            let nodes = match self.mode {
                Mode::AnyEnd => self.ends(program, Side::Edge),
                Mode::OneEnd | Mode::Forward => vec![end],
            };
            self.first[slot] = self.intern(program, nodes);
        }
        self.first[slot]
    }

    fn ends(&self, program: &Program, behind: Side) -> Vec<u32> {
        let allowed = |&&end: &&u32| allows_behind(program.nodes[end as usize].conditions, behind);
        program.ends.iter().filter(allowed).copied().collect()
    }

    /// Makes the step of a state over a byte of `class`. `limit` bounds the memory: a state made beyond it drops all
    /// other states, unless `limit` is `None`.
    #[cold]
    pub(super) fn step(&mut self, program: &Program, id: u32, class: u8, limit: Option<usize>) -> u32 {
        let byte = program.class_bytes[usize::from(class)];
        let side = Side::of(byte);
        let mut nodes = Vec::new();
        if self.mode == Mode::Forward {
            let state = self.state(id).nodes.clone();
            for &node in &state {
                if program.takes(node, byte) && allows_behind(program.nodes[node as usize].conditions, side) {
                    self.follow(program, program.nodes[node as usize].moves[0], side, &mut nodes);
                }
            }
        } else {
            let state = self.number(id);
            let set = if self.reaches == 1 { 0 } else { side as usize };
            let from = (state * self.reaches + set) * self.words;
            for word in 0..self.words {
                let mut bits = self.reach[from + word];
                while bits != 0 {
                    let reached = word as u32 * 64 + bits.trailing_zeros();
                    bits &= bits - 1;
                    nodes.extend(program.consuming_before.of(reached).iter().filter(|&&node| {
                        program.takes(node, byte) && allows_behind(program.nodes[node as usize].conditions, side)
                    }));
                }
            }
            if self.mode == Mode::AnyEnd {
                nodes.extend(self.ends(program, side));
            }
        }
        if limit.is_some_and(|limit| self.bytes > limit) {
            self.clear();
            return self.intern(program, nodes);
        }
        let next = self.intern(program, nodes);
        self.steps[(id & !SPECIAL) as usize + usize::from(class)] = next;
        if (next ^ id) & !SPECIAL == 0 {
            self.note_if_it_stays(program, id & !SPECIAL);
        }
        next
    }

    /// Marks a state whose steps all lead to the state itself. A state with one such step often has only such steps, so
    /// its remaining steps are made to find out.
    fn note_if_it_stays(&mut self, program: &Program, id: u32) {
        let from = id as usize;
        for class in 0..program.class_bytes.len() {
            match self.steps[from + class] {
                UNKNOWN => {
                    self.step(program, id, class as u8, None);
                }
                step if step & !SPECIAL != id => return,
                _ => {}
            }
        }
        let steps = &mut self.steps[from..from + program.class_bytes.len()];
        if steps.iter().all(|&step| step & !SPECIAL == id) {
            // Other states refer to it without the mark, which costs them one step over a byte.
            steps.fill(id | SPECIAL);
            let number = self.number(id);
            self.states[number].stays = true;
        }
    }

    /// Adds the consuming nodes and ends that empty moves reach from `node`, preceded by `before`.
    fn follow(&mut self, program: &Program, node: u32, before: Side, nodes: &mut Vec<u32>) {
        self.stack.push(node);
        while let Some(node) = self.stack.pop() {
            let (word, bit) = (node as usize / 64, 1 << (node % 64));
            if self.seen[word] & bit != 0 {
                continue;
            }
            self.seen[word] |= bit;
            let what = &program.nodes[node as usize];
            if !allows_before(what.conditions, before) {
                continue;
            }
            if what.consumes() || what.kind == NodeKind::End {
                nodes.push(node);
            } else {
                self.stack.extend(what.empty_moves());
            }
        }
    }

    /// Returns the state of these nodes, made if it is new.
    fn intern(&mut self, program: &Program, mut nodes: Vec<u32>) -> u32 {
        self.seen.fill(0);
        nodes.sort_unstable();
        nodes.dedup();
        if let Some(&id) = self.known.get(&nodes[..]) {
            return id;
        }
        let mut state = State {
            dead: nodes.is_empty() && self.mode != Mode::AnyEnd,
            nodes: nodes.into_boxed_slice(),
            halts: [NONE; 3],
            starts: [false; 3],
            stays: false,
        };
        if self.mode == Mode::Forward {
            for behind in Side::ALL {
                // The lowest-numbered end counts.
                let end = state.nodes.iter().find(|&&node| {
                    let what = &program.nodes[node as usize];
                    what.kind == NodeKind::End && allows_behind(what.conditions, behind)
                });
                state.halts[behind as usize] = end.map_or(NONE, |&end| end);
            }
        } else {
            for set in 0..self.reaches {
                let from = self.reach.len();
                self.reach.resize(from + self.words, 0);
                self.stack.extend(state.nodes.iter().filter(|&&node| {
                    self.reaches == 1 || allows_before(program.nodes[node as usize].conditions, Side::ALL[set])
                }));
                while let Some(node) = self.stack.pop() {
                    let (word, bit) = (from + node as usize / 64, 1 << (node % 64));
                    if self.reach[word] & bit == 0 {
                        self.reach[word] |= bit;
                        self.stack.extend(program.empty_before.of(node));
                    }
                }
                let started = self.reach[from + program.start as usize / 64] & (1 << (program.start % 64)) != 0;
                if self.reaches == 1 {
                    state.starts = [started; 3];
                } else {
                    state.starts[set] = started;
                }
            }
        }
        let special = state.dead || state.halts != [NONE; 3] || state.starts != [false; 3];
        let id = self.steps.len() as u32 | if special { SPECIAL } else { 0 };
        let width = 1 << self.shift;
        self.steps.resize(self.steps.len() + width, UNKNOWN);
        self.bytes +=
            width * 4 + self.words * self.reaches * 8 + 2 * size_of_val(&*state.nodes) + size_of::<State>() + 64;
        self.known.insert(state.nodes.clone(), id);
        self.states.push(state);
        id
    }
}
