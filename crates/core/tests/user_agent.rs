//! User agents against each other: the flows of RFC 3665 and what RFC 3261 asks of both ends.

use std::net::SocketAddr;
use std::sync::Arc;

use strowger_core::dialog::{Clash, Exchange};
use strowger_core::entropy::Entropy;
use strowger_core::proxy::{Face, Identity};
use strowger_core::user_agent::{
    CallKey, Ending, Event, Invite, NotNow, Outside, Register, Reliability, Settings, UserAgent,
};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Target, Transport};
use strowger_message::Method;

const OFFER: &[u8] = b"v=0\r\no=a 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n";
const ANSWER: &[u8] = b"v=0\r\no=b 1 1 IN IP4 127.0.0.2\r\ns=-\r\nt=0 0\r\n";

/// A user agent at an address, with all it was told.
struct Phone {
    agent: UserAgent,
    address: SocketAddr,
    heard: Vec<Heard>,
}

/// An event with its body.
#[derive(Clone, Debug)]
struct Heard {
    event: Event,
    body: Vec<u8>,
}

/// A message on its way.
#[derive(Clone, Debug)]
struct Packet {
    at: u64,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Phones on one network with one clock.
struct Net {
    phones: Vec<Phone>,
    now: Now,
    flying: Vec<Packet>,
    /// Start lines in the order in which they were sent, `0>1 INVITE`.
    log: Vec<String>,
    /// Every message, for a closer look.
    sent: Vec<String>,
    /// Says which messages get lost, by their log lines.
    lose: Box<dyn FnMut(&str) -> bool>,
    /// If there is any: a tenth is lost, a tenth comes twice, all come late by up to 300 ms, and so in any order.
    weather: Option<Entropy>,
    out: Outbox,
    transport: Transport,
}

fn address(n: usize) -> SocketAddr {
    format!("127.0.0.{}:5060", n + 1).parse().unwrap()
}

impl Net {
    fn new(settings: impl IntoIterator<Item = Settings>) -> Self {
        Self::over(Transport::Udp, settings)
    }

    fn over(transport: Transport, settings: impl IntoIterator<Item = Settings>) -> Self {
        let phones = settings.into_iter().enumerate().map(|(n, settings)| {
            let address = address(n);
            let face = Face { transport, bound: address, sent_by: address.to_string().into_bytes().into(), network: 0 };
            let identity = Identity::new(vec![face], [""; 0], &[]);
            let agent = UserAgent::new(Arc::new(identity), settings, Entropy::new([n as u8 + 1; 32]), 7);
            Phone { agent, address, heard: Vec::new() }
        });
        Self {
            phones: phones.collect(),
            now: Now { mono: 1_000, wall: 1_700_000_000_000 },
            flying: Vec::new(),
            log: Vec::new(),
            sent: Vec::new(),
            lose: Box::new(|_| false),
            weather: None,
            out: Outbox::new(),
            transport,
        }
    }

    fn two() -> Self {
        Self::new([quiet(), quiet()])
    }

    fn target(&self, n: usize) -> Target {
        Target { transport: self.transport, listener: ListenerId(0), address: address(n), flow: None }
    }

    /// Lets phone `n` do something.
    fn with<T>(&mut self, n: usize, act: impl FnOnce(&mut UserAgent, Now, &mut Outbox) -> T) -> T {
        let mut out = std::mem::take(&mut self.out);
        let result = act(&mut self.phones[n].agent, self.now, &mut out);
        self.post(n, &mut out);
        self.out = out;
        self.listen(n);
        result
    }

    fn post(&mut self, n: usize, out: &mut Outbox) {
        for send in out.sends() {
            let bytes = out.bytes[send.range()].to_vec();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let to = self.phones.iter().position(|p| p.address == send.target.address);
            let first = text.lines().next().unwrap_or_default();
            let what = match first.strip_prefix("SIP/2.0 ") {
                Some(rest) => {
                    let method = text.lines().find(|l| l.starts_with("CSeq:")).and_then(|l| l.split(' ').nth(2));
                    format!("{} {}", &rest[..3], method.unwrap_or_default())
                }
                None => first.split(' ').next().unwrap_or_default().to_owned(),
            };
            let line = format!("{n}>{} {what}", to.map_or_else(|| "?".to_owned(), |t| t.to_string()));
            let lost = (self.lose)(&line);
            self.log.push(line);
            self.sent.push(text);
            let (mut copies, mut late) = (usize::from(!lost), 10);
            if let Some(weather) = &mut self.weather {
                copies = [0, 2, 1, 1, 1, 1, 1, 1, 1, 1][weather.u64() as usize % 10];
                late = weather.u64() % 300;
            }
            for copy in 0..copies as u64 {
                let from = self.phones[n].address;
                let at = self.now.mono + late + 20 * copy;
                self.flying.push(Packet { at, from, to: send.target.address, bytes: bytes.clone() });
            }
        }
        out.clear();
    }

    fn listen(&mut self, n: usize) {
        let phone = &mut self.phones[n];
        while let Some(event) = phone.agent.event() {
            let span = match event {
                Event::Progress { body, .. }
                | Event::Answered { body, .. }
                | Event::Confirmed { body, .. }
                | Event::Changed { body, .. }
                | Event::Within { body, .. }
                | Event::Message { body, .. }
                | Event::Reply { body, .. } => Some(body),
                Event::Invited { offer, .. } | Event::Offered { offer, .. } => Some(offer),
                Event::Redirected { target, .. } => Some(target),
                _ => None,
            };
            let body = span.map_or(Vec::new(), |s| phone.agent.text(s).to_vec());
            phone.heard.push(Heard { event, body });
        }
    }

    /// Puts a message written by hand on the wire, from a place where no phone is.
    fn inject(&mut self, to: usize, text: &str) {
        let bytes = text.replace('\n', "\r\n").into_bytes();
        self.flying.push(Packet {
            at: self.now.mono,
            from: "127.0.0.99:5060".parse().unwrap(),
            to: address(to),
            bytes,
        });
        self.run(0);
    }

