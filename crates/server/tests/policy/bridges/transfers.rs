//! Attended transfer: REFER with Replaces between two bridged calls, and INVITE with Replaces, also if the calls are in other shards.

use super::*;

/// Returns a server with three users, which bridges all calls, with these keys.
fn three(keys: &str, rule_keys: &str) -> Site {
    let lines = format!(
        "media.addresses = [\"{{ip}}\"]\nmedia.ports = \"20000-20399\"\naccounting.cdr = true\n{keys}\
         [[rule]]\nname = \"bridge\"\nb2bua = true\n{rule_keys}"
    );
    start(&lines, &["alice", "bob", "carol"])
}

fn phone_of(site: &Site, user: &str) -> Phone {
    let phone = site.phone(user);
    phone.register();
    phone
}

/// Call between two phones.
struct Talk {
    /// INVITE of the caller.
    call: Call,
    /// INVITE that the callee got.
    far: Got,
    /// 200 that the caller got.
    ok: Got,
}

/// Returns a request with the password of this user.
fn with_password(phone: &Phone, user: &str, call: &Call) -> Call {
    let challenge = phone.ask(call);
    assert_eq!(challenge.status(), 407, "{}", challenge.0);
    phone.authorized(call, &challenge, user, user)
}

/// Makes a call from the phone of this user to that of another one.
fn talk(caller: &Phone, user: &str, callee: &Phone, to: &str) -> Talk {
    let call = with_password(caller, user, &caller.call("INVITE", &format!("sip:{to}@example.org")));
    say(caller, &call, &sdp(4_000, 1, ""));
    let far = gets(callee, "INVITE");
    respond(callee, &far, 200, &sdp(5_000, 1, ""));
    gets(callee, "ACK");
    let ok = caller.answer();
    assert_eq!(ok.status(), 200, "{}", ok.0);
    caller.send(&caller.text(&call.within(&ok, "ACK", call.cseq)));
    Talk { call, far, ok }
}

/// Returns a description of audio without telephone events. Calls are set up with them, so it changes something for the other side.
fn plain(port: u16, version: u32) -> String {
    sdp(port, version, "").replace(" 8 101\r\n", " 8\r\n").replace("a=rtpmap:101 telephone-event/8000\r\n", "")
}

fn tag(value: &str) -> &str {
    value.split(";tag=").nth(1).expect("a tag")
}

impl Talk {
    /// Returns Replaces for the dialog of the caller, as its other end knows it.
    fn replaces(&self) -> String {
        let (to, from) = (tag(self.ok.one("To")), tag(&self.call.from));
        format!("{};to-tag={to};from-tag={from}", self.call.call_id)
    }

    /// Returns a request of the callee in its dialog.
    fn of_callee(&self, callee: &Phone, method: &str) -> Call {
        let contact = self.far.one("Contact").split(['<', '>']).nth(1).expect("a URI").to_owned();
        Call {
            uri: contact,
            from: format!("{};tag=answer", self.far.one("To")),
            to: self.far.one("From").into(),
            call_id: self.far.one("Call-ID").into(),
            cseq: 1_000,
            ..callee.call(method, "sip:x")
        }
    }
}

/// Returns the URI and the Replaces of a Refer-To.
fn referred(refer: &Got) -> (String, String) {
    let line = refer.one("Refer-To");
    let (uri, replaces) =
        line.trim_matches(['<', '>']).split_once("?Replaces=").unwrap_or_else(|| panic!("no Replaces: {line}"));
    let replaces = ["%40", "@", "%3B", ";", "%3D", "=", "%3A", ":"]
        .chunks(2)
        .fold(replaces.to_owned(), |text, pair| text.replace(pair[0], pair[1]));
    (uri.to_owned(), replaces)
}

/// Returns the REFER of a caller in the first call, to the callee of the second one.
fn refer_of(first: &Talk, second: &Talk) -> Call {
    let value = second.replaces().replace('@', "%40").replace(';', "%3B").replace('=', "%3D");
    let mut refer = first.call.within(&first.ok, "REFER", first.call.cseq + 1);
    refer.lines.push_str(&format!("Refer-To: <sip:carol@example.org?Replaces={value}>\n"));
    refer
}

