//! Longest-prefix match on texts: a trie with 12 octets per node, optimized for digits.

use std::collections::VecDeque;

/// Value of a node at which no prefix ends.
const NO_PREFIX: u32 = u32::MAX;

/// Prefixes of texts, each with a number; the case of ASCII letters is ignored.
///
/// A text is read as symbols. If the prefixes have at most 16 different octets, a symbol is one of these; otherwise it
/// is half an octet, the upper half first. A node has a child for each symbol that continues a prefix.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prefixes {
    nodes: Box<[TrieNode]>,
    narrow: Option<Box<Alphabet>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrieNode {
    /// Index of the first child; the children are consecutive, in the order of their symbols.
    children: u32,
    /// Number of the prefix that ends here.
    value: u32,
    /// Bit set of the symbols that have a child.
    symbols: u16,
    skipped: Skipped,
}

impl TrieNode {
    const EMPTY: Self = Self { children: 0, value: NO_PREFIX, symbols: 0, skipped: Skipped(0) };
}

/// Up to three symbols between the symbol that selects a node and the node itself: no prefix ends among them, and there
/// is no other branch. The top four bits are their count; the first symbol is in the lowest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Skipped(u16);

impl Skipped {
    const MOST: u16 = 3;

    const fn len(self) -> u16 {
        self.0 >> 12
    }

    fn push(&mut self, symbol: u8) {
        debug_assert!(self.len() < Self::MOST && symbol < 16);
        self.0 = (self.len() + 1) << 12 | self.0 & 0xfff | u16::from(symbol) << (4 * self.len());
    }

    fn symbols(self) -> impl Iterator<Item = u8> {
        (0..self.len()).map(move |place| (self.0 >> (4 * place) & 15) as u8)
    }
}

/// Octets of a narrow trie.
#[derive(Debug, PartialEq, Eq)]
struct Alphabet {
    /// Symbol of each octet, upper and lower case alike; [`Self::NONE`] if no prefix has the octet.
    symbols: [u8; 256],
    /// Octet of each symbol.
    octets: Vec<u8>,
}

impl Alphabet {
    const NONE: u8 = 16;

    /// Creates the alphabet of these prefixes; `None` if they have more than 16 octets.
    fn of(prefixes: &[(&[u8], u32)]) -> Option<Box<Self>> {
        let mut is_there = [false; 256];
        for octet in prefixes.iter().flat_map(|(prefix, _)| *prefix) {
            is_there[usize::from(*octet)] = true;
        }
        let octets: Vec<u8> = (0..=255).filter(|octet| is_there[usize::from(*octet)]).collect();
        if octets.len() > 16 {
            return None;
        }
        let mut symbols = [Self::NONE; 256];
        for (octet, symbol) in octets.iter().zip(0..) {
            symbols[usize::from(*octet)] = symbol;
            symbols[usize::from(octet.to_ascii_uppercase())] = symbol;
        }
        Some(Box::new(Self { symbols, octets }))
    }

    /// Returns the symbol at a position of a text, by the alphabet or as half an octet. `None` at its end, and for an
    /// octet that no prefix has.
    fn symbol(narrow: Option<&Self>, text: &[u8], at: usize) -> Option<u8> {
        match narrow {
            Some(alphabet) => {
                let symbol = alphabet.symbols[usize::from(*text.get(at)?)];
                (symbol != Self::NONE).then_some(symbol)
            }
            None => {
                let octet = text.get(at / 2)?.to_ascii_lowercase();
                Some(if at.is_multiple_of(2) { octet >> 4 } else { octet & 15 })
            }
        }
    }
}

impl Prefixes {
    /// Builds a trie of sorted, distinct prefixes in lower case, with numbers below `u32::MAX`.
    pub(crate) fn new(prefixes: &[(&[u8], u32)]) -> Self {
        let narrow = Alphabet::of(prefixes);
        // The symbol is `None` at the end of a prefix.
        let symbol = |row: &(&[u8], u32), at| Alphabet::symbol(narrow.as_deref(), row.0, at);
        let mut nodes = vec![TrieNode::EMPTY];
        // A node, its prefixes, and the number of symbols that lead to it.
        let mut queue = VecDeque::from([(0, prefixes, 0)]);
        while let Some((node, mut rest, mut at)) = queue.pop_front() {
            let mut made = TrieNode { children: u32::try_from(nodes.len()).expect("nodes are few"), ..TrieNode::EMPTY };
            // A prefix that ends here is the first one, so if the first and the last prefix have the same next symbol,
            // all have. The root skips no symbols.
            while let Some((first, last)) = rest.first().zip(rest.last())
                && let Some(same) = symbol(first, at).filter(|same| symbol(last, at) == Some(*same))
                && node != 0
                && made.skipped.len() < Skipped::MOST
            {
                made.skipped.push(same);
                at += 1;
            }
            while let Some((first, others)) = rest.split_first() {
                let Some(next) = symbol(first, at) else {
                    made.value = first.1;
                    rest = others;
                    continue;
                };
                let same = rest.partition_point(|row| symbol(row, at) <= Some(next));
                made.symbols |= 1 << next;
                queue.push_back((nodes.len(), &rest[..same], at + 1));
                nodes.push(TrieNode::EMPTY);
                rest = &rest[same..];
            }
            nodes[node] = made;
        }
        Self { nodes: nodes.into(), narrow }
    }

