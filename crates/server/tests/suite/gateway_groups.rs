//! Groups of gateways: the choice of the first gateway, and the limits under which a call counts while it is sent to a
//! gateway.

mod calls;

use self::calls::{NUMBER, THIRD, agree, bye, calls, counted, goes_on, group, limit, pairs, refuses, rule, taken};
use crate::decisions::{GATEWAY, MAILBOX, SECOND, invite, request, site};
use crate::peer::{answer, ends, goes, invites, pass, receive, sent};
use crate::site::{ALICE, CALL_SECRET, SERVER, Site, line};
use strowger_calls::read_kept;
use strowger_core::{Arrival, ListenerId, Now, Transport, call};
use strowger_server::engine::Effect;

#[test]
fn a_group_stands_for_its_gateways() {
    let mut site =
        site(&(group("west", &[GATEWAY, SECOND], "") + &rule("[\"west\", \"sip:desk@203.0.113.3:5060\"]", "")));
    let first = calls(&mut site, 1);
    let second = goes(&refuses(&mut site, &first));
    let third = goes(&refuses(&mut site, &second));
    assert_eq!([&*first.0, &*second.0, &*third.0], [GATEWAY, SECOND, THIRD]);
    assert!(second.1.starts_with("INVITE sip:4930@example.org ") && third.1.starts_with("INVITE sip:desk@"));
    ends(&receive(&mut site, THIRD, &answer(&third.1, 486, "")), 486);
    assert_eq!(calls(&mut site, 2).0, GATEWAY, "each call begins with the first");
}

#[test]
fn a_group_in_turn_begins_with_the_next() {
    let gateways = [GATEWAY, SECOND, THIRD];
    let mut site = site(&(group("west", &gateways, "pick = \"in_turn\"") + &rule("[\"west\"]", "")));
    for n in 0..7 {
        let first = calls(&mut site, n);
        assert_eq!(first.0, gateways[n as usize % 3]);
        // A copy of the INVITE takes no turn; a request other than INVITE takes one.
        assert!(invites(&receive(&mut site, ALICE, &invite(n, NUMBER))).is_empty());
        if n == 4 {
            let second = goes(&refuses(&mut site, &first));
            let third = goes(&refuses(&mut site, &second));
            assert_eq!([&*second.0, &*third.0], [THIRD, GATEWAY], "the others follow");
        }
    }
    let got = receive(&mut site, ALICE, &request(9, "OPTIONS", NUMBER, ""));
    assert_eq!(got[0].0, SECOND, "each request takes one");
}

#[test]
fn a_group_by_call_sends_one_call_to_one_gateway() {
    let gateways = [GATEWAY, SECOND, THIRD];
    let settings = group("west", &gateways, "pick = \"by_call\"") + &rule("[\"west\"]", "");
    let mut first = site(&settings);
    let places: Vec<String> = (0..60).map(|n| calls(&mut first, n).0).collect();
    for gateway in gateways {
        let count = places.iter().filter(|place| *place == gateway).count();
        assert!((10..30).contains(&count), "{gateway}: {count}");
    }
    // Another request of the call finds the same gateway, and so does another server.
    let mut second = site(&settings);
    for (n, place) in (0..).zip(&places) {
        assert_eq!(&calls(&mut second, n).0, place);
        let got = receive(&mut first, ALICE, &request(n, "MESSAGE", NUMBER, "").replace("z9hG4bKd", "z9hG4bKm"));
        assert_eq!(&got[0].0, place);
    }
}

#[test]
fn a_group_picks_for_redirections_and_failures_too() {
    let west = group("west", &[GATEWAY, SECOND], "pick = \"in_turn\"");
    let mut redirecting = site(&(west.clone() + &rule("[\"west\"]", "redirect = true")));
    for (n, q) in [(1, ["1", "0.500"]), (2, ["0.500", "1"]), (3, ["1", "0.500"])] {
        let got = receive(&mut redirecting, ALICE, &invite(n, NUMBER));
        for (gateway, q) in [GATEWAY, SECOND].iter().zip(q) {
            assert!(got[0].1.contains(&format!("Contact: <sip:4930@{gateway}>;q={q}\r\n")), "{n}: {}", got[0].1);
        }
    }
    let mut failing = site(&format!(
        "{west}[[failure]]\nname = \"west\"\nstatuses = [\"486\"]\nto = [\"west\"]\n{}",
        rule(&format!("[\"sip:{THIRD}\"]"), "on_failure = [\"west\"]")
    ));
    let (mut first, mut second) = (0, 0);
    for n in 0..200 {
        let (_, text) = calls(&mut failing, n);
        let (at, text) = goes(&receive(&mut failing, THIRD, &answer(&text, 486, "")));
        *(if at == GATEWAY { &mut first } else { &mut second }) += 1;
        let other = goes(&refuses(&mut failing, &(at.clone(), text))).0;
        assert_ne!(at, other);
    }
    assert!(first > 60 && second > 60, "{first} {second}");
}

