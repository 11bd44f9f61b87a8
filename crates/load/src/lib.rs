//! SIP load generator: reads a scenario, compiles it, runs it as calls and measures them.
//!
//! The one rule of use: calls begin by the schedule, not when the peer is ready. So a campaign owns its threads, and
//! its caller polls it ([`campaign::Campaign::poll`]). A figure is valid only if the run shows that the generator kept
//! its schedule.
//!
//! | module | content |
//! |---|---|
//! | [`campaign`] | load for a target by a plan, up to the finished run |
//! | [`sipp`] | load by SIPp's command line |
//! | [`workload`] | ready scenarios |
//! | [`scenario`] | scenario documents, parsed and compiled |
//! | [`engine`] | the calls of one shard |
//! | [`report`] | reports of the figures and raw logs of [`strowger_measure`] |
//! | [`media`], [`expression`], [`injection`], [`command`] | tools of scenarios: RTP, regular expressions, data files, controllers |
//!
//! Twenty calls to an answering side in this process:
//!
//! ```
//! use std::time::Duration;
//! use strowger_load::campaign::{Campaign, Plan, Stage};
//! use strowger_load::engine::pace::Part;
//! use strowger_measure::Counter;
//! use strowger_load::scenario::Distribution;
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

#![forbid(unsafe_code)]

pub mod aka;
pub mod authentication;
pub mod campaign;
pub mod command;
pub mod engine;
pub mod expression;
pub mod injection;
pub mod keys;
pub mod media;
pub mod report;
pub mod scenario;
pub mod sipp;
mod wave;
pub mod workload;

pub use strowger_report::{printable, printable_bytes};
