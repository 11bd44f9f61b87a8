#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strowger_message::sdp::fuzz::fuzz_sdp(data));