/// Checks that a group allocates no more than a rule without a group: a shard keeps its scratch memory, and a turn is a
/// number.
#[test]
fn a_group_costs_no_memory_for_each_request() {
    let allocated = |to: &str, pick: &str| {
        let more = format!("pick = \"{pick}\"");
        let unused = "[[rule]]\nname = \"other\"\nwhen = \"request.user == 'x'\"\nto = [\"west\"]\n";
        let mut site = site(&(group("west", &[GATEWAY, SECOND, THIRD], &more) + &rule(to, "") + unused));
        for n in 0..3 {
            calls(&mut site, n);
        }
        calls(&mut site, 4);
        site.allocated
    };
    let plain = allocated(&format!("[\"sip:{GATEWAY}\", \"sip:{SECOND}\", \"sip:{THIRD}\"]"), "in_order");
    for pick in ["in_order", "in_turn", "by_call"] {
        assert_eq!(allocated("[\"west\"]", pick), plain, "{pick}");
    }
}

#[test]
fn a_group_without_room_is_passed_over() {
    let settings = limit("west", "all", 1, "status = 486")
        + &group("west", &[GATEWAY, SECOND], "call_limits = [\"west\"]")
        + &rule(&format!("[\"west\", \"sip:{THIRD}\"]"), "");
    let mut site = site(&settings);
    let first = calls(&mut site, 1);
    assert_eq!((first.0.as_str(), counted(&site)), (GATEWAY, pairs([("west", 1)])));
    let second = calls(&mut site, 2);
    assert_eq!((second.0.as_str(), counted(&site)), (THIRD, pairs([("west", 1)])));
    // The call counts at each gateway of the group, but no longer behind it. Then there is room for another.
    let first = goes(&refuses(&mut site, &first));
    assert_eq!((first.0.as_str(), counted(&site)), (SECOND, pairs([("west", 1)])));
    let first = goes(&refuses(&mut site, &first));
    assert_eq!((first.0.as_str(), counted(&site)), (THIRD, pairs([])));
    agree(&site);
    let third = calls(&mut site, 3);
    assert_eq!((third.0.as_str(), counted(&site)), (GATEWAY, pairs([("west", 1)])));
    receive(&mut site, GATEWAY, &answer(&third.1, 404, ""));
    pass(&mut site);
    assert_eq!(counted(&site), pairs([]));
}

/// Checks that the keys `over` and `status` of the limit decide about a call if no place has room.
#[test]
fn a_limit_without_room_decides_about_the_call() {
    let groups = limit("west", "all", 1, "status = 486")
        + &limit("east", "all", 1, "status = 600")
        + &group("west", &[GATEWAY], "call_limits = [\"west\"]")
        + &group("east", &[SECOND], "call_limits = [\"east\"]")
        + &rule("[\"west\", \"east\"]", "");
    let mut refusing = site(&groups);
    assert_eq!([1, 2].map(|n| calls(&mut refusing, n).0), [GATEWAY, SECOND]);
    ends(&receive(&mut refusing, ALICE, &invite(3, NUMBER)), 486);
    agree(&refusing);
    let mut next = site(&format!(
        "{}[[rule]]\nname = \"rest\"\nto = [\"sip:{THIRD}\"]\n",
        groups.replace("status = 486", "over = \"next-rule\"")
    ));
    assert_eq!([1, 2, 3].map(|n| calls(&mut next, n).0), [GATEWAY, SECOND, THIRD]);
}

