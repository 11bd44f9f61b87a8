//! Behaviours of reading and writing: one program, linked once.

mod allocation;
mod corpora;
mod flows;
mod frame;
mod lists;
mod rfc3665;
mod rfc4475;
mod rfc5118;
mod views;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