    /// Lets so many milliseconds pass.
    fn run(&mut self, ms: u64) {
        let until = self.now.mono + ms;
        loop {
            let packet = self.flying.iter().map(|p| p.at).min();
            let timer = self.phones.iter_mut().filter_map(|p| p.agent.deadline()).min();
            let Some(next) = packet.into_iter().chain(timer).min().filter(|&at| at <= until) else { break };
            let next = next.max(self.now.mono);
            self.now.wall += next - self.now.mono;
            self.now.mono = next;
            let first = self.flying.iter().enumerate().filter(|(_, p)| p.at <= next).min_by_key(|(_, p)| p.at);
            if let Some(at) = first.map(|(at, _)| at) {
                let packet = self.flying.remove(at);
                if let Some(n) = self.phones.iter().position(|p| p.address == packet.to) {
                    let arrival =
                        Arrival { transport: self.transport, listener: ListenerId(0), remote: packet.from, flow: None };
                    self.with(n, |agent, now, out| agent.receive(now, &arrival, &packet.bytes, out));
                }
                continue;
            }
            for n in 0..self.phones.len() {
                self.with(n, |agent, now, out| agent.poll(now, out));
            }
        }
        self.now.wall += until - self.now.mono;
        self.now.mono = until;
    }

    /// Phone 0 calls phone 1.
    fn call(&mut self, offer: &[u8]) -> CallKey {
        let target = self.target(1);
        self.with(0, |agent, now, out| agent.invite(now, &invite(target, offer), out)).unwrap()
    }

    /// The call that phone `n` was invited to last.
    fn invited(&self, n: usize) -> CallKey {
        let found = self.phones[n].heard.iter().rev().find_map(|h| match h.event {
            Event::Invited { call, .. } => Some(call),
            _ => None,
        });
        found.expect("somebody called")
    }

    /// A call from phone 0 to phone 1 that is up: its keys on both sides.
    fn up(&mut self) -> (CallKey, CallKey) {
        let caller = self.call(OFFER);
        self.run(20);
        let callee = self.invited(1);
        self.with(1, |agent, now, out| agent.answer(now, callee, ANSWER, out));
        self.run(50);
        self.log.clear();
        (caller, callee)
    }

    fn last(&self, n: usize) -> &Heard {
        self.phones[n].heard.last().expect("something happened")
    }

    /// After the last timer nothing may be left.
    fn is_clean(&mut self) {
        self.run(200_000);
        for (n, phone) in self.phones.iter_mut().enumerate() {
            let counts = phone.agent.counts();
            assert_eq!((phone.agent.calls(), phone.agent.requests()), (0, 0), "phone {n}");
            assert_eq!(
                (counts.servers, counts.clients, counts.kept_messages, counts.timers),
                (0, 0, 0, 0),
                "phone {n}"
            );
            assert_eq!(phone.agent.deadline(), None, "phone {n}");
        }
    }
}

/// No 100 at once, so that flows stay short.
fn quiet() -> Settings {
    Settings { trying: false, ..Settings::default() }
}

fn invite(target: Target, offer: &[u8]) -> Invite<'_> {
    Invite {
        from: b"\"Alice\" <sip:alice@atlanta.example>",
        to: b"sip:bob@biloxi.example",
        uri: Some(b"sip:bob@127.0.0.2"),
        routes: b"",
        target,
        account: None,
        offer,
        headers: b"",
        call_id: b"",
    }
}

/// RFC 3665 section 3.1.
#[test]
fn a_call_is_made_talks_and_ends() {
    let mut net = Net::new([Settings::default(), Settings::default()]);
    let caller = net.call(OFFER);
    net.run(20);
    assert_eq!(net.last(1).body, OFFER);
    let callee = net.invited(1);
    net.with(1, |agent, now, out| agent.ring(now, callee, 180, b"", out));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Progress { call, status: 180, .. } if call == caller));
    net.with(1, |agent, now, out| agent.answer(now, callee, ANSWER, out));
    net.run(50);
    assert_eq!(net.last(0).body, ANSWER);
    assert!(matches!(net.last(0).event, Event::Answered { call, offer: false, .. } if call == caller));
    assert!(matches!(net.last(1).event, Event::Confirmed { call, .. } if call == callee));
    net.with(0, |agent, now, out| agent.hang_up(now, caller, out));
    net.run(50);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local });
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Remote });
    assert_eq!(
        net.log,
        ["0>1 INVITE", "1>0 100 INVITE", "1>0 180 INVITE", "1>0 200 INVITE", "0>1 ACK", "0>1 BYE", "1>0 200 BYE"]
    );
    net.is_clean();
}

#[test]
fn the_callee_hangs_up() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(1, |agent, now, out| agent.hang_up(now, callee, out));
    net.run(50);
    assert_eq!(net.log, ["1>0 BYE", "0>1 200 BYE"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Remote });
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Local });
    net.is_clean();
}

#[test]
fn a_call_is_cancelled() {
    let mut net = Net::two();
    let caller = net.call(OFFER);
    net.run(20);
    let callee = net.invited(1);
    net.with(1, |agent, now, out| agent.ring(now, callee, 180, b"", out));
    net.run(20);
    net.with(0, |agent, now, out| agent.hang_up(now, caller, out));
    net.run(100);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 180 INVITE", "0>1 CANCEL", "1>0 200 CANCEL", "1>0 487 INVITE", "0>1 ACK"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local });
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Cancelled });
    net.is_clean();
}

/// Section 9.1: no CANCEL before a provisional response; and one that crosses a 2xx ends in BYE.
#[test]
fn a_cancel_too_late_becomes_a_bye() {
    let mut net = Net::two();
    let caller = net.call(OFFER);
    net.with(0, |agent, now, out| agent.hang_up(now, caller, out));
    net.run(15);
    let callee = net.invited(1);
    net.with(1, |agent, now, out| agent.answer(now, callee, ANSWER, out));
    net.run(100);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 200 INVITE", "0>1 ACK", "0>1 BYE", "1>0 200 BYE"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local });
    net.is_clean();
}

