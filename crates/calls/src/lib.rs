//! Calls of a shard: their table, limits, accounting, log, kept state, lists and ends, whichever role carries them.
//!
//! The one rule of use: a role reports the events of each call by notices ([`strowger_core::notice`]), and the owner of the table carries
//! out its [effects](CallEffect). The table sends and stores nothing, reads no clock, and knows no configuration.
//!
//! 1. [`CallTable::begin`] enters an INVITE: shares of the table, limits, log, account. It returns the *context*, eight bytes that the role
//!    repeats in each notice about the INVITE.
//! 2. [`CallTable::on_notice`] takes the notices: rang, answered, refused by which next hop, timed out, cancelled, ended.
//! 3. [`CallTable::close_accounts`], after the notices of a round, turns the ended calls into rows of accounting;
//!    [`CallTable::keep_changed`], at the end of the round, writes the state of changed calls for the next process.
//!    A role with media tells the table when it closes the media session of a call ([`CallTable::await_media`]): the rows of the call wait for
//!    [`CallTable::media_ended`], which gives its quality, for a second at most.
//! 4. [`CallTable::end_due`] ends calls at their lifetime, and asks the parties of doubted calls.
//!    [`CallTable::end_call`] ends a call by order of an operator.
//!
//! A role that anchors a call (a back-to-back user agent) needs nothing else to have its call counted, listed, recorded, kept and ended:
//!
//! ```
//! use std::sync::Arc;
//! use strowger_calls::*;
//! use strowger_core::entropy::Entropy;
//! use strowger_core::notice::{Notice, NoticeEvent, Party};
//! use strowger_core::routing::{Identity, Request, Router};
//! use strowger_core::{Arrival, ListenerId, Now, Transport};
//! use strowger_message::{Index, Limits, Message};
//!
//! struct Policy;
//! impl Admission for Policy {
//!     fn account(&self, _: &CallTable) -> AccountFacts {
//!         AccountFacts { writes_cdr: true, caller: "sip:alice@example.org".into(), ..AccountFacts::default() }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let times = CallTimes { logged: 3_600_000, lifetime: 3_600_000, transaction: 32_000 };
//! let (limits, ended) = (Arc::new(limits::CallLimits::new(1)), Arc::default());
//! let mut calls = CallTable::new(times, TableSettings { seed: 1, keeps: false, limits, ended });
//! let router = Router::new(Arc::new(Identity::new(vec![], ["example.org"], &[])), b"secret", 86_400);
//! let mut entropy = Entropy::new([7; 32]);
//! let mut env = Environment { now: Now { mono: 0, wall: 1_700_000_000_000 }, router: &router, entropy: &mut entropy };
//!
//! // An INVITE of alice.
//! let fields = "Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bK1\r\nFrom: <sip:alice@example.org>;tag=a\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n";
//! let invite = format!("INVITE sip:bob@example.org SIP/2.0\r\n{fields}To: <sip:bob@example.org>\r\nContact: <sip:a@192.0.2.7>\r\nContent-Length: 0\r\n\r\n");
//! let mut index = Index::new();
//! index.parse(invite.as_bytes(), &Limits::default())?;
//! let remote = "192.0.2.7:5060".parse()?;
//! let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
//! let request = Request::of(Message::new(invite.as_bytes(), &index), &arrival, 0)?;
//!
//! let facts = Beginning {
//!     request: &request,
//!     in_dialog: false,
//!     is_user: false,
//!     legs: Legs::Anchored,
//!     far_call_id: b"",
//!     tracks: true,
//!     logs: false,
//!     accounts: true,
//!     draining: false,
//!     claims: &[],
//!     may_count: false,
//!     places: 1_000,
//! };
//! let entry = calls.begin(&mut env, &facts, &mut LimitedTargets::default(), &Policy);
//! let Context::Notices(context) = entry else { panic!("{entry:?}") };
//!
//! // Its 200 goes upstream. Five seconds later the caller hangs up.
//! let ok = format!("SIP/2.0 200 OK\r\n{fields}To: <sip:bob@example.org>;tag=b\r\nContact: <sip:192.0.2.1>\r\n\r\n");
//! let answered = NoticeEvent::Answered { status: 200, first: true, bytes: 0..ok.len(), after: Some(0) };
//! calls.on_notice(&mut env, &Notice { context, event: answered }, ok.as_bytes());
//! assert_eq!(calls.list_calls(env.now, 0, 10, None).calls[0].state, CallState::Answered);
//! env.now.mono += 5_000;
//! calls.on_notice(&mut env, &Notice { context, event: NoticeEvent::HungUp { by: Party::Caller, cause: None } }, b"");
//!
//! // The table orders a BYE to the callee, whose answer the role reports as well.
//! let effects: Vec<CallEffect> = calls.effects().drain(..).collect();
//! let [CallEffect::SendOnLeg { context, party: Party::Callee, kind: OwnRequest::Bye, .. }, CallEffect::HasSent(dialog)] = effects[..] else {
//!     panic!("{effects:?}")
//! };
//! calls.has_sent(env.now, dialog);
//! let answered = NoticeEvent::Answered { status: 200, first: true, bytes: 0..0, after: None };
//! calls.on_notice(&mut env, &Notice { context, event: answered }, b"");
//! calls.close_accounts(env.now);
//! assert!(calls.is_empty());
//! let rows: Vec<_> = calls.effects().drain(..).filter(|effect| matches!(effect, CallEffect::Account(_))).collect();
//! assert_eq!(rows.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Identity
//!
//! A call is found by a hash of Call-ID and caller's tag that is the same in all shards and, if calls are kept, in the
//! next process. A context is most bits of that hash, a salt of the call or dialog, and the purpose of the request. So
//! keys stay valid when a bucket moves, and by the salt late notices of an earlier call with the same Call-ID and tag
//! are recognised and ignored.
//!
//! # Legs
//!
//! A call has [`Legs`]. *Proxied*: one dialog between the parties passes here. The table has the URIs, tags, CSeqs,
//! Contacts and Routes that a request of this server to either party needs, and writes BYE and OPTIONS itself
//! ([`CallEffect::Send`]). *Anchored*: each party has a dialog with this server, whose requests the role writes
//! ([`CallEffect::SendOnLeg`]). In all other respects both kinds of legs are handled alike.
//!
//! # End
//!
//! A call ends when the BYE of its last answered dialog is answered 2xx, 481 or 408 or gets no response, when its
//! INVITE fails, or at the end of its lifetime. A 2xx that arrives later is dropped, so that no session exists without
//! a record. At the end of a lifetime or session timer, and by order of an operator, the server sends a BYE to both
//! parties; the dialog remains until both have ended it. If it is in doubt whether a dialog still exists (refused BYE,
//! missing ACK, call of an earlier process), the server asks both parties by an OPTIONS within the dialog.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | call, its legs | `call.rs`; `legs.rs`, `Legs` |
//! | table by key and deadline; keys; contexts | `table.rs`; `keys.rs`; `context.rs` |
//! | INVITE that begins a call; room under limits | `beginning.rs`, `begin`, `take_room` |
//! | notices | `notices.rs`, `on_notice` |
//! | dialog, requests within it | `dialog.rs`; `in_dialog.rs`; `membership.rs` |
//! | remote target and route set | `remote_target.rs`, `leads_along` |
//! | end of a dialog by this server; its requests | `dialog_end.rs`, `Ending`; `own_bye.rs`; `own_request.rs`; `deadlines.rs`, `end_due` |
//! | doubt, its questions; late responses; calls that cannot be ended | `doubted_dialog.rs`, `Doubt`; `probe.rs`; `dropped_answers.rs`; `unendable.rs`, `unendable` |
//! | ended calls of the process | `ended_calls.rs`, `recall` |
//! | limits; of a gateway or group; shared by servers | `limits.rs`; `scopes.rs`; `target_limits.rs`; `table.rs`, `change_target`; `shared_counts.rs`, `Member` |
//! | shares of the table | `shares.rs`, `are_used_up` |
//! | account of a call; texts of its rows | `cdr.rs`, `Account`; `cdr_fields.rs` |
//! | quality of the media; rows that wait for it | `media.rs`, `UnreportedCalls`; `persisted_call.rs`, `await_media`, `media_ended` |
//! | log of calls | `call_log.rs` |
//! | kept state, its format | `persisted_call.rs`, `VERSION` |
//! | list | `list.rs`, `CallView` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod beginning;
mod bye;
mod call;
mod call_log;
mod cdr;
pub mod cdr_fields;
mod context;
mod counts;
mod deadlines;
mod dialog;
mod dialog_end;
mod doubted_dialog;
mod dropped_answers;
mod effect;
pub mod ended_calls;
mod environment;
mod in_dialog;
mod keys;
mod legs;
pub mod limits;
mod list;
mod media;
mod membership;
mod notices;
mod origin;
mod own_bye;
mod own_request;
mod persisted_call;
mod probe;
mod remote_target;
mod scopes;
mod session_offer;
pub mod shared_counts;
pub mod shares;
mod table;
mod target_limits;
mod texts;
mod times;
mod unendable;

pub use beginning::{Admission, Again, Beginning, Context, LimitedTargets, passes_again};
pub use call::{Call, parties};
pub use cdr::AccountFacts;
pub use context::{NO_CALL, begins_call};
pub use counts::CallCounts;
pub use deadlines::AT_ONCE;
pub use dropped_answers::Passage;
pub use effect::{CallEffect, DialogId, OwnRequest};
pub use environment::Environment;
pub use legs::Legs;
pub use list::{CallPage, CallState, CallView, DialogView, MediaPath};
pub use persisted_call::{VERSION as KEPT_VERSION, anchor_of, read_kept, with_anchor};
pub use scopes::HeldLimits;
pub use table::{CallTable, TableSettings};
pub use times::CallTimes;
pub use unendable::Unendable;
