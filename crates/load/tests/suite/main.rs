//! Tests of the generator that need no process of their own: one program, linked once.

mod ahead;
mod authentication;
mod command_link;
mod measure_warm_up;
mod measured;
mod report;
mod report_html;
mod report_parts;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
