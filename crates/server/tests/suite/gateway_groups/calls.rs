//! Calls of groups, and their counts.

use super::*;

pub(super) const THIRD: &str = "203.0.113.3:5060";
pub(super) const NUMBER: &str = "sip:4930@example.org";

/// Writes a group with this name of these gateways; `more` are further keys.
pub(super) fn group(name: &str, to: &[&str], more: &str) -> String {
    let to: Vec<String> = to.iter().map(|to| format!("\"sip:{to}\"")).collect();
    format!("[[gateway_group]]\nname = \"{name}\"\nto = [{}]\n{more}\n", to.join(", "))
}

pub(super) fn limit(name: &str, per: &str, most: u32, more: &str) -> String {
    format!("[[call_limit]]\nname = \"{name}\"\nper = \"{per}\"\nmost = {most}\n{more}\n")
}

/// Writes a rule that sends calls for numbers to this place; `more` are further keys.
pub(super) fn rule(to: &str, more: &str) -> String {
    format!("[[rule]]\nname = \"numbers\"\nwhen = \"exists number\"\nto = {to}\n{more}\n")
}

pub(super) fn calls(site: &mut Site, n: u32) -> (String, String) {
    goes(&receive(site, ALICE, &invite(n, NUMBER)))
}

/// Refuses a request at this place by a 503 without Retry-After.
pub(super) fn refuses(site: &mut Site, (at, text): &(String, String)) -> Vec<(String, String)> {
    receive(site, at, &answer(text, 503, ""))
}

/// Returns the scopes of limits with calls, each with their number.
pub(super) fn counted(site: &Site) -> Vec<(String, u32)> {
    let all = site.shared.call_limits.list().into_iter();
    let shown = |name: &str, value: &[u8]| match value {
        [] => name.to_owned(),
        value => format!("{name} {}", String::from_utf8_lossy(value)),
    };
    all.map(|(counted, calls)| (shown(&counted.name, &counted.value), calls)).collect()
}

pub(super) fn pairs<const N: usize>(list: [(&str, u32); N]) -> Vec<(String, u32)> {
    list.map(|(value, calls)| (value.to_owned(), calls)).to_vec()
}

/// Asserts that the counts of the shards equal those of the limits.
pub(super) fn agree(site: &Site) {
    let engines: usize = site.engines.iter().map(|engine| engine.counted()).sum();
    let limits: u32 = counted(site).iter().map(|(_, calls)| calls).sum();
    assert_eq!(engines, limits as usize);
}

/// Returns the INVITE that was just sent to another gateway than this one.
#[track_caller]
pub(super) fn goes_on(site: &Site, before: &str) -> (String, String) {
    let all = sent(site);
    let one = invites(&all).into_iter().find(|(at, _)| at != before);
    one.unwrap_or_else(|| panic!("{all:?}")).clone()
}

/// Answers a call there, checks that it counts, and ends it with a BYE.
pub(super) fn taken(site: &mut Site, n: u32, (at, text): &(String, String)) {
    let before = counted(site);
    let ok = receive(site, at, &answer(text, 200, &format!("Contact: <sip:g@{at}>\r\n")));
    let ok = ok.iter().find(|(at, _)| at == ALICE).expect("it goes upstream").1.clone();
    pass(site);
    assert_eq!(counted(site), before, "it goes on");
    let got = receive(site, ALICE, &bye(n, at, &ok));
    let (_, bye) = got.iter().find(|(_, text)| text.starts_with("BYE ")).expect("it passes").clone();
    receive(site, at, &answer(&bye, 200, ""));
}

pub(super) fn bye(n: u32, at: &str, ok: &str) -> String {
    format!(
        "BYE sip:g@{at} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKbye{n};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:carol@example.net>;tag=c{n}\r\nTo: <{NUMBER}>;tag=t\r\nCall-ID: d{n}\r\nCSeq: 2 BYE\r\n\
         Route: {}\r\nContent-Length: 0\r\n\r\n",
        line(ok, "Record-Route")
    )
}
