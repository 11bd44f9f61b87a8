//! Tests of the measures that need no process of their own: one program, linked once.

mod allocation;
mod documents;
mod golden;
mod measured;
mod observer;
mod span;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
