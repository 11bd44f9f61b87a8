//! Behaviours of the store that measure no time: one program, linked once.

mod clock_steps;
mod no_allocation;
mod removals;
mod renames;
mod survival;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
