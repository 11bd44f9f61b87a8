//! Server with a gateway, a user and an account of calls.

use super::*;

/// A server that records and counts calls, its users alice and carol, and the gateway for every number.
pub(super) struct Office {
    pub(super) server: Server,
    pub(super) alice: Wire,
    pub(super) gateway: Wire,
    /// User whose password is shown.
    pub(super) user: &'static str,
    /// Calls that the gateway has answered and no party has ended, by Call-ID, each with the gateway's end.
    pub(super) standing: BTreeMap<String, End>,
    /// Calls that the gateway has answered.
    pub(super) answered: usize,
}

/// Outcome of a request of alice.
pub(super) enum RequestResult {
    /// Answered without a password: refused, or passed to the gateway. With the final response.
    Open(Vec<u8>),
    /// Challenged by the server.
    Challenged(Vec<u8>),
}

impl Office {
    pub(super) fn start() -> Self {
        let at = free_address();
        let server = Setup::on(&[Udp])
            .with(
                "domains = [\"example.org\"]\nban.enabled = false\naccounting.cdr = true\naccounting.to = \"sqlite\"\n\
                 accounting.path = \"rows\"\naccounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"\n\
                 control.socket = \"control\"",
            )
            .with(&format!(
                "[[call_limit]]\nname = \"line\"\nper = \"user\"\nmost = 1000\n\
                 [[rule]]\nname = \"out\"\nwhen = \"number starts_with '00'\"\nto = [\"sip:{at}\"]\ncall_limits = [\"line\"]\n\
                 [[rule]]\nname = \"others\"\ncall_limits = [\"line\"]\n"
            ))
            .start();
        for user in ["alice", "carol"] {
            server.add_user(&format!("{user}@example.org"), user);
        }
        let gateway = Wire::connect_from(Udp, at, server.address(Udp), None).expect("the port is free");
        let alice = server.connect(Udp);
        Self { server, alice, gateway, user: "alice", standing: BTreeMap::new(), answered: 0 }
    }

    /// Returns a request of the user outside of any dialog.
    pub(super) fn request(&self, method: &str) -> Request {
        let mut request = Request::new(method, NUMBER, "udp", self.alice.local()).with(contact("caller", &self.alice));
        request.from = format!("<sip:{}@example.org>;tag={}", self.user, unique("f"));
        request
    }

    /// Returns a request of this end, with a Contact.
    pub(super) fn within(&self, end: &mut End, method: &str) -> Request {
        end.request(method).with(contact("caller", &self.alice))
    }

