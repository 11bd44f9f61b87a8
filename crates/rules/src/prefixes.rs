//! Prefixes of texts, the longest of which counts: a trie of 12 octets a node, made for digits.

use std::collections::VecDeque;

/// The value of a node where no prefix ends.
const NO_PREFIX: u32 = u32::MAX;

/// Prefixes of texts without regard to the case of ASCII letters, each with a number.
///
/// If the prefixes have at most 16 different octets, a node has a child for each of these; else an octet takes two nodes, of its upper
/// and its lower half.
#[derive(Debug)]
pub(crate) struct Prefixes {
    nodes: Box<[Node]>,
    narrow: Option<Box<Alphabet>>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The first of its children, which stand together in the order of their symbols.
    children: u32,
    /// The number of the prefix that ends here.
    value: u32,
    /// A bit for each symbol that goes on.
    symbols: u16,
}

impl Node {
    const EMPTY: Self = Self { children: 0, value: NO_PREFIX, symbols: 0 };
}

/// The octets of a narrow trie.
#[derive(Debug)]
struct Alphabet {
    /// The bit of the symbol of each octet, upper and lower case alike; 0 if no prefix has it.
    bits: [u16; 256],
    /// The octet of each symbol.
    octets: Vec<u8>,
}

impl Alphabet {
    /// None if the prefixes have more than 16 octets.
    fn of(prefixes: &[(Box<[u8]>, u32)]) -> Option<Box<Self>> {
        let mut is_there = [false; 256];
        for octet in prefixes.iter().flat_map(|(prefix, _)| prefix) {
            is_there[usize::from(*octet)] = true;
        }
        let octets: Vec<u8> = (0..=255).filter(|octet| is_there[usize::from(*octet)]).collect();
        if octets.len() > 16 {
            return None;
        }
        let mut bits = [0; 256];
        for (symbol, octet) in octets.iter().enumerate() {
            bits[usize::from(*octet)] = 1 << symbol;
            bits[usize::from(octet.to_ascii_uppercase())] = 1 << symbol;
        }
        Some(Box::new(Self { bits, octets }))
    }
}

impl Prefixes {
    /// Of prefixes in lower case, in their order, each once, with numbers below `u32::MAX`.
    pub(crate) fn new(prefixes: &[(Box<[u8]>, u32)]) -> Self {
        let narrow = Alphabet::of(prefixes);
        // The symbol of a prefix at a depth; none at its end.
        let symbol = |prefix: &[u8], depth: usize| match &narrow {
            Some(alphabet) => Some(alphabet.bits[usize::from(*prefix.get(depth)?)].trailing_zeros()),
            None => {
                let octet = u32::from(*prefix.get(depth / 2)?);
                Some(if depth.is_multiple_of(2) { octet >> 4 } else { octet & 15 })
            }
        };
        let mut nodes = vec![Node::EMPTY];
        let mut queue = VecDeque::from([(0, prefixes, 0)]);
        while let Some((node, mut rest, depth)) = queue.pop_front() {
            let mut made = Node { children: u32::try_from(nodes.len()).expect("nodes are few"), ..Node::EMPTY };
            while let Some(((prefix, value), others)) = rest.split_first() {
                let Some(next) = symbol(prefix, depth) else {
                    made.value = *value;
                    rest = others;
                    continue;
                };
                let same = rest.partition_point(|(prefix, _)| symbol(prefix, depth) <= Some(next));
                made.symbols |= 1 << next;
                queue.push_back((nodes.len(), &rest[..same], depth + 1));
                nodes.push(Node::EMPTY);
                rest = &rest[same..];
            }
            nodes[node] = made;
        }
        Self { nodes: nodes.into(), narrow }
    }

    /// The longest prefix of the text: its length and its number.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        let mut longest = None;
        self.each(text, |length, number| longest = Some((length, number)));
        longest
    }

    /// Each prefix of the text, from the shortest on.
    pub(crate) fn each(&self, text: &[u8], mut visit: impl FnMut(usize, u32)) {
        let mut node = &self.nodes[0];
        let mut end = |length, node: &Node| {
            if node.value != NO_PREFIX {
                visit(length, node.value);
            }
        };
        end(0, node);
        for (at, octet) in text.iter().enumerate() {
            let next = match &self.narrow {
                Some(alphabet) => self.child(node, alphabet.bits[usize::from(*octet)]),
                None => {
                    let octet = octet.to_ascii_lowercase();
                    self.child(node, 1 << (octet >> 4)).and_then(|half| self.child(half, 1 << (octet & 15)))
                }
            };
            let Some(next) = next else { return };
            node = next;
            end(at + 1, node);
        }
    }

    /// The child for the symbol with this bit.
    fn child(&self, node: &Node, bit: u16) -> Option<&Node> {
        if node.symbols & bit == 0 {
            return None;
        }
        let before = (node.symbols & (bit - 1)).count_ones();
        self.nodes.get((node.children + before) as usize)
    }

    /// The prefixes that begin so, in their order.
    pub(crate) fn beginning(&self, beginning: &str) -> Beginning<'_> {
        let mut all =
            Beginning { prefixes: self, left: Vec::new(), wanted: beginning.to_ascii_lowercase().into_bytes() };
        all.left.push((&self.nodes[0], Vec::new()));
        all
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.nodes) + self.narrow.as_ref().map_or(0, |alphabet| size_of_val(&**alphabet))
    }
}

