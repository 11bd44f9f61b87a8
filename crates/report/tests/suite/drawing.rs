//! Checks of drawings.

use strowger_report::drawing::{Bed, Host, Ladder, Link, Step};
use strowger_report::figure::Cause;

fn host(name: &str, column: usize) -> Host {
    Host { name: name.into(), column, ..Host::default() }
}

fn bed() -> Bed {
    let link = Link { from: "a".into(), to: "b".into(), label: "INVITE".into() };
    Bed { title: "bed".into(), hosts: vec![host("a", 0), host("b", 1)], links: vec![link] }
}

fn ladder() -> Ladder {
    let message = Step::Message { from: "a".into(), to: "b".into(), text: "INVITE".into() };
    Ladder { title: "flow".into(), parties: vec!["a".into(), "b".into()], steps: vec![message] }
}

#[test]
fn each_fault_is_named() {
    bed().draw().expect("it has no fault");
    ladder().draw().expect("it has no fault");
    let of = |change: fn(&mut Bed)| {
        let mut bed = bed();
        change(&mut bed);
        bed.draw().expect_err("a fault").cause
    };
    assert_eq!(of(|bed| bed.hosts.push(host("a", 2))), Cause::Twice("a".into()));
    assert_eq!(of(|bed| bed.hosts.push(host("c", 1))), Cause::Place("c".into()));
    assert_eq!(of(|bed| bed.links[0].to = "c".into()), Cause::Unknown("c".into()));
    assert_eq!(of(|bed| *bed = Bed::default()), Cause::Empty);
    let of = |change: fn(&mut Ladder)| {
        let mut ladder = ladder();
        change(&mut ladder);
        ladder.draw().expect_err("a fault").cause
    };
    assert_eq!(of(|ladder| ladder.parties.push("a".into())), Cause::Twice("a".into()));
    assert_eq!(of(|ladder| ladder.parties.truncate(1)), Cause::Unknown("b".into()));
    assert_eq!(of(|ladder| *ladder = Ladder::default()), Cause::Empty);
    let fault = Bed { title: "bed".into(), ..Bed::default() }.draw().expect_err("a fault").to_string();
    assert_eq!(fault, "figure \"bed\": hosts: empty: fill it, or leave it out");
}
