//! Registrar (RFC 3261 section 10.3) with Path (RFC 3327), Service-Route (RFC 3608) and the binding identity of RFC
//! 5626. The registrar only decides: the changes of a REGISTER are a plan, which the owner of the bindings executes.
//!
//! 1. [`Registrar::decide`] with the current bindings of the address-of-record returns a plan, or a [`Refusal`];
//! 2. the caller executes [`Registrar::removals`] and [`Registrar::upserts`], all or none of them;
//! 3. [`Registrar::write_ok`] writes the header lines of the 200, until the next call of `decide`.
//!
//! Equal requests at equal times get equal answers, so a registrar may answer without a transaction.

mod answer;
mod decision;
mod settings;

pub use decision::{ExistingBinding, Refusal, RegisterOutcome, Registrar, Upsert};
pub use settings::{PathRule, RegistrarSettings};