/// The prefixes that begin as wanted, and their numbers.
pub(crate) struct Beginning<'a> {
    prefixes: &'a Prefixes,
    /// Nodes to come, the next one last, each with its symbols so far.
    left: Vec<(&'a Node, Vec<u8>)>,
    wanted: Vec<u8>,
}

impl Beginning<'_> {
    /// The octets of these symbols; the upper half of the last stands for the octet.
    fn octets(&self, symbols: &[u8]) -> Vec<u8> {
        match &self.prefixes.narrow {
            Some(alphabet) => symbols.iter().map(|symbol| alphabet.octets[usize::from(*symbol)]).collect(),
            None => symbols.chunks(2).map(|halves| halves.iter().fold(0, |octet, half| octet << 4 | half)).collect(),
        }
    }
}

impl Iterator for Beginning<'_> {
    type Item = (String, u32);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((node, symbols)) = self.left.pop() {
            let is_whole = self.prefixes.narrow.is_some() || symbols.len().is_multiple_of(2);
            let octets = self.octets(&symbols);
            let common = octets.len().min(self.wanted.len());
            if is_whole && octets[..common] != self.wanted[..common] {
                continue;
            }
            let mut children = node.children + node.symbols.count_ones();
            for symbol in (0..16).rev().filter(|symbol| node.symbols & 1 << symbol != 0) {
                children -= 1;
                self.left.push((&self.prefixes.nodes[children as usize], [&symbols[..], &[symbol]].concat()));
            }
            if node.value != NO_PREFIX && octets.len() >= self.wanted.len() {
                return Some((String::from_utf8_lossy(&octets).into_owned(), node.value));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a prefix is its place among these.
    fn prefixes(texts: &[&str]) -> Prefixes {
        let rows: Vec<(Box<[u8]>, u32)> = texts.iter().zip(0..).map(|(text, n)| (text.as_bytes().into(), n)).collect();
        assert!(rows.is_sorted());
        Prefixes::new(&rows)
    }

    #[test]
    fn the_longest_prefix_counts() {
        for others in [&[][..], &["a", "b", "cdefghijklmnop"]] {
            let set = prefixes(&[&["+49", "00", "49", "4930", "4989"], others].concat());
            assert_eq!(set.narrow.is_some(), others.is_empty());
            for (text, want) in [
                ("4930123", Some((4, 3))),
                ("4930", Some((4, 3))),
                ("493", Some((2, 2))),
                ("4", None),
                ("", None),
                ("+4930", Some((3, 0))),
                ("x", None),
                ("49\u{ff}", Some((2, 2))),
            ] {
                assert_eq!(set.longest(text.as_bytes()), want, "{text}");
            }
        }
    }

    #[test]
    fn letters_have_no_case_and_the_empty_prefix_is_of_all() {
        let set = prefixes(&["", "ab", "abc"]);
        assert_eq!(set.longest(b"ABx"), Some((2, 1)));
        assert_eq!(set.longest(b"aBC"), Some((3, 2)));
        assert_eq!(set.longest(b"\xff"), Some((0, 0)));
        assert_eq!(prefixes(&[]).longest(b"1"), None);
        let mut found = Vec::new();
        set.each(b"abcd", |length, number| found.push((length, number)));
        assert_eq!(found, [(0, 0), (2, 1), (3, 2)]);
    }

    #[test]
    fn those_that_begin_so_come_in_order() {
        for others in [&[][..], &["a", "b", "cdefghijklmnop", "jä"]] {
            let texts = [&["1", "10", "105", "12", "2"], others].concat();
            let set = prefixes(&texts);
            let all: Vec<String> = set.beginning("").map(|(text, _)| text).collect();
            assert_eq!(all, texts);
            let some: Vec<(String, u32)> = set.beginning("10").collect();
            assert_eq!(some, [("10".into(), 1), ("105".into(), 2)]);
            assert_eq!(set.beginning("3").count(), 0);
        }
    }
}
