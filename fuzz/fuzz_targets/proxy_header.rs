#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| strowger_net::proxy_protocol::fuzz_header(data));
