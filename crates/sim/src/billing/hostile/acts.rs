//! Acts of the account: calls that the server should not notice, and ends that only the server should believe.

use super::{Hostile, Leg, Outgoing};
use crate::billing::ledger::TRY;
use crate::billing::text::{Request, tag};
use crate::billing::{BOBS, DOMAIN, GATEWAY, MALLORYS};

/// Largest CSeq (RFC 3261 section 8.1.1.5).
const LARGEST: u32 = i32::MAX as u32;

impl Hostile {
    fn did(&mut self, what: &'static str) {
        *self.acts.entry(what).or_default() += 1;
    }

    /// Performs a random act.
    pub(super) fn act(&mut self, now: u64, out: &mut Vec<Outgoing>) {
        let leg = match self.legs.is_empty() {
            true => None,
            false => Some(self.random.u64() as usize % self.legs.len()),
        };
        match (self.random.between(0, 19), leg) {
            (0..4, _) | (4..16, None) => self.call(now, "call", "", out),
            (4..6, _) => self.call(now, "invented To tag", ";tag=invented", out),
            (6..8, _) => self.other_usage(now, out),
            (8..13, Some(leg)) => self.call_by(now, leg, out),
            (13..15, Some(leg)) => self.refresh(now, leg, out),
            (15, Some(leg)) => self.end(now, leg, out),
            (16, _) => self.copy(now, out),
            (17, Some(leg)) => {
                // A re-INVITE and a BYE at once.
                self.did("race");
                self.refresh(now, leg, out);
                self.end(now, leg, out);
            }
            (18, Some(leg)) => self.info_astray(now, leg, out),
            _ => self.call(now, "call", "", out),
        }
    }

    fn tag(&mut self) -> String {
        let n = self.number();
        match self.random.between(0, 19) {
            0 => format!("{n}{}", "t".repeat(300)),
            _ => format!("m{n}"),
        }
    }

    /// Chooses a Contact, true or forged.
    fn contact(&mut self, phone: usize) -> String {
        let host = match self.random.between(0, 999) {
            forged if forged >= self.habits.forges => MALLORYS[phone].to_string(),
            _ => match self.random.between(0, 5) {
                0 => MALLORYS[1 - phone].to_string(),
                1 => GATEWAY.to_string(),
                2 => BOBS[0].to_string(),
                3 => "nowhere.example".to_owned(),
                4 => {
                    return format!("<sip:mallory@{};x={}>", MALLORYS[phone], "x".repeat(2_100));
                }
                _ => return format!("<sip:{}@{}>", "0049", MALLORYS[phone]),
            },
        };
        format!("<sip:mallory@{host}>")
    }

    /// Returns the header lines of a request that creates or refreshes a session.
    fn lines(&mut self, phone: usize) -> String {
        let mut lines = format!("Contact: {}\r\n", self.contact(phone));
        if self.random.chance(self.habits.forges) {
            lines += match self.random.between(0, 2) {
                0 => "Record-Route: <sip:198.51.100.67;lr>\r\n",
                1 => "Record-Route: <sip:192.0.2.1;lr>\r\n",
                _ => "Record-Route: <sip:nowhere.example;lr>\r\n",
            };
        }
        if self.random.chance(200) {
            let seconds = *self.random.pick(&[1, 89, 90, 91, 1_800, 4_000_000_000_u64]);
            let refresher = self.random.pick(&["", ";refresher=uac", ";refresher=uas"]);
            let supported = self.random.pick(&["", "Supported: timer\r\n"]);
            lines += &format!("Session-Expires: {seconds}{refresher}\r\n{supported}");
        }
        lines
    }

    fn invite_lines(&mut self, phone: usize) -> String {
        let n = self.number();
        format!("{}{TRY}: m{n}\r\n", self.lines(phone))
    }

    fn first_cseq(&mut self) -> u32 {
        match self.random.between(0, 19) {
            0 => LARGEST,
            1 => LARGEST - 1,
            2 => LARGEST - 2,
            _ => 1,
        }
    }