/// Checks that the places after a full group are tried, even if the group is not the first place.
#[test]
fn a_group_without_room_is_passed_over_when_its_turn_comes() {
    let mut site = site(
        &(limit("west", "all", 1, "")
            + &group("west", &[SECOND], "call_limits = [\"west\"]")
            + &rule(&format!("[\"sip:{GATEWAY}\", \"west\", \"sip:{THIRD}\"]"), "")),
    );
    let [first, second] = [1, 2].map(|n| calls(&mut site, n));
    assert_eq!(counted(&site), pairs([]));
    let first = goes(&refuses(&mut site, &first));
    assert_eq!((first.0.as_str(), counted(&site)), (SECOND, pairs([("west", 1)])));
    let second = goes(&refuses(&mut site, &second));
    assert_eq!((second.0.as_str(), counted(&site)), (THIRD, pairs([("west", 1)])));
    agree(&site);
}

#[test]
fn each_gateway_has_a_limit() {
    let lines = limit("lines", "gateway", 1, "status = 486");
    let gateways = [GATEWAY, SECOND];
    let named = format!("\"sip:{GATEWAY}\", \"sip:{SECOND}\"");
    for settings in [
        rule(&format!("[{named}]"), "call_limits = [\"lines\"]"),
        group("west", &gateways, "") + &rule("[\"west\"]", "call_limits = [\"lines\"]"),
        group("west", &gateways, "call_limits = [\"lines\"]") + &rule("[\"west\"]", ""),
        group("west", &gateways, "call_limits = [\"lines\"]\npick = \"in_turn\"") + &rule("[\"west\"]", ""),
    ] {
        let mut site = site(&(lines.clone() + &settings));
        let [first, second] = [1, 2].map(|n| calls(&mut site, n));
        let both = pairs([("lines 203.0.113.1:5060", 1), ("lines 203.0.113.2:5060", 1)]);
        assert_eq!(([&*first.0, &*second.0], counted(&site)), (gateways, both.clone()), "{settings}");
        ends(&receive(&mut site, ALICE, &invite(3, NUMBER)), 486);
        // The next gateway has no room for the first call: it fails, and gives back its place.
        ends(&refuses(&mut site, &first), 500);
        assert_eq!(counted(&site), pairs([("lines 203.0.113.2:5060", 1)]));
        let third = calls(&mut site, 4);
        assert_eq!((third.0.as_str(), counted(&site)), (GATEWAY, both));
        receive(&mut site, SECOND, &answer(&second.1, 404, ""));
        // From the failed gateway the call goes to the one that has room now.
        let third = goes(&refuses(&mut site, &third));
        assert_eq!((third.0.as_str(), counted(&site)), (SECOND, pairs([("lines 203.0.113.2:5060", 1)])));
        agree(&site);
        receive(&mut site, SECOND, &answer(&third.1, 404, ""));
        assert_eq!(counted(&site), pairs([]));
    }
}

/// Checks that a gateway is the same by different rules, user parts and parameters.
#[test]
fn a_gateway_is_one_by_host_and_port() {
    let mut site = site(&format!(
        "{}[[rule]]\nname = \"desk\"\nwhen = \"number == '1'\"\nto = [\"sip:desk@{GATEWAY};transport=udp\"]\ncall_limits = [\"lines\"]\n{}",
        limit("lines", "gateway", 1, "status = 486"),
        rule(&format!("[\"sip:{GATEWAY}\"]"), "call_limits = [\"lines\"]")
    ));
    goes(&receive(&mut site, ALICE, &invite(1, "sip:1@example.org")));
    ends(&receive(&mut site, ALICE, &invite(2, NUMBER)), 486);
    // Requests that begin no call count under no limit.
    assert_eq!(receive(&mut site, ALICE, &request(3, "MESSAGE", NUMBER, ""))[0].0, GATEWAY);
}

