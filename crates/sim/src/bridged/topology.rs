//! Law: no message to one side has a name, address or identifier of the other side.
//!
//! A side is all messages with one Call-ID. Its identifiers are that Call-ID, the tags of its parties and of the server, and the branches of its
//! requests. Of a party also the address, the name of its software, and origin and name of its descriptions are secret. All bytes of a message are
//! compared, bodies included. Refer-To is an exception: it names a side to a party that is to take the place of another one there. It never names a
//! side that a transferor has named, for that is a side of the transferor itself.

use super::text::Facts;
use std::collections::{HashMap, HashSet};
use strowger_message::Method;

/// Least length of an identifier: shorter words may occur anywhere.
const LEAST: usize = 8;

/// Texts of one party that no other party may see.
#[derive(Clone, Debug)]
struct Secrets {
    party: usize,
    texts: Vec<String>,
}

/// Identifiers and secrets of all sides.
#[derive(Debug, Default)]
pub(super) struct Topology {
    /// Call-ID of the side that has each identifier.
    words: HashMap<Vec<u8>, Vec<u8>>,
    secrets: Vec<Secrets>,
    /// Sides that transferors have named in Refer-To.
    named: HashSet<Vec<u8>>,
}

impl Topology {
    /// Adds texts of a party that no other party may see.
    pub(super) fn hide(&mut self, party: usize, texts: Vec<String>) {
        self.secrets.push(Secrets { party, texts });
    }

    /// Learns the identifiers of a message of a party.
    pub(super) fn learn_of_party(&mut self, facts: &Facts) {
        self.learn(&facts.call_id, &facts.call_id);
        let named = words(&facts.refer_to).filter_map(|word| self.words.get(word));
        self.named.extend(named.cloned());
        match facts.status {
            Some(101..) => self.learn(&facts.call_id, &facts.to_tag),
            Some(_) => (),
            // The tag in the ACK of a failure need not be one of a dialog.
            None if facts.method == Method::Ack => (),
            None => {
                [&facts.branch, &facts.from_tag, &facts.to_tag]
                    .into_iter()
                    .for_each(|id| self.learn(&facts.call_id, id));
            }
        }
    }

    /// Checks a message of the server to a party, and learns its identifiers.
    ///
    /// # Errors
    /// An identifier of another side, or a secret of another party.
    pub(super) fn sent(&mut self, party: usize, facts: &Facts, bytes: &[u8]) -> Result<(), String> {
        // The escapes of Refer-To hide its identifiers.
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"Refer-To:"));
        let shown = lines.flat_map(words).map(|word| (word, false));
        for (word, may_name) in shown.chain(words(&facts.refer_to).map(|word| (word, true))) {
            let Some(side) = self.words.get(word).filter(|side| **side != facts.call_id) else { continue };
            if !may_name || self.named.contains(side) {
                let [word, side] = [word, side.as_slice()].map(String::from_utf8_lossy);
                return Err(format!("{word} is an identifier of {side}"));
            }
        }
        // The answer to a REGISTER lists all contacts of the user.
        let is_of_registrar = facts.method == Method::Register;
        let text = String::from_utf8_lossy(bytes);
        let others = self.secrets.iter().filter(|secrets| secrets.party != party && !is_of_registrar);
        if let Some(secret) = others.flat_map(|secrets| &secrets.texts).find(|secret| text.contains(secret.as_str())) {
            return Err(format!("{secret} is a secret of another party"));
        }
        self.learn(&facts.call_id, &facts.call_id);
        if facts.status.is_none() {
            [&facts.branch, &facts.from_tag].into_iter().for_each(|id| self.learn(&facts.call_id, id));
        }
        Ok(())
    }

    fn learn(&mut self, side: &[u8], identifier: &[u8]) {
        for word in words(identifier) {
            self.words.entry(word.to_vec()).or_insert_with(|| side.to_vec());
        }
    }
}

/// Returns the words of a text that may be identifiers.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !byte.is_ascii_alphanumeric()).filter(|word| word.len() >= LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(call_id: &str, tag: &str, line: &str) -> Vec<u8> {
        format!(
            "INVITE sip:bob@home.example SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK{tag}\r\nFrom: <sip:a@home.example>;tag={tag}\r\n\
             To: <sip:bob@home.example>\r\nCall-ID: {call_id}\r\nCSeq: 1 INVITE\r\n{line}Content-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }

    #[test]
    fn identifiers_and_secrets_of_another_side_are_found() {
        let mut topology = Topology::default();
        topology.hide(0, vec!["198.51.100.11".to_owned()]);
        let near = Facts::read(&message("nearnearnear", "aaaaaaaa", "")).expect("a message");
        topology.learn_of_party(&near);
        let mut sends = |line: &str| {
            let far = message("farfarfar", "bbbbbbbb", line);
            topology.sent(1, &Facts::read(&far).expect("a message"), &far)
        };
        assert_eq!(sends("Subject: 198.51.100.1\r\n"), Ok(()));
        for line in
            ["Subject: nearnearnear\r\n", "X: z9hG4bKaaaaaaaa;x\r\n", "X: <aaaaaaaa>\r\n", "X: 198.51.100.11\r\n"]
        {
            assert!(sends(line).is_err(), "{line}");
        }
        let near = message("nearnearnear", "aaaaaaaa", "X: 198.51.100.11\r\n");
        assert_eq!(topology.sent(0, &Facts::read(&near).expect("a message"), &near), Ok(()));
    }

    #[test]
    fn refer_to_names_no_side_of_the_transferor() {
        let mut topology = Topology::default();
        let learn = |topology: &mut Topology, call_id: &str, tag: &str, line: &str| {
            topology.learn_of_party(&Facts::read(&message(call_id, tag, line)).expect("a message"));
        };
        for (call_id, tag) in [("transferor", "aaaaaaaa"), ("remaining", "bbbbbbbb")] {
            learn(&mut topology, call_id, tag, "");
        }
        learn(
            &mut topology,
            "elsewhere",
            "cccccccc",
            "Refer-To: <sip:b@home.example?Replaces=transferor%3Bto-tag%3D1>\r\n",
        );
        let mut names = |named: &str| {
            let line = format!("Refer-To: <sip:b@home.example?Replaces=1%3Bto-tag%3D{named}>\r\n");
            let far = message("farfarfar", "dddddddd", &line);
            topology.sent(1, &Facts::read(&far).expect("a message"), &far)
        };
        assert_eq!(names("bbbbbbbb"), Ok(()));
        assert_eq!(names("remaining"), Ok(()));
        assert!(names("aaaaaaaa").is_err());
        assert!(names("transferor").is_err());
    }
}
