//! Parse and print of whole messages.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;
use strowger_message::index::Start;
use strowger_message::view::{self, Typed, View, Visit};
use strowger_message::{Error, Index, Limits, Line, MandatoryHeaders, Message, Name, Uri, Write};

/// Messages of this project with the structure of the seven messages in PJSIP's parser benchmark: the same number of header
/// lines and values, with other text.
pub const SAMPLES: [&[u8]; 7] = [
    include_bytes!("../../messages/message-1.sip"),
    include_bytes!("../../messages/message-2.sip"),
    include_bytes!("../../messages/message-3.sip"),
    include_bytes!("../../messages/message-4.sip"),
    include_bytes!("../../messages/message-5.sip"),
    include_bytes!("../../messages/message-6.sip"),
    include_bytes!("../../messages/message-7.sip"),
];

/// Header lines, a folded one counted once, and values with a grammar of each of the seven.
const COUNTS: [(usize, usize); 7] = [(16, 18), (13, 13), (14, 12), (8, 7), (9, 9), (9, 9), (10, 9)];

/// Bytes of one message of the count, as PJSIP's benchmark counts.
pub const NORMAL: f64 = 800.0;

/// Processor time of a round.
const ROUND: Duration = Duration::from_millis(50);

/// Message taken apart, as an element holds it that changes header fields one by one.
#[derive(Debug)]
pub struct Parts<'a> {
    message: Message<'a>,
    uri: Option<Uri<'a>>,
    /// Name and values of each header line.
    lines: Vec<(&'a [u8], Vec<View<'a>>)>,
}

impl<'a> Parts<'a> {
    /// Splits a message into its parts.
    ///
    /// # Errors
    /// A header field does not follow its grammar.
    ///
    /// # Panics
    /// Never: each view is of a line of the message.
    pub fn of(message: Message<'a>) -> Result<Self, Error> {
        let name = |line: &Line| match line.name {
            Name::Other => message.name(line),
            known => known.text().as_bytes(),
        };
        let mut lines: Vec<_> = message.index().lines().iter().map(|line| (name(line), Vec::new())).collect();
        view::all(&message, |line, view| {
            let number = message.index().lines().iter().position(|l| l.start == line.start).expect("one of them");
            lines[number].1.push(*view);
        })?;
        let uri = if message.is_request() { Some(message.uri()?) } else { None };
        Ok(Self { message, uri, lines })
    }

    /// Writes the whole message, each value from its view.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.uri {
            Some(uri) => {
                out.extend_from_slice(self.message.method_text());
                out.push(b' ');
                uri.write(out);
                out.extend_from_slice(b" SIP/2.0\r\n");
            }
            None => {
                out.extend_from_slice(b"SIP/2.0 ");
                u32::from(self.message.status().unwrap_or_default()).write(out);
                out.push(b' ');
                out.extend_from_slice(self.message.reason());
                out.extend_from_slice(b"\r\n");
            }
        }
        for (name, views) in &self.lines {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            for (n, view) in views.iter().enumerate() {
                if n > 0 {
                    out.extend_from_slice(b", ");
                }
                view.write(out);
            }
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.message.body());
    }
}

/// Count of values. Each is read.
#[derive(Default)]
struct Count {
    values: usize,
}

impl<'a> Visit<'a> for Count {
    #[inline]
    fn value<T: Typed<'a>>(&mut self, line: &'a Line, value: &T) {
        black_box(value);
        self.values += usize::from(has_grammar(line.name));
    }
}

/// Returns whether the header field has a grammar. Other header fields are plain text: reading them costs nothing and
/// measures nothing.
fn has_grammar(name: Name) -> bool {
    !matches!(name, Name::Other | Name::Organization | Name::Subject | Name::Server | Name::UserAgent)
}

/// Reads each value of an indexed message and discards it. Returns the number of values of header fields that have a
/// grammar.
///
/// # Errors
/// A header field does not follow its grammar.
#[inline]
pub fn read_all(message: &Message<'_>) -> Result<usize, Error> {
    if let Start::Request { .. } = message.index().start() {
        black_box(&message.uri()?);
    }
    let mut count = Count::default();
    view::visit(message, &mut count)?;
    Ok(count.values)
}

