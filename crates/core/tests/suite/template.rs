//! Messages of one kind for any number of calls, made without allocation.

use strowger_message::{Index, Limits, Message};

/// Message, and the positions of its call number.
pub(crate) struct Template {
    bytes: Vec<u8>,
    at: Vec<usize>,
    index: Index,
}

impl Template {
    /// Creates a template. `start`: start line, optionally with further header lines. `padding`: bytes that make the message as long as
    /// real ones.
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

    /// Returns the message of this call. Its index stays valid, since the number always takes eight places.
    pub(crate) fn numbered(&mut self, number: u64) -> Message<'_> {
        for &at in &self.at {
            for digit in 0..8 {
                self.bytes[at + digit] = b'a' + (number >> (4 * digit) & 15) as u8;
            }
        }
        Message::new(&self.bytes, &self.index)
    }

    /// Returns the range of the branch.
    pub(crate) fn branch(&self) -> std::ops::Range<usize> {
        self.at[0] - 7..self.at[0] + 8
    }
}