#[test]
fn a_call_is_refused_or_redirected() {
    let mut net = Net::two();
    let caller = net.call(OFFER);
    net.run(20);
    let callee = net.invited(1);
    net.with(1, |agent, now, out| agent.reject(now, callee, 486, out));
    net.run(50);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 486 INVITE", "0>1 ACK"]);
    assert_eq!(net.last(0).event, Event::Failed { call: caller, status: 486, local: false });
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Local });
    net.is_clean();

    let mut net = Net::new([quiet()]);
    let target = net.target(7);
    net.with(0, |agent, now, out| agent.invite(now, &invite(target, OFFER), out)).unwrap();
    let response = respond(&net.sent[0], "302 Moved Temporarily", "Contact: <sip:bob@elsewhere.example>\r\n");
    net.inject(0, &response);
    assert!(matches!(net.last(0).event, Event::Redirected { status: 302, .. }));
    assert_eq!(net.last(0).body, b"sip:bob@elsewhere.example");
    net.is_clean();
}

/// A response to a message that was sent, as a peer would make it.
fn respond(request: &str, status: &str, lines: &str) -> String {
    let mut text = format!("SIP/2.0 {status}\n");
    for line in request.lines().take_while(|l| !l.is_empty()) {
        let keep = ["Via:", "From:", "Call-ID:", "CSeq:"].iter().any(|n| line.starts_with(n));
        if keep {
            text += &format!("{line}\n");
        } else if line.starts_with("To:") {
            text += &format!("{line}{}\n", if line.contains(";tag=") { "" } else { ";tag=peer" });
        }
    }
    text + &lines.replace("\r\n", "\n") + "Content-Length: 0\n\n"
}

#[test]
fn nobody_answers() {
    let mut net = Net::new([quiet()]);
    let target = net.target(5);
    let call = net.with(0, |agent, now, out| agent.invite(now, &invite(target, OFFER), out)).unwrap();
    net.run(33_000);
    assert_eq!(net.log, vec!["0>? INVITE"; 7]);
    assert_eq!(net.last(0).event, Event::Failed { call, status: 408, local: true });
    net.is_clean();
}

/// Section 13.3.1.4: the 2xx is repeated with doubling pauses up to T2 until its ACK; each copy is acknowledged (13.2.2.4).
#[test]
fn a_lost_ack_is_made_good() {
    let mut net = Net::two();
    let mut lost = 0;
    net.lose = Box::new(move |line| {
        let is = line == "0>1 ACK";
        lost += i32::from(is);
        is && lost <= 3
    });
    net.call(OFFER);
    net.run(20);
    let callee = net.invited(1);
    net.with(1, |agent, now, out| {
        agent.answer(now, callee, ANSWER, out);
        // There is nothing left to refuse.
        agent.reject(now, callee, 486, out);
    });
    net.run(5_000);
    assert_eq!(net.log.iter().filter(|l| *l == "1>0 200 INVITE").count(), 4);
    assert_eq!(net.log.iter().filter(|l| *l == "0>1 ACK").count(), 4);
    let acks: Vec<_> = net.sent.iter().filter(|t| t.starts_with("ACK")).collect();
    assert!(acks.windows(2).all(|w| w[0] == w[1]), "copies of an ACK are copies");
    assert!(matches!(net.last(1).event, Event::Confirmed { .. }));
    assert_eq!(net.phones[0].heard.iter().filter(|h| matches!(h.event, Event::Answered { .. })).count(), 1);
    net.with(1, |agent, now, out| agent.hang_up(now, callee, out));
    net.is_clean();
}

#[test]
fn a_2xx_without_any_ack_ends_in_a_bye() {
    let mut net = Net::two();
    net.lose = Box::new(|line| line == "0>1 ACK");
    let caller = net.call(OFFER);
    net.run(20);
    let callee = net.invited(1);
    net.with(1, |agent, now, out| agent.answer(now, callee, ANSWER, out));
    net.run(40_000);
    // After 0.5, 1.5, 3.5, 7.5, 11.5 ... 31.5 s.
    assert_eq!(net.log.iter().filter(|l| *l == "1>0 200 INVITE").count(), 11);
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::NoAck });
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Remote });
    net.is_clean();
}

/// Section 15: the callee may hang up before the ACK is there, but the BYE waits for it.
#[test]
fn a_callee_waits_for_the_ack_before_its_bye() {
    let mut net = Net::two();
    let caller = net.call(OFFER);
    net.run(20);
    let callee = net.invited(1);
    net.with(1, |agent, now, out| {
        agent.answer(now, callee, ANSWER, out);
        agent.hang_up(now, callee, out);
    });
    net.run(100);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 200 INVITE", "0>1 ACK", "1>0 BYE", "0>1 200 BYE"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Remote });
    net.is_clean();
}

#[test]
fn lost_messages_are_sent_again_until_the_call_stands() {
    for lost in ["0>1 INVITE", "1>0 200 INVITE", "0>1 ACK", "0>1 BYE", "1>0 200 BYE"] {
        let mut net = Net::two();
        let mut done = false;
        net.lose = Box::new(move |line| line == lost && !std::mem::replace(&mut done, true));
        let caller = net.call(OFFER);
        net.run(2_000);
        let callee = net.invited(1);
        net.with(1, |agent, now, out| agent.answer(now, callee, ANSWER, out));
        net.run(5_000);
        net.with(0, |agent, now, out| agent.hang_up(now, caller, out));
        net.run(5_000);
        assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local }, "{lost}");
        assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Remote }, "{lost}");
        net.is_clean();
    }
}

/// RFC 3665 section 3.8 has the two forms; here the offer stands in the 2xx.
#[test]
fn the_callee_offers() {
    let mut net = Net::two();
    let caller = net.call(b"");
    net.run(20);
    assert!(net.last(1).body.is_empty());
    let callee = net.invited(1);
    net.with(1, |agent, now, out| agent.answer(now, callee, OFFER, out));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Answered { offer: true, .. }));
    assert_eq!(net.last(0).body, OFFER);
    net.with(0, |agent, now, out| agent.acknowledge(now, caller, ANSWER, out));
    net.run(20);
    assert_eq!(net.last(1).body, ANSWER);
    assert!(matches!(net.last(1).event, Event::Confirmed { .. }));
    net.with(0, |agent, now, out| agent.hang_up(now, caller, out));
    net.is_clean();
}

