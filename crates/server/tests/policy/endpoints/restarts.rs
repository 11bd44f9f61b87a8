//! Calls of an endpoint over a restart.

use super::*;

const KEPT: &str = "auth.secret = \"the secret of a site\"\ndialogs.folder = \"calls\"\n";

/// Returns the key and the stream of the session that a process has opened at the ports of the process before.
fn reopened(site: &Site) -> (SessionKey, StreamOrder) {
    let orders = site.media_orders();
    let [SessionOrder::Claim { key: claimed, ports }, SessionOrder::Set { key, streams, .. }] = &orders[..] else {
        panic!("{orders:?}")
    };
    let [Some(stream)] = &streams[..] else { panic!("{streams:?}") };
    assert_eq!((claimed, &ports[..]), (key, &[stream.near.ports][..]));
    (*key, stream.clone())
}

#[test]
fn an_echo_goes_on_in_the_next_process() {
    let site = echo(KEPT, "");
    let (phone, call, ok) = answered(&site);
    let (_, before) = set(&site);
    site.restart();
    let (key, stream) = reopened(&site);
    assert_eq!(stream, before);
    let question = phone.next();
    assert_eq!(question.method(), "OPTIONS", "{}", question.0);
    phone.respond(&question, 200, "");
    let hold = say(&phone, &call.within(&ok, "INVITE", 2), &sdp(4_000, 2, "a=sendonly\r\n"));
    assert!(hold.status() == 200 && version(&hold) > version(&ok), "{}", hold.0);
    assert!(body(&hold).contains("m=audio 20000 ") && body(&hold).contains("a=recvonly\r\n"), "{}", hold.0);
    acknowledge(&phone, &call, &ok, 2);
    let (same, held) = set(&site);
    assert_eq!((same, held.near.receives), (key, false));
    // On hold it goes on too.
    site.restart();
    assert_eq!(reopened(&site).1, held);
    assert_eq!(phone.ask(&call.within(&ok, "BYE", 3)).status(), 200);
    assert_eq!((&*record(&site).ended_by, site.kept_calls().len(), site.calls().len()), ("caller", 0, 0));
}

#[test]
fn an_echo_whose_ports_are_gone_or_that_is_not_kept_is_ended() {
    for is_kept in [true, false] {
        let site = echo(if is_kept { KEPT } else { "" }, "");
        let (phone, ..) = answered(&site);
        site.settle();
        if is_kept {
            site.take_port(20_000);
            site.restart();
        } else {
            site.end_unkept();
        }
        assert_eq!(hung_up(&phone).one("Reason"), "Q.850;cause=31");
        assert_eq!((&*record(&site).ended_by, site.calls().len()), ("server", 0));
    }
}

#[test]
fn a_session_timer_goes_on() {
    let site = echo(&format!("dialogs.session_expires = \"2m\"\n{KEPT}"), "");
    let phone = site.foreign_phone();
    let mut call = phone.call("INVITE", "sip:echo@example.org");
    call.lines = "Supported: timer\n".into();
    let ok = say(&phone, &call, &sdp(4_000, 1, ""));
    acknowledge(&phone, &call, &ok, 1);
    site.wait(Duration::from_secs(60));
    site.restart();
    let question = phone.next();
    assert_eq!(question.method(), "OPTIONS", "{}", question.0);
    phone.respond(&question, 200, "");
    site.wait(Duration::from_secs(24));
    assert_eq!(site.calls().len(), 1, "85 of 88 seconds have passed");
    site.wait(Duration::from_secs(6));
    let bye = phone.within(Duration::from_millis(1)).expect("the session has expired");
    assert_eq!(bye.method(), "BYE", "{}", bye.0);
    phone.respond(&bye, 200, "");
    assert_eq!((&*record(&site).ended_by, site.calls().len()), ("callee", 0), "the echo has ended it");
}