/// Checks that all lines and values of the seven messages are found, also in the messages as they are written again. Without this check
/// a parser that stops early looks fast.
///
/// # Errors
/// A sentence about the first message that is read wrongly.
pub fn check(messages: &[&[u8]]) -> Result<(), String> {
    if messages.len() != COUNTS.len() {
        return Err(format!("there are {} messages, not {}", messages.len(), COUNTS.len()));
    }
    for ((number, bytes), (lines, values)) in (1..).zip(messages).zip(COUNTS) {
        let wrong = |what: &str| format!("message {number}: {what}");
        let index = parsed(bytes).map_err(|error| wrong(&error.to_string()))?;
        let message = Message::new(bytes, &index);
        MandatoryHeaders::of(&message).map_err(|error| wrong(&error.to_string()))?;
        let mut out = Vec::new();
        Parts::of(message).map_err(|error| wrong(&error.to_string()))?.write(&mut out);
        let again = parsed(&out).map_err(|error| wrong(&format!("as written: {error}")))?;
        let written = Message::new(&out, &again);
        if written.body() != message.body() || index.end() != bytes.len() {
            return Err(wrong("another body"));
        }
        for (what, message) in [("as it came", message), ("as written", written)] {
            let found = (message.index().lines().len(), read_all(&message).map_err(|error| wrong(&error.to_string()))?);
            if found != (lines, values) {
                return Err(wrong(&format!("{what} it has {found:?} lines and values, not {:?}", (lines, values))));
            }
        }
    }
    Ok(())
}

fn parsed(bytes: &[u8]) -> Result<Index, Error> {
    let mut index = Index::new();
    index.parse(bytes, &Limits::default())?;
    Ok(index)
}

/// Returns the messages parsed, and the messages written, in a second of one core. Parsing finds and checks all values of the header
/// fields; writing makes the message from those values. Rounds of both alternate, and the result is the median of each.
pub(super) fn rates(time: Duration) -> Result<[f64; 2], String> {
    check(&SAMPLES)?;
    let limits = Limits::default();
    let bytes: usize = SAMPLES.iter().map(|bytes| bytes.len()).sum();
    let indexes: Vec<Index> = SAMPLES.iter().filter_map(|bytes| parsed(bytes).ok()).collect();
    let parts: Vec<Parts<'_>> =
        SAMPLES.iter().zip(&indexes).filter_map(|(bytes, index)| Parts::of(Message::new(bytes, index)).ok()).collect();
    let (mut index, mut out) = (Index::new(), Vec::with_capacity(4_096));
    let mut parse = || {
        for bytes in SAMPLES {
            let bytes = black_box(bytes);
            // Checked before.
            let _ = index.parse(bytes, &limits);
            let _ = black_box(read_all(&Message::new(bytes, &index)));
        }
    };
    let mut print = || {
        for parts in &parts {
            out.clear();
            black_box(parts).write(&mut out);
            black_box(&out);
        }
    };
    let mut rates = [Vec::new(), Vec::new()];
    let rounds = (time.as_secs_f64() / (2.0 * ROUND.as_secs_f64())).ceil().max(1.0) as usize;
    for _ in 0..rounds {
        rates[0].push(times_a_second(&mut parse) * bytes as f64 / NORMAL);
        rates[1].push(times_a_second(&mut print) * bytes as f64 / NORMAL);
    }
    Ok(rates.map(crate::statistics::median))
}

/// Returns the repetitions in a second of this thread's processor time, which does not include other programs on the
/// machine.
fn times_a_second(all: &mut dyn FnMut()) -> f64 {
    const AT_ONCE: u32 = 50;
    let (begin, mut times, mut spent) = (busy(), 0, Duration::ZERO);
    while spent < ROUND {
        (0..AT_ONCE).for_each(|_| all());
        times += AT_ONCE;
        spent = busy() - begin;
    }
    f64::from(times) / spent.as_secs_f64()
}

fn busy() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_are_read_whole_and_a_lost_line_is_noticed() {
        assert_eq!(check(&SAMPLES), Ok(()));
        let shorter = String::from_utf8_lossy(SAMPLES[0]).replacen("Max-Forwards", "X-Forwards", 1);
        let mut messages = SAMPLES;
        messages[0] = shorter.as_bytes();
        assert!(check(&messages).is_err_and(|error| error.starts_with("message 1")));
        assert!(check(&messages[1..]).is_err());
    }
}
