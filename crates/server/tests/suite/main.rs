//! Behaviours of engines, without a socket, a database or real time: one program, linked once.

mod accounting;
mod accounts;
mod balanced;
mod bridge_rules;
mod call_beginnings;
mod call_limits;
mod credentials;
mod decisions;
mod default_scripts;
mod dialogs;
mod early;
mod emergency;
mod endable;
mod ended_here;
mod ends;
mod explain;
mod facts;
mod failure_limits;
mod gateway_groups;
mod identities;
mod kept;
mod large_requests;
mod late_answers;
mod log;
mod moves;
mod names;
mod numbers;
mod other_sources;
mod outcomes;
mod own_byes;
mod peer;
mod pings;
mod policy;
mod reach;
mod reach_here;
mod reserve;
mod resumed;
mod shares;
mod site;
mod spellings;
mod unacknowledged;
mod user_places;
mod waiting;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