/// Lets alice refer bob to carol, whom she calls too. Returns both calls, and the URI and the Replaces that bob gets.
fn refer(alice: &Phone, bob: &Phone, carol: &Phone) -> ([Talk; 2], (String, String)) {
    let (first, second) = (talk(alice, "alice", bob, "bob"), talk(alice, "alice", carol, "carol"));
    alice.send(&alice.text(&refer_of(&first, &second)));
    let got = gets(bob, "REFER");
    let (uri, replaces) = referred(&got);
    // Bob learns the dialog of carol, and no name of that of alice.
    for hidden in [&*second.call.call_id, tag(&second.call.from), tag(second.ok.one("To"))] {
        assert!(!got.0.contains(hidden), "{hidden} is shown: {}", got.0);
    }
    let far = &second.far;
    assert_eq!(replaces, format!("{};to-tag=answer;from-tag={}", far.one("Call-ID"), tag(far.one("From"))));
    bob.respond(&got, 202, "");
    assert_eq!(alice.answer().status(), 202);
    ([first, second], (uri, replaces))
}

/// Lets bob call carol in place of alice, with another description than alice if `is_other`: otherwise carol need not hear of it. Returns his INVITE
/// and its 200.
fn call_in_place(bob: &Phone, carol: &Phone, (uri, replaces): &(String, String), is_other: bool) -> (Call, Got) {
    let invite = Call { lines: format!("Replaces: {replaces}\n"), ..bob.call("INVITE", uri) };
    let invite = with_password(bob, "bob", &invite);
    say(bob, &invite, &if is_other { plain(6_000, 1) } else { sdp(6_000, 1, "") });
    if is_other {
        let change = gets(carol, "INVITE");
        assert!(change.one("To").contains(";tag=answer"), "a re-INVITE: {}", change.0);
        respond(carol, &change, 200, &plain(5_000, 2));
        gets(carol, "ACK");
    }
    let ok = bob.answer();
    assert_eq!(ok.status(), 200, "{}", ok.0);
    bob.send(&bob.text(&invite.within(&ok, "ACK", invite.cseq)));
    (invite, ok)
}

/// Returns the records of the calls that have ended, in the order of their ends.
fn records(site: &Site) -> Vec<Cdr> {
    let cdr = |row| match row {
        Row::Cdr(record) => Some(record),
        _ => None,
    };
    site.rows().into_iter().filter_map(cdr).collect()
}

/// Tells bob's outcome to alice, who hangs up.
fn end_first(alice: &Phone, bob: &Phone, first: &Talk) {
    let mut notify = first.of_callee(bob, "NOTIFY");
    notify.lines = "Event: refer\nSubscription-State: terminated;reason=noresource\n".into();
    bob.send(&bob.text(&notify));
    alice.respond(&gets(alice, "NOTIFY"), 200, "");
    assert_eq!(bob.answer().status(), 200);
    alice.send(&alice.text(&first.call.within(&first.ok, "BYE", first.call.cseq + 9)));
    bob.respond(&gets(bob, "BYE"), 200, "");
    assert_eq!(alice.answer().status(), 200);
}

