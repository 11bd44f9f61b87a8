//! Messages of the first failed calls. A recorder keeps the messages of each open call and drops them when the call
//! succeeds. It stops once it has enough failed calls.

use super::remarks::Remarks;
use crate::engine::watch::{Passage, Watch};
use crate::printable_bytes;
use std::collections::HashMap;
use std::fmt::Arguments;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use strowger_core::Transport;
use strowger_measure::{Clock, FailedCall, Failure, KeptMessage};
use strowger_net::clock;

/// Bytes recorded by each generator. Calls that begin beyond this limit are not recorded.
const MEMORY: usize = 32 << 20;
/// Limit of a call's messages: the first and the last half are kept.
const MESSAGES: usize = 64;
/// Limit of a message's bytes.
const LONGEST: usize = 16 << 10;
/// Overhead of a recorded message, bytes.
const BESIDE: usize = 96;
/// Age at which a record may be dropped, µs. Stray messages begin records that no call ends.
const STALE: u64 = 600_000_000;

/// Failed calls of all generators of a campaign.
#[derive(Clone, Debug)]
pub(super) struct FailedCalls(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
struct Found {
    wanted: usize,
    found: usize,
    /// Failed calls for the journal.
    fresh: Vec<FailedCall>,
}

impl FailedCalls {
    /// Keeps the first `wanted` calls.
    pub(super) fn new(wanted: usize) -> Self {
        Self(Arc::new(Mutex::new(Found { wanted, ..Found::default() })))
    }

    /// Creates the watch of one more generator, which also collects remarks.
    pub(super) fn watch(&self, remarks: Remarks, own: SocketAddr, clock: Clock) -> Box<dyn Watch> {
        if self.are_enough() {
            return remarks.watch();
        }
        let (calls, memory) = (HashMap::default(), 0);
        Box::new(Recorder { failed: self.clone(), remarks, own, clock, calls, memory, over: false, swept: 0 })
    }

    fn are_enough(&self) -> bool {
        let found = self.0.lock().unwrap_or_else(|e| e.into_inner());
        found.found >= found.wanted
    }

    fn add(&self, call: FailedCall) {
        let found = &mut *self.0.lock().unwrap_or_else(|e| e.into_inner());
        if found.found < found.wanted {
            found.found += 1;
            found.fresh.push(call);
        }
    }

    /// Takes the failed calls since the last take.
    pub(super) fn take(&self) -> Vec<FailedCall> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(|e| e.into_inner()).fresh)
    }
}

/// Messages of an open call.
#[derive(Default)]
struct Record {
    messages: Vec<Message>,
    omitted: u64,
    transport: Option<Transport>,
}

struct Message {
    at: u64,
    sent: bool,
    peer: Option<SocketAddr>,
    note: Option<&'static str>,
    text: Box<[u8]>,
}

/// Records the calls of one generator.
struct Recorder {
    failed: FailedCalls,
    remarks: Remarks,
    own: SocketAddr,
    clock: Clock,
    calls: HashMap<Box<[u8]>, Record, foldhash::fast::RandomState>,
    /// Bytes in `calls`.
    memory: usize,
    /// True once there are enough failed calls.
    over: bool,
    /// Last sweep of stale records, µs.
    swept: u64,
}

impl Recorder {
    fn record(&mut self, message: Message, transport: Transport, call_id: &[u8]) {
        let size = message.text.len() + BESIDE;
        let record = match self.calls.get_mut(call_id) {
            Some(record) => record,
            None if self.memory + size > MEMORY => return self.sweep(message.at),
            // Calls begin with a request.
            None if message.text.starts_with(b"SIP/2.0 ") => return,
            None => self.calls.entry(call_id.into()).or_default(),
        };
        record.transport = Some(transport);
        if record.messages.len() == MESSAGES {
            let gone = record.messages.remove(MESSAGES / 2);
            self.memory -= gone.text.len() + BESIDE;
            record.omitted += 1;
        }
        record.messages.push(message);
        self.memory += size;
    }

    /// Drops stale records, once a minute at most.
    #[cold]
    fn sweep(&mut self, now: u64) {
        if now < self.swept + 60_000_000 {
            return;
        }
        self.swept = now;
        let memory = &mut self.memory;
        self.calls.retain(|_, record| {
            let fresh = record.messages.last().is_some_and(|message| message.at + STALE > now);
            if !fresh {
                *memory -= record.size();
            }
            fresh
        });
    }
}

impl Record {
    fn size(&self) -> usize {
        self.messages.iter().map(|message| message.text.len() + BESIDE).sum()
    }

    fn into_failed(self, call_id: &[u8], failure: Failure, own: SocketAddr, clock: Clock) -> FailedCall {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(&printable_bytes(bytes)).into_owned();
        let now = clock::micros();
        let answer = self.messages.iter().rev().find(|message| message.note == Some(UNEXPECTED));
        let status = answer.and_then(|answer| {
            let line = answer.text.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
            Some(shown(line.strip_prefix(b"SIP/2.0 ")?))
        });
        FailedCall {
            call_id: shown(call_id),
            cause: match status {
                Some(status) => format!("{}: {status}", failure.title()),
                None => failure.title().into(),
            },
            own: own.to_string(),
            transport: self.transport.map_or_else(String::new, |transport| transport.text().to_ascii_uppercase()),
            began: clock.wall(self.messages.first().map_or(now, |message| message.at)),
            ended: clock.wall(now),
            omitted: self.omitted,
            omitted_after: MESSAGES / 2,
            messages: self
                .messages
                .iter()
                .map(|message| KeptMessage {
                    at: clock.wall(message.at),
                    sent: message.sent,
                    peer: message.peer.map_or_else(String::new, |peer| peer.to_string()),
                    note: message.note.map(str::to_owned),
                    text: shown(&message.text),
                })
                .collect(),
        }
    }
}

