//! Law: each INVITE gets one final response.

use super::text::Facts;
use std::collections::BTreeMap;
use strowger_message::Method;

/// First final response: status and tag of To.
type Final = (u16, Vec<u8>);

/// INVITE that the server has received.
#[derive(Debug, Default)]
struct Invite {
    said: Option<Final>,
    /// Set after a copy that has crossed a refusal. A refusal of a caller that has proved nothing keeps no transaction, so the copy may begin again. That
    /// of an INVITE with a tag in To is kept.
    is_copied: bool,
}

/// INVITEs that the server has received, by Call-ID, branch and CSeq.
#[derive(Debug, Default)]
pub(super) struct Finals {
    invites: BTreeMap<(Vec<u8>, Vec<u8>, u32), Invite>,
}

impl Finals {
    /// Records that a message arrives at the server.
    pub(super) fn arrived(&mut self, facts: &Facts) {
        if facts.status.is_none() && facts.method == Method::Invite {
            let invite = self.invites.entry(key(facts)).or_default();
            let is_refused = invite.said.as_ref().is_some_and(|(status, _)| *status >= 300);
            invite.is_copied = is_refused && facts.to_tag.is_empty();
        }
    }

    /// Checks a message of the server.
    ///
    /// # Errors
    /// Another final response than before, or a provisional response after it.
    pub(super) fn sent(&mut self, facts: &Facts) -> Result<(), String> {
        let Some(status) = facts.status.filter(|_| facts.method == Method::Invite) else { return Ok(()) };
        let Some(Invite { said, is_copied }) = self.invites.get_mut(&key(facts)) else {
            return Err("a response to an INVITE that did not arrive".to_owned());
        };
        let now = (status, facts.to_tag.clone());
        if std::mem::take(is_copied) && said.as_ref() != Some(&now) {
            *said = None;
        }
        match said {
            Some(before) if status < 200 => Err(format!("a provisional response after {}", before.0)),
            Some(before) if *before != now => Err(format!("a second final response, after {}", before.0)),
            Some(_) => Ok(()),
            None => {
                *said = (status >= 200).then_some(now);
                Ok(())
            }
        }
    }

    /// Forgets all INVITEs, because the process has ended.
    pub(super) fn restarted(&mut self) {
        self.invites.clear();
    }

    /// Checks the INVITEs when no work is in progress.
    ///
    /// # Errors
    /// An INVITE has no final response.
    pub(super) fn at_the_end(&self) -> Result<(), String> {
        match self.invites.iter().find(|(_, invite)| invite.said.is_none()) {
            Some(((call_id, _, cseq), _)) => {
                Err(format!("INVITE {cseq} of {} has no final response", String::from_utf8_lossy(call_id)))
            }
            None => Ok(()),
        }
    }
}

fn key(facts: &Facts) -> (Vec<u8>, Vec<u8>, u32) {
    (facts.call_id.clone(), facts.branch.clone(), facts.cseq)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an INVITE with this tag in To, or a response to it.
    fn facts(status: Option<u16>, to_tag: &str) -> Facts {
        Facts {
            status,
            method: Method::Invite,
            cseq: 1,
            call_id: b"a".to_vec(),
            branch: b"z9hG4bK1".to_vec(),
            from_tag: b"1".to_vec(),
            to_tag: to_tag.as_bytes().to_vec(),
            refer_to: Vec::new(),
            body: Vec::new(),
        }
    }

    #[test]
    fn only_the_copy_of_an_invite_outside_of_a_dialog_begins_again() {
        for (tag, begins_again) in [("", true), ("2", false)] {
            let mut finals = Finals::default();
            finals.arrived(&facts(None, tag));
            assert_eq!(finals.sent(&facts(Some(100), tag)), Ok(()));
            assert_eq!(finals.sent(&facts(Some(486), "2")), Ok(()));
            assert_eq!(finals.sent(&facts(Some(486), "2")), Ok(()), "a retransmission");
            assert!(finals.sent(&facts(Some(503), "2")).is_err(), "no copy has come");
            finals.arrived(&facts(None, tag));
            assert_eq!(finals.sent(&facts(Some(100), tag)).is_ok(), begins_again, "{tag}");
        }
    }
}
