//! Tests of scenarios, expressions and injection files: one program, linked once.

mod expression;
mod expression_allocation;
mod expression_oracle;
mod injection;
mod scenario_corpus;
mod scenario_mutations;
mod scenario_oracle;
mod scenario_quirks;

#[global_allocator]
static ALLOCATOR: strowger_allocations::Counting<std::alloc::System> =
    strowger_allocations::Counting(std::alloc::System);