/// Section 13.2.2.4: the second 2xx of a fork is acknowledged and its dialog ended.
#[test]
fn a_fork_that_lost_is_ended() {
    let mut net = Net::new([quiet()]);
    let target = net.target(6);
    let call = net.with(0, |agent, now, out| agent.invite(now, &invite(target, OFFER), out)).unwrap();
    let ringing = respond(&net.sent[0], "180 Ringing", "Contact: <sip:one@127.0.0.7>\r\n");
    net.inject(0, &ringing);
    net.inject(0, &ringing.replace("tag=peer", "tag=other"));
    let ok = respond(&net.sent[0], "200 OK", "Contact: <sip:one@127.0.0.7>\r\n");
    let other = respond(&net.sent[0], "200 OK", "Contact: <sip:two@127.0.0.8>\r\n").replace("tag=peer", "tag=other");
    net.inject(0, &ok);
    assert!(matches!(net.last(0).event, Event::Answered { call: c, .. } if c == call));
    net.log.clear();
    net.sent.clear();
    net.inject(0, &other);
    assert_eq!(net.log, ["0>? ACK", "0>? BYE"]);
    assert!(net.sent.iter().all(|t| t.contains(" sip:two@127.0.0.8 SIP/2.0") && t.contains(";tag=other")));
    net.inject(0, &other);
    assert_eq!(net.log, ["0>? ACK", "0>? BYE", "0>? ACK"], "a copy gets the ACK alone");
    let bye = net.sent[1].clone();
    net.inject(0, &respond(&bye, "200 OK", ""));
    assert_eq!(net.phones[0].agent.calls(), 1, "the first dialog goes on");
    assert!(net.phones[0].heard.iter().all(|h| !matches!(h.event, Event::Ended { .. })), "nobody hears of the other");
    net.with(0, |agent, now, out| agent.hang_up(now, call, out));
    net.run(40_000);
    assert_eq!(net.last(0).event, Event::Ended { call, by: Ending::Local });
    net.is_clean();
}

/// RFC 3665 section 3.7.
#[test]
fn the_session_is_changed() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(1, |agent, now, out| agent.reinvite(now, callee, OFFER, out)).unwrap();
    assert_eq!(net.with(1, |agent, now, out| agent.reinvite(now, callee, OFFER, out)), Err(NotNow::Pending));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Offered { call, update: false, .. } if call == caller));
    net.with(0, |agent, now, out| agent.answer(now, caller, ANSWER, out));
    net.run(20);
    assert!(matches!(net.last(1).event, Event::Changed { call, .. } if call == callee));
    assert_eq!(net.last(1).body, ANSWER);
    net.run(50);
    assert_eq!(net.log, ["1>0 INVITE", "0>1 200 INVITE", "1>0 ACK"]);
    // And refused.
    net.with(0, |agent, now, out| agent.reinvite(now, caller, OFFER, out)).unwrap();
    net.run(20);
    net.with(1, |agent, now, out| agent.reject(now, callee, 488, out));
    net.run(50);
    assert_eq!(net.last(0).event, Event::Unchanged { call: caller, status: 488, wait: 0 });
    assert_eq!((net.phones[0].agent.calls(), net.phones[1].agent.calls()), (1, 1));
    net.with(0, |agent, now, out| agent.hang_up(now, caller, out));
    net.is_clean();
}

/// Section 14.1: both at once is glare; both are refused with 491 and wait differently long.
#[test]
fn both_change_the_session_at_once() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(0, |agent, now, out| agent.reinvite(now, caller, OFFER, out)).unwrap();
    net.with(1, |agent, now, out| agent.reinvite(now, callee, OFFER, out)).unwrap();
    net.run(100);
    let wait = |n: usize| match net.last(n).event {
        Event::Unchanged { status: 491, wait, .. } => wait,
        other => panic!("{other:?}"),
    };
    assert!((2_100..=4_000).contains(&wait(0)) && wait(1) <= 2_000);
    net.with(0, |agent, now, out| agent.reinvite(now, caller, OFFER, out)).unwrap();
    net.run(20);
    net.with(1, |agent, now, out| agent.answer(now, callee, ANSWER, out));
    net.run(50);
    assert!(matches!(net.last(0).event, Event::Changed { .. }));
    net.with(1, |agent, now, out| agent.hang_up(now, callee, out));
    net.is_clean();
    assert_eq!([Clash::Glare, Clash::Impatient].map(Clash::status), [491, 500]);
    assert_eq!(Exchange::default(), Exchange::Fresh);
}

/// RFC 3311.
#[test]
fn an_update_changes_the_session_too() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(0, |agent, now, out| agent.update(now, caller, OFFER, out)).unwrap();
    net.run(20);
    assert!(matches!(net.last(1).event, Event::Offered { call, update: true, .. } if call == callee));
    net.with(1, |agent, now, out| agent.answer_update(now, callee, ANSWER, out));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Changed { call, .. } if call == caller));
    assert_eq!(net.last(0).body, ANSWER);
    // Without an offer it is answered without anybody.
    net.with(1, |agent, now, out| agent.update(now, callee, b"", out)).unwrap();
    net.run(50);
    assert_eq!(net.log, ["0>1 UPDATE", "1>0 200 UPDATE", "1>0 UPDATE", "0>1 200 UPDATE"]);
    net.with(1, |agent, now, out| agent.hang_up(now, callee, out));
    net.is_clean();
}

/// RFC 3262: reliable provisional responses, acknowledged by PRACK; the 2xx waits for the one with the answer.
#[test]
fn a_ringing_with_media_is_reliable() {
    let mut net = Net::new([quiet(), Settings { reliability: Reliability::Supported, ..quiet() }]);
    let mut lost = false;
    net.lose = Box::new(move |line| line == "0>1 PRACK" && !std::mem::replace(&mut lost, true));
    let caller = net.call(OFFER);
    net.run(20);
    let callee = net.invited(1);
    net.with(1, |agent, now, out| {
        agent.ring(now, callee, 183, ANSWER, out);
        agent.answer(now, callee, b"", out);
    });
    net.run(3_000);
    assert!(net.sent.iter().any(|t| t.contains("RAck: ") && t.contains(" 1 INVITE\r\n")));
    let first = |what: &str| net.log.iter().position(|l| l == what).unwrap_or_else(|| panic!("{what}: {:?}", net.log));
    assert!(first("1>0 200 PRACK") < first("1>0 200 INVITE"));
    assert!(
        net.phones[0].heard.iter().any(|h| matches!(h.event, Event::Progress { status: 183, .. }) && h.body == ANSWER)
    );
    assert!(net.phones[0].heard.iter().any(|h| matches!(h.event, Event::Answered { offer: false, .. })));
    assert!(matches!(net.last(1).event, Event::Confirmed { .. }));
    net.with(0, |agent, now, out| agent.hang_up(now, caller, out));
    net.is_clean();
}

