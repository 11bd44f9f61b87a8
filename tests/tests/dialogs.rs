//! Tracked calls: the server ends calls that last too long, and bounds their number.

use std::time::Duration;

use serde_json::json;
use strowger_tests::call::{exchange, register};
use strowger_tests::control::{done, json, run};
use strowger_tests::dialog::{End, arrives, contact, invite, set_up};
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, field, parameter, respond, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::{self, Tcp, Tls, Udp, Ws};
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);
const ALL: [Transport; 4] = [Udp, Tcp, Tls, Ws];

fn setup(lines: &str) -> Setup {
    let open = "domains = [\"example.org\"]\nregistrar.authenticate = false\nauth.calls = false\ndialogs.track = true";
    Setup::on(&ALL).with(open).with(lines)
}

fn start(lines: &str) -> Site {
    setup(lines).site()
}

/// Receives and answers the BYE that this server sends by itself.
fn bye(wire: &mut Wire) -> Vec<u8> {
    let bye = wire.request("BYE", LIMIT).expect("the server ends the call");
    wire.send(&respond(&bye, 200, "", &[])).expect("the server takes messages");
    bye
}

fn tag(message: &[u8], name: &str) -> Option<String> {
    parameter(&field(message, name)?, "tag")
}

/// Phones of every transport, each reached over its own connection.
#[test]
fn a_call_that_lasts_too_long_is_ended_on_both_sides() {
    let server = start("dialogs.lifetime = \"2s\"");
    let pairs = ALL.iter().flat_map(|caller| ALL.map(|callee| (*caller, callee)));
    let calls = pairs.map(|(caller, callee)| {
        let (mut caller, mut callee) = (server.connect(caller), server.connect(callee));
        let user = strowger_tests::text::unique("user");
        register(&mut callee, &user);
        let invite = invite(&format!("sip:{user}@example.org"), &caller);
        let (mut end, other) = set_up(&mut caller, &mut callee, &invite, true);
        // The caller has sent more than its INVITE: the next CSeq is higher.
        arrives(&mut caller, &mut callee, &end.request("INFO"), &[]);
        (caller, callee, end, other)
    });
    for (mut caller, mut callee, end, other) in calls.collect::<Vec<_>>() {
        let (to_caller, to_callee) = (bye(&mut caller), bye(&mut callee));
        for got in [&to_caller, &to_callee] {
            assert_eq!(field(got, "Call-ID").as_ref(), Some(&end.call_id));
        }
        let tags = |message| (tag(message, "From"), tag(message, "To"));
        let (of_caller, of_callee) = (parameter(&end.from, "tag"), parameter(&other.from, "tag"));
        assert_eq!(tags(&to_callee), (of_caller.clone(), of_callee.clone()));
        assert_eq!(tags(&to_caller), (of_callee, of_caller));
        assert_eq!(field(&to_callee, "CSeq"), Some(format!("{} BYE", end.cseq + 1)));
    }
}

