//! Law: within each dialog, the CSeq of the server's requests and the version of its descriptions rise (RFC 3261 section 12.2.1.1, RFC 3264
//! section 8), also from one process to the next.

use super::text::Facts;
use std::collections::{BTreeMap, HashMap};
use strowger_message::Method;

/// Dialog: its Call-ID, the tag of the server, and that of its party.
type Dialog = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Messages that the server has sent, by dialog.
#[derive(Debug, Default)]
pub(super) struct Rising {
    /// Branches of the requests by CSeq.
    requests: HashMap<Dialog, BTreeMap<u32, Vec<u8>>>,
    /// Descriptions by their versions.
    descriptions: HashMap<Dialog, BTreeMap<u64, Vec<u8>>>,
}

impl Rising {
    /// Checks a message of the server.
    ///
    /// # Errors
    /// A new request with a CSeq that is not the highest one of its dialog, or a new description with such a version.
    pub(super) fn sent(&mut self, facts: &Facts) -> Result<(), String> {
        let is_request = facts.status.is_none();
        let (own, party) = if is_request { (&facts.from_tag, &facts.to_tag) } else { (&facts.to_tag, &facts.from_tag) };
        // The INVITE of a fork begins several dialogs.
        if own.is_empty() || party.is_empty() {
            return Ok(());
        }
        let dialog = (facts.call_id.clone(), own.clone(), party.clone());
        // An ACK of a 2xx has a branch of its own, and the CSeq of the INVITE.
        if is_request && !matches!(facts.method, Method::Ack | Method::Cancel) {
            let requests = self.requests.entry(dialog.clone()).or_default();
            rises(requests, facts.cseq, &facts.branch).map_err(|last| format!("CSeq {} after {last}", facts.cseq))?;
        }
        let Some(version) = version(&facts.body) else { return Ok(()) };
        let descriptions = self.descriptions.entry(dialog).or_default();
        rises(descriptions, version, &facts.body)
            .map_err(|last| format!("version {version} of a description after {last}"))
    }
}

/// Adds a text with its number.
///
/// # Errors
/// The highest number so far, if the text is new and its number is not higher.
fn rises<N: Copy + Ord>(texts: &mut BTreeMap<N, Vec<u8>>, number: N, text: &[u8]) -> Result<(), N> {
    if texts.get(&number).is_some_and(|before| before == text) {
        return Ok(());
    }
    match texts.last_key_value() {
        Some((last, _)) if *last >= number => Err(*last),
        _ => {
            texts.insert(number, text.to_vec());
            Ok(())
        }
    }
}

/// Returns the version in the o= line of a description.
fn version(body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body).ok()?;
    let origin = text.lines().find_map(|line| line.strip_prefix("o="))?;
    origin.split(' ').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sends(rising: &mut Rising, cseq: u32, branch: &str, version: u32, port: u16) -> Result<(), String> {
        let body = format!("v=0\r\no=- 1 {version} IN IP4 192.0.2.1\r\nm=audio {port} RTP/AVP 8\r\n");
        let length = body.len();
        let text = format!(
            "INVITE sip:b@192.0.2.9 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch={branch}\r\nFrom: <sip:a@b>;tag=1\r\n\
             To: <sip:b@b>;tag=2\r\nCall-ID: c\r\nCSeq: {cseq} INVITE\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        rising.sent(&Facts::read(text.as_bytes()).expect("a message"))
    }

    #[test]
    fn a_new_request_or_description_has_the_highest_number() {
        let mut rising = Rising::default();
        for (cseq, branch, version, port) in [(7, "a", 3, 1), (9, "b", 3, 1), (7, "a", 3, 1), (10, "c", 4, 2)] {
            assert_eq!(sends(&mut rising, cseq, branch, version, port), Ok(()));
        }
        assert!(sends(&mut rising, 10, "d", 4, 2).is_err(), "another request with the same CSeq");
        assert!(sends(&mut rising, 8, "d", 4, 2).is_err(), "a lower CSeq");
        assert!(sends(&mut rising, 11, "d", 4, 1).is_err(), "another description with the same version");
        assert!(sends(&mut rising, 12, "d", 2, 9).is_err(), "a lower version");
    }
}
