//! Measures: turns the engine's events into figures that the RFCs define.
//!
//! Each shard records into [`ShardRecorder`]. Once a second its [`Page`] of figures goes to the [`Collector`], which adds up
//! the pages of all shards. A [`CallBook`] is the recorder state of a running call, part of the engine's call slot.
//!
//! Logs of one or several generators are read and judged whole ([`Run::read`]) or by any span of seconds
//! ([`Run::read_span`]). An [`Observer`] samples process trees and the machine into a log of its own, which
//! [`Observed`] reads.
//!
//! ```
//! use std::time::SystemTime;
//! use strowger_measure::{Clock, Collector, Counter, Delay, CallOutcome};
//! use strowger_message::Method;
//!
//! let mut collector = Collector::new(Clock::new(0, SystemTime::now()), vec![], 1);
//! let mut recorder = collector.recorder(0);
//! recorder.calls_intended(1);
//! let mut call = recorder.call_started(1_000, 900, 0);
//! recorder.request_sent(&mut call, 1_010, Method::Invite, 500);
//! recorder.response_received(&mut call, 3_010, Method::Invite, 180, false, 300);
//! recorder.response_received(&mut call, 9_010, Method::Invite, 200, false, 600);
//! recorder.request_sent(&mut call, 9_020, Method::Ack, 300);
//! recorder.request_sent(&mut call, 9_030, Method::Bye, 300);
//! recorder.response_received(&mut call, 9_530, Method::Bye, 200, false, 300);
//! recorder.call_ended(&mut call, 9_530, CallOutcome::Successful);
//! recorder.close(10_000);
//! let totals = collector.finish(|_second| {});
//! assert_eq!(totals.delays(Delay::Setup).mean(), Some(2_000.0)); // µs: INVITE to 180
//! assert_eq!(totals.delays(Delay::SetupIntended).mean(), Some(2_110.0));
//! assert_eq!(totals.delays(Delay::Disconnect).mean(), Some(500.0));
//! assert_eq!(totals.counter(Counter::SessionCompleted), 1);
//! ```
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | measures and their definitions, from which `docs/measures.md` is made | `delay.rs`; `share.rs`; `counter.rs`; units: `figure.rs` |
//! | recorder of the figures of a shard; its messages; health of the generator | `shard_recorder.rs`; `shard_recorder/messages.rs`; `health.rs` |
//! | verdict on the generator, window by window | `health/mod.rs`; `window.rs`; `judge.rs` |
//! | received media streams | `media.rs`, `HeardStream` |
//! | requirement of a run; one that ends it | `requirement.rs`; `guard.rs` |
//! | warm-up; figures of each document | `warm_up.rs`; `document.rs` |
//! | raw logs: layout, several together, a span of seconds | `layout.rs`; `merge.rs`; `span.rs` |
//! | processor time and memory of a process tree | `process.rs`, `Usage` |
//! | samples of processes and machine, read again | `observer.rs`, `Observer`; `tree.rs`; `machine.rs`; `sockets.rs`; `observed.rs` |

mod attempt;
mod call;
mod catalogue;
mod clock;
mod collector;
mod counter;
mod delay;
mod document;
mod encoding;
mod failed_call;
mod failure;
mod figure;
mod guard;
mod heading;
mod health;
mod journal;
mod judge;
mod layout;
mod log;
mod machine;
mod media;
mod merge;
mod observed;
mod observer;
mod page;
mod proc;
pub mod process;
mod requirement;
mod run;
mod sample;
mod series;
mod shard_recorder;
mod share;
mod sockets;
mod span;
mod table;
mod threads;
mod thresholds;
mod tree;
mod unit;
mod warm_up;
mod window;

pub use call::{Attempt, CallBook, CallOutcome, Role};
pub use catalogue::{Described, Measure, MeasureError, Statistic, catalogue};
pub use clock::Clock;
pub use collector::Collector;
pub use counter::Counter;
pub use delay::{Delay, Delays, LONGEST};
pub use document::{DocumentName, DocumentTotals};
pub use encoding::DecodeError;
pub use failed_call::{FailedCall, KeptMessage};
pub use failure::Failure;
pub use guard::Guard;
pub use heading::{Ending, GeneratorRole, Heading, Level, Note, ReceiveBuffer};
pub use health::{Health, Judged, LOG, RunVerdict, ThreadLoad};
pub use journal::Journal;
pub use judge::Reason;
pub use log::{Entry, Log, LogError, LogReader};
pub use machine::{InterfaceUse, MachineSample, MachineSampler};
pub use media::{HeardMedia, HeardStream, Quality};
pub use observed::Observed;
pub use observer::{MOST_SAMPLES, Observer};
pub use page::{Codes, METHODS, Page};
pub use requirement::{Judgement, Requirement, RequirementError, ungrouped};
pub use run::{Generator, Run};
pub use sample::{Sample, Sampler};
pub use series::{Row, columns, units};
pub use shard_recorder::{SendFailure, ShardRecorder};
pub use share::{Rate, Share, concluded_registrations, concluded_sessions};
pub use span::Span;
pub use threads::ThreadUse;
pub use thresholds::Thresholds;
pub use tree::{TreeSample, TreeSampler};
pub use unit::{Unit, grouped, several};
pub use window::{WINDOW, Window, Windows};
