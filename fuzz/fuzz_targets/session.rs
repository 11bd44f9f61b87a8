#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strowger_media::fuzz::fuzz_session(data));
