//! The explanation that a person reads.

use crate::request::{invite, sets};
use strowger_rules::{Condition, Rule, Rules};

#[test]
fn each_rule_says_what_decided() {
    let (names, sets) = sets();
    let rules = [
        ("emergency", "number in ['110', '112']"),
        ("dialog", "in_dialog"),
        ("stolen", "method == 'INVITE' and (from.user != to.user or in_dialog)"),
        ("office", "source.address in networks and plans[user] == 'gold'"),
        ("foreign", "not (from.local or to.local)"),
        ("same", "from.user == user"),
        ("either", "exists to.uri or size > 4KiB or\n  header.User-Agent matches 'scanner'"),
        ("other", "not ((from.user != 'alice') or (user not in vips))"),
        ("never", "user == 'x' and false"),
        ("default", "true"),
    ];
    let rules = Rules::new(rules.map(|(name, text)| Rule {
        name: name.into(),
        condition: Condition::compile(text, &names).expect(text),
        action: (),
    }));
    let explanation = rules.explain(&invite(), &sets);
    assert_eq!(
        explanation.to_string(),
        "\
no   emergency  `number in ['110', '112']` is false: number is '+4930123456'
no   dialog     `in_dialog` is false
no   stolen     `(from.user != to.user or in_dialog)` is false: from.user is 'alice', to.user is 'alice'
yes  office     `source.address in networks and plans[user] == 'gold'` is true: source.address is 192.0.2.7, plans[user] is 'gold'
no   foreign    `from.local` is true
no   same       `from.user == user` is false: from.user is 'alice', user is 'Alice'
yes  either     `header.User-Agent matches 'scanner'` is true: header.user-agent is 'friendly-scanner 1.0'
no   other      `(user not in vips)` is true: user is 'Alice'
no   never      `false` is false
yes  default    `true` is true
"
    );
    assert_eq!(explanation.verdicts[3].to_string().lines().count(), 1);
    let matching: Vec<&str> =
        explanation.verdicts.iter().filter(|verdict| verdict.matches).map(|verdict| verdict.name).collect();
    assert_eq!(matching, ["office", "either", "default"]);
    assert_eq!(rules.first(&invite(), &sets).map(|rule| &*rule.name), Some("office"));
}

#[test]
fn a_long_condition_is_cut_and_control_octets_are_escaped() {
    let (names, sets) = sets();
    let text = format!("user == '{}'", "x".repeat(500));
    let condition = Condition::compile(&text, &names).expect("a condition");
    let rules = Rules::new([Rule { name: "long".into(), condition, action: () }]);
    let mut request = invite();
    request.texts.insert(strowger_rules::TextField::User, b"\x1b[2J\n".to_vec());
    let line = rules.explain(&request, &sets).to_string();
    assert!(line.len() < 200 && line.ends_with("...` is false: user is '\\u{1b}[2J\\n'\n"), "{line}");
}
