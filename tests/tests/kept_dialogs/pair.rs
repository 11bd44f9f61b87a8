//! Parties of a call, and the rows of calls.

use super::*;

/// Two phones, and answered calls between them.
pub(crate) struct Pair {
    pub(super) caller: Wire,
    pub(super) callee: Wire,
    pub(super) user: String,
    /// Party whose BYE ends it, and time of the answer.
    pub(super) calls: Vec<(End, bool, u64)>,
}

/// Times of a call's answer and end.
pub(crate) type Times = HashMap<String, (u64, u64)>;

impl Pair {
    pub(crate) fn new(server: &Server, user: &str) -> Self {
        let [caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
        register(&mut callee, user);
        Self { caller, callee, user: user.into(), calls: Vec::new() }
    }

    pub(crate) fn call(&mut self, count: usize) {
        for _ in 0..count {
            let call = invite(&format!("sip:{}@example.org", self.user), &self.caller);
            let (of_caller, of_callee) = set_up(&mut self.caller, &mut self.callee, &call, true);
            let by_caller = self.calls.len().is_multiple_of(2);
            self.calls.push((if by_caller { of_caller } else { of_callee }, by_caller, wall()));
        }
    }

    /// Ends calls by the BYE of one party, which the other answers 200.
    pub(crate) fn end(&mut self, count: usize) -> Times {
        let mut times = Times::new();
        for (mut end, by_caller, answered) in self.calls.drain(..count) {
            let (from, to) = match by_caller {
                true => (&mut self.caller, &mut self.callee),
                false => (&mut self.callee, &mut self.caller),
            };
            hang_up(from, to, &end.request("BYE"));
            times.insert(end.call_id, (answered, wall()));
        }
        times
    }
}

/// Ends a call by a BYE, retransmitted by UDP until its answer comes (RFC 3261 section 17.1.2.2): sockets may overflow
/// while a server that took over calls sends a request for each.
fn hang_up(from: &mut Wire, to: &mut Wire, bye: &Request) {
    let (limit, mut arrived) = (Instant::now() + LIMIT, false);
    while Instant::now() < limit {
        from.send(&bye.bytes()).expect("the server takes messages");
        let again = Instant::now() + T1;
        while Instant::now() < again {
            for (wire, is_awaited) in [(&mut *to, !arrived), (&mut *from, arrived)] {
                if !is_awaited && !wire.has_come() {
                    continue;
                }
                let Some(message) = wire.receive(Duration::from_millis(10)) else { continue };
                let method = method(&message);
                if let Some("BYE" | "OPTIONS") = method.as_deref() {
                    wire.send(&respond(&message, 200, "", &[])).expect("loopback takes it");
                    arrived |= method.as_deref() == Some("BYE");
                } else if method.is_none() && field(&message, "Call-ID").as_deref() == Some(&bye.call_id) {
                    assert_eq!(status(&message), Some(200), "{}", bye.call_id);
                    return;
                }
            }
        }
    }
    panic!("BYE of {} is not answered", bye.call_id);
}
