//! Injection files of a million lines; reading their fields allocates nothing.

use std::fmt::Write as _;
use std::time::Instant;

use strowger_allocations::of_thread;
use strowger_scenario::injection::{Injection, InjectionOptions};

#[test]
fn a_million_lines_load_at_once_and_render_without_allocation() {
    let mut text = "SEQUENTIAL\n".to_owned();
    for line in 0..1_000_000 {
        writeln!(text, "user{line:07};[authentication username=user{line:07} password=x];h{}", line % 7).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.csv");
    std::fs::write(&path, &text).unwrap();

    let start = Instant::now();
    let options = InjectionOptions { index: Some(0), ..InjectionOptions::default() };
    let file = Injection::load(&path, options).unwrap();
    let took = start.elapsed();
    println!("1,000,000 lines, {} MB, loaded and indexed in {took:?}", text.len() / 1_000_000);
    assert_eq!(file.lines(), 1_000_000);
    assert!(took.as_secs() < 10, "{took:?}");

    let mut out = Vec::with_capacity(1_000);
    let before = of_thread();
    let start = Instant::now();
    for _ in 0..100_000 {
        let line = file.pick(0, 0).unwrap().unwrap();
        out.clear();
        for column in 0..3 {
            file.write_field(line, column, &mut out).unwrap();
        }
    }
    // Before the first print: the captured output of a test allocates.
    let (time, allocations) = (start.elapsed() / 100_000, of_thread() - before);
    println!("a line and its three fields: {time:?}");
    assert_eq!(allocations, 0);
    assert_eq!(out, b"user0099999[authentication username=user0099999 password=x]h4");
    let before = of_thread();
    let (there, absent) = (file.look_up(b"user0765432").unwrap(), file.look_up(b"user1000000").unwrap());
    assert_eq!((there, absent, of_thread() - before), (Some(765_432), None, 0));
}