    /// Begins a call, with this text after the URI in To.
    fn call(&mut self, now: u64, what: &'static str, to: &str, out: &mut Vec<Outgoing>) {
        self.did(what);
        let phone = self.random.between(0, 1) as usize;
        let (callee, own, n) = (self.random.pick(&self.callees.clone()).clone(), self.tag(), self.number());
        // Sometimes the account makes another call with the Call-ID of an existing call.
        let leg = if self.legs.is_empty() || self.random.chance(850) {
            None
        } else {
            Some(self.random.pick(&self.legs.clone()).clone())
        };
        let (call_id, from) = match leg {
            None => (format!("m{n}"), format!("<sip:mallory@{DOMAIN}>;tag={own}")),
            Some(leg) if self.random.chance(500) => (leg.call_id, leg.own),
            Some(leg) => (leg.call_id, format!("<sip:mallory@{DOMAIN}>;tag={own}")),
        };
        let request = Request {
            method: "INVITE".to_owned(),
            to: format!("<{callee}>{to}"),
            uri: callee,
            from,
            call_id,
            cseq: self.first_cseq(),
            lines: self.invite_lines(phone),
            ..Request::default()
        };
        let at = self.begin(now, phone, request, out);
        self.sent[at].cancels = self.random.chance(50);
    }

    /// Creates a dialog by another method.
    fn other_usage(&mut self, now: u64, out: &mut Vec<Outgoing>) {
        self.did("other usage");
        let phone = self.random.between(0, 1) as usize;
        let method = *self.random.pick(&["SUBSCRIBE", "REFER", "NOTIFY", "MESSAGE"]);
        let (own, n) = (self.tag(), self.number());
        let callee = self.random.pick(&self.callees.clone()).clone();
        let more = match method {
            "REFER" => format!("Refer-To: <sip:x@{DOMAIN}>\r\n"),
            "MESSAGE" => String::new(),
            "NOTIFY" => "Event: presence\r\nSubscription-State: active\r\n".to_owned(),
            _ => "Event: presence\r\nExpires: 600\r\n".to_owned(),
        };
        let request = Request {
            method: method.to_owned(),
            to: format!("<{callee}>"),
            uri: callee,
            from: format!("<sip:mallory@{DOMAIN}>;tag={own}"),
            call_id: format!("s{n}"),
            cseq: 1,
            lines: self.lines(phone) + &more,
            ..Request::default()
        };
        self.begin(now, phone, request, out);
    }

    /// Creates a request within a leg, along its route.
    fn of_leg(&mut self, at: usize, method: &str) -> Request {
        let leg = &mut self.legs[at];
        leg.cseq = leg.cseq.saturating_add(1);
        let Leg { call_id, own, peer, target, routes, cseq, .. } = leg.clone();
        let (method, uri, from, to) = (method.to_owned(), target, own, peer);
        Request { method, uri, from, to, call_id, cseq, routes, ..Request::default() }
    }

    /// Sends an INVITE along the route of a dialog of a call, or of a dialog without a call, open or ended. The INVITE
    /// has the tags of that dialog, or other tags.
    fn call_by(&mut self, now: u64, at: usize, out: &mut Vec<Outgoing>) {
        let phone = self.legs[at].phone;
        let mut request = self.of_leg(at, "INVITE");
        request.lines = self.invite_lines(phone);
        let n = self.number();
        match self.random.between(0, 5) {
            0 => {
                self.did("route of a dialog, another Call-ID");
                request.call_id = format!("m{n}");
            }
            1 => {
                self.did("route of a dialog, another To tag");
                let uri = request.to.split(";tag=").next().unwrap_or_default().to_owned();
                request.to = format!("{uri};tag=other{n}");
            }
            2 => {
                self.did("route of a dialog, no To tag");
                request.to = request.to.split(";tag=").next().unwrap_or_default().to_owned();
            }
            3 => {
                self.did("route of a dialog, another From tag");
                request.from = format!("<sip:mallory@{DOMAIN}>;tag=m{n}");
            }
            5 => {
                // The route of this dialog, the tags of another.
                self.did("route of a dialog, tags of another");
                let other = self.random.pick(&self.legs.clone()).clone();
                (request.call_id, request.from, request.to) = (other.call_id, other.own, other.peer);
            }
            _ => self.did("INVITE within a dialog"),
        }
        let phone = if self.random.chance(150) { 1 - phone } else { phone };
        self.begin(now, phone, request, out);
    }