/// Checks that room at a gateway is freed, for each way in which a call ends.
#[test]
fn what_a_gateway_took_is_given_back_when_the_call_ends() {
    let mut site = site(
        &(limit("lines", "gateway", 1, "")
            + &limit("west", "all", 1, "")
            + &group("west", &[GATEWAY, SECOND], "call_limits = [\"lines\", \"west\"]")
            + &rule("[\"west\"]", "answer_timeout = \"1s\"")),
    );
    let at = |gateway: &str| [(format!("lines {gateway}"), 1), ("west".to_owned(), 1)].to_vec();
    for n in 1..50 {
        let first = calls(&mut site, n);
        assert_eq!(counted(&site), at(&first.0), "{n}");
        match n % 6 {
            0 => drop(receive(&mut site, &first.0, &answer(&first.1, 486, "")).pop()),
            1 => {
                receive(&mut site, &first.0, &answer(&first.1, 180, ""));
                receive(&mut site, ALICE, &request(n, "CANCEL", NUMBER, ""));
                ends(&receive(&mut site, &first.0, &answer(&first.1, 487, "")), 487);
                assert_eq!(counted(&site), pairs([]));
                continue;
            }
            _ => (),
        }
        let second = match n % 6 {
            0 => goes_on(&site, &first.0),
            // The gateway is silent, so the second is tried. Both are silent.
            2 => {
                site.wait(1_100);
                let (second, _) = goes_on(&site, &first.0);
                assert_eq!(counted(&site), at(&second));
                pass(&mut site);
                assert_eq!(counted(&site), pairs([]), "{n}");
                continue;
            }
            _ => goes(&refuses(&mut site, &first)),
        };
        assert_eq!(counted(&site), at(&second.0), "{n}");
        if n % 6 < 4 {
            receive(&mut site, &second.0, &answer(&second.1, 404, ""));
        } else {
            taken(&mut site, n, &second);
        }
        assert_eq!(counted(&site), pairs([]), "{n}");
        agree(&site);
    }
}

/// Checks that room under limits that count the call until its end is not freed when the call leaves the gateway.
#[test]
fn limits_to_the_end_of_a_call_outlast_its_gateway() {
    // The limit of the rule, and that of a failure that is used when the call leaves the group.
    let west = limit("west", "all", 1, "") + &group("west", &[GATEWAY], "call_limits = [\"west\"]");
    let failure = format!(
        "[[failure]]\nname = \"f\"\nstatuses = [\"5xx\"]\nto = [\"sip:{SECOND}\", \"sip:{THIRD}\"]\ncall_limits = [\"west\"]\n"
    );
    for settings in [
        format!("{west}{}", rule(&format!("[\"west\", \"sip:{SECOND}\"]"), "call_limits = [\"west\"]")),
        format!("{west}{failure}{}", rule("[\"west\"]", "on_failure = [\"f\"]")),
    ] {
        let mut site = site(&settings);
        let first = calls(&mut site, 1);
        let second = goes(&refuses(&mut site, &first));
        assert_eq!((second.0.as_str(), counted(&site)), (SECOND, pairs([("west", 1)])), "{settings}");
        agree(&site);
        receive(&mut site, SECOND, &answer(&second.1, 404, ""));
        pass(&mut site);
        assert_eq!(counted(&site), pairs([]));
    }
}

/// Checks that a failure that leads to a full group is skipped, and room under the limits before it is freed.
#[test]
fn failures_that_lead_to_groups_count_there() {
    let failure = |name: &str, to: &str| {
        format!("[[failure]]\nname = \"{name}\"\nstatuses = [\"480\", \"5xx\", \"486\"]\nto = [{to}]\n")
    };
    let settings = limit("lines", "gateway", 1, "")
        + &group("west", &[GATEWAY], "call_limits = [\"lines\"]")
        + &group("east", &[SECOND], "call_limits = [\"lines\"]")
        + &failure("east", "\"east\"")
        + &failure("mailbox", &format!("\"sip:{MAILBOX}\""))
        + &rule("[\"west\"]", "on_failure = [\"east\", \"mailbox\"]")
        + "[[rule]]\nname = \"users\"\nwhen = \"method == 'INVITE'\"\non_failure = [\"east\", \"mailbox\"]\n";
    let mut site = site(&settings);
    let first = calls(&mut site, 1);
    let first = goes(&refuses(&mut site, &first));
    assert_eq!((first.0.as_str(), counted(&site)), (SECOND, pairs([("lines 203.0.113.2:5060", 1)])));
    let second = calls(&mut site, 2);
    assert_eq!(counted(&site).len(), 2);
    let second = goes(&refuses(&mut site, &second));
    assert_eq!((second.0.as_str(), counted(&site)), (MAILBOX, pairs([("lines 203.0.113.2:5060", 1)])));
    agree(&site);
    // Likewise if the call fails before it is forwarded.
    let user = |site: &mut Site, n| goes(&receive(site, ALICE, &invite(n, "sip:bob@example.org"))).0;
    assert_eq!(user(&mut site, 3), MAILBOX);
    receive(&mut site, SECOND, &answer(&first.1, 603, ""));
    assert_eq!(counted(&site), pairs([]));
    assert_eq!((user(&mut site, 4).as_str(), counted(&site)), (SECOND, pairs([("lines 203.0.113.2:5060", 1)])));
    assert_eq!(user(&mut site, 5), MAILBOX);
    agree(&site);
}