    /// Sends a request; the gateway answers with this status, if the request arrives there.
    pub(super) fn once(&mut self, request: &Request, code: u16) -> RequestResult {
        self.alice.send(&request.bytes()).expect("loopback");
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < LIMIT, "nothing becomes of {request:?}");
            if let Some(got) = self.gateway.request(&request.method, Duration::from_millis(5)) {
                self.answers(&got, code);
            }
            let Some(answer) = self.alice.final_response(Duration::from_millis(5)) else { continue };
            let is_of_it = field(&answer, "Call-ID").as_deref() == Some(request.call_id.trim())
                && field(&answer, "CSeq") == Some(format!("{} {}", request.cseq, request.method));
            if !is_of_it {
                continue;
            }
            if request.method == "INVITE" {
                self.alice.send(&request.ack(&answer).bytes()).expect("loopback");
            }
            return if matches!(status(&answer), Some(401 | 407)) {
                RequestResult::Challenged(answer)
            } else {
                RequestResult::Open(answer)
            };
        }
    }

    /// Answers a request at the gateway, and updates the open calls.
    pub(super) fn answers(&mut self, got: &[u8], code: u16) {
        let call_id = field(got, "Call-ID").expect("a Call-ID");
        let tag = unique("gw");
        match field(got, "CSeq").expect("a CSeq").split(' ').nth(1) {
            Some("INVITE") if code < 300 && !self.standing.contains_key(&call_id) => {
                self.standing.insert(call_id, End::called(got, &tag, &self.gateway));
                self.answered += 1;
            }
            Some("BYE") if code < 300 => drop(self.standing.remove(&call_id)),
            _ => (),
        }
        let response = respond(got, code, &tag, &[contact("gw", &self.gateway)]);
        self.gateway.send(&response).expect("loopback");
    }

    /// Tries a request without a password, then with one if challenged. Without a password an INVITE reaches the
    /// gateway only within an open call.
    pub(super) fn attack(&mut self, request: &Request) -> Vec<u8> {
        let (before, answered) = (self.standing.len(), self.answered);
        match self.once(request, 200) {
            RequestResult::Open(answer) => {
                assert_eq!((self.standing.len(), self.answered), (before, answered), "without a password: {request:?}");
                answer
            }
            RequestResult::Challenged(challenge) => {
                let again = authorized(request, &challenge, self.user, self.user);
                match self.once(&again, 200) {
                    RequestResult::Open(answer) | RequestResult::Challenged(answer) => answer,
                }
            }
        }
    }

    /// Checks that a request is challenged, and creates no call.
    pub(super) fn is_challenged(&mut self, request: &Request) {
        assert!(matches!(self.once(request, 200), RequestResult::Challenged(_)), "{request:?}");
    }

    /// Creates a dialog with the gateway by a request with this method; returns the end of the caller.
    pub(super) fn dialog(&mut self, method: &str, code: u16) -> End {
        let request = self.request(method);
        let RequestResult::Challenged(challenge) = self.once(&request, 200) else {
            panic!("{method} needs no password")
        };
        let again = authorized(&request, &challenge, self.user, self.user);
        match self.once(&again, code) {
            RequestResult::Open(answer) => End::caller(&again, &answer),
            RequestResult::Challenged(answer) => panic!("{}", String::from_utf8_lossy(&answer)),
        }
    }

    /// Returns the caller's end of a call that the caller has ended.
    pub(super) fn ended(&mut self) -> End {
        let mut end = self.dialog("INVITE", 200);
        let bye = end.request("BYE");
        assert!(matches!(self.once(&bye, 200), RequestResult::Open(_)));
        end
    }

    /// Returns the caller's end, from the ringing, of a call that the gateway then refused.
    pub(super) fn rang(&mut self) -> End {
        let request = self.request("INVITE");
        let RequestResult::Challenged(challenge) = self.once(&request, 200) else { panic!("it needs no password") };
        let again = authorized(&request, &challenge, self.user, self.user);
        self.alice.send(&again.bytes()).expect("loopback");
        let got = self.gateway.request("INVITE", LIMIT).expect("it arrives");
        let lines = [contact("gw", &self.gateway)];
        self.gateway.send(&respond(&got, 183, "early", &lines)).expect("loopback");
        let ringing = self.alice.answer(LIMIT).expect("it rings");
        assert_eq!(status(&ringing), Some(183));
        self.gateway.send(&respond(&got, 486, "early", &[])).expect("loopback");
        let refused = self.alice.final_response(LIMIT).expect("it is refused");
        self.alice.send(&again.ack(&refused).bytes()).expect("loopback");
        End::caller(&again, &ringing)
    }

    pub(super) fn counted(&self) -> u64 {
        json(&self.server, &["limits"]).as_array().expect("a list").iter().filter_map(|l| l["calls"].as_u64()).sum()
    }

    pub(super) fn records(&self) -> usize {
        rows(&self.server, "cdr").iter().filter(|row| row["outcome"] == "answered").count()
    }

    /// Answers BYEs of the server with 481; the server sends BYEs of its own to a call whose tags the caller chose.
    /// Returns true, for use in conditions.
    pub(super) fn answers_byes(&mut self) -> bool {
        for wire in [&mut self.alice, &mut self.gateway] {
            while let Some(bye) = wire.request("BYE", Duration::from_millis(20)) {
                wire.send(&respond(&bye, 481, "", &[])).expect("loopback");
            }
        }
        true
    }

    /// Checks that every open call counts, that a BYE of the gateway ends each call, and that each call then has one
    /// record.
    pub(super) fn settles(&mut self, way: &str) {
        let standing = self.standing.len() as u64;
        assert!(
            wait::until(LIMIT, || self.answers_byes() && self.counted() == standing),
            "{way}: {standing} stand, counted {}",
            self.counted()
        );
        for mut end in std::mem::take(&mut self.standing).into_values() {
            let bye = end.request("BYE");
            self.gateway.send(&bye.bytes()).expect("loopback");
            loop {
                let got = self.alice.request("BYE", LIMIT).unwrap_or_else(|| panic!("{way}: no BYE passes"));
                let is_its = field(&got, "CSeq") == Some(format!("{} BYE", bye.cseq));
                let is_its = is_its && field(&got, "Call-ID").as_ref() == Some(&end.call_id);
                self.alice.send(&respond(&got, if is_its { 200 } else { 481 }, "", &[])).expect("loopback");
                if is_its {
                    break;
                }
            }
            let answer = self.gateway.final_response(LIMIT).and_then(|answer| status(&answer));
            assert_eq!(answer, Some(200), "{way}");
        }
        assert!(
            wait::until(LIMIT, || self.answers_byes() && self.records() == self.answered),
            "{way}: {} of {}",
            self.records(),
            self.answered
        );
        assert!(wait::until(LIMIT, || self.counted() == 0), "{way}: {}", self.counted());
    }
}