const UNEXPECTED: &str = "unexpected";

impl Watch for Recorder {
    fn exchange(&mut self, passage: Passage, transport: Transport, peer: SocketAddr, call_id: &[u8], bytes: &[u8]) {
        if !self.over {
            let text = bytes[..bytes.len().min(LONGEST)].into();
            let sent = passage == Passage::Sent;
            self.record(Message { at: clock::micros(), sent, peer: Some(peer), note: None, text }, transport, call_id);
        }
    }

    fn message(&mut self, passage: Passage, transport: Transport, call_id: &[u8], bytes: &[u8]) {
        if self.over {
            return;
        }
        match passage {
            Passage::Unexpected => self.note(call_id, UNEXPECTED),
            Passage::LostReceiving(_) => self.note(call_id, "lost on purpose"),
            Passage::LostSending(_) => {
                let (text, note) = (bytes[..bytes.len().min(LONGEST)].into(), Some("lost on purpose"));
                self.record(Message { at: clock::micros(), sent: true, peer: None, note, text }, transport, call_id);
            }
            _ => (),
        }
    }

    fn warning(&mut self, text: Arguments<'_>) {
        self.remarks.warning(text);
    }

    fn call_ended(&mut self, call_id: &[u8], failure: Option<Failure>) {
        if self.over {
            return;
        }
        let Some(record) = self.calls.remove(call_id) else { return };
        self.memory -= record.size();
        if let Some(failure) = failure {
            self.failed.add(record.into_failed(call_id, failure, self.own, self.clock));
            if self.failed.are_enough() {
                (self.over, self.calls) = (true, HashMap::default());
            }
        }
    }
}

impl Recorder {
    /// Adds a note to the last message.
    fn note(&mut self, call_id: &[u8], note: &'static str) {
        if let Some(message) = self.calls.get_mut(call_id).and_then(|record| record.messages.last_mut()) {
            message.note = Some(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn watch(failed: &FailedCalls) -> Box<dyn Watch> {
        let clock = Clock::new(clock::micros(), SystemTime::now());
        failed.watch(Remarks::default(), ([127, 0, 0, 1], 5060).into(), clock)
    }

    fn say(watch: &mut dyn Watch, passage: Passage, call: &str, text: &str) {
        watch.exchange(passage, Transport::Udp, ([127, 0, 0, 2], 5070).into(), call.as_bytes(), text.as_bytes());
    }

    #[test]
    fn the_first_failed_calls_are_kept_with_their_messages() {
        let failed = FailedCalls::new(1);
        let mut watch = watch(&failed);
        for call in ["good", "bad", "later"] {
            say(&mut *watch, Passage::Sent, call, "INVITE sip:a SIP/2.0\r\nTo: x\r\n\r\n");
        }
        say(&mut *watch, Passage::Received, "bad", "SIP/2.0 503 \x1b[2JNo\r\n\r\n");
        watch.message(Passage::Unexpected, Transport::Udp, b"bad", b"");
        watch.call_ended(b"good", None);
        watch.call_ended(b"bad", Some(Failure::UnexpectedMessage));
        watch.call_ended(b"later", Some(Failure::TimeoutOnReceive));
        let kept = failed.take();
        assert_eq!((kept.len(), failed.take().len()), (1, 0));
        let call = &kept[0];
        assert!(call.call_id == "bad" && call.cause.ends_with(": 503 \\x1b[2JNo"), "{call:?}");
        assert_eq!((call.own.as_str(), call.transport.as_str()), ("127.0.0.1:5060", "UDP"));
        let ladder: Vec<_> = call.messages.iter().map(|m| (m.sent, m.start_line(), m.peer.as_str())).collect();
        let peer = "127.0.0.2:5070";
        assert_eq!(ladder, [(true, "INVITE sip:a SIP/2.0", peer), (false, "SIP/2.0 503 \\x1b[2JNo", peer)]);
        assert_eq!(call.messages[1].note.as_deref(), Some(UNEXPECTED));
        assert!(call.began <= call.ended && call.messages[0].at == call.began);
    }

    #[test]
    fn records_of_open_calls_are_bounded() {
        let failed = FailedCalls::new(9);
        let clock = Clock::new(clock::micros(), SystemTime::now());
        let mut recorder = Recorder {
            failed,
            remarks: Remarks::default(),
            own: ([127, 0, 0, 1], 5060).into(),
            clock,
            calls: HashMap::default(),
            memory: 0,
            over: false,
            swept: 0,
        };
        let long = format!("INVITE {}", "x".repeat(2 * LONGEST));
        for call in 0..4_000 {
            say(&mut recorder, Passage::Sent, &call.to_string(), &long);
        }
        assert!(recorder.memory <= MEMORY && recorder.calls.len() > 1_000, "{}", recorder.memory);
        // A long call loses its middle.
        for number in 0..200 {
            say(&mut recorder, Passage::Sent, "0", &format!("BYE {number}"));
        }
        let record = &recorder.calls[&b"0"[..]];
        assert_eq!((record.messages.len(), record.omitted), (MESSAGES, 201 - MESSAGES as u64));
        assert_eq!(&*record.messages[MESSAGES - 1].text, b"BYE 199");
        assert_eq!(&*record.messages[31].text, b"BYE 30");
        (0..4_000).for_each(|call| recorder.call_ended(call.to_string().as_bytes(), None));
        assert_eq!((recorder.memory, recorder.calls.len()), (0, 0));
        // A response that belongs to no call begins no record.
        say(&mut recorder, Passage::Received, "stray", "SIP/2.0 200 OK");
        assert!(recorder.calls.is_empty());
    }
}
