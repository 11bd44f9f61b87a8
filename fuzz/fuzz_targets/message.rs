#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strowger_message::fuzz::message(data));
