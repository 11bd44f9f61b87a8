//! Peers of a server: messages that they get, and their responses.

use crate::site::{ALICE, Site};
use strowger_rig::{Got, text};

/// Returns the sent messages except 100s, each with its address.
pub(crate) fn sent(site: &Site) -> Vec<(String, String)> {
    let text = |range| String::from_utf8_lossy(&site.out.bytes[range]).into_owned();
    let all = site.out.sends().iter().map(|send| (send.target.address.to_string(), text(send.range())));
    all.filter(|(_, text)| !text.starts_with("SIP/2.0 100 ")).collect()
}

/// Returns the requests of this method among the messages sent last, each with its address.
pub(crate) fn requests(site: &Site, method: &str) -> Vec<(String, String)> {
    let start = format!("{method} ");
    sent(site).into_iter().filter(|(_, text)| text.starts_with(&start)).collect()
}

pub(crate) fn receive(site: &mut Site, from: &str, text: &str) -> Vec<(String, String)> {
    site.receive(from, text);
    sent(site)
}

/// Advances the clock until every transaction has ended.
pub(crate) fn pass(site: &mut Site) {
    for _ in 0..40 {
        site.wait(1_000);
    }
}

/// Writes the response of a peer to a request that it got.
pub(crate) fn answer(request: &str, status: u16, more: &str) -> String {
    Got(request.to_owned()).respond(status, "t", more)
}

pub(crate) fn status(text: &str) -> Option<u16> {
    text::status(text.as_bytes())
}

/// Returns the statuses that this address gets.
pub(crate) fn statuses(sent: &[(String, String)], to: &str) -> Vec<u16> {
    sent.iter().filter(|(at, _)| at == to).filter_map(|(_, text)| status(text)).collect()
}

/// Returns the sent INVITEs, each with its address.
pub(crate) fn invites(sent: &[(String, String)]) -> Vec<&(String, String)> {
    sent.iter().filter(|(_, text)| text.starts_with("INVITE ")).collect()
}

pub(crate) fn uri(text: &str) -> &str {
    text.split(' ').nth(1).unwrap_or_default()
}

/// Returns the only sent INVITE, with its address.
#[track_caller]
pub(crate) fn goes(sent: &[(String, String)]) -> (String, String) {
    let [one] = invites(sent)[..] else { panic!("{sent:?}") };
    assert_eq!(statuses(sent, ALICE), <[u16; 0]>::default());
    one.clone()
}

/// Asserts that the caller gets this status, and that the call is not forwarded.
#[track_caller]
pub(crate) fn ends(sent: &[(String, String)], status: u16) {
    assert_eq!((statuses(sent, ALICE), invites(sent).len()), (vec![status], 0), "{sent:?}");
}
