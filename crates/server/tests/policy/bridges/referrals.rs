//! REFER of the parties of bridged calls: toll fraud by an outsider.

use super::*;

/// Sends a REFER of alice, and one of bob. `passes`: whether the other party gets it; if not, 403 comes back.
fn refer(call: &Bridged<'_>, passes: [bool; 2]) {
    let lines = "Refer-To: <sip:00900123@example.org>\n";
    let of_alice = Call { lines: lines.into(), ..call.of_alice("REFER", 1) };
    let of_bob = Call { lines: lines.into(), ..call.of_bob("REFER") };
    let parties = [(&call.alice, of_alice, call.bob), (call.bob, of_bob, &call.alice)];
    for ((sender, refer, other), passes) in parties.into_iter().zip(passes) {
        sender.send(&sender.text(&refer));
        if passes {
            other.respond(&gets(other, "REFER"), 603, "");
        }
        assert_eq!(sender.answer().status(), if passes { 603 } else { 403 });
        other.hears_nothing();
    }
}

#[test]
fn users_may_refer_each_other() {
    let site = bridge("", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    refer(&call, [true; 2]);
    call.end();
}

#[test]
fn an_outsider_may_not_refer_a_user() {
    // A gateway whose call the rule sends to no user.
    let keys = "when = \"request.user == '4711'\"\nto = [\"sip:4711@127.0.0.1:7101\"]\nrelay_for = \"everyone\"\n";
    for (lines, keys, expected) in [
        ("", keys.to_owned(), [true, false]),
        ("[[source]]\nname = \"carrier\"\nnetworks = [\"127.0.0.1\"]\ntrusted = true\n", keys.to_owned(), [true; 2]),
        ("", format!("{keys}refer_from = \"everyone\"\n"), [true; 2]),
        ("", format!("{keys}refer_from = \"none\"\n"), [false; 2]),
    ] {
        let site = bridge(lines, &keys);
        let (alice, gateway) = (site.phone("alice"), phone_at(&site, "127.0.0.1:7101"));
        let call = match lines {
            "" => invite_of(&alice, "4711"),
            // A trusted source needs no password.
            _ => alice.call("INVITE", "sip:4711@example.org"),
        };
        say(&alice, &call, &sdp(4_000, 1, ""));
        let far = gets(&gateway, "INVITE");
        let call = answer((alice, &gateway, call, far));
        refer(&call, expected);
        if expected != [true; 2] {
            site.log_with("REFER refused");
        }
        call.end();
    }
}

/// A caller without a password.
#[test]
fn a_foreign_caller_may_not_refer_a_user() {
    let site = bridge("", "");
    let bob = registered(&site);
    let caller = site.foreign_phone();
    let invite = caller.call("INVITE", "sip:bob@example.org");
    say(&caller, &invite, &sdp(4_000, 1, ""));
    let far = gets(&bob, "INVITE");
    let call = answer((caller, &bob, invite, far));
    refer(&call, [false, true]);
    call.end();
}

/// It would come to the phone of the user without any call.
#[test]
fn an_outsider_may_not_refer_a_user_outside_of_a_call() {
    for (rule_keys, expected) in [("", 403), ("refer_from = \"everyone\"\n", 603)] {
        let site = bridge("", rule_keys);
        let bob = registered(&site);
        let caller = site.foreign_phone();
        let lines = "Refer-To: <sip:00900123@example.org>\n".into();
        caller.send(&caller.text(&Call { lines, ..caller.call("REFER", "sip:bob@example.org") }));
        if expected == 603 {
            bob.respond(&gets(&bob, "REFER"), 603, "");
        }
        assert_eq!(caller.answer().status(), expected);
        bob.hears_nothing();
    }
}
