//! Incoming calls of an honest party.

use super::{Honest, IncomingCall, Outgoing, Session, SessionNote, Task};
use crate::billing::T1;
use crate::billing::ledger::TRY;
use crate::billing::text::{Received, response, uri};

impl Honest {
    /// Handles an INVITE outside any dialog.
    pub(super) fn ring(&mut self, now: u64, said: &Received, out: &mut Vec<Outgoing>) {
        let is_same = |rung: &IncomingCall| {
            let of = &rung.invite;
            of.call_id() == said.call_id() && of.tag("From") == said.tag("From") && of.cseq() == said.cseq()
        };
        if let Some(rung) = self.rung.iter().find(|rung| is_same(rung)) {
            // This INVITE is a copy, or the same request over another path (RFC 3261 section 8.2.2.2).
            if rung.invite.branch() == said.branch() {
                return;
            }
            return self.finally(said, 482, "", out);
        }
        self.rung.push(IncomingCall { invite: said.clone(), is_over: false });
        let tag = self.new_tag();
        let contact = self.contact();
        if self.random.chance(700) {
            self.send(response(said, 180, &format!("early{tag}"), &contact), out);
        }
        let after = self.random.between(0, self.manners.answers_within);
        self.tasks.plan(now + after, Task::Answer(self.rung.len() - 1));
    }

    pub(super) fn answer(&mut self, now: u64, at: usize, out: &mut Vec<Outgoing>) {
        if std::mem::replace(&mut self.rung[at].is_over, true) {
            return;
        }
        let invite = self.rung[at].invite.clone();
        if self.random.chance(80) {
            let status = *self.random.pick(&[404, 486, 503]);
            return self.finally(&invite, status, "", out);
        }
        let tag = self.new_tag();
        self.accept(now, &invite, &tag, out);
    }

    fn accept(&mut self, now: u64, invite: &Received, own_tag: &str, out: &mut Vec<Outgoing>) {
        let to = invite.line("To");
        let own = if invite.tag("To").is_empty() { format!("{to};tag={own_tag}") } else { to.to_owned() };
        self.notes.push(SessionNote {
            call_id: invite.call_id().to_owned(),
            own_tag: own_tag.to_owned(),
            peer_tag: invite.tag("From").to_owned(),
            is_callee: true,
            try_: invite.line(TRY).to_owned(),
            began: now,
            ended: None,
            refused: Vec::new(),
            defied: Vec::new(),
            is_revived: !invite.tag("To").is_empty(),
        });
        self.sessions.push(Session {
            note: self.notes.len() - 1,
            own,
            peer: invite.line("From").to_owned(),
            target: invite.contact().unwrap_or_else(|| uri(invite.line("From"))),
            routes: invite.record_routes(),
            own_cseq: 0,
            peer_cseq: invite.cseq(),
            last: String::new(),
            acknowledged: false,
            expires: None,
            is_refresher: false,
        });
        let at = self.sessions.len() - 1;
        let mut timer = self.take_timer(now, at, invite);
        if timer.is_empty() && self.manners.session > 0 {
            let seconds = self.manners.session;
            self.set_timer(now, at, seconds, true);
            timer = format!("Session-Expires: {seconds};refresher=uas\r\n");
        }
        let text = response(invite, 200, own_tag, &(self.contact() + &timer));
        self.answered.insert(format!("{}INVITE", invite.branch()), text.clone());
        self.sessions[at].last.clone_from(&text);
        self.send(text, out);
        self.tasks.plan(now + T1, Task::Again(at, T1));
        self.tasks.plan(now + 64 * T1, Task::NoAck(at));
        let lasts = self.random.between(1_000, self.manners.lasts);
        self.tasks.plan(now + lasts, Task::HangUp(at));
    }

    /// Handles an INVITE within a dialog.
    pub(super) fn renew(&mut self, now: u64, said: &Received, out: &mut Vec<Outgoing>) {
        let Some(at) = self.session_of(said) else {
            if !self.manners.revives || self.has_called_as(said.tag("To")) {
                return self.finally(said, 481, "", out);
            }
            let tag = said.tag("To").to_owned();
            return self.accept(now, said, &tag, out);
        };
        if said.cseq() <= self.sessions[at].peer_cseq {
            return self.finally(said, 500, "", out);
        }
        self.sessions[at].peer_cseq = said.cseq();
        said.contact().into_iter().for_each(|contact| self.sessions[at].target = contact);
        let lines = self.contact() + &self.take_timer(now, at, said);
        self.finally(said, 200, &lines, out);
    }

    pub(super) fn cancel(&mut self, said: &Received, out: &mut Vec<Outgoing>) {
        let is_meant = |rung: &IncomingCall| rung.invite.branch() == said.branch();
        let Some(at) = self.rung.iter().position(is_meant) else { return self.finally(said, 481, "", out) };
        self.finally(said, 200, "", out);
        if !std::mem::replace(&mut self.rung[at].is_over, true) {
            let invite = self.rung[at].invite.clone();
            self.finally(&invite, 487, "", out);
        }
    }
}