/// Checks that a call that is repeated with credentials for a gateway begins again, and may be sent elsewhere.
#[test]
fn a_call_that_comes_again_with_credentials_counts_where_it_is_led_then() {
    let mut site = site(
        &(limit("lines", "gateway", 1, "")
            + &group("west", &[GATEWAY, SECOND], "pick = \"in_turn\"\ncall_limits = [\"lines\"]")
            + &rule("[\"west\"]", "try_next = [503]")),
    );
    let (at, text) = calls(&mut site, 1);
    let challenge = "Proxy-Authenticate: Digest realm=\"west\", nonce=\"n\"\r\n";
    ends(&receive(&mut site, &at, &answer(&text, 407, challenge)), 407);
    assert_eq!(counted(&site), pairs([("lines 203.0.113.1:5060", 1)]));
    let again = invite(1, NUMBER).replace("branch=z9hG4bK", "branch=z9hG4bKagain").replace("CSeq: 1 ", "CSeq: 2 ");
    let (at, text) = goes(&receive(&mut site, ALICE, &again));
    assert_eq!((at.as_str(), counted(&site)), (SECOND, pairs([("lines 203.0.113.2:5060", 1)])));
    receive(&mut site, SECOND, &answer(&text, 486, ""));
    assert_eq!(counted(&site), pairs([]));
}

/// Covers a server before this one that sends a call to several targets: each target takes room at its gateway.
#[test]
fn each_target_of_a_fork_counts_at_its_gateway() {
    let mut site = site(
        &(limit("lines", "gateway", 2, "status = 486")
            + &group("west", &[GATEWAY, SECOND], "call_limits = [\"lines\"]")
            + &rule("[\"west\"]", "")),
    );
    let fork = |n: u32| invite(1, NUMBER).replace("branch=z9hG4bK", &format!("branch=z9hG4bKfork{n}"));
    let forks = [1, 2, 3].map(|n| goes(&receive(&mut site, ALICE, &fork(n))));
    assert_eq!(forks.each_ref().map(|(at, _)| &**at), [GATEWAY, GATEWAY, SECOND]);
    assert_eq!(counted(&site), pairs([("lines 203.0.113.1:5060", 2), ("lines 203.0.113.2:5060", 1)]));
    // One of them goes to the other gateway.
    let moved = goes(&refuses(&mut site, &forks[0]));
    assert_eq!(moved.0, SECOND);
    assert_eq!(counted(&site), pairs([("lines 203.0.113.1:5060", 1), ("lines 203.0.113.2:5060", 2)]));
    agree(&site);
    for (at, text) in [&moved, &forks[1], &forks[2]] {
        receive(&mut site, at, &answer(text, 404, ""));
    }
    pass(&mut site);
    assert_eq!(counted(&site), pairs([]));
}