#[test]
fn an_attended_transfer_ends_with_two_parties_in_any_shards() {
    let site = three("server.shards = 4\n", "");
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|user| phone_of(&site, user));
    // The Call-IDs are in any of the shards.
    for round in 0..12 {
        let ([first, second], reference) = refer(&alice, &bob, &carol);
        site.media_orders();
        let (invite, ok) = call_in_place(&bob, &carol, &reference, round % 3 != 0);
        let bye = gets(&alice, "BYE");
        assert_eq!(bye.one("Call-ID"), second.call.call_id);
        alice.respond(&bye, 200, "");
        let set = site.media_orders().pop();
        let Some(SessionOrder::Set { streams, .. }) = &set else { panic!("{set:?}") };
        let Some(Some(stream)) = streams.first() else { panic!("{streams:?}") };
        assert_eq!((stream.near.rtp, stream.far.as_ref().and_then(|far| far.rtp)), (at(6_000), at(5_000)));
        end_first(&alice, &bob, &first);
        site.settle();
        let shown = site.calls();
        assert_eq!((shown.len(), site.counts().calls_bridged), (1, 1));
        // Later requests of the new party find the call, also after a move.
        if round % 2 == 0 {
            site.move_calls();
        }
        bob.send(&bob.text(&invite.within(&ok, "INFO", invite.cseq + 1)));
        carol.respond(&gets(&carol, "INFO"), 200, "");
        assert_eq!(bob.answer().status(), 200);
        if round % 4 < 2 {
            bob.send(&bob.text(&invite.within(&ok, "BYE", invite.cseq + 2)));
            carol.respond(&gets(&carol, "BYE"), 200, "");
            assert_eq!(bob.answer().status(), 200);
        } else {
            carol.send(&carol.text(&second.of_callee(&carol, "BYE")));
            bob.respond(&gets(&bob, "BYE"), 200, "");
            assert_eq!(carol.answer().status(), 200);
        }
        let found: Vec<_> = records(&site)
            .into_iter()
            .map(|record| (record.call_id, record.outcome, record.ended_by, record.user))
            .collect();
        let ender = if round % 4 < 2 { "caller" } else { "callee" };
        let expected = [
            (&second.call.call_id, "caller", "alice"),
            (&first.call.call_id, "caller", "alice"),
            (&invite.call_id, ender, "bob"),
        ];
        let expected = expected
            .map(|(call_id, ender, user)| (call_id.clone(), "answered".to_owned(), ender.to_owned(), user.to_owned()));
        assert_eq!(found, expected);
        assert_eq!((site.calls().len(), site.counts().calls_bridged), (0, 0));
    }
}

/// The record of the replaced call ends when its party hangs up.
#[test]
fn the_transferor_may_hang_up_before_the_new_party_calls() {
    let site = three("server.shards = 4\n", "");
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|user| phone_of(&site, user));
    for round in 0..6 {
        let ([first, second], reference) = refer(&alice, &bob, &carol);
        let bye = second.call.within(&second.ok, "BYE", second.call.cseq + 1);
        site.media_orders();
        assert_eq!(alice.ask(&bye).status(), 200);
        carol.hears_nothing();
        let (invite, ok) = call_in_place(&bob, &carol, &reference, round % 3 == 0);
        let orders = site.media_orders();
        assert!(!orders.iter().any(|order| matches!(order, SessionOrder::Close { .. })), "{orders:?}");
        end_first(&alice, &bob, &first);
        bob.send(&bob.text(&invite.within(&ok, "BYE", invite.cseq + 2)));
        carol.respond(&gets(&carol, "BYE"), 200, "");
        assert_eq!(bob.answer().status(), 200);
        let ended: Vec<_> = records(&site).into_iter().map(|record| (record.call_id, record.ended_by)).collect();
        let expected = [&second.call, &first.call, &invite].map(|call| (call.call_id.clone(), "caller".to_owned()));
        assert_eq!(ended, expected);
    }
}

/// The new party may be in place of the callee: it is the caller of a call of its own.
#[test]
fn a_new_party_takes_the_place_of_the_callee() {
    let site = three("server.shards = 4\n", "");
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|user| phone_of(&site, user));
    for _ in 0..4 {
        let second = talk(&alice, "alice", &carol, "carol");
        // As carol names her dialog to bob, outside this server.
        let (to, from) = (tag(second.far.one("From")), "answer");
        let replaces = format!("{};to-tag={to};from-tag={from}", second.far.one("Call-ID"));
        let invite = Call { lines: format!("Replaces: {replaces}\n"), ..bob.call("INVITE", "sip:alice@example.org") };
        let invite = with_password(&bob, "bob", &invite);
        say(&bob, &invite, &plain(6_000, 1));
        let change = gets(&alice, "INVITE");
        respond(&alice, &change, 200, &plain(4_000, 2));
        gets(&alice, "ACK");
        let ok = bob.answer();
        assert_eq!(ok.status(), 200, "{}", ok.0);
        bob.send(&bob.text(&invite.within(&ok, "ACK", invite.cseq)));
        carol.respond(&gets(&carol, "BYE"), 200, "");
        bob.send(&bob.text(&invite.within(&ok, "BYE", invite.cseq + 1)));
        alice.respond(&gets(&alice, "BYE"), 200, "");
        assert_eq!(bob.answer().status(), 200);
        let ended: Vec<_> = records(&site).into_iter().map(|record| (record.call_id, record.ended_by)).collect();
        let expected = [(&second.call, "callee"), (&invite, "caller")];
        assert_eq!(ended, expected.map(|(call, by)| (call.call_id.clone(), by.to_owned())));
        assert_eq!((site.calls().len(), site.counts().calls_bridged), (0, 0));
    }
}

