#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strowger_core::fuzz_negotiation::negotiation(data));
