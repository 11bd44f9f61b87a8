//! The proxy of RFC 3261 section 16, driven by texts of messages: one file for each behaviour.

mod allocation;
mod breadth;
mod cancel;
mod chaos;
mod choices;
mod dialog;
mod failed_targets;
mod failover;
mod failure_plans;
mod forks;
mod forwarding;
mod loops;
mod moves;
mod notices;
mod plans;
mod responses;
mod rig;
mod route_tokens;
mod routes;
mod timers;
mod usages;