/// Checks that an overloaded server lets a transfer of a call in progress end, and that a forged Replaces gains nothing.
#[test]
fn an_overload_does_not_refuse_a_new_party() {
    let site = three("", "");
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|user| phone_of(&site, user));
    let second = talk(&alice, "alice", &carol, "carol");
    let (to, from) = (tag(second.far.one("From")), "answer");
    let named = |to: &str, from: &str, call_id: &str| Call {
        lines: format!("Replaces: {};to-tag={to};from-tag={from}\n", second.far.one("Call-ID")),
        call_id: call_id.into(),
        ..bob.call("INVITE", "sip:alice@example.org")
    };
    crate::overload::overload(&site);
    for forged in [named("forged", from, "forged-to-tag"), named(to, "forged", "forged-from-tag")] {
        assert_eq!(bob.ask(&forged).status(), 503);
    }
    let invite = with_password(&bob, "bob", &named(to, from, "new-party"));
    say(&bob, &invite, &plain(6_000, 1));
    let change = gets(&alice, "INVITE");
    respond(&alice, &change, 200, &plain(4_000, 2));
    gets(&alice, "ACK");
    let ok = bob.answer();
    assert_eq!(ok.status(), 200, "{}", ok.0);
    bob.send(&bob.text(&invite.within(&ok, "ACK", invite.cseq)));
    carol.respond(&gets(&carol, "BYE"), 200, "");
    bob.send(&bob.text(&invite.within(&ok, "BYE", invite.cseq + 1)));
    alice.respond(&gets(&alice, "BYE"), 200, "");
    assert_eq!(bob.answer().status(), 200);
}

/// Returns the status that refuses an INVITE with this Replaces.
fn refusal(phone: &Phone, user: &str, replaces: &str) -> u16 {
    let invite = Call { lines: format!("Replaces: {replaces}\n"), ..phone.call("INVITE", "sip:carol@example.org") };
    let invite = with_password(phone, user, &invite);
    say(phone, &invite, &sdp(6_000, 1, ""));
    let got = phone.answer();
    let ack = phone.text(&invite).replacen("INVITE", "ACK", 1).replace(" INVITE\r\n", " ACK\r\n");
    phone.send(&ack.replace(&format!("To: {}\r\n", invite.to), &format!("To: {}\r\n", got.one("To"))));
    got.status()
}

