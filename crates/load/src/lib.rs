//! SIP traffic: a scenario is read, compiled to a program, and run as calls; what happens is measured.
#![forbid(unsafe_code)]

pub mod aka;
pub mod authentication;
pub mod campaign;
pub mod command;
pub mod engine;
pub mod expression;
pub mod injection;
pub mod measure;
pub mod media;
pub mod report;
pub mod scenario;
pub mod sipp;
mod wave;
pub mod workload;
