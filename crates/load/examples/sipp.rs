//! SIPp's command line on this engine, without the rest of Strowger.
//!
//! ```sh
//! cargo run --release -p strowger-load --example sipp -- -sn uas
//! cargo run --release -p strowger-load --example sipp -- -sn uac 127.0.0.1 -r 100 -m 1000
//! ```

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    std::process::ExitCode::from(strowger_load::sipp::run(&words))
}