#[test]
fn what_cannot_be_replaced_is_refused_and_stays() {
    let site = three("server.shards = 4\n", "");
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|user| phone_of(&site, user));
    for _ in 0..4 {
        let second = talk(&alice, "alice", &carol, "carol");
        let replaces = second.replaces();
        assert_eq!(refusal(&bob, "bob", &format!("{replaces};early-only")), 486);
        assert_eq!(refusal(&bob, "bob", &format!("x{replaces}")), 603, "the tag is known, the dialog is not");
        assert_eq!(refusal(&bob, "bob", "1;to-tag=2;from-tag=3"), 481);
        // Carol refuses the change.
        let invite = Call { lines: format!("Replaces: {replaces}\n"), ..bob.call("INVITE", "sip:carol@example.org") };
        let invite = with_password(&bob, "bob", &invite);
        say(&bob, &invite, &plain(6_000, 1));
        let change = gets(&carol, "INVITE");
        carol.respond(&change, 488, "");
        gets(&carol, "ACK");
        let got = bob.answer();
        assert_eq!(got.status(), 488, "{}", got.0);
        let ack = bob.text(&invite).replacen("INVITE", "ACK", 1).replace(" INVITE\r\n", " ACK\r\n");
        bob.send(&ack.replace(&format!("To: {}\r\n", invite.to), &format!("To: {}\r\n", got.one("To"))));
        // The call is as before.
        alice.send(&alice.text(&second.call.within(&second.ok, "INFO", second.call.cseq + 1)));
        carol.respond(&gets(&carol, "INFO"), 200, "");
        assert_eq!(alice.answer().status(), 200);
        alice.send(&alice.text(&second.call.within(&second.ok, "BYE", second.call.cseq + 2)));
        carol.respond(&gets(&carol, "BYE"), 200, "");
        assert_eq!(alice.answer().status(), 200);
        assert_eq!(refusal(&bob, "bob", &replaces), 603, "it has ended");
        let outcomes: Vec<_> = records(&site).into_iter().map(|record| record.status).collect();
        assert_eq!(outcomes, [486, 603, 481, 488, 200, 603]);
        assert_eq!((site.calls().len(), site.counts().calls_bridged), (0, 0));
        carol.hears_nothing();
    }
}

/// RFC 3891 section 3: 603 tells that the dialog is over.
#[test]
fn a_live_call_with_another_tag_is_not_said_to_have_ended() {
    let site = three("server.shards = 4\n", "");
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|user| phone_of(&site, user));
    for _ in 0..4 {
        let talk = talk(&alice, "alice", &carol, "carol");
        // The tag of the server is right, that of alice is not.
        let replaces = format!("{}x", talk.replaces());
        assert_eq!(refusal(&bob, "bob", &replaces), 481);
        alice.send(&alice.text(&talk.call.within(&talk.ok, "BYE", talk.call.cseq + 1)));
        carol.respond(&gets(&carol, "BYE"), 200, "");
        assert_eq!(alice.answer().status(), 200);
        assert_eq!(refusal(&bob, "bob", &replaces), 603);
    }
}

/// RFC 3891 section 6: an outsider does not take the place of a party, though it knows the dialog.
#[test]
fn a_caller_that_may_not_refer_replaces_no_party() {
    for (rule_keys, may) in [("", false), ("refer_from = \"none\"\n", false), ("refer_from = \"everyone\"\n", true)] {
        let site = three("", rule_keys);
        let [alice, carol] = ["alice", "carol"].map(|user| phone_of(&site, user));
        let second = talk(&alice, "alice", &carol, "carol");
        let stranger = site.foreign_phone();
        let line = format!("Replaces: {}\n", second.replaces());
        let invite = Call { lines: line, ..stranger.call("INVITE", "sip:carol@example.org") };
        say(&stranger, &invite, &plain(6_000, 1));
        if may {
            respond(&carol, &gets(&carol, "INVITE"), 200, &plain(5_000, 2));
            gets(&carol, "ACK");
            assert_eq!(stranger.answer().status(), 200);
            gets(&alice, "BYE");
        } else {
            assert_eq!(stranger.answer().status(), 403);
            site.log_with("the caller may not take the place of a party");
            carol.hears_nothing();
        }
    }
}

#[test]
fn a_refer_to_a_call_that_has_ended_goes_no_further() {
    let site = three("server.shards = 4\n", "");
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|user| phone_of(&site, user));
    let (first, second) = (talk(&alice, "alice", &bob, "bob"), talk(&alice, "alice", &carol, "carol"));
    alice.send(&alice.text(&second.call.within(&second.ok, "BYE", second.call.cseq + 1)));
    carol.respond(&gets(&carol, "BYE"), 200, "");
    assert_eq!(alice.answer().status(), 200);
    assert_eq!(alice.ask(&refer_of(&first, &second)).status(), 481);
    bob.hears_nothing();
    assert_eq!(alice.ask(&first.call.within(&first.ok, "BYE", first.call.cseq + 9)).status(), 200);
    bob.respond(&gets(&bob, "BYE"), 200, "");
}
