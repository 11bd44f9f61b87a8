//! Behaviours of the machines: one program, linked once.

mod allocation;
mod dialog;
mod proxy;
mod record;
mod registrar;
mod stack;
mod template;
mod transactions;
mod user_agent;
mod written;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
