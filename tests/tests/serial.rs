//! System tests that measure, or judge programs that a busy machine disturbs: each has the machine for itself
//! (`strowger_tests::alone`).

mod bridge_abuse;
mod bridge_media;
mod bridge_nat;
mod bridge_phones;
mod cache_faults;
mod credential_cache_faults;
mod durability;
mod echo_media;
mod fault_matrix;
mod lab_capacity;
mod lab_compare;
mod lab_hosts;
mod load_golden;
mod load_health;
mod load_media;
mod load_times;
mod many_calls;
mod many_names;
mod reload_under_load;
mod sipp_regress;
mod sipp_statistics;
mod sipp_wire;
mod soak;
mod verdict;