#[test]
fn a_reliable_ringing_that_nobody_acknowledges_ends_the_call() {
    let mut net = Net::new([quiet(), Settings { reliability: Reliability::Supported, ..quiet() }]);
    net.lose = Box::new(|line| line == "0>1 PRACK");
    net.call(OFFER);
    net.run(20);
    let callee = net.invited(1);
    net.with(1, |agent, now, out| agent.ring(now, callee, 180, b"", out));
    net.run(40_000);
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::NoPrack });
    assert!(matches!(net.last(0).event, Event::Failed { status: 504, .. }));
    net.is_clean();
}

#[test]
fn what_is_not_understood_is_refused() {
    let head = |method: &str| {
        format!(
            "{method} sip:bob@127.0.0.1 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.99;branch=z9hG4bK{method}{{n}}\nMax-Forwards: 70\n\
             From: <sip:x@y>;tag=1\nTo: <sip:bob@z>{{to}}\nCall-ID: c{{n}}\nCSeq: 1 {method}\nContact: <sip:x@127.0.0.99>\n"
        )
    };
    let sdp = "Content-Type: application/sdp\nContent-Length: 5\n\nv=0\n";
    let empty = "Content-Length: 0\n\n";
    let cases = [
        ("PUBLISH", "", empty.to_owned(), "405 ", "Allow: INVITE, ACK"),
        ("NEWMETHOD", "", empty.to_owned(), "405 ", "Allow: INVITE, ACK"),
        ("INVITE", "", format!("Require: foo, 100rel\nRequire: bar\n{empty}"), "420 ", "Unsupported: foo, bar\r\n"),
        (
            "INVITE",
            "",
            "Content-Type: text/plain\nContent-Length: 5\n\nhello".into(),
            "415 ",
            "Accept: application/sdp",
        ),
        ("INVITE", "", format!("Content-Encoding: gzip\n{sdp}"), "415 ", "Accept-Encoding: identity"),
        ("INVITE", ";tag=unknown", empty.to_owned(), "481 ", ""),
        ("BYE", ";tag=unknown", empty.to_owned(), "481 ", ""),
        ("BYE", "", empty.to_owned(), "481 ", ""),
        ("CANCEL", "", empty.to_owned(), "481 ", ""),
        ("OPTIONS", "", empty.to_owned(), "200 ", "Accept: application/sdp"),
        ("OPTIONS", "", format!("Supported: x\nCSeq: 2 OPTIONS\n{empty}"), "400 ", ""),
    ];
    let mut net = Net::new([quiet()]);
    for (n, (method, to, rest, status, line)) in cases.iter().enumerate() {
        net.sent.clear();
        let text = head(method).replace("{n}", &n.to_string()).replace("{to}", to) + rest;
        net.inject(0, &text);
        let response = net.sent.first().unwrap_or_else(|| panic!("no answer to {text}"));
        assert!(response.starts_with(&format!("SIP/2.0 {status}")) && response.contains(line), "{text}\n{response}");
    }
    net.sent.clear();
    net.inject(0, &(head("ACK").replace("{n}", "99").replace("{to}", ";tag=no") + empty));
    assert!(net.sent.is_empty(), "an ACK is never answered");
    net.is_clean();
}

/// Section 8.2.2.2.
#[test]
fn a_request_that_comes_by_two_ways_is_taken_once() {
    let text = |branch: u8| {
        format!(
            "INVITE sip:bob@127.0.0.1 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.99;branch=z9hG4bK{branch}\nFrom: <sip:x@y>;tag=1\n\
             To: <sip:bob@z>\nCall-ID: c\nCSeq: 1 INVITE\nMax-Forwards: 70\nContact: <sip:x@127.0.0.99>\nContent-Length: 0\n\n"
        )
    };
    let mut net = Net::new([quiet()]);
    net.inject(0, &text(1));
    net.inject(0, &text(1));
    assert!(net.sent.is_empty());
    net.inject(0, &text(2));
    assert!(net.sent[0].starts_with("SIP/2.0 482 "));
    let call = net.invited(0);
    net.with(0, |agent, now, out| agent.reject(now, call, 603, out));
    net.is_clean();
}

/// RFC 3581 and section 18.2: the response says where the request came from, and goes there.
#[test]
fn a_response_finds_its_way_back() {
    let text = |via: &str| {
        format!(
            "OPTIONS sip:bob@127.0.0.1 SIP/2.0\nVia: {via}, SIP/2.0/UDP below\nVia: SIP/2.0/UDP far\nFrom: <sip:x@y>;tag=1\n\
             To: <sip:bob@z>\nCall-ID: c\nCSeq: 1 OPTIONS\nMax-Forwards: 70\nContent-Length: 0\n\n"
        )
    };
    let mut net = Net::new([quiet()]);
    for (via, expected) in [
        (
            "SIP/2.0/UDP host:9;branch=z9hG4bK1;rport;x",
            "SIP/2.0/UDP host:9;branch=z9hG4bK1;rport=5060;x;received=127.0.0.99, SIP/2.0/UDP below",
        ),
        (
            "SIP/2.0/UDP host:9;branch=z9hG4bK2",
            "SIP/2.0/UDP host:9;branch=z9hG4bK2;received=127.0.0.99, SIP/2.0/UDP below",
        ),
        ("SIP/2.0/UDP 127.0.0.99:9;branch=z9hG4bK3", "SIP/2.0/UDP 127.0.0.99:9;branch=z9hG4bK3, SIP/2.0/UDP below"),
        // What the sender says of itself is not believed.
        (
            "SIP/2.0/UDP host;received=192.0.2.66;rport=1;branch=z9hG4bK4",
            "SIP/2.0/UDP host;received=127.0.0.99;rport=5060;branch=z9hG4bK4, SIP/2.0/UDP below",
        ),
    ] {
        net.sent.clear();
        net.inject(0, &text(via));
        assert!(net.sent[0].contains(&format!("\r\nVia: {expected}\r\nVia: SIP/2.0/UDP far\r\n")), "{}", net.sent[0]);
    }
    net.is_clean();
}

