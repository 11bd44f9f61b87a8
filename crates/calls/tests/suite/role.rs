//! Test role that anchors calls, and the owner of a table for it. The role emits notices and answers orders about its
//! legs; it has no code for accounting, limits, lists, kept state or ends.

use std::sync::Arc;
use strowger_calls::ended_calls::EndedCalls;
use strowger_calls::limits::{CallLimits, Claim, LimitScope};
use strowger_calls::{
    AccountFacts, Admission, Beginning, CallEffect, CallTable, CallTimes, CallView, Context, Environment, Legs,
    LimitedTargets, OwnRequest, TableSettings,
};
use strowger_core::entropy::Entropy;
use strowger_core::notice::{Notice, NoticeEvent, Party};
use strowger_core::routing::{Identity, Request, Router};
use strowger_core::{Arrival, ListenerId, Now, Transport};
use strowger_message::{Index, Limits, Message};
use strowger_store::accounting::{Cdr, Row};

pub(crate) const LIFETIME: u64 = 60_000;
pub(crate) const FAR_CALL_ID: &[u8] = b"far";
const CALL_SECRET: u32 = 7;
const SDP: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 8\r\n";

/// Policy that accounts each call.
struct Policy;

impl Admission for Policy {
    fn account(&self, _: &CallTable) -> AccountFacts {
        AccountFacts {
            writes_cdr: true,
            caller: "sip:alice@example.org".into(),
            callee: "sip:bob@example.org".into(),
            ..AccountFacts::default()
        }
    }
}

/// Server whose role anchors calls.
pub(crate) struct Site {
    pub(crate) calls: CallTable,
    pub(crate) now: Now,
    pub(crate) limits: Arc<CallLimits>,
    /// Rows so far.
    pub(crate) rows: Vec<Row>,
    /// Orders about legs that the role has not carried out: context, party, request.
    pub(crate) orders: Vec<(u64, Party, OwnRequest)>,
    /// Contexts of the INVITEs that the table has ordered to cancel.
    pub(crate) cancelled: Vec<u64>,
    /// Last kept state.
    pub(crate) kept: Option<Box<[u8]>>,
    router: Router,
    entropy: Entropy,
}

/// Limit of one call.
pub(crate) fn line() -> Claim {
    Claim { counted: LimitScope { name: "line".into(), value: Box::default() }, most: 1, status: 486 }
}

impl Site {
    pub(crate) fn new() -> Self {
        let limits = Arc::new(CallLimits::new(1));
        let settings =
            TableSettings { seed: 5, keeps: true, limits: limits.clone(), ended: Arc::<EndedCalls>::default() };
        let times = CallTimes { logged: LIFETIME, lifetime: LIFETIME, transaction: 32_000 };
        Self {
            calls: CallTable::new(times, settings),
            now: Now { mono: 10_000, wall: 1_700_000_000_000 },
            limits,
            rows: Vec::new(),
            orders: Vec::new(),
            cancelled: Vec::new(),
            kept: None,
            router: Router::new(Arc::new(Identity::new(Vec::new(), ["example.org"], &[])), b"secret", 86_400),
            entropy: Entropy::new([7; 32]),
        }
    }

    pub(crate) fn wait(&mut self, milliseconds: u64) {
        self.now.mono += milliseconds;
        self.now.wall += milliseconds;
    }

