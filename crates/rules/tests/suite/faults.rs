//! Faults of wrong conditions: the words concerned, the cause, and the cure.

use crate::request::sets;
use strowger_rules::{Condition, MAX_DEPTH, MAX_LENGTH, SetNames};

/// Checks which words a fault marks, and its message with the cure.
#[track_caller]
fn wrong(text: &str, words: &str, said: &str) {
    let fault = Condition::compile(text, &sets().0).expect_err(text);
    assert_eq!(text.get(fault.span.clone()), Some(words), "{text}: {fault}");
    assert_eq!(fault.to_string(), said, "{text}");
}

#[test]
fn an_unknown_field_has_a_neighbour() {
    wrong("methd == 'x'", "methd", "there is no field `methd`: did you mean `method`?");
    wrong(
        "user == 'x' and source.adress in networks",
        "source.adress",
        "there is no field `source.adress`: did you mean `source.address`?",
    );
    wrong("Method == 'x'", "Method", "there is no field `Method`: did you mean `method`?");
    wrong("NOT authenticated", "NOT", "there is no field `NOT`: did you mean `not`?");
    wrong(
        "colour == 'x'",
        "colour",
        "there is no field `colour`: a test begins with a field, such as method or from.user",
    );
    wrong(
        "header == 'x'",
        "header",
        "there is no field `header`: write the name of the header field, such as header.User-Agent",
    );
    wrong("exists usr", "usr", "there is no field `usr`: did you mean `user`?");
}

#[test]
fn an_unknown_set_has_a_neighbour() {
    wrong("user in vip", "vip", "there is no set `vip`: did you mean `vips`?");
    wrong("carrier[number] == 'x'", "carrier", "there is no set `carrier`: did you mean `carriers`?");
    wrong(
        "user in others",
        "others",
        "there is no set `others`: sets are vips, plans, domains, carriers, networks, nothing",
    );
    let fault = Condition::compile("user in vips", &SetNames::default()).expect_err("no sets");
    assert_eq!(
        fault.to_string(),
        "there is no set `vips`: no set is defined; a list stands in brackets, such as ['a', 'b']"
    );
    wrong("vips and true", "vips", "`vips` is a set: write `FIELD in vips`, or `vips[FIELD] == 'text'`");
}

#[test]
fn a_type_that_does_not_fit_is_named() {
    let texts = "==, !=, in, not in, matches, starts_with or ends_with";
    wrong("user < 'x'", "<", &format!("text has no order: compare it by {texts}"));
    wrong("size == 'x'", "'x'", "`'x'` is no number: write a number such as 70, or a size such as 4KiB");
    wrong("size == '70'", "'70'", "`'70'` is no number: write it without quotes");
    wrong("size > 4kB", "4kB", "`4kB` is no number: write a number such as 70, or a size such as 4KiB");
    wrong(
        "size > 99999999999999999999",
        "99999999999999999999",
        "`99999999999999999999` is no number: write a number such as 70, or a size such as 4KiB",
    );
    wrong("size == user", "user", "`size` is a number, `user` is not: compare a number with a number");
    wrong("user == size", "size", "`user` is text, `size` is not: compare text with text");
    wrong(
        "size matches '1'",
        "matches",
        "`matches` compares texts, which `size` is not: compare it by ==, !=, <, <=, >, >=, in or not in",
    );
    wrong(
        "size in vips",
        "vips",
        "a number is in a list alone: write a list such as [5060, 5061], or compare it by < and >",
    );
    wrong("size in ['1']", "'1'", "`'1'` is no number: write it without quotes");
    wrong(
        "authenticated == true",
        "==",
        "`authenticated` holds or does not: write `authenticated` or `not authenticated`",
    );
    wrong(
        "exists authenticated",
        "authenticated",
        "a flag is always there: write `authenticated` or `not authenticated`",
    );
    wrong("user in networks", "user", "`networks` holds networks, which `user` is not: ask it for source.address");
    wrong(
        "vips[source.address] == 'x'",
        "source.address",
        "`vips` holds texts, which `source.address` is not: ask it for text such as number",
    );
    wrong(
        "plans[authenticated] == 'x'",
        "authenticated",
        "`plans` holds texts, which `authenticated` is not: ask it for text such as number",
    );
    wrong("user in [1]", "1", "`in` needs text here: text stands between quotes: '1'");
}

#[test]
fn a_wrong_address_has_its_cure() {
    let expected = "write an address such as 192.0.2.1 or 2001:db8::1, or a network such as 10.0.0.0/8";
    wrong("source.address == 10.0.0", "10.0.0", &format!("`10.0.0` is no address: {expected}"));
    wrong("source.address == ", "", &format!("the end is no address: {expected}"));
    wrong(
        "source.address == 10.0.0.0/8",
        "10.0.0.0/8",
        "a network is more than one address: write `source.address in 10.0.0.0/8`",
    );
    wrong("source.address in 10.0.0.1/8", "10.0.0.1/8", "`10.0.0.1/8` names bits behind its first 8: write 10.0.0.0/8");
    wrong(
        "source.address in [10.0.0.0/33]",
        "10.0.0.0/33",
        "`10.0.0.0/33` is no network: an address of this kind has 32 bits",
    );
    wrong("source.address < 10.0.0.1", "<", "addresses have no order: compare it by ==, !=, in or not in");
}

