//! The meaning of each construct of the language, one test each. The request is `request::invite`.

use crate::request::{Request, invite, sets};
use strowger_rules::{Condition, MAX_DEPTH, NumberField, TextField};

/// Checks that some conditions hold, and others do not.
#[track_caller]
fn judged(request: &Request, hold: &[&str], fail: &[&str]) {
    let (names, sets) = sets();
    for (texts, wanted) in [(hold, true), (fail, false)] {
        for text in texts {
            let condition = Condition::compile(text, &names).unwrap_or_else(|fault| panic!("{}", fault.shown(text)));
            assert_eq!(condition.holds(request, &sets), wanted, "{text}");
            assert_eq!(condition.text(), *text);
        }
    }
}

#[test]
fn texts_are_equal_with_their_case_or_without_as_the_field_says() {
    judged(
        &invite(),
        &["method == 'INVITE'", "from.user == \"alice\"", "request.domain == 'example.com'", "transport == 'UDP'"],
        &["method == 'invite'", "from.user == 'Alice'", "request.domain == 'example.org'", "method == ''"],
    );
}

#[test]
fn unequal_is_the_opposite_of_equal() {
    judged(
        &invite(),
        &["method != 'BYE'", "source.port != 5061", "source.address != 192.0.2.8", "transport != 'tcp'"],
        &["method != 'INVITE'", "source.port != 5060", "source.address != 192.0.2.7", "transport != 'UDP'"],
    );
}

#[test]
fn a_test_of_an_absent_value_fails_and_its_opposite_holds() {
    judged(
        &Request::default(),
        &[
            "user != 'alice'",
            "not user == 'alice'",
            "user not in ['alice']",
            "size != 3",
            "source.address not in networks",
        ],
        &[
            "user == 'alice'",
            "user starts_with ''",
            "user ends_with ''",
            "user matches ''",
            "user in vips",
            "user == from.user",
            "size >= 0",
            "size < 3",
            "size == max_forwards",
            "source.address in 0.0.0.0/0",
            "plans[user] == 'gold'",
            "in_dialog",
        ],
    );
}

#[test]
fn exists_says_whether_a_value_is_there() {
    judged(
        &invite(),
        &["exists user", "exists header.user-agent", "exists size", "exists source.address", "exists plans[user]"],
        &[
            "exists to.uri",
            "exists header.x",
            "exists request.port",
            "exists plans[from.user]",
            "exists carriers[from.user]",
        ],
    );
}

#[test]
fn numbers_have_an_order() {
    judged(
        &invite(),
        &[
            "source.port == 5060",
            "size > 4095",
            "size >= 4096",
            "size <= 4KiB",
            "size < 1MiB",
            "max_forwards < size",
            "size == 4096B",
            "max_forwards != size",
        ],
        &["size > 4096", "size < 4KiB", "size >= 1GiB", "source.port == 5061", "size <= max_forwards"],
    );
}

#[test]
fn flags_stand_alone() {
    judged(
        &invite(),
        &["authenticated", "from.local", "not in_dialog"],
        &["in_dialog", "to.local", "not authenticated"],
    );
}

#[test]
fn lists_hold_texts_numbers_and_networks() {
    judged(
        &invite(),
        &[
            "method in ['BYE', 'INVITE']",
            "transport in ['TCP', 'UDP',]",
            "source.port in [5061, 5060]",
            "source.address in [10.0.0.0/8, 192.0.2.7]",
            "source.address in ['192.0.2.0/24']",
            "source.address in 192.0.2.0/24",
            "method not in ['BYE']",
        ],
        &[
            "method in ['BYE', 'invite']",
            "source.port in [5061]",
            "source.address in [::/0]",
            "source.address not in 192.0.2.0/24",
            "method not in ['INVITE']",
        ],
    );
}