    /// Runs `work` on the table, and carries out the effects of the table.
    pub(crate) fn work<T>(&mut self, work: impl FnOnce(&mut CallTable, &mut Environment<'_>) -> T) -> T {
        let mut env = Environment { now: self.now, router: &self.router, entropy: &mut self.entropy };
        let result = work(&mut self.calls, &mut env);
        self.calls.close_accounts(self.now);
        self.calls.keep_changed(self.now);
        while !self.calls.effects().is_empty() {
            for effect in std::mem::take(self.calls.effects()) {
                match effect {
                    CallEffect::Account(row) => self.rows.push(*row),
                    CallEffect::PersistCall { state, .. } => self.kept = Some(state),
                    CallEffect::FinishCall { .. } | CallEffect::DeleteCall { .. } => self.kept = None,
                    CallEffect::Send { .. } => panic!("the role writes the requests of its legs"),
                    CallEffect::SendOnLeg { context, party, kind, .. } => self.orders.push((context, party, kind)),
                    CallEffect::HasSent(dialog) => self.calls.has_sent(self.now, dialog),
                    CallEffect::Cancel { context, legs } => {
                        assert_eq!(legs, Legs::Anchored);
                        self.cancelled.push(context);
                    }
                    CallEffect::DialogEnded { .. } | CallEffect::LogForgotten => (),
                }
            }
            self.calls.close_accounts(self.now);
        }
        result
    }

    /// Takes an INVITE of alice.
    pub(crate) fn invite(&mut self, call_id: &str) -> Context {
        let text = format!(
            "INVITE sip:bob@example.org SIP/2.0\r\n{}To: <sip:bob@example.org>\r\nContact: <sip:alice@192.0.2.7>\r\nContent-Length: 0\r\n\r\n",
            fields(call_id)
        );
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("a request");
        let remote = "192.0.2.7:5060".parse().expect("an address");
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
        let call_hash = strowger_core::call::hash(CALL_SECRET, call_id.as_bytes());
        let request = Request::of(Message::new(text.as_bytes(), &index), &arrival, call_hash).expect("a request");
        let facts = Beginning {
            request: &request,
            in_dialog: false,
            is_user: true,
            legs: Legs::Anchored,
            far_call_id: FAR_CALL_ID,
            tracks: true,
            logs: false,
            accounts: true,
            draining: false,
            claims: &[line()],
            may_count: true,
            places: 1_000,
        };
        self.work(|calls, env| calls.begin(env, &facts, &mut LimitedTargets::default(), &Policy))
    }

    /// Takes an INVITE that the table admits. Returns its context.
    #[track_caller]
    pub(crate) fn begin(&mut self, call_id: &str) -> u64 {
        match self.invite(call_id) {
            Context::Notices(context) => context,
            refused => panic!("{refused:?}"),
        }
    }

    /// Emits a notice that names no response.
    pub(crate) fn emit(&mut self, context: u64, event: NoticeEvent) {
        self.work(|calls, env| calls.on_notice(env, &Notice { context, event }, b""));
    }

    /// Emits the notice of a response that is sent to alice.
    pub(crate) fn respond(&mut self, call_id: &str, context: u64, status: u16) {
        self.respond_as("own", 1, (call_id, context, status));
    }

    /// Emits the notice of a response of the callee with this tag, on this branch.
    pub(crate) fn respond_as(&mut self, tag: &str, branch: u32, (call_id, context, status): (&str, u64, u16)) {
        let body = if status == 200 { SDP } else { "" };
        let text = format!(
            "SIP/2.0 {status} Said\r\n{}To: <sip:bob@example.org>;tag={tag}\r\nContact: <sip:192.0.2.1>\r\n\
             Content-Length: {}\r\n\r\n{body}",
            fields(call_id),
            body.len()
        );
        let bytes = 0..text.len();
        let event = match status {
            ..200 => NoticeEvent::Rang { status, branch, bytes, after: Some(0) },
            200..300 => NoticeEvent::Answered { status, first: branch == 1, bytes, after: Some(0) },
            _ => NoticeEvent::Exhausted { status, bytes },
        };
        self.work(|calls, env| calls.on_notice(env, &Notice { context, event }, text.as_bytes()));
    }

    /// Takes the orders about legs.
    pub(crate) fn orders(&mut self) -> Vec<(u64, Party, OwnRequest)> {
        std::mem::take(&mut self.orders)
    }

    /// Emits the notice of a 200 from the party to the request of this order.
    pub(crate) fn confirm(&mut self, context: u64) {
        self.emit(context, NoticeEvent::Answered { status: 200, first: true, bytes: 0..0, after: None });
    }

    pub(crate) fn list(&self) -> Vec<CallView> {
        self.calls.list_calls(self.now, 0, 100, None).calls
    }

    /// Returns the only record so far.
    #[track_caller]
    pub(crate) fn record(&self) -> &Cdr {
        let [Row::Cdr(record)] = &self.rows[..] else { panic!("{:?}", self.rows) };
        record
    }

    /// Continues a kept call in the next process.
    pub(crate) fn restart(&mut self) {
        let state = self.kept.take().expect("a call is kept");
        let now = Now { mono: 500, wall: self.now.wall + 1_000 };
        *self = Self { now, ..Self::new() };
        let call = strowger_calls::read_kept(now, &state).expect("a call");
        let strange = self.work(|calls, env| calls.take_over(env.now, vec![call], CALL_SECRET));
        assert_eq!(strange, 0);
    }
}

fn fields(call_id: &str) -> String {
    format!(
        "Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bK{call_id}\r\nFrom: <sip:alice@example.org>;tag=a\r\n\
         Call-ID: {call_id}\r\nCSeq: 1 INVITE\r\nMax-Forwards: 70\r\n"
    )
}
