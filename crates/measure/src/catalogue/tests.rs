//! Names of measures, and their values.

use super::*;
use std::collections::HashSet;

fn page() -> Page {
    let mut page = Page::new(1);
    page.covered = 2_000_000;
    page.count(Counter::CallsOutgoing, 30);
    page.count(Counter::BytesSent, 5_000);
    page.failures[Failure::TlsHandshake as usize] = 3;
    page.responses_received.count(Method::Invite, 486, 4);
    page.responses_received.count(Method::Bye, 481, 1);
    page.requests_sent[Method::Invite as usize] = 30;
    page.timers[0].record(70);
    for us in 1..=1_000 {
        page.delays[Delay::Setup as usize].record(us);
    }
    page
}

#[test]
fn names_and_values() {
    let page = page();
    for (name, unit, want) in [
        ("srd.p95", Unit::Microseconds, 950.0),
        ("srd.p99.9", Unit::Microseconds, 999.0),
        ("srd.p100", Unit::Microseconds, 1_000.0),
        ("SRD.Max", Unit::Microseconds, 1_000.0),
        ("srd.count", Unit::Count, 1_000.0),
        ("srd.mean", Unit::Microseconds, 500.5),
        ("timer.Answer.min", Unit::Microseconds, 70.0),
        ("calls.outgoing", Unit::Count, 30.0),
        ("calls.failed.tls", Unit::Count, 3.0),
        ("rate.achieved", Unit::PerSecond, 15.0),
        ("bytes.sent", Unit::Bytes, 5_000.0),
        ("responses.486", Unit::Count, 4.0),
        ("responses.4xx", Unit::Count, 5.0),
        ("responses.INVITE.4xx", Unit::Count, 4.0),
        ("responses.bye.200", Unit::Count, 0.0),
        ("sent.invite", Unit::Count, 30.0),
        ("duration", Unit::Seconds, 2.0),
    ] {
        let measure = Measure::parse(name, &["Answer".into()]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((measure.unit(), measure.of(&page)), (unit, Some(want)), "{name}");
    }
    assert_eq!(Measure::parse("sdd.p95", &[]).unwrap().of(&page), None);
    assert_eq!(Measure::parse("ser", &[]).unwrap().of(&page), None);
}

#[test]
fn names_that_are_none() {
    let error = |name: &str| Measure::parse(name, &["rtt".into()]).unwrap_err().to_string();
    assert!(error("srd").contains("srd.p95"), "{}", error("srd"));
    assert!(error("sdr.p95").contains("nearest: sdd.p95, srd.p95"), "{}", error("sdr.p95"));
    assert!(error("calls.faild").contains("nearest: calls.failed)"), "{}", error("calls.faild"));
    assert!(error("media.mos").contains("media.mos.p1,") && error("media.mas").contains("nearest: media.mos.p1)"));
    assert!(error("qwertzuiop").contains("`strowger load measures` lists all"), "{}", error("qwertzuiop"));
    assert!(error("timer.x.p95").contains("it has rtt"));
    for name in ["srd.p0", "srd.p101", "srd.px", "responses.99", "responses.7xx", "responses.999xx", "", ".", "sent."] {
        assert!(Measure::parse(name, &[]).is_err(), "{name}");
    }
}

#[test]
fn every_name_of_the_catalogue_is_one_and_is_found() {
    let mut seen = HashSet::new();
    for entry in catalogue() {
        assert!(seen.insert(entry.name.clone()), "{} twice", entry.name);
        let name = entry.name.replace("METHOD", "invite").replace("CODE", "486").replace("NAME", "1");
        let has_statistics = matches!(entry.unit, "time" | "score");
        let name = if has_statistics { format!("{name}.p99.99") } else { name };
        let measure = Measure::parse(&name, &["1".into()]).unwrap_or_else(|error| panic!("{error}"));
        assert!(entry.unit == "time" || entry.unit == measure.unit().key(), "{name}");
    }
}