#[test]
fn requests_within_and_without_a_call() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    let info = net
        .with(0, |agent, now, out| {
            agent.request_within(now, caller, Method::Info, b"Content-Type: text/plain\r\n", b"5", out)
        })
        .unwrap();
    net.run(50);
    assert!(matches!(net.last(1).event, Event::Within { call, method: Method::Info, .. } if call == callee));
    assert_eq!(net.last(1).body, b"5");
    assert!(matches!(net.last(0).event, Event::Reply { request, status: 200, .. } if request == info));
    let target = net.target(1);
    let outside = Outside {
        method: Method::Message,
        from: b"sip:alice@atlanta.example",
        to: b"<sip:bob@biloxi.example>",
        uri: None,
        routes: b"",
        target,
        account: None,
        headers: b"Content-Type: text/plain\r\n",
        body: b"hello",
    };
    let key = net.with(0, |agent, now, out| agent.request(now, &outside, out)).unwrap();
    net.run(50);
    assert_eq!(net.last(1).body, b"hello");
    assert!(matches!(net.last(0).event, Event::Reply { request, status: 200, .. } if request == key));
    let options = Outside { method: Method::Options, headers: b"", body: b"", ..outside };
    net.with(0, |agent, now, out| agent.request(now, &options, out)).unwrap();
    net.run(50);
    assert!(matches!(net.last(0).event, Event::Reply { status: 200, .. }));
    net.with(0, |agent, now, out| agent.hang_up(now, caller, out));
    net.is_clean();
}

/// Section 12.2.1.2: a 481 in a dialog is its end.
#[test]
fn a_dialog_that_the_peer_has_forgotten_is_over() {
    let mut net = Net::two();
    let (caller, _) = net.up();
    let identity = Arc::new(Identity::new(
        vec![Face {
            transport: Transport::Udp,
            bound: address(1),
            sent_by: b"127.0.0.2:5060".as_slice().into(),
            network: 0,
        }],
        [""; 0],
        &[],
    ));
    net.phones[1].agent = UserAgent::new(identity, quiet(), Entropy::new([9; 32]), 7);
    net.with(0, |agent, now, out| agent.reinvite(now, caller, OFFER, out)).unwrap();
    net.run(100);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 481 INVITE", "0>1 ACK", "0>1 BYE", "1>0 481 BYE"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Fault(481) });
    net.is_clean();
}

#[test]
fn over_a_stream_nothing_is_repeated_but_the_2xx() {
    let mut net = Net::over(Transport::Tcp, [quiet(), quiet()]);
    let caller = net.call(OFFER);
    net.run(3_000);
    let callee = net.invited(1);
    net.lose = Box::new(|line| line == "0>1 ACK");
    net.with(1, |agent, now, out| agent.answer(now, callee, ANSWER, out));
    net.run(600);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 200 INVITE", "0>1 ACK", "1>0 200 INVITE", "0>1 ACK"]);
    assert!(net.sent[0].contains("Via: SIP/2.0/TCP 127.0.0.1:5060;rport;branch=z9hG4bK"));
    assert!(net.sent[0].contains("Contact: <sip:alice@127.0.0.1:5060;transport=tcp>\r\n"));
    net.lose = Box::new(|_| false);
    net.run(2_000);
    net.with(0, |agent, now, out| agent.hang_up(now, caller, out));
    net.is_clean();
}

/// Section 22, RFC 3665 section 3.3: a challenge is answered once, in a new request of the same call.
#[test]
fn a_challenge_is_answered() {
    let mut net = Net::new([quiet()]);
    let target = net.target(7);
    let account = net.phones[0].agent.add_account(b"alice", b"secret");
    let call = net
        .with(0, |agent, now, out| agent.invite(now, &Invite { account: Some(account), ..invite(target, OFFER) }, out))
        .unwrap();
    let ask = |nonce: &str| {
        format!("Proxy-Authenticate: Digest realm=\"atlanta\", qop=\"auth\", nonce=\"{nonce}\", algorithm=MD5\r\n")
    };
    let challenge = respond(&net.sent[0], "407 Proxy Authentication Required", &ask("one"));
    net.inject(0, &challenge);
    assert_eq!(net.log, ["0>? INVITE", "0>? ACK", "0>? INVITE"]);
    let (first, again) = (net.sent[0].clone(), net.sent[2].clone());
    let line = |text: &str, name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_default().to_owned();
    assert!(
        line(&again, "Proxy-Authorization")
            .starts_with("Proxy-Authorization: Digest username=\"alice\", realm=\"atlanta\"")
    );
    assert_eq!(line(&again, "CSeq"), "CSeq: 2 INVITE");
    assert_ne!(line(&again, "Via"), line(&first, "Via"));
    for same in ["Call-ID", "From", "Contact"] {
        assert_eq!(line(&again, same), line(&first, same));
    }
    assert!(again.ends_with(std::str::from_utf8(OFFER).unwrap()));
    // The ACK of the 2xx has the same credentials.
    net.inject(0, &respond(&again, "200 OK", "Contact: <sip:bob@127.0.0.9>\r\n"));
    let ack = net.sent.last().unwrap().clone();
    assert!(ack.starts_with("ACK sip:bob@127.0.0.9 SIP/2.0"));
    assert_eq!(line(&ack, "Proxy-Authorization"), line(&again, "Proxy-Authorization"));
    assert_eq!(line(&ack, "CSeq"), "CSeq: 2 ACK");
    // The BYE answers the same challenge unasked, with the next nonce count.
    net.with(0, |agent, now, out| agent.hang_up(now, call, out));
    let bye = net.sent.last().unwrap().clone();
    assert!(bye.starts_with("BYE") && bye.contains("nc=00000002"), "{bye}");
    assert_eq!(line(&bye, "CSeq"), "CSeq: 3 BYE");
    // The nonce has become old: one more try, with the new one.
    net.inject(
        0,
        &respond(&bye, "407 Proxy Authentication Required", &ask("two").replace("algorithm", "stale=true, algorithm")),
    );
    let bye = net.sent.last().unwrap().clone();
    assert!(bye.contains("nonce=\"two\"") && bye.contains("nc=00000001"), "{bye}");
    net.inject(0, &respond(&bye, "200 OK", ""));
    assert_eq!(net.last(0).event, Event::Ended { call, by: Ending::Local });
    net.is_clean();
}

