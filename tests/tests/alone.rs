//! Tests with the world in which time counts. Each takes its turn (`strowger_tests::turn`): alone where it measures,
//! beside the others where it only waits.

mod demo;
mod durability;
mod interop;
mod load;
mod load_catalogue;
mod load_connections;
mod load_ending;
mod load_gate;
mod load_golden;
mod load_health;
mod load_times;
mod load_trouble;
mod load_use;
mod phones;
mod shards;
mod sipp_actions;
mod sipp_connections;
mod sipp_face;
mod sipp_regress;
mod sipp_statistics;
mod sipp_terminal;
mod sipp_tls;
mod sipp_wire;
mod verdict;
