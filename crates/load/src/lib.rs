//! SIP load generator: runs the program of a scenario ([`strowger_scenario`]) as calls and measures them.
//!
//! The one rule of use: calls begin by the schedule, whether or not the peer is ready. So a campaign owns its threads,
//! and its caller polls it ([`campaign::Campaign::poll`]). A figure is valid only if the run shows that the generator
//! kept its schedule.
//!
//! | module | content |
//! |---|---|
//! | [`campaign`] | load for a target by a plan, up to the finished run |
//! | [`sipp`] | load by SIPp's command line |
//! | [`workload`] | ready scenarios |
//! | [`engine`] | the calls of one shard |
//! | [`report`] | reports of the figures and raw logs of [`strowger_measure`] |
//! | [`media`], [`command`] | RTP, controllers |
//!
//! Twenty calls to an answering side in this process:
//!
//! ```
//! use std::time::Duration;
//! use strowger_load::campaign::{Campaign, Plan, Stage};
//! use strowger_load::engine::pace::Part;
//! use strowger_measure::Counter;
//! use strowger_scenario::Distribution;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let loopback = vec!["127.0.0.1".parse()?];
//! let phones = Campaign::start(Plan { sources: loopback.clone(), ..Plan::answering() }, &|| false)?;
//! let address = phones.answering_at().ok_or("it answers")?;
//!
//! let mut plan = Plan::to(format!("sip:bob@{address}").parse()?);
//! plan.profile = vec![Part::Hold { rate: 200.0 }];
//! plan.calls = Some(20);
//! plan.hold = Distribution::Fixed(50.0);
//! plan.sources = loopback;
//! let mut calls = Campaign::start(plan, &|| false)?;
//! while calls.poll(Duration::from_millis(50)) != Stage::Over {}
//! let run = calls.finish().run;
//! assert_eq!(run.totals.counter(Counter::SessionAnswered), 20);
//! # Ok(())
//! # }
//! ```
//!
//! # Design
//!
//! * *Workloads* of `strowger load` are SIPp documents too, so both are measured alike.
//! * *Pace*: calls start by the integral of the rate over time, whatever the state of earlier calls. A late start
//!   counts from its scheduled moment.
//! * *Calls* are slots: a place in the program, variables, the last message. A call allocates nothing once warm.
//! * *Figures*: each shard has its own recorder, which makes a page a second; a collector adds the pages and
//!   writes the raw log. All reports are made from pages, during the run or later from the log. Delays end at the time
//!   stamp of the kernel, and the delay until the message was read is a measure of its own (`lag.receive`). The start
//!   delay of a call is split into the wait for the limit of concurrent calls and the lag of the generator.
//! * *Sockets*: calls share the socket of the listener by default; `strowger_net` opens dedicated ones for each call or
//!   user.
//! * *Sending on schedule*: a shard sleeps on a timer of the kernel to the microsecond, and sends datagrams of one size
//!   to one place in one call.
//! * *Media*: one thread sends the packets of all calls by a timer wheel; each common media socket has a thread that reads,
//!   judges the received streams and echoes, and one thread does so for the sockets of single calls.
//! * *Slow work*: a shard looks up no name, starts no shell and reads no file of a message. Helper threads do this work,
//!   and a call that waits for a helper sends nothing meanwhile.
//! * *Registrations* of users before a run, and their removal after it, are calls on the same sockets with separate
//!   books, so they are not measured.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | calls that are open at the end of a run | `engine/leaving.rs` |
//! | moment of the first call | `campaign/moment.rs` |
//! | connections of users before the schedule | `campaign/ahead.rs`; `engine/traffic/ending.rs`, `begin_ahead` |
//! | shares of several documents | `campaign/documents.rs` |
//! | keys that change a run | `campaign/keys.rs` |
//! | messages of failed calls | `campaign/failed_calls.rs`; `report/ladder.rs` |
//! | late or repeated messages of ready workloads; requests of no call | `engine/late.rs`; `engine/traffic/ending.rs`, `disown` |
//! | commands of a document, their environment | `engine/action.rs`; `helper.rs` |
//! | names of `setdest`, files of messages | `engine/suspension.rs`; `helper.rs` |
//! | options of SIPp | `sipp/options.rs` |
//! | wait of a call for its place; stalls of a shard | `engine/free_places.rs`; `stall_detector.rs` |
//! | media: packets, tones | `media/`; `media/dtmf.rs` |
//! | received streams: whose; figures and end; ports of calls | `media/hearing.rs`, `Ear`; `stream.rs`; `call_port.rs` |
//! | formats and hold by the descriptions of both sides | `media/reception.rs`; `description.rs` |
//! | time of sending in a packet, and its delay | `media/stamp.rs` |

#![forbid(unsafe_code)]

pub mod aka;
pub mod authentication;
pub mod campaign;
pub mod command;
pub mod engine;
pub mod keys;
pub mod media;
mod random;
pub mod report;
pub mod sipp;
mod wheel;
pub mod workload;

pub use strowger_report::{printable, printable_bytes};