#[test]
fn a_wrong_password_is_tried_once() {
    let mut net = Net::new([quiet()]);
    let target = net.target(7);
    let account = net.phones[0].agent.add_account(b"alice", b"wrong");
    let call = net
        .with(0, |agent, now, out| agent.invite(now, &Invite { account: Some(account), ..invite(target, OFFER) }, out))
        .unwrap();
    let ask = "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", qop=\"auth\"\r\nWWW-Authenticate: Digest realm=\"r\", nonce=\"m\", qop=\"auth\", algorithm=SHA-256\r\n";
    net.inject(0, &respond(&net.sent[0].clone(), "401 Unauthorized", ask));
    let again = net.sent[2].clone();
    assert_eq!(again.matches("\r\nAuthorization: ").count(), 1, "{again}");
    assert!(again.contains("algorithm=SHA-256"), "the stronger of two");
    net.inject(0, &respond(&again, "401 Unauthorized", ask));
    assert_eq!(net.last(0).event, Event::Failed { call, status: 401, local: false });
    assert_eq!(net.log, ["0>? INVITE", "0>? ACK", "0>? INVITE", "0>? ACK"]);
    net.is_clean();
}

/// RFC 3665 section 2.
#[test]
fn a_registration_is_kept_up_and_taken_back() {
    let mut net = Net::new([quiet()]);
    let target = net.target(7);
    let account = net.phones[0].agent.add_account(b"alice", b"secret");
    let register = Register {
        aor: b"sip:alice@atlanta.example",
        registrar: b"sip:atlanta.example",
        routes: b"",
        target,
        account: Some(account),
        expires: 60,
        headers: b"",
    };
    let key = net.with(0, |agent, now, out| agent.register(now, &register, out)).unwrap();
    let challenge = "WWW-Authenticate: Digest realm=\"atlanta\", qop=\"auth\", nonce=\"n\"\r\n";
    net.inject(0, &respond(&net.sent[0].clone(), "401 Unauthorized", challenge));
    assert!(net.sent[1].contains("CSeq: 2 REGISTER") && net.sent[1].contains("Expires: 60\r\n"));
    net.inject(0, &respond(&net.sent[1].clone(), "423 Interval Too Brief", "Min-Expires: 100\r\n"));
    assert!(net.sent[2].contains("CSeq: 3 REGISTER") && net.sent[2].contains("Expires: 100\r\n"));
    let ok = "Contact: <sip:other@192.0.2.1>;expires=9, <sip:alice@127.0.0.1:5060>;expires=90\r\n";
    net.inject(0, &respond(&net.sent[2].clone(), "200 OK", ok));
    assert_eq!(net.last(0).event, Event::Registered { registration: key, expires: 90 });
    net.run(44_900);
    assert_eq!(net.sent.len(), 3);
    net.run(200);
    assert!(net.sent[3].contains("CSeq: 4 REGISTER") && net.sent[3].contains("nc=00000003"), "{}", net.sent[3]);
    // Taken back while a refresh is under way: one after the other.
    net.with(0, |agent, now, out| agent.unregister(now, key, out));
    assert_eq!(net.sent.len(), 4);
    net.inject(0, &respond(&net.sent[3].clone(), "200 OK", ok));
    assert!(net.sent[4].contains("CSeq: 5 REGISTER") && net.sent[4].contains("Expires: 0\r\n"));
    net.inject(0, &respond(&net.sent[4].clone(), "200 OK", ""));
    assert_eq!(net.last(0).event, Event::Unregistered { registration: key });
    net.is_clean();
}

#[test]
fn a_registration_that_fails_is_tried_again() {
    let mut net = Net::new([Settings { registration_retry: 10_000, ..quiet() }]);
    let target = net.target(7);
    let register = Register {
        aor: b"sip:alice@atlanta.example",
        registrar: b"sip:atlanta.example",
        routes: b"",
        target,
        account: None,
        expires: 60,
        headers: b"",
    };
    let key = net.with(0, |agent, now, out| agent.register(now, &register, out)).unwrap();
    net.inject(0, &respond(&net.sent[0].clone(), "503 Service Unavailable", ""));
    assert_eq!(net.last(0).event, Event::RegistrationFailed { registration: key, status: 503 });
    net.run(10_000);
    assert!(net.sent[1].contains("CSeq: 2 REGISTER"));
    net.with(0, |agent, now, out| agent.unregister(now, key, out));
    net.inject(0, &respond(&net.sent[1].clone(), "200 OK", "Expires: 60\r\n"));
    net.inject(0, &respond(&net.sent[2].clone(), "200 OK", ""));
    assert_eq!(net.last(0).event, Event::Unregistered { registration: key });
    net.is_clean();
}

/// One machine at both ends of a call: the same Call-ID twice.
#[test]
fn a_phone_calls_itself() {
    let mut net = Net::new([quiet()]);
    let target = net.target(0);
    let caller = net.with(0, |agent, now, out| agent.invite(now, &invite(target, OFFER), out)).unwrap();
    net.run(20);
    let callee = net.invited(0);
    net.with(0, |agent, now, out| agent.answer(now, callee, ANSWER, out));
    net.run(50);
    // The Request-URI names another host; within the dialog the Contact counts.
    assert!(matches!(net.last(0).event, Event::Confirmed { .. }));
    net.with(0, |agent, now, out| agent.hang_up(now, callee, out));
    net.run(50);
    let ends: Vec<_> =
        net.phones[0].heard.iter().filter(|h| matches!(h.event, Event::Ended { .. })).map(|h| h.event).collect();
    assert_eq!(
        ends,
        [Event::Ended { call: caller, by: Ending::Remote }, Event::Ended { call: callee, by: Ending::Local }]
    );
    net.is_clean();
}

