//! Engines of the store: behaviours that measure no time, in one program, linked once.

mod clock_steps;
mod engines;
mod fence;
mod no_allocation;
mod renames;
mod survival;
mod toy;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