#[test]
fn calls_are_listed_shown_and_ended() {
    let server = setup("server.shards = 2").start();
    let list = |words: &[&str]| json(&server, &[&["calls", "list"], words].concat());
    assert_eq!(list(&[]), json!([]));
    let [mut caller, mut callee, mut other, mut ringing] = [Udp, Tcp, Tcp, Udp].map(|way| server.connect(way));
    register(&mut callee, "bob");
    register(&mut ringing, "carol");
    let call = invite("sip:bob@example.org", &caller);
    set_up(&mut caller, &mut callee, &call, true);
    other.send(&invite("sip:carol@example.org", &other).bytes()).expect("the server takes messages");
    let rings = ringing.request("INVITE", LIMIT).expect("the INVITE arrives");
    ringing.send(&respond(&rings, 180, "carol", &[])).expect("the server takes messages");
    assert_eq!(other.answer(LIMIT).as_deref().and_then(status), Some(180));

    let all = list(&[]);
    let mut states: Vec<_> = all.as_array().expect("a list").iter().map(|call| call["state"].as_str()).collect();
    states.sort_unstable();
    assert_eq!(states, [Some("answered"), Some("ringing")], "{all}");
    let of_bob = list(&["--party", "bob@"]);
    let [one] = &of_bob.as_array().expect("a list")[..] else { panic!("{of_bob}") };
    assert_eq!((&one["callee"], &one["call_id"]), (&json!("sip:bob@example.org"), &json!(call.call_id)));
    let id = one["id"].as_str().expect("a text");
    let shown = json(&server, &["calls", "show", id]);
    assert_eq!((&shown["state"], shown["dialogs"].as_array().map(Vec::len)), (&json!("answered"), Some(1)));
    assert_eq!(done(&server, &["calls", "list", "--limit", "1"]).lines().count(), 2, "a heading and a call");
    let text = done(&server, &["calls", "show", id]);
    assert!(text.contains("sip:bob@example.org") && text.contains("answered 0 s ago"), "{text}");

    // Both parties of an answered call get a BYE.
    assert_eq!(json(&server, &["calls", "end", id]), json!({"ended": id}));
    bye(&mut caller);
    // A refused BYE is sent again.
    let first = callee.request("BYE", LIMIT).expect("the server ends the call");
    callee.send(&respond(&first, 500, "", &[])).expect("the server takes messages");
    assert_eq!(json(&server, &["calls", "show", id])["state"], json!("ending"));
    let number = |bye: &[u8]| field(bye, "CSeq").and_then(|text| text.split(' ').next()?.parse::<u32>().ok());
    assert!(number(&bye(&mut callee)) > number(&first));
    assert!(wait::until(LIMIT, || run(&server, &["calls", "show", id]).status.code() == Some(1)));
    for words in [["calls", "end", id], ["calls", "show", id], ["calls", "end", "no id"]] {
        let gone = run(&server, &words);
        let text = String::from_utf8_lossy(&gone.stderr).into_owned();
        assert!(gone.status.code() == Some(1) && text.contains("no tracked call has the id"), "{text}");
    }
    // A ringing call is cancelled, and its caller gets an answer.
    let left = list(&[]);
    assert!(run(&server, &["calls", "end", left[0]["id"].as_str().expect("a text")]).status.success());
    let cancel = ringing.request("CANCEL", LIMIT).expect("it is cancelled");
    ringing.send(&respond(&cancel, 200, "carol", &[])).expect("the server takes messages");
    ringing.send(&respond(&rings, 487, "carol", &[])).expect("the server takes messages");
    assert_eq!(other.final_response(LIMIT).as_deref().and_then(status), Some(487));
    assert_eq!(done(&server, &["calls", "list"]), "no tracked calls\n");
}

/// RFC 4028 section 8: requested, added to the answer of a phone without timers, refused if too short.
#[test]
fn sessions_have_the_timer_that_the_settings_say() {
    let server = start("dialogs.session_expires = \"10m\"\ndialogs.min_session_expires = \"2m\"");
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    let call = |timer: &str| {
        let call = invite("sip:bob@example.org", &caller).with("Supported: timer");
        if timer.is_empty() { call } else { call.with(format!("Session-Expires: {timer}")) }
    };
    let [short, open, long] = ["119", "", "1800"].map(call);
    let refused = exchange(&mut caller, &short);
    assert_eq!((status(&refused), field(&refused, "Min-SE").as_deref()), (Some(422), Some("120")));
    for (call, expected) in [(open, "600"), (long, "600")] {
        caller.send(&call.bytes()).expect("the server takes messages");
        let got = callee.request("INVITE", LIMIT).expect("the INVITE arrives");
        assert_eq!(field(&got, "Session-Expires").as_deref(), Some(expected));
        callee.send(&respond(&got, 200, "bob", &[contact("bob", &callee)])).expect("the server takes messages");
        let answer = caller.final_response(LIMIT).expect("it is answered");
        let timer = (field(&answer, "Session-Expires"), field(&answer, "Require"));
        assert_eq!(timer, (Some(format!("{expected};refresher=uac")), Some("timer".to_owned())));
        caller.send(&call.ack(&answer).bytes()).expect("the server takes messages");
        callee.request("ACK", LIMIT).expect("the ACK arrives");
    }
}

/// By default no state of a call remains after its transactions.
#[test]
fn calls_are_tracked_where_the_configuration_says_so() {
    let server = Setup::on(&[Udp]).open_registrar().site();
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    let call = invite("sip:bob@example.org", &caller);
    set_up(&mut caller, &mut callee, &call, true);
    assert!(server.rig().calls().is_empty());
}

