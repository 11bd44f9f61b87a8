//! The registrar (RFC 3261 section 10.3) with Path (RFC 3327), Service-Route (RFC 3608) and the binding identity of
//! RFC 5626: a pure decision. What a REGISTER would change comes out as a plan; the keeper of the bindings carries it out.
//!
//! 1. [`Registrar::decide`] with the bindings that the address-of-record has now: a plan, or a [`Refusal`];
//! 2. the caller carries out [`Registrar::removals`] and [`Registrar::upserts`], all or none of them;
//! 3. [`Registrar::write_ok`] writes the header lines of the 200, for as long as the next `decide` has not been called.
//!
//! Equal requests at equal times give equal answers, so that a registrar may answer without a transaction.

mod answer;
mod decision;
mod settings;

pub use decision::{ExistingBinding, Outcome, Refusal, Registrar, Upsert};
pub use settings::{PathRule, RegistrarSettings};