    /// Returns the longest prefix of the text: its length and its number.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        let mut longest = None;
        self.each(text, |length, number| longest = Some((length, number)));
        longest
    }

    /// Visits each prefix of the text, the shortest first.
    pub(crate) fn each(&self, text: &[u8], mut visit: impl FnMut(usize, u32)) {
        let narrow = self.narrow.as_deref();
        let (mut node, mut at) = (&self.nodes[0], 0);
        loop {
            if node.value != NO_PREFIX {
                visit(if narrow.is_some() { at } else { at / 2 }, node.value);
            }
            let Some(next) = Alphabet::symbol(narrow, text, at).and_then(|symbol| self.child(node, symbol)) else {
                return;
            };
            at += 1;
            for symbol in next.skipped.symbols() {
                if Alphabet::symbol(narrow, text, at) != Some(symbol) {
                    return;
                }
                at += 1;
            }
            node = next;
        }
    }

    /// Returns the child for this symbol.
    fn child(&self, node: &TrieNode, symbol: u8) -> Option<&TrieNode> {
        let bit = 1u16 << symbol;
        if node.symbols & bit == 0 {
            return None;
        }
        let before = (node.symbols & (bit - 1)).count_ones();
        self.nodes.get((node.children + before) as usize)
    }

    /// Returns the prefixes that begin with this text, in order.
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

/// Iterator over the prefixes with a given beginning, and their numbers.
pub(crate) struct Beginning<'a> {
    prefixes: &'a Prefixes,
    /// Nodes to visit, the next one last, each with its symbols so far.
    left: Vec<(&'a TrieNode, Vec<u8>)>,
    wanted: Vec<u8>,
}

impl Beginning<'_> {
    /// Returns the octets of these symbols; a trailing upper half gives one octet.
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
                let child = &self.prefixes.nodes[children as usize];
                let more = [symbol].into_iter().chain(child.skipped.symbols());
                self.left.push((child, symbols.iter().copied().chain(more).collect()));
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
    use proptest::prelude::*;

    /// Builds a trie in which the number of a prefix is its index here.
    fn prefixes(texts: &[&str]) -> Prefixes {
        let rows: Vec<(&[u8], u32)> = texts.iter().zip(0..).map(|(text, n)| (text.as_bytes(), n)).collect();
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
    fn symbols_are_skipped_where_nothing_ends() {
        for others in [&[][..], &["a", "b", "cdefghijklmnop"]] {
            let set = prefixes(&[&["1", "12345678", "1234567899", "22222", "3"], others].concat());
            for (text, want) in [
                ("1234567", Some((1, 0))),
                ("1234", Some((1, 0))),
                ("12345678", Some((8, 1))),
                ("123456789", Some((8, 1))),
                ("12345678999", Some((10, 2))),
                ("12345679", Some((1, 0))),
                ("2222", None),
                ("222223", Some((5, 3))),
                ("22322", None),
            ] {
                assert_eq!(set.longest(text.as_bytes()), want, "{text}");
            }
        }
        assert!(prefixes(&["1", "12345678", "1234567899", "22222", "3"]).nodes.len() < 10);
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
    fn prefixes_with_a_beginning_come_in_order() {
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

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_trie_agrees_with_a_linear_search(
            rows in prop::collection::btree_set("[0-9]{0,7}|[0-9a-z]{1,5}|11[12]{1,9}", 0..60),
            texts in prop::collection::vec("[0-9]{0,9}|[0-9a-zA-Z]{1,7}|11[12]{1,9}", 20),
        ) {
            let rows: Vec<String> = rows.into_iter().collect();
            let set = prefixes(&rows.iter().map(String::as_str).collect::<Vec<_>>());
            for text in texts.iter().chain(&rows) {
                let lower = text.to_ascii_lowercase();
                let each = rows.iter().zip(0..).filter(|(row, _)| lower.starts_with(*row));
                let longest = each.max_by_key(|(row, _)| row.len()).map(|(row, id)| (row.len(), id));
                prop_assert_eq!(set.longest(text.as_bytes()), longest, "{}", text);
                let listed: Vec<String> = set.beginning(text).map(|(row, _)| row).collect();
                let want: Vec<String> = rows.iter().filter(|row| row.starts_with(&lower)).cloned().collect();
                prop_assert_eq!(listed, want, "{}", text);
            }
        }
    }
}