#[test]
fn quotes_are_where_text_is() {
    wrong(
        "method == INVITE",
        "INVITE",
        "`INVITE` is neither a field nor a constant: text stands between quotes: 'INVITE'",
    );
    wrong(
        "method == 'INVITE",
        "'INVITE",
        "this quote is not closed: text stands between two quotes: write another ' behind its end",
    );
    wrong("number starts_with 49", "49", "`starts_with` needs text here: text stands between quotes: '49'");
    wrong("number starts_with", "", "`starts_with` needs text here: write text between quotes, such as '49'");
    wrong("'INVITE' == method", "'INVITE'", "`'INVITE'` is no field: write the field first: method == 'INVITE'");
    wrong("number == +49", "+", "`+` means nothing here: a number with + * or # is text: write it between quotes");
    wrong("user == frm.user", "frm.user", "there is no field `frm.user`: did you mean `from.user`?");
}

#[test]
fn what_is_open_is_closed() {
    wrong("(user == 'x'", "(", "this parenthesis is not closed: write ) behind what it holds");
    wrong("user == 'x')", ")", "no parenthesis is open here: remove this one, or open it before");
    wrong("user in ['x'", "[", "this list is not closed: write ] behind its last item");
    wrong("user in ['x' 'y']", "'y'", "here a comma is missing: write , between two items, ] behind the last");
    wrong("user in []", "[]", "the list is empty: write what is in it, or `false`");
    wrong("plans[user == 'x'", "==", "`plans[` is not closed: write `plans[FIELD]`");
}

#[test]
fn a_condition_is_a_whole() {
    wrong("", "", "the condition is empty: write one such as method == 'INVITE'");
    wrong("  ", "  ", "the condition is empty: write one such as method == 'INVITE'");
    wrong(
        "authenticated and",
        "",
        "the condition ends where a test should stand: a test begins with a field, such as method or from.user",
    );
    wrong(
        "authenticated in_dialog",
        "in_dialog",
        "the condition goes on with `in_dialog`: write `and` or `or` before it, or remove it",
    );
    wrong(
        "(user == 'x' in_dialog)",
        "in_dialog",
        "the condition goes on with `in_dialog`: write `and` or `or` before it, or remove it",
    );
    wrong("authenticated AND in_dialog", "AND", "the condition goes on with `AND`: did you mean `and`?");
    wrong("authenticated && in_dialog", "&&", "`&&` means nothing here: write `and`");
    wrong("user = 'x'", "=", "`=` means nothing here: write `==`");
    wrong(
        "user",
        "",
        "here a comparison of `user` is missing: write ==, !=, in, not in, matches, starts_with or ends_with behind `user`",
    );
    wrong(
        "user begins_with 'x'",
        "begins_with",
        "here a comparison of `user` is missing: write ==, !=, in, not in, matches, starts_with or ends_with behind `user`",
    );
    wrong("user match 'x'", "match", "here a comparison of `user` is missing: did you mean `matches`?");
    wrong("user in", "", "here a set is missing: write the name of a set, or a list such as ['a', 'b']");
    wrong("user ==", "", "here is nothing to compare `user` with: write text between quotes, such as 'alice'");
    wrong("size ==", "", "the end is no number: write a number such as 70, or a size such as 4KiB");
}

#[test]
fn a_wrong_pattern_is_shown_within() {
    let cure = "write a regular expression over ASCII without look-around and back-references, and a \\ before a sign that stands for itself";
    wrong(
        "number matches '^+49'",
        "^+",
        "this repeats the beginning of the text: write ^\\+ for a + that stands for itself",
    );
    wrong("number matches '(+49'", "", &format!("this is no pattern: repetition operator missing expression: {cure}"));
    wrong("number matches '49('", "(", &format!("this is no pattern: unclosed group: {cure}"));
    wrong("number matches 'é[ü]'", "ü", &format!("this is no pattern: Unicode not allowed here: {cure}"));
    wrong(
        "number matches 'x.{40}y'",
        "x.{40}y",
        "this pattern is too large: its table would be larger than 1 MiB: shorten counted repetitions such as .{100}, or split it",
    );
}

#[test]
fn length_and_depth_have_bounds() {
    let text = format!("user == '{}'", "é".repeat(MAX_LENGTH));
    let fault = Condition::compile(&text, &SetNames::default()).expect_err("too long");
    assert_eq!(fault.span, MAX_LENGTH - 1..text.len());
    for open in ["(", "not "] {
        let text = format!("{}authenticated", open.repeat(MAX_DEPTH + 1));
        let fault = Condition::compile(&text, &SetNames::default()).expect_err("too deep");
        assert_eq!(fault.to_string(), "this is nested deeper than 64 levels: cut the condition into several rules");
    }
}