#[test]
fn calls_beyond_the_bound_are_refused_until_others_end() {
    let server = start("dialogs.calls = 1\nserver.shards = 1");
    let (mut caller, mut callee) = (server.connect(Udp), server.connect(Udp));
    register(&mut callee, "bob");
    let [first, second, third] = [(); 3].map(|()| invite("sip:bob@example.org", &caller));
    let (mut end, _) = set_up(&mut caller, &mut callee, &first, true);
    let one_more = exchange(&mut caller, &second);
    assert_eq!((status(&one_more), field(&one_more, "Retry-After").is_some()), (Some(503), true));
    arrives(&mut caller, &mut callee, &end.request("BYE"), &[]);
    set_up(&mut caller, &mut callee, &third, true);
}

/// Makes both phones ring; the first phone answers the call. Returns the caller's end. The other phone gets its CANCEL,
/// and answers the CANCEL only if `says_so`.
pub(crate) fn taken(caller: &mut Wire, phones: &mut [Wire; 2], call: &Request, says_so: bool) -> End {
    caller.send(&call.bytes()).expect("the server takes messages");
    let [first, other] = phones;
    let [taken, lost] = [(&mut *first, "first"), (&mut *other, "phone")].map(|(phone, tag)| {
        let got = phone.request("INVITE", LIMIT).expect("the INVITE arrives");
        phone.send(&respond(&got, 180, tag, &[])).expect("the server takes messages");
        assert_eq!(caller.answer(LIMIT).as_deref().and_then(status), Some(180));
        got
    });
    first.send(&respond(&taken, 200, "first", &[contact("bob", first)])).expect("the server takes messages");
    let cancel = other.request("CANCEL", LIMIT).expect("the other phone is cancelled");
    other.send(&respond(&cancel, 200, "phone", &[])).expect("the server takes messages");
    if says_so {
        other.send(&respond(&lost, 487, "phone", &[])).expect("the server takes messages");
        other.request("ACK", LIMIT).expect("the ACK arrives");
    }
    let answer = caller.final_response(LIMIT).expect("the call is answered");
    let mut end = End::caller(call, &answer);
    let mut ack = end.request("ACK");
    ack.cseq = call.cseq;
    caller.send(&ack.bytes()).expect("the server takes messages");
    first.request("ACK", LIMIT).expect("the ACK arrives");
    end
}

/// Dialogs of a phone that rang in parallel end with its CANCEL, and with the call at the latest.
#[test]
fn a_phone_that_rang_and_lost_holds_no_call() {
    let server = start(
        "proxy.fork = \"parallel\"\ncall_limit = [{ name = \"line\", most = 1, status = 486 }]\n\
         rule = [{ name = \"calls\", call_limits = [\"line\"] }]",
    );
    let [mut caller, mut first, mut other] = [(); 3].map(|()| server.connect(Udp));
    register(&mut first, "bob");
    register(&mut other, "bob");
    let mut phones = [first, other];
    for says_so in [true, false] {
        let call = invite("sip:bob@example.org", &caller);
        let mut end = taken(&mut caller, &mut phones, &call, says_so);
        let [shown] = &server.rig().calls()[..] else { panic!("one call") };
        assert_eq!((shown.state.text(), shown.dialogs.len()), ("answered", if says_so { 1 } else { 2 }));
        let one_more = invite("sip:bob@example.org", &caller);
        assert_eq!(status(&exchange(&mut caller, &one_more)), Some(486));
        arrives(&mut caller, &mut phones[0], &end.request("BYE"), &[]);
        assert!(server.rig().calls().is_empty());
    }
    caller.send(&invite("sip:bob@example.org", &caller).bytes()).expect("the server takes messages");
    phones[0].request("INVITE", LIMIT).expect("there is room for the next call");
}

#[test]
fn a_list_says_where_calls_are_not_tracked() {
    for (lines, is_said) in [("", true), ("dialogs.track = true", false)] {
        let server = Setup::on(&[Udp]).open_registrar().with(lines).start();
        let output = run(&server, &["calls", "list"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"no tracked calls\n"[..]));
        assert_eq!(said.contains("set dialogs.track = true, then strowger reload"), is_said, "{said}");
    }
}
