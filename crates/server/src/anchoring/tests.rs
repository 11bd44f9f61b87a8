//! Tests that the engine provides records, limits, lists and ends for a role that anchors calls: the role has no code
//! for them.

use super::*;
use crate::advance::tests::{NOW, arrival, engine_of, first, text};
use crate::decision::Decision;
use crate::engine::Effect;
use crate::handling::Progress;
use crate::proof::{Proof, User};
use crate::stage::Stage;
use std::sync::{Arc, Mutex};
use strowger_calls::{CallState, OwnRequest};
use strowger_core::Target;
use strowger_core::notice::{Notice, NoticeEvent, Party};
use strowger_core::routing::Request;
use strowger_core::transaction::{Incoming, ServerId};
use strowger_message::{Index, Message, respond};
use strowger_store::accounting::{Cdr, Row};

const RULES: &str = "domains = [\"example.org\"]\n[[call_limit]]\nname = \"line\"\nmost = 1\nstatus = 486\n\
    [[rule]]\nname = \"anchored\"\nto = [\"sip:192.0.2.50:5060\"]\nrelay_for = \"everyone\"\ncall_limits = [\"line\"]\n";

/// Work of the role so far.
#[derive(Default)]
struct Work {
    /// Anchored INVITE: context, server transaction, next hops.
    invites: Vec<(u64, ServerId, Vec<Target>)>,
    orders: Vec<(u64, LegOrder)>,
    notices: Vec<Notice>,
}

/// Role that rings at the caller as soon as it gets an INVITE.
struct TestRole(Arc<Mutex<Work>>);

impl Anchor for TestRole {
    fn invite(&mut self, round: &mut Round<'_>, invite: AnchoredInvite<'_, '_>) {
        let AnchoredInvite { context, server, request, targets } = invite;
        let bytes = answer(round, server, &request.message, 180);
        let mut work = self.0.lock().unwrap();
        work.invites.push((context, server, targets.to_vec()));
        let event = NoticeEvent::Rang { status: 180, branch: 1, bytes, after: Some(0) };
        work.notices.push(Notice { context, event });
    }

    fn order(&mut self, _: &mut Round<'_>, context: u64, order: LegOrder) {
        self.0.lock().unwrap().orders.push((context, order));
    }

    fn take_notices(&mut self, notices: &mut Vec<Notice>) {
        notices.append(&mut self.0.lock().unwrap().notices);
    }
}

/// Sends a response of the role to the caller.
fn answer(round: &mut Round<'_>, server: ServerId, request: &Message<'_>, status: u16) -> std::ops::Range<usize> {
    let from = round.out.start();
    respond(request, status, None, Some(b"own"), &mut round.out.bytes).finish(b"");
    let bytes = from..round.out.bytes.len();
    round.tx.respond(round.now, server, status, bytes.clone(), round.out);
    bytes
}

struct Site {
    engine: Engine,
    /// Decision of the rules about each INVITE.
    decision: Box<Decision>,
    work: Arc<Mutex<Work>>,
    now: Now,
    out: Outbox,
}

impl Site {
    fn new() -> Self {
        let (mut engine, work) = (engine_of(RULES, "accounting.cdr = true\n"), Arc::<Mutex<Work>>::default());
        engine.anchor = Some(Box::new(TestRole(work.clone())));
        let Verdict::Decide(mut decision) = first(&engine, Stage::Decide, &invite_text("1")) else {
            panic!("the rule holds")
        };
        decision.role = ServerRole::Anchor;
        Self { engine, decision, work, now: NOW, out: Outbox::new() }
    }

    /// Takes an authenticated INVITE that the rules have decided. Returns the statuses that the caller gets.
    fn invite(&mut self, call_id: &str) -> Vec<String> {
        self.out.clear();
        let text = invite_text(call_id);
        let (mut index, arrival) = (Index::new(), arrival());
        index.parse(text.as_bytes(), &self.engine.policy.limits).unwrap();
        let message = Message::new(text.as_bytes(), &index);
        let request = Request::of(message, &arrival, 1).unwrap();
        let transactions = &mut self.engine.stack.core.transactions;
        let Incoming::Request(server) = transactions.request(self.now, &request.message, &arrival, 1, &mut self.out)
        else {
            panic!("a new INVITE")
        };
        let user = User { name: b"alice"[..].into(), domain: b"example.org"[..].into() };
        let proof = Proof { user: Some(user), ..Proof::default() };
        let mut progress = Progress { decision: Some(self.decision.clone()), proof, ..Progress::new(self.now) };
        progress.stage = Stage::Route;
        let (now, out) = (self.now, &mut self.out);
        let server = Some(server);
        self.engine.advance(&mut Handling { now, request: &request, server, progress: &mut progress, out });
        self.engine.process_notices(self.now, &mut self.out);
        self.statuses()
    }