#[test]
fn sets_hold_texts_prefixes_and_networks() {
    judged(
        &invite(),
        &[
            "from.user in vips",
            "user not in vips",
            "number in carriers",
            "source.address in networks",
            "request.domain in domains",
            "number not in nothing",
        ],
        &["user in vips", "from.user in carriers", "from.user in nothing", "source.address not in networks"],
    );
}

#[test]
fn sets_say_a_value_of_a_key() {
    judged(
        &invite(),
        &[
            "plans[user] == 'gold'",
            "carriers[number] == 'East'",
            "networks[source.address] == 'office'",
            "domains[from.domain] == 'ours'",
            "plans[user] in ['gold', 'silver']",
            "plans[user] starts_with 'g'",
            "plans[from.user] != 'gold'",
            "carriers[number] matches '^E'",
            "plans[user] not in vips",
        ],
        &[
            "carriers[number] == 'east'",
            "plans[from.user] == 'gold'",
            "carriers[user] != plans[user] and false",
            "plans[plans[user]] == 'x'",
        ],
    );
}

#[test]
fn values_are_compared_with_values() {
    judged(
        &invite(),
        &["from.user == to.user", "from.domain == request.domain", "user != from.user"],
        &["from.user == user", "method == transport", "from.user != to.user"],
    );
}

#[test]
fn texts_begin_end_and_match() {
    judged(
        &invite(),
        &[
            "number starts_with '+49'",
            "number ends_with '456'",
            "request.domain ends_with '.com'",
            "request.domain starts_with 'EXAMPLE.'",
            "number matches '^\\+49[1-9][0-9]+$'",
            "header.User-Agent matches 'scanner'",
            "request.domain matches '^example'",
            "number starts_with ''",
        ],
        &[
            "number starts_with '49'",
            "number ends_with '+4930123456789'",
            "from.user ends_with 'ICE'",
            "number matches '^49'",
            "header.User-Agent matches 'Scanner'",
            "header.X matches ''",
        ],
    );
}

#[test]
fn not_binds_tighter_than_and_and_and_tighter_than_or() {
    judged(
        &invite(),
        &[
            "true or true and false",
            "not false and true",
            "not (false and true)",
            "not not authenticated",
            "(true or true) and authenticated",
            "in_dialog or from.local and authenticated",
        ],
        &[
            "(true or true) and false",
            "not true or false",
            "in_dialog and in_dialog or in_dialog",
            "not (true or in_dialog)",
        ],
    );
}

#[test]
fn constants_decide() {
    judged(
        &invite(),
        &[
            "true",
            "not false",
            "true and authenticated",
            "true or in_dialog",
            "false or authenticated",
            "true and true",
        ],
        &["false", "not true", "false and authenticated", "in_dialog or false", "true and in_dialog", "false or false"],
    );
    let (_, sets) = sets();
    assert!(Condition::always().holds(&Request::default(), &sets));
}

#[test]
fn header_names_have_no_case_and_texts_any_octets() {
    let mut request = invite();
    request.headers.insert("x-way".into(), b"\xff\x00'".to_vec());
    request.texts.insert(TextField::ToUri, "sip:ä\"b\"@x".into());
    judged(
        &request,
        &["header.X-WAY ends_with \"'\"", "header.x-way matches '^\\xff'", "to.uri == 'sip:ä\"b\"@x'"],
        &["header.x-way == ''"],
    );
}

#[test]
fn blanks_and_line_ends_stand_anywhere_between_words() {
    judged(
        &invite(),
        &["\n method\t==\r\n'INVITE'\nand(authenticated)and size>1", "size>1 and authenticated or true"],
        &[],
    );
}

#[test]
fn conditions_are_nested_up_to_a_depth() {
    let (open, close) = ("(".repeat(MAX_DEPTH), ")".repeat(MAX_DEPTH));
    let mut request = invite();
    request.numbers.insert(NumberField::Size, u64::MAX);
    judged(
        &request,
        &[&format!("{open}authenticated{close}"), "size == 18446744073709551615"],
        &["size < 18446744073709551615"],
    );
}
