//! Evaluation allocates nothing, not even the first time.

use crate::request::{Request, invite, sets};
use std::alloc::System;
use std::ops::ControlFlow;
use strowger_allocations::{Counting, of_thread};
use strowger_rules::{Condition, Rule, Rules};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

#[test]
fn nothing_is_allocated_to_judge() {
    let (names, sets) = sets();
    let texts = [
        "method == 'INVITE' and from.user in vips and carriers[number] == 'East'",
        "method in ['INVITE', 'BYE'] and request.domain in domains",
        "number matches '^\\+49(30|89)[0-9]*$' and header.User-Agent matches '(?i)SCANNER'",
        "source.address in [10.0.0.0/8, 192.0.2.0/24] and networks[source.address] == 'office'",
        "number starts_with '+49' and from.user == to.user and size in [1, 2, 4096]",
        "plans[user] ends_with 'old' and not (in_dialog or exists to.uri)",
    ];
    let rules = (0..40).flat_map(|_| texts).map(|text| Rule {
        name: "rule".into(),
        condition: Condition::compile(text, &names).expect(text),
        action: (),
    });
    let rules = Rules::new(rules);
    assert!(rules.questions() > 5);
    let (invite, nothing) = (invite(), Request::default());
    let before = of_thread();
    let mut matching = 0;
    for request in [&invite, &nothing] {
        let all = rules.walk(request, &sets, |_, _| {
            matching += 1;
            ControlFlow::<()>::Continue(())
        });
        assert!(all.is_continue());
    }
    assert_eq!(of_thread() - before, 0);
    assert_eq!(matching, 240);
}
