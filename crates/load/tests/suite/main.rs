//! Tests of the generator that need no process of their own: one program, linked once.

mod authentication;
mod command_link;
mod expression;
mod expression_allocation;
mod expression_oracle;
mod injection;
mod measure_warm_up;
mod measured;
mod report;
mod report_html;
mod report_parts;
mod scenario_corpus;
mod scenario_mutations;
mod scenario_oracle;
mod scenario_quirks;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
