//! Messages of one kind, for as many calls as are wanted; made without allocation.

use strowger_message::{Index, Limits, Message};

/// A message, and where the number of its call stands in it.
pub(crate) struct Template {
    bytes: Vec<u8>,
    at: Vec<usize>,
    index: Index,
}

impl Template {
    /// `start` is the start line, with further header lines behind it if there are to be any; `padding` bytes make the
    /// message as long as real ones are.
    pub(crate) fn new(start: &str, cseq: &str, padding: usize) -> Self {
        let text = format!(
            "{start}\r\nVia: SIP/2.0/UDP 127.0.0.1:5070;branch=z9hG4bK########\r\nMax-Forwards: 70\r\n\
             From: <sip:a@x>;tag=f\r\nTo: <sip:b@x>;tag=t\r\nCall-ID: ########@x\r\nCSeq: {cseq}\r\n\
             X: {}\r\nContent-Length: 0\r\n\r\n",
            "x".repeat(padding)
        );
        let at = text.match_indices("########").map(|(at, _)| at).collect();
        let mut index = Index::new();
        let bytes = text.into_bytes();
        index.parse(&bytes, &Limits::default()).expect("well-formed");
        Self { bytes, at, index }
    }

    /// The message of this call; its index stays true, for the number always takes eight places.
    pub(crate) fn numbered(&mut self, number: u64) -> Message<'_> {
        for &at in &self.at {
            for digit in 0..8 {
                self.bytes[at + digit] = b'a' + (number >> (4 * digit) & 15) as u8;
            }
        }
        Message::new(&self.bytes, &self.index)
    }

    /// Where the value of the branch stands.
    pub(crate) fn branch(&self) -> std::ops::Range<usize> {
        self.at[0] - 7..self.at[0] + 8
    }
}