/// Checks that the limits of gateways move with a call to another shard, and as bytes to another process.
#[test]
fn a_call_that_moves_counts_where_it_is_led() {
    for in_bytes in [false, true] {
        let mut site = site(
            &(limit("lines", "gateway", 1, "")
                + &group("west", &[GATEWAY, SECOND], "call_limits = [\"lines\"]")
                + &rule("[\"west\"]", "")),
        );
        let bucket = call::bucket(call::hash(CALL_SECRET, b"d1"));
        let moves = |site: &mut Site, from: usize, to: usize| {
            if in_bytes {
                let bytes = site.engines[from].export_bytes(site.now, bucket, &crate::moves::HERE);
                site.work_at(to, |engine, now, out| {
                    engine.import_bytes(now, &bytes, &crate::moves::HERE, out).expect("a record");
                });
                return;
            }
            for record in site.engines[from].export(site.now, bucket) {
                site.work_at(to, |engine, now, out| engine.import(now, record, out));
            }
        };
        let receive_at = |site: &mut Site, shard, from: &str, text: &str| {
            let remote = from.parse().expect("an address");
            let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
            site.work_at(shard, |engine, now, out| engine.receive(now, &arrival, text.as_bytes(), out));
            sent(site)
        };
        let first = calls(&mut site, 1);
        moves(&mut site, 0, 1);
        assert_eq!(counted(&site), pairs([("lines 203.0.113.1:5060", 1)]));
        let second = goes(&receive_at(&mut site, 1, &first.0, &answer(&first.1, 503, "")));
        assert_eq!((second.0.as_str(), counted(&site)), (SECOND, pairs([("lines 203.0.113.2:5060", 1)])));
        moves(&mut site, 1, 0);
        agree(&site);
        taken(&mut site, 1, &second);
        assert_eq!(counted(&site), pairs([]), "in bytes: {in_bytes}");
    }
}

/// Checks that a call at a gateway counts at the gateway in the next process too, even in the format of kept calls from
/// before groups existed.
#[test]
fn a_call_that_is_kept_counts_where_it_is() {
    let settings = "dialogs.folder = \"calls\"\ndialogs.lifetime = \"1h\"\n".to_owned()
        + &limit("lines", "gateway", 1, "status = 486")
        + &group("west", &[GATEWAY], "call_limits = [\"lines\"]")
        + &rule("[\"west\"]", "");
    let mut killed = site(&settings);
    let (at, text) = calls(&mut killed, 1);
    let ok = receive(&mut killed, &at, &answer(&text, 200, &format!("Contact: <sip:g@{at}>\r\n")));
    let ok = ok.iter().find(|(at, _)| at == ALICE).expect("it goes upstream").1.clone();
    let mut kept = Vec::new();
    killed.work(|engine, now, _| {
        engine.keep_changed(now);
        kept = engine.effects.drain(..).collect();
    });
    agree(&killed);
    let states = kept
        .iter()
        .filter_map(|effect| if let Effect::PersistCall { state, .. } = effect { Some(state) } else { None });
    let now = Now { mono: 40, wall: killed.now.wall + 5_000 };
    let calls = states.map(|state| read_kept(now, state).expect("a call")).collect();
    let settings = format!("auth.calls = false\nproxy.relay_for = \"everyone\"\n{settings}");
    let mut next = Site::start(now, &[&format!("udp:{SERVER}")], &settings);
    next.work(|engine, now, _| assert_eq!(engine.take_over(now, calls), 0));
    assert_eq!(counted(&next), pairs([("lines 203.0.113.1:5060", 1)]));
    ends(&receive(&mut next, ALICE, &invite(2, NUMBER)), 486);
    let got = receive(&mut next, ALICE, &bye(1, &at, &ok));
    let (_, bye) = got.iter().find(|(_, text)| text.starts_with("BYE ")).expect("it passes").clone();
    receive(&mut next, &at, &answer(&bye, 200, ""));
    assert_eq!(counted(&next), pairs([]));
}

/// Checks that a reload applies to new calls, while existing calls keep their limits.
#[test]
fn groups_change_with_a_reload() {
    let open = "auth.calls = false\nproxy.relay_for = \"everyone\"\n";
    let settings = |most, gateways: &[&str]| {
        format!(
            "{open}{}{}{}",
            limit("west", "all", most, "status = 486"),
            group("west", gateways, "pick = \"in_turn\"\ncall_limits = [\"west\"]"),
            rule("[\"west\"]", "")
        )
    };
    let mut site = Site::new(&settings(1, &[GATEWAY]));
    let first = calls(&mut site, 1);
    ends(&receive(&mut site, ALICE, &invite(2, NUMBER)), 486);
    site.reload(&settings(3, &[SECOND, THIRD]));
    assert_eq!([3, 4].map(|n| calls(&mut site, n).0), [SECOND, THIRD]);
    assert_eq!(counted(&site), pairs([("west", 3)]));
    // The first call keeps the settings with which it came.
    ends(&refuses(&mut site, &first), 500);
    assert_eq!(counted(&site), pairs([("west", 2)]));
}