    fn statuses(&self) -> Vec<String> {
        let texts = self.out.sends().iter().map(|send| String::from_utf8_lossy(&self.out.bytes[send.range()]));
        texts.filter_map(|text| Some(text.strip_prefix("SIP/2.0 ")?.get(..3)?.to_owned())).collect()
    }

    /// Emits a notice of the role.
    fn emit(&mut self, context: u64, event: NoticeEvent) {
        self.work.lock().unwrap().notices.push(Notice { context, event });
        self.engine.poll(self.now, &mut self.out);
    }

    /// Has the callee answer, and the role then the caller.
    fn answer(&mut self) -> u64 {
        let (context, server, _) = self.work.lock().unwrap().invites[0];
        let text = invite_text("1");
        let mut index = Index::new();
        index.parse(text.as_bytes(), &self.engine.policy.limits).unwrap();
        let round = &mut Round { now: self.now, tx: &mut self.engine.stack.core.transactions, out: &mut self.out };
        let bytes = answer(round, server, &Message::new(text.as_bytes(), &index), 200);
        self.emit(context, NoticeEvent::Answered { status: 200, first: true, bytes, after: None });
        context
    }

    fn orders(&self) -> Vec<(u64, LegOrder)> {
        std::mem::take(&mut self.work.lock().unwrap().orders)
    }

    fn confirm(&mut self, context: u64) {
        self.emit(context, NoticeEvent::Answered { status: 200, first: true, bytes: 0..0, after: None });
    }

    #[track_caller]
    fn record(&mut self) -> Cdr {
        let rows = self.engine.effects.drain(..).filter_map(|effect| match effect {
            Effect::Account(row) => Some(*row),
            _ => None,
        });
        let rows: Vec<Row> = rows.collect();
        let [Row::Cdr(record)] = &rows[..] else { panic!("{rows:?}") };
        record.clone()
    }
}

fn invite_text(call_id: &str) -> String {
    let text = text("INVITE", "sip:bob@example.org", "sip:alice@example.org", "");
    text.replace("Call-ID: 1\r\n", &format!("Call-ID: {call_id}\r\n")).replace("z9hG4bK1", &format!("z9hG4bK{call_id}"))
}

#[test]
fn rules_let_a_role_carry_a_call() {
    let mut site = Site::new();
    assert_eq!(site.invite("1"), ["100", "180"]);
    let targets = site.work.lock().unwrap().invites[0].2.clone();
    assert_eq!(targets[0].address, "192.0.2.50:5060".parse().unwrap());
    let list = |site: &Site| site.engine.list_calls(site.now, 0, 10, None).calls;
    assert_eq!(list(&site)[0].state, CallState::Ringing);
    assert_eq!(site.invite("2"), ["486"], "the limit of the rules is full");
    assert_eq!(&*site.record().outcome, "missed", "it has a record of its own");
    site.out.clear();
    site.now.mono += 2_000;
    site.answer();
    // The 486 is retransmitted after the 200, because no ACK for the 486 came.
    assert_eq!((list(&site)[0].state, &*site.statuses()[0]), (CallState::Answered, "200"));

    site.now.mono += 5_000;
    let id = list(&site)[0].id;
    assert!(site.engine.end_call(site.now, id, &mut site.out));
    let orders = site.orders();
    let bye = |party| LegOrder::Send { party, kind: OwnRequest::Bye };
    let [(caller, first), (callee, second), (_, LegOrder::Cancel)] = orders[..] else { panic!("{orders:?}") };
    assert_eq!([first, second], [bye(Party::Caller), bye(Party::Callee)]);
    site.confirm(caller);
    site.confirm(callee);
    assert!(list(&site).is_empty());
    let record = site.record();
    assert_eq!((&*record.outcome, &*record.ended_by, record.status), ("answered", "operator", 200));
    assert_eq!((record.answer, record.end), (Some(record.setup + 2_000), Some(record.setup + 7_000)));
    assert_eq!((record.caller.as_str(), record.callee.as_str()), ("sip:alice@example.org", "sip:bob@example.org"));
    let counts = site.engine.shared.counts();
    assert_eq!((counts.calls_ended, site.engine.counted()), (1, 0));
    assert_eq!(site.invite("3"), ["100", "180"], "the limit has room again");
}

#[test]
fn a_party_that_hangs_up_ends_an_anchored_call() {
    let mut site = Site::new();
    site.invite("1");
    let context = site.answer();
    site.emit(context, NoticeEvent::HungUp { by: Party::Callee, cause: None });
    let orders = site.orders();
    let [(bye, LegOrder::Send { party: Party::Caller, kind: OwnRequest::Bye })] = orders[..] else {
        panic!("{orders:?}")
    };
    site.confirm(bye);
    assert_eq!(&*site.record().ended_by, "callee");
}

#[test]
fn without_a_role_no_call_is_anchored() {
    let mut site = Site::new();
    site.engine.anchor = None;
    assert_eq!(site.invite("1"), ["501"]);
    assert!(site.engine.list_calls(site.now, 0, 10, None).calls.is_empty());
}
