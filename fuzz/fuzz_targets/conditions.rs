#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strowger_rules::fuzz::fuzz_compile(data));
