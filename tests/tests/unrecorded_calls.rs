//! Ways to talk to a gateway without a record: each call that the gateway answers requires a password, counts under its
//! limit and has one record, whatever dialog its INVITE names.

mod office;

use self::office::{Office, RequestResult};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::accounting::rows;
use strowger_tests::account::authorized;
use strowger_tests::control::{done, json};
use strowger_tests::dialog::{End, contact};
use strowger_tests::port::free_address;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, field, parameter, respond, status, unique};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);
const NUMBER: &str = "sip:0049123@example.org";

type Way = (&'static str, fn(&mut Office));

/// Returns the token of a Route of this server.
fn token(end: &End) -> String {
    parameter(&end.routes[0], "d").expect("a route token").trim_end_matches('>').to_owned()
}

/// Returns an INVITE outside of any dialog, except for its To tag.
fn made_up(office: &Office, tag: &str) -> Request {
    let mut request = office.request("INVITE");
    request.to.push_str(&format!(";tag={tag}"));
    request
}

fn with_route(office: &mut Office, route: impl Fn(&str) -> String) {
    let mut request = made_up(office, "x");
    request.headers.insert(0, format!("Route: {}", route(&office.server.address(Udp).to_string())));
    office.attack(&request);
}

/// Sends an INVITE within a dialog, from this end of the dialog.
fn invite_in(office: &mut Office, end: &mut End) {
    let request = office.within(end, "INVITE");
    office.attack(&request);
}

fn in_dialog_of(office: &mut Office, method: &str) {
    let mut end = office.dialog(method, 200);
    for _ in 0..2 {
        invite_in(office, &mut end);
    }
}

/// Refreshes a dialog, and keeps only the sealed Contact of the gateway, without the route set.
fn by_seal_in(office: &mut Office, end: &mut End) {
    let refresh = office.within(end, "UPDATE");
    let RequestResult::Open(answer) = office.once(&refresh, 200) else { panic!("an UPDATE passes") };
    end.uri = End::caller(&refresh, &answer).uri;
    end.routes.clear();
}

fn carrier(office: &mut Office, method: &str) {
    let mut end = office.dialog("SUBSCRIBE", 200);
    let request = office.within(&mut end, method);
    office.is_challenged(&request);
}

/// Checks that route tokens of a user end when `strowger COMMAND remove` removes the account.
fn without_account(office: &mut Office, user: &'static str, command: &str) {
    office.user = user;
    let (mut subscription, mut call) = (office.dialog("SUBSCRIBE", 200), office.ended());
    done(&office.server, &[command, "remove", &format!("{user}@example.org")]);
    let mut refused = |office: &mut Office| {
        let request = office.within(&mut subscription, "SUBSCRIBE");
        matches!(office.once(&request, 200), RequestResult::Challenged(_))
    };
    assert!(wait::until(LIMIT, || refused(office)), "subscriptions go on");
    for end in [&mut subscription, &mut call] {
        let request = office.within(end, "INVITE");
        office.is_challenged(&request);
    }
}

/// Attacks of which each may reach the gateway, and then has a record.
const WAYS: &[Way] = &[
    ("a made-up To tag", |o| drop(o.attack(&made_up(o, "madeup")))),
    ("a made-up To tag, again and again", |o| (0..3).for_each(|n| drop(o.attack(&made_up(o, &format!("m{n}")))))),
    ("the From tag as To tag", |o| {
        let mut request = o.request("INVITE");
        let tag = parameter(&request.from, "tag").expect("a tag");
        request.to.push_str(&format!(";tag={tag}"));
        o.attack(&request);
    }),
    ("the To tag of this server's own answers", |o| {
        let mut request = o.request("INVITE");
        let RequestResult::Challenged(challenge) = o.once(&request, 200) else { panic!("no challenge") };
        request.to = field(&challenge, "To").expect("To");
        request.cseq += 1;
        request.branch = unique("z9hG4bK");
        o.attack(&request);
    }),
    ("a To tag of 300 characters", |o| drop(o.attack(&made_up(o, &"t".repeat(300))))),
    ("a To tag beside other parameters", |o| drop(o.attack(&made_up(o, "x;y=z;tag2=a")))),
    ("a Route without a token", |o| with_route(o, |server| format!("<sip:{server};lr>"))),
    ("a token of zeros", |o| with_route(o, |server| format!("<sip:{server};lr;d={}>", "A".repeat(32)))),
    ("a token without a value", |o| with_route(o, |server| format!("<sip:{server};lr;d>"))),
    ("a token that is too long", |o| with_route(o, |server| format!("<sip:{server};lr;d={}>", "B".repeat(300)))),
    ("two Routes without a token", |o| with_route(o, |server| format!("<sip:{server};lr>, <sip:{server};lr>"))),
    ("a seal of zeros", |o| {
        let mut request = made_up(o, "x");
        request.uri = format!("sip:0049123@{};x-strowger={}", o.gateway.local(), "A".repeat(40));
        o.attack(&request);
    }),
    ("the gateway's own address", |o| {
        let mut request = made_up(o, "x");
        request.uri = format!("sip:0049123@{}", o.gateway.local());
        o.attack(&request);
    }),
    ("a SUBSCRIBE dialog", |o| in_dialog_of(o, "SUBSCRIBE")),
    ("a REFER dialog", |o| in_dialog_of(o, "REFER")),
    ("a NOTIFY dialog", |o| in_dialog_of(o, "NOTIFY")),
    ("a SUBSCRIBE dialog that was refreshed", |o| {
        let mut end = o.dialog("SUBSCRIBE", 200);
        let refresh = o.within(&mut end, "SUBSCRIBE");
        let RequestResult::Open(answer) = o.once(&refresh, 200) else { panic!("a refresh passes") };
        end.uri = End::caller(&refresh, &answer).uri;
        invite_in(o, &mut end);
    }),
    ("the seal of a SUBSCRIBE dialog", |o| {
        let mut end = o.dialog("SUBSCRIBE", 200);
        let refresh = o.within(&mut end, "SUBSCRIBE");
        let RequestResult::Open(answer) = o.once(&refresh, 200) else { panic!("a refresh passes") };
        (end.uri, end.routes) = (End::caller(&refresh, &answer).uri, Vec::new());
        invite_in(o, &mut end);
    }),
    ("a SUBSCRIBE dialog, by a strict route", |o| {
        let mut end = o.dialog("SUBSCRIBE", 200);
        let target = std::mem::replace(&mut end.uri, end.routes[0].trim_matches(['<', '>']).to_owned());
        end.routes = vec![format!("<{target}>")];
        invite_in(o, &mut end);
    }),
    ("UPDATE in a SUBSCRIBE dialog", |o| carrier(o, "UPDATE")),
    ("PRACK in a SUBSCRIBE dialog", |o| carrier(o, "PRACK")),
    ("INFO in a SUBSCRIBE dialog", |o| carrier(o, "INFO")),
    ("the token of a call that rang", |o| {
        let mut end = o.rang();
        invite_in(o, &mut end);
    }),
    ("a call that has ended", |o| {
        let mut end = o.ended();
        for _ in 0..2 {
            invite_in(o, &mut end);
        }
    }),
    ("a call that the gateway has ended", |o| {
        let mut end = o.dialog("INVITE", 200);
        o.settles("it ends");
        invite_in(o, &mut end);
    }),
    ("a call that an operator has ended", |o| {
        let mut end = o.dialog("INVITE", 200);
        let list = json(&o.server, &["calls", "list"]);
        let id = list[0]["id"].as_str().expect("a call").to_owned();
        done(&o.server, &["calls", "end", &id]);
        for wire in [&mut o.alice, &mut o.gateway] {
            let bye = wire.request("BYE", LIMIT).expect("a BYE to each party");
            wire.send(&respond(&bye, 200, "", &[])).expect("loopback");
        }
        o.standing.clear();
        assert!(wait::until(LIMIT, || o.counted() == 0), "both parties have ended it");
        invite_in(o, &mut end);
    }),
    ("a call that has ended, by a strict route", |o| {
        let mut end = o.ended();
        let target = std::mem::replace(&mut end.uri, end.routes[0].trim_matches(['<', '>']).to_owned());
        end.routes = vec![format!("<{target}>")];
        invite_in(o, &mut end);
    }),
    ("the seal of a call that has ended", |o| {
        let mut end = o.dialog("INVITE", 200);
        by_seal_in(o, &mut end);
        o.settles("it ends");
        invite_in(o, &mut end);
    }),
    ("the seal of a call that stands", |o| {
        let mut end = o.dialog("INVITE", 200);
        by_seal_in(o, &mut end);
        invite_in(o, &mut end);
    }),
    ("a call that stands", |o| {
        let mut end = o.dialog("INVITE", 200);
        for _ in 0..2 {
            invite_in(o, &mut end);
        }
    }),
    ("the token of another call", |o| {
        let (other, mut end) = (o.dialog("INVITE", 200), o.ended());
        end.routes = other.routes;
        invite_in(o, &mut end);
    }),
    ("the token of another call, with its Contact", |o| {
        let (other, mut end) = (o.dialog("INVITE", 200), o.ended());
        (end.routes, end.uri) = (other.routes, other.uri);
        invite_in(o, &mut end);
    }),
    ("the Call-ID in capitals", |o| {
        let mut end = o.dialog("INVITE", 200);
        end.call_id = end.call_id.to_uppercase();
        invite_in(o, &mut end);
    }),
    ("another To tag", |o| {
        let mut end = o.dialog("INVITE", 200);
        end.to.push('x');
        invite_in(o, &mut end);
    }),
    ("another From tag, after the end", |o| {
        let mut end = o.ended();
        end.from.push('x');
        invite_in(o, &mut end);
    }),
    ("both tags exchanged", |o| {
        let mut end = o.ended();
        let tags = [&end.from, &end.to].map(|value| parameter(value, "tag").expect("a tag"));
        (end.from, end.to) = (end.from.replace(&tags[0], &tags[1]), end.to.replace(&tags[1], &tags[0]));
        invite_in(o, &mut end);
    }),
    ("Call-ID and From tag of a call that has ended", |o| {
        let end = o.ended();
        let mut request = o.request("INVITE");
        (request.from, request.call_id) = (end.from, end.call_id);
        o.attack(&request);
    }),
    ("Call-ID and From tag of a call that stands, with a To tag", |o| {
        let end = o.dialog("INVITE", 200);
        let mut request = made_up(o, "second");
        (request.from, request.call_id, request.cseq) = (end.from, end.call_id, end.cseq + 5);
        o.attack(&request);
    }),
    ("the token under another name", |o| {
        let mut end = o.ended();
        let token = token(&end);
        end.routes[0] = end.routes[0].replace(&format!(";d={token}"), &format!(";D={token};d={token}"));
        invite_in(o, &mut end);
    }),
    ("Replaces of a call that stands", |o| {
        let end = o.dialog("INVITE", 200);
        let tags = [&end.from, &end.to].map(|value| parameter(value, "tag").expect("a tag"));
        let request =
            o.request("INVITE").with(format!("Replaces: {};from-tag={};to-tag={}", end.call_id, tags[0], tags[1]));
        o.attack(&request);
    }),
    ("Replaces, with a To tag", |o| {
        let end = o.dialog("INVITE", 200);
        let tags = [&end.from, &end.to].map(|value| parameter(value, "tag").expect("a tag"));
        let request =
            made_up(o, "x").with(format!("Replaces: {};from-tag={};to-tag={}", end.call_id, tags[0], tags[1]));
        o.attack(&request);
    }),
    ("a REFER within a call, and its dialog", |o| {
        let mut end = o.dialog("INVITE", 200);
        let refer = o.within(&mut end, "REFER").with(format!("Refer-To: <{NUMBER}>"));
        assert!(matches!(o.once(&refer, 202), RequestResult::Open(_)));
        o.settles("it ends");
        invite_in(o, &mut end);
    }),
    ("a user whose registrations were removed", |o| without_account(o, "alice", "registrations")),
    ("a removed user", |o| without_account(o, "carol", "user")),
];

#[test]
fn each_call_that_the_gateway_answers_has_its_record() {
    let mut office = Office::start();
    assert!(WAYS.len() >= 40, "{}", WAYS.len());
    for (name, way) in WAYS {
        way(&mut office);
        office.settles(name);
    }
    assert!(office.answered > WAYS.len() / 2, "most of them are calls: {}", office.answered);
}

/// BYEs that the gateway refuses with these statuses, or that never reach it: the call continues, counts, and is
/// recorded to its end.
const REFUSED_BYES: &[(&str, u16)] = &[
    ("a CSeq that is too low", 500),
    ("Require of an unknown extension", 420),
    ("a body of an unknown type", 415),
    ("Max-Forwards used up behind this server", 483),
    ("an overloaded gateway", 503),
];

#[test]
fn a_call_goes_on_when_its_bye_is_refused() {
    let mut office = Office::start();
    for (name, code) in REFUSED_BYES {
        let mut end = office.dialog("INVITE", 200);
        let bye = end.request("BYE");
        assert!(matches!(office.once(&bye, *code), RequestResult::Open(_)), "{name}");
        let records = office.records();
        let info = office.within(&mut end, "INFO");
        assert!(matches!(office.once(&info, 200), RequestResult::Open(_)), "{name}");
        invite_in(&mut office, &mut end);
        assert_eq!((office.counted(), office.records()), (1, records), "{name}");
        office.settles(name);
    }
}
