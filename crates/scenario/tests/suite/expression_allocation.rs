//! A search with known states allocates nothing.

use strowger_allocations::of_thread;
use strowger_scenario::expression::{Expression, Matcher, Options};

#[test]
fn a_warm_search_allocates_nothing() {
    let text = b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nTo: <sip:bob@b.test>;tag=8321\r\nCSeq: 1 INVITE\r\n\r\n";
    let patterns: [&[u8]; 6] =
        [b"tag=([^ ;\r\n]+)", b".*(;tag=.*)", b"(\\W|^)OK(\\W|$)", b"sip:([^@]*)@(.+)>", b"m=audio", b"(.)\\1"];
    let mut matcher = Matcher::new();
    let expressions = patterns.map(|pattern| Expression::new(pattern, Options::default()).unwrap());
    let mut spans = [None; 10];
    let mut round = || {
        expressions
            .iter()
            .map(|expression| usize::from(expression.captures(text, &mut matcher, &mut spans)))
            .sum::<usize>()
    };
    let matched = round();
    let before = of_thread();
    for _ in 0..1_000 {
        assert_eq!(round(), matched);
    }
    assert_eq!((matched, of_thread() - before), (5, 0));
}
