//! Phone that answers each event by itself, with the extensions of its party.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use strowger_core::Round;
use strowger_core::user_agent::{Capabilities, Event, Reliability, SessionTimerSettings, UserAgent, UserAgentSettings};
use strowger_message::Method;

use super::super::rig::*;
use super::table::{FIRST, LATER, Party};
use super::transcript::{described, mirrored};

/// Session timer of each party that has one, and of the bridge: a refresh is due after 45 s, and the end without one after 60 s.
pub(super) const TIMER: SessionTimerSettings = SessionTimerSettings { interval: 90, least: 90, refreshes: false };

/// Phone on the network.
#[derive(Clone)]
pub(super) struct Phone {
    pub(super) number: usize,
    party: Party,
    version: Rc<Cell<u32>>,
    /// Description of the 200 to the first INVITE.
    last: Rc<RefCell<Vec<u8>>>,
}

impl Phone {
    pub(super) fn new(number: usize, party: Party) -> Self {
        Self { number, party, version: Rc::default(), last: Rc::default() }
    }

    pub(super) fn settings(&self) -> UserAgentSettings {
        let Party { is_reliable, has_update, has_timer } = self.party;
        let (prack, update) = (if is_reliable { ", PRACK" } else { "" }, if has_update { ", UPDATE" } else { "" });
        let capabilities = Capabilities {
            allow: format!("INVITE, ACK, CANCEL, BYE, INFO, REFER, NOTIFY{prack}{update}").into_bytes(),
            supported: if is_reliable { b"100rel".to_vec() } else { Vec::new() },
            session_timer: has_timer.then_some(TIMER),
            ..Capabilities::default()
        };
        let reliability = if is_reliable { Reliability::Supported } else { Reliability::Required };
        // A method that is not allowed is taken too, so that the log shows it.
        UserAgentSettings { capabilities, reliability, other_methods: true, ..quiet() }
    }

    /// Joins the network in the place of the phone with this number, which handles its events.
    pub(super) fn join(&self, b2b: &mut Bridged) {
        let (own, phone) = (self.clone(), &mut b2b.net.phones[self.number]);
        phone.auto_answer = false;
        phone.owner = Some(Box::new(move |agent: &mut UserAgent, round: &mut Round<'_>, event: &Event| {
            own.react(agent, round, event);
        }));
    }

    /// Returns a new description of this phone.
    pub(super) fn describe(&self, codecs: &str, direction: &str) -> Vec<u8> {
        self.version.set(self.version.get() + 1);
        sdp(self.number, self.version.get(), codecs, direction)
    }

    /// Returns the description of the 200 to the first INVITE.
    pub(super) fn last(&self) -> Vec<u8> {
        self.last.borrow().clone()
    }

    fn answer(&self, offer: &str) -> Vec<u8> {
        let (codecs, direction, _) = described(offer).unwrap_or_else(|| panic!("no stream in {offer}"));
        self.describe(codecs.split(' ').next().unwrap_or_default(), mirrored(direction))
    }

    fn react(&self, agent: &mut UserAgent, round: &mut Round<'_>, event: &Event) {
        match *event {
            Event::Invited { call, offer, .. } => {
                let (offer, invite) = (text(agent.text(offer)), text(agent.message()));
                let supported = invite.lines().find_map(|line| line.strip_prefix("Supported: ")).unwrap_or_default();
                let is_reliable = self.party.is_reliable && supported.contains("100rel");
                let early = match (offer.is_empty(), is_reliable) {
                    (false, _) => self.answer(&offer),
                    (true, true) => self.describe(FIRST, "sendrecv"),
                    (true, false) => Vec::new(),
                };
                agent.ring(round, call, if early.is_empty() { 180 } else { 183 }, &early);
                *self.last.borrow_mut() = match (is_reliable, early.is_empty()) {
                    (true, _) => Vec::new(),
                    (false, true) => self.describe(FIRST, "sendrecv"),
                    (false, false) => early,
                };
            }
            Event::Progress { call, body, offer: true, .. } => {
                let answer = self.answer(&text(agent.text(body)));
                agent.prack(round, call, &answer).expect("a PRACK is due");
            }
            Event::Answered { call, body, offer: true } => {
                let answer = self.answer(&text(agent.text(body)));
                agent.acknowledge(round, call, &answer);
            }
            Event::Offered { call, offer, update } => {
                let offer = text(agent.text(offer));
                let body = if offer.is_empty() { self.describe(LATER, "sendrecv") } else { self.answer(&offer) };
                if update {
                    agent.answer_update(round, call, &body);
                } else {
                    agent.answer(round, call, &body);
                }
            }
            Event::Request { request, method: Method::Info, .. } => {
                agent.respond(round, request, 200, b"Content-Type: text/plain\r\n", b"six");
            }
            Event::Request { request, method, .. } => {
                let status = if method == Method::Refer { 202 } else { 200 };
                agent.respond(round, request, status, b"", b"");
            }
            _ => (),
        }
    }
}
