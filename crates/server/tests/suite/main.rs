//! Behaviours of engines, without a socket, a database or a moment of real time: one program, linked once.

mod accounting;
mod call_beginnings;
mod call_limits;
mod credentials;
mod decisions;
mod default_scripts;
mod dialogs;
mod early;
mod emergency;
mod ends;
mod explain;
mod facts;
mod failure_limits;
mod gateway_groups;
mod identities;
mod kept;
mod log;
mod moves;
mod numbers;
mod peer;
mod policy;
mod reach;
mod reserve;
mod shares;
mod site;
mod spellings;
mod waiting;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
