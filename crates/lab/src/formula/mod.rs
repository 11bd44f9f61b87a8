//! Formulas of the published measurements.
//!
//! * [`caches`]: throughput, memory and response time of the study of in-memory databases.
//! * [`methodology`]: calls and rates, and the performance rating factor, of the testing methodology.
//! * [`overload`]: cost of a refusal, and ideal goodput of an overloaded server.
//! * [`stress`]: scaled loads and penalties of the stress tests.
//!
//! The search of RFC 7502 section 4.10 is a finder: [`crate::finder::Rfc7502`].

pub mod caches;
pub mod methodology;
pub mod overload;
pub mod stress;