    fn refresh(&mut self, now: u64, at: usize, out: &mut Vec<Outgoing>) {
        self.did("refresh");
        let phone = self.legs[at].phone;
        let method = *self.random.pick(&["INVITE", "UPDATE", "INFO"]);
        let mut request = self.of_leg(at, method);
        request.lines = if method == "INVITE" { self.invite_lines(phone) } else { self.lines(phone) };
        if self.random.chance(100) {
            request.cseq = LARGEST - self.random.between(0, 2) as u32;
            self.legs[at].cseq = request.cseq;
        }
        self.begin(now, phone, request, out);
    }

    /// Sends an INFO that raises the CSeq at the peer without the server seeing it: the INFO has a password, and lacks
    /// the route of the dialog.
    fn info_astray(&mut self, now: u64, at: usize, out: &mut Vec<Outgoing>) {
        self.did("request beside the route");
        let phone = self.legs[at].phone;
        let mut request = self.of_leg(at, "INFO");
        request.routes.clear();
        request.cseq = LARGEST - 3;
        self.begin(now, phone, request, out);
    }

    /// Sends the account's last INVITE again, as if a proxy before the server had forked it.
    fn copy(&mut self, now: u64, out: &mut Vec<Outgoing>) {
        let last = self.sent.iter().rev().find(|sent| sent.request.method == "INVITE").cloned();
        if let Some(last) = last {
            self.did("fork");
            let request = Request { branch: String::new(), ..last.request };
            self.begin(now, last.phone, request, out);
        }
    }

    /// Ends a call, or pretends to.
    pub(super) fn end(&mut self, now: u64, at: usize, out: &mut Vec<Outgoing>) {
        let mut phone = self.legs[at].phone;
        let mut request = self.of_leg(at, "BYE");
        let is_right = self.random.chance(400);
        match if is_right { 99 } else { self.random.between(0, 12) } {
            0 | 1 => {
                self.did("BYE with a lower CSeq");
                request.cseq = 0;
            }
            2 => {
                self.did("BYE with Require");
                request.lines = "Require: x\r\n".to_owned();
            }
            3 => {
                self.did("BYE with Proxy-Require");
                request.lines = "Proxy-Require: x\r\n".to_owned();
            }
            4 => {
                self.did("BYE with a body");
                request.lines = "Content-Type: text/x\r\n".to_owned();
            }
            5 => {
                self.did("BYE with Max-Forwards");
                request.lines = format!("Max-Forwards: {}\r\n", self.random.between(0, 1));
            }
            6 => {
                self.did("BYE by a detour");
                request.routes.push(format!("<sip:{};lr>", MALLORYS[1]));
            }
            7 => {
                self.did("BYE to another URI");
                request.uri = format!("sip:mallory@{}", MALLORYS[1]);
            }
            8 => {
                self.did("BYE beside the route");
                request.routes.clear();
            }
            9 => {
                self.did("BYE with other tags");
                let n = self.number();
                match self.random.chance(500) {
                    true => request.from = format!("<sip:mallory@{DOMAIN}>;tag=m{n}"),
                    false => {
                        request.to = format!("{};tag=other{n}", request.to.split(";tag=").next().unwrap_or_default())
                    }
                }
            }
            10 => {
                self.did("BYE of the other phone");
                phone = 1 - phone;
            }
            11 => {
                self.did("BYE of another call");
                let other = self.random.pick(&self.legs.clone()).clone();
                (request.uri, request.routes) = (other.target, other.routes);
            }
            12 => {
                self.did("silence");
                return;
            }
            _ => self.did("BYE"),
        }
        self.legs[at].is_over = true;
        self.begin(now, phone, request, out);
        debug_assert!(!tag(&self.legs[at].own).is_empty(), "each leg has a tag");
    }
}
