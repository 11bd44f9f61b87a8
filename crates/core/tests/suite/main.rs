//! Behaviours of the machines: one program, linked once.

mod allocation;
mod bridge;
mod dialog;
mod negotiation;
mod proxy;
mod record;
mod registrar;
mod stack;
mod template;
#[path = "../../../rig/src/text.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the crate rig, which is above this one")]
mod text;
mod transactions;
mod user_agent;
mod written;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
