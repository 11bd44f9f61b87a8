#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strowger_tests::fuzz_calls::calls(data));
