//! Transaction table and its messages, without sockets.

use super::*;

pub(super) struct World {
    pub(super) now: Now,
    pub(super) table: Transactions,
    pub(super) out: Outbox,
    pub(super) events: Vec<Event>,
}

pub(super) fn arrival(transport: Transport) -> Arrival {
    Arrival { transport, listener: ListenerId(0), remote: "127.0.0.1:5070".parse().unwrap(), flow: None }
}

impl World {
    pub(super) fn new() -> Self {
        let table = Transactions::new(TimerSettings::default(), [1, 2]);
        Self { now: Now { mono: 1_000, wall: 0 }, table, out: Outbox::new(), events: Vec::new() }
    }

    /// Returns the messages sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<String> {
        let text = |range: Range<usize>| String::from_utf8(self.out.bytes[range].to_vec()).unwrap();
        let sent = self.out.sends().iter().map(|send| text(send.range())).collect();
        self.out.clear();
        sent
    }

    pub(super) fn request(&mut self, text: &str, transport: Transport) -> Incoming {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).unwrap();
        let message = Message::new(text.as_bytes(), &index);
        let hash = call::hash(0, message.header(strowger_message::Name::CallId).unwrap());
        self.table.request(self.now, &message, &arrival(transport), hash, &mut self.out)
    }

    pub(super) fn admit_within_dialog(&mut self, text: &str, call_hash: u32) -> Option<ServerId> {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).unwrap();
        let message = Message::new(text.as_bytes(), &index);
        self.table.admit_within_dialog(self.now, &message, &arrival(Transport::Udp), call_hash)
    }

    pub(super) fn new_request(&mut self, text: &str, transport: Transport) -> ServerId {
        match self.request(text, transport) {
            Incoming::Request(id) => id,
            other => panic!("{other:?} of {text}"),
        }
    }

    pub(super) fn respond(&mut self, id: ServerId, text: &str) -> bool {
        let status = text[8..11].parse().unwrap();
        let start = self.out.start();
        self.out.bytes.extend_from_slice(text.as_bytes());
        self.table.respond(self.now, id, status, start..self.out.bytes.len(), &mut self.out)
    }

    pub(super) fn send(&mut self, text: &str, branch: &str, transport: Transport) -> ClientId {
        let start = self.out.start();
        self.out.bytes.extend_from_slice(text.as_bytes());
        let method = text.split(' ').next().unwrap();
        let target: Target = arrival(transport).reply();
        let range = start..self.out.bytes.len();
        self.table.send(self.now, range, branch.as_bytes(), method.as_bytes(), target, 7, tu(42), &mut self.out)
    }

    pub(super) fn response(&mut self, text: &str) -> Incoming {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).unwrap();
        let message = Message::new(text.as_bytes(), &index);
        self.table.response(self.now, &message, &mut self.out)
    }

    /// Advances the clock from deadline to deadline. Returns the sent messages, with the milliseconds from now.
    pub(super) fn pass(&mut self, ms: u64) -> Vec<(u64, String)> {
        let (start, until) = (self.now.mono, self.now.mono + ms);
        let mut all = Vec::new();
        while let Some(deadline) = self.table.deadline().filter(|&d| d <= until) {
            self.now.mono = self.now.mono.max(deadline);
            self.table.poll(self.now, &mut self.out, &mut self.events);
            let at = self.now.mono - start;
            all.extend(self.sent().into_iter().map(|text| (at, text)));
        }
        self.now.mono = until;
        all
    }

    pub(super) fn assert_empty(&mut self) {
        let counts = self.table.counts();
        let gauges =
            (counts.servers, counts.clients, counts.kept_bytes, counts.kept_messages, counts.timers, counts.keys);
        assert_eq!(gauges, (0, 0, 0, 0, 0, 0));
        self.pass(200_000);
        assert_eq!((self.table.deadline(), self.table.timers_waiting(), self.table.memory()), (None, 0, 0));
    }
}

pub(super) fn message(start: &str, branch: &str, cseq: &str) -> String {
    let to_tag = if start.starts_with("SIP/2.0 1") || start.starts_with("INVITE") { "" } else { ";tag=t" };
    format!(
        "{start}\r\nVia: SIP/2.0/UDP 127.0.0.1:5070;branch={branch}\r\nMax-Forwards: 70\r\nFrom: <sip:a@x>;tag=f\r\n\
         To: <sip:b@x>{to_tag}\r\nCall-ID: call-1\r\nCSeq: {cseq}\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Returns a transaction user with this number.
pub(super) const fn tu(number: u32) -> TransactionUser {
    TransactionUser::new(Role::UserAgent(Id { slot: number, generation: 1 }))
}

pub(super) const INVITE: &str = "INVITE sip:b@x SIP/2.0";
pub(super) const BYE: &str = "BYE sip:b@x SIP/2.0";

pub(super) fn times(sent: &[(u64, String)], want: &str) -> Vec<u64> {
    assert!(sent.iter().all(|(_, text)| text == want), "{sent:?}");
    sent.iter().map(|(at, _)| *at).collect()
}