/// Names the seed of a run that fails: `STROWGER_SEED` replays it.
struct Named(u16);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("STROWGER_SEED={}", self.0);
        }
    }
}

/// In bad weather, whatever both ends do: every call ends for both, once, and nothing is left.
#[test]
fn every_call_ends_in_any_weather() {
    let seeds = std::env::var("STROWGER_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(300u16);
    let first = std::env::var("STROWGER_SEED").ok().and_then(|s| s.parse().ok());
    for seed in first.map_or(0..seeds, |s| s..s + 1) {
        let _named = Named(seed);
        let mut key = [0; 32];
        key[..2].copy_from_slice(&seed.to_be_bytes());
        let mut random = Entropy::new(key);
        let reliability = if random.u64().is_multiple_of(2) { Reliability::Supported } else { Reliability::Required };
        let trying = random.u64().is_multiple_of(2);
        let mut net = Net::new([quiet(), Settings { reliability, trying, ..quiet() }]);
        net.weather = Some(Entropy::new(key).derive(b"weather"));
        let caller = net.call(if random.u64().is_multiple_of(4) { b"" } else { OFFER });
        // How much of what each phone heard its owner has acted on.
        let mut taken = [0, 0];
        for step in 0..30 {
            net.run(random.u64() % 1_000);
            // Owners that answer what they are asked, most of the time.
            #[expect(clippy::needless_range_loop, reason = "both ends are named by their number")]
            for n in 0..2 {
                let heard: Vec<Heard> = net.phones[n].heard.iter().skip(taken[n]).cloned().collect();
                taken[n] += heard.len();
                for h in heard {
                    match h.event {
                        Event::Answered { call, offer: true, .. } => {
                            net.with(n, |a, now, out| a.acknowledge(now, call, ANSWER, out))
                        }
                        Event::Offered { call, update: true, .. } => {
                            net.with(n, |a, now, out| a.answer_update(now, call, ANSWER, out))
                        }
                        Event::Offered { call, .. } => net.with(n, |a, now, out| a.answer(now, call, ANSWER, out)),
                        Event::Invited { call, offer, .. } => {
                            let body: &[u8] =
                                if offer.is_empty() || random.u64().is_multiple_of(2) { b"" } else { ANSWER };
                            net.with(n, |a, now, out| a.ring(now, call, 180, body, out));
                        }
                        _ => (),
                    }
                }
            }
            let n = random.u64() as usize % 2;
            let call = if n == 0 {
                Some(caller)
            } else {
                net.phones[1].heard.iter().find_map(|h| match h.event {
                    Event::Invited { call, .. } => Some(call),
                    _ => None,
                })
            };
            let Some(call) = call else { continue };
            match random.u64() % 8 {
                0 | 1 if n == 1 => net.with(n, |a, now, out| a.answer(now, call, ANSWER, out)),
                2 => drop(net.with(n, |a, now, out| a.reinvite(now, call, OFFER, out))),
                3 => drop(net.with(n, |a, now, out| a.update(now, call, OFFER, out))),
                4 => drop(net.with(n, |a, now, out| a.request_within(now, call, Method::Info, b"", b"", out))),
                5 if step > 10 => net.with(n, |a, now, out| a.hang_up(now, call, out)),
                6 if step > 20 && n == 1 => net.with(n, |a, now, out| a.reject(now, call, 486, out)),
                _ => (),
            }
        }
        net.with(0, |a, now, out| a.hang_up(now, caller, out));
        // The callee may hold a call whose caller went away without a trace; it hangs up as well.
        net.run(40_000);
        let open: Vec<CallKey> = net.phones[1]
            .heard
            .iter()
            .filter_map(|h| match h.event {
                Event::Invited { call, .. } => Some(call),
                _ => None,
            })
            .collect();
        for call in open {
            net.with(1, |a, now, out| a.hang_up(now, call, out));
        }
        net.is_clean();
        for n in 0..2 {
            let ends = |h: &&Heard| matches!(h.event, Event::Ended { .. } | Event::Failed { .. });
            let begun = if n == 0 {
                1
            } else {
                net.phones[1].heard.iter().filter(|h| matches!(h.event, Event::Invited { .. })).count()
            };
            assert_eq!(
                net.phones[n].heard.iter().filter(ends).count(),
                begun,
                "seed {seed}, phone {n}\n{}",
                net.log.join("\n")
            );
        }
    }
}

/// Whatever comes, nothing panics and nothing stays.
#[test]
fn mutated_messages_do_no_harm() {
    let mut net = Net::new([quiet(), Settings { reliability: Reliability::Supported, ..quiet() }]);
    let (caller, _) = net.up();
    net.with(0, |agent, now, out| agent.reinvite(now, caller, OFFER, out)).unwrap();
    net.run(50);
    let seeds: Vec<String> = net.sent.clone();
    let mut random = Entropy::new([3; 32]);
    for _ in 0..20_000 {
        let seed = &seeds[random.u64() as usize % seeds.len()];
        let mut bytes = seed.clone().into_bytes();
        for _ in 0..1 + random.u64() % 4 {
            let at = random.u64() as usize % bytes.len();
            match random.u64() % 3 {
                0 => bytes[at] = random.u64() as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\r\n ;,<>\"@:0"[random.u64() as usize % 11]),
            }
        }
        let arrival = Arrival {
            transport: Transport::Udp,
            listener: ListenerId(0),
            remote: "127.0.0.99:5060".parse().unwrap(),
            flow: None,
        };
        for n in 0..2 {
            net.with(n, |agent, now, out| agent.receive(now, &arrival, &bytes, out));
        }
        net.flying.clear();
    }
    for n in 0..2 {
        let calls: Vec<CallKey> = net.phones[n]
            .heard
            .iter()
            .filter_map(|h| match h.event {
                Event::Invited { call, .. } => Some(call),
                _ => None,
            })
            .collect();
        for call in calls.into_iter().chain([caller]) {
            net.with(n, |agent, now, out| agent.hang_up(now, call, out));
        }
    }
    net.lose = Box::new(|_| true);
    net.is_clean();
}
