//! Attended transfers of bridged calls by three phones by hand, in a server with two threads: the two calls and the new one are in any of them.

use std::time::Duration;

use serde_json::json;
use strowger_tests::bridge::{Bridged, described, description, invite, party};
use strowger_tests::call::register;
use strowger_tests::control;
use strowger_tests::dialog::{End, answer_to, arrives, contact};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, field, parameter, respond, status, unique};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

use crate::accounting::rows;

const SOON: Duration = Duration::from_secs(20);

const AUDIO: &str = "m=audio 40000 RTP/AVP 8\r\n";

/// Offer of the new party, which changes something for the other one.
const OTHER: &str = "m=audio 40000 RTP/AVP 8 0\r\n";

const ACCOUNTING: &str = "accounting.cdr = true\naccounting.to = \"json\"\naccounting.path = \"rows\"\n\
                          accounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"";

/// Calls a user, whose phone accepts.
fn call(caller: &mut Wire, callee: &mut Wire, user: &str) -> Bridged {
    let invite = invite(&format!("sip:{user}@example.org"), caller, &description(caller, AUDIO));
    let answer = description(callee, AUDIO);
    let call = Bridged::set_up(caller, callee, &invite, &answer);
    call.unwrap_or_else(|refusal| panic!("{}", String::from_utf8_lossy(&refusal)))
}

fn tag(value: &str) -> String {
    parameter(value, "tag").unwrap_or_else(|| panic!("no tag: {value}"))
}

/// Returns the URI and the Replaces of a Refer-To.
fn referred(refer: &[u8]) -> (String, String) {
    let line = field(refer, "Refer-To").expect("a Refer-To");
    let (uri, replaces) = line.trim_matches(['<', '>']).split_once("?Replaces=").expect("a Replaces");
    (uri.to_owned(), replaces.replace("%40", "@").replace("%3B", ";").replace("%3D", "="))
}

/// Lets alice, who has called bob and carol, join them. Returns the end of bob in his call to carol.
fn transfer(alice: &mut Wire, bob: &mut Wire, carol: &mut Wire) -> End {
    let (mut first, second) = (call(alice, bob, "bob"), call(alice, carol, "carol"));
    let near = &second.near;
    let replaces = format!("{};to-tag={};from-tag={}", near.call_id, tag(&near.to), tag(&near.from));
    let escaped = replaces.replace('@', "%40").replace(';', "%3B").replace('=', "%3D");
    let refer = first.near.request("REFER").with(format!("Refer-To: <sip:carol@example.org?Replaces={escaped}>"));
    let (refer, _) = arrives(alice, bob, &refer, &[]);
    let text = String::from_utf8_lossy(&refer).into_owned();
    for hidden in [&near.call_id, &tag(&near.to), &tag(&near.from)] {
        assert!(!text.contains(hidden.as_str()), "{hidden} is shown: {text}");
    }
    let (uri, replaces) = referred(&refer);
    let mut invite = invite(&uri, bob, &description(bob, OTHER)).with(format!("Replaces: {replaces}"));
    invite.from = format!("<sip:bob@example.org>;tag={}", unique("bob"));
    bob.send(&invite.bytes()).expect("the server takes messages");
    let change = carol.request("INVITE", SOON).expect("a re-INVITE");
    let answer = described(&respond(&change, 200, "", &[contact("carol", carol)]), &description(carol, AUDIO));
    carol.send(&answer).expect("the server takes messages");
    carol.request("ACK", SOON).expect("the ACK of the re-INVITE");
    let accepted = answer_to(&invite, bob, 200).expect("the call is answered");
    assert_eq!(status(&accepted), Some(200), "{}", String::from_utf8_lossy(&accepted));
    let mut end = End::caller(&invite, &accepted);
    let ack = Request { cseq: invite.cseq, ..end.request("ACK") };
    bob.send(&ack.bytes()).expect("the server takes messages");
    let bye = alice.request("BYE", SOON).expect("alice is released");
    assert_eq!(field(&bye, "Call-ID").as_ref(), Some(&near.call_id));
    alice.send(&respond(&bye, 200, "", &[])).expect("the server takes messages");
    let outcome = ["Event: refer", "Subscription-State: terminated;reason=noresource"];
    let notify = outcome.into_iter().fold(first.far.request("NOTIFY"), |notify, line| notify.with(line));
    arrives(bob, alice, &notify, &[]);
    arrives(alice, bob, &first.near.request("BYE"), &[]);
    end
}

fn calls(server: &Server) -> usize {
    control::json(server, &["calls", "list"]).as_array().map_or(0, Vec::len)
}

#[test]
fn two_parties_talk_after_an_attended_transfer_between_threads() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return eprintln!("skipped: a machine of one core has one shard");
    }
    let media = "media.addresses = [\"127.0.0.171\"]\nmedia.ports = \"22000-22199\"";
    let rule = "[[rule]]\nname = \"bridge\"\nb2bua = true\nrefer_from = \"everyone\"";
    let mut server = Setup::on(&[Udp]).open_registrar().with(media).with(rule).with(ACCOUNTING).start();
    let [mut alice, mut bob, mut carol] = [172, 173, 174].map(|octet| party(&server, &format!("127.0.0.{octet}")));
    register(&mut bob, "bob");
    register(&mut carol, "carol");
    server.process().signal(libc::SIGUSR1);
    server.process().wait_for("number of shards changes", 1, SOON);
    // Each new call is in the thread of the call before it with a chance of one half.
    let ends: Vec<End> = (0..8).map(|_| transfer(&mut alice, &mut bob, &mut carol)).collect();
    assert!(wait::until(SOON, || calls(&server) == ends.len()), "{}", server.log());
    let (ends, left) = ends.split_at(4);
    for mut end in ends.iter().cloned() {
        arrives(&mut bob, &mut carol, &end.request("BYE"), &[]);
    }
    // The calls that are left move to the first thread.
    server.process().signal(libc::SIGUSR2);
    server.process().wait_for("number of shards changes", 2, SOON);
    for mut end in left.iter().cloned() {
        arrives(&mut bob, &mut carol, &end.request("BYE"), &[]);
    }
    let is_over = wait::until(SOON, || control::json(&server, &["calls", "list"]) == json!([]));
    assert!(is_over, "{}", server.log());
    assert!(wait::until(SOON, || rows(&server, "cdr").len() == 24), "{:?}", rows(&server, "cdr"));
    assert!(rows(&server, "cdr").iter().all(|row| row["outcome"] == "answered" && row["ended_by"] == "caller"));
    server.stop();
    assert_eq!(rows(&server, "cdr").len(), 24, "a call has one record");
}
