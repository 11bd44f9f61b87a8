//! The scenarios that come with the program: the same flows and messages as SIPp's, of our own writing.

use super::keyword::Keywords;
use super::names::Names;
use super::{DefaultMessages, Environment, Template};

/// Names that `-sn` and `-sd` take.
pub const NAMES: &[&str] = &[
    "uac",
    "uas",
    "regexp",
    "branchc",
    "branchs",
    "uac_pcap",
    "3pcc-C-A",
    "3pcc-C-B",
    "3pcc-A",
    "3pcc-B",
    "ooc_default",
    "ooc_dummy",
];

/// What is sent when the scenario has nothing to say: SIPp's texts, because they are seen on the wire.
pub(super) fn default_messages() -> DefaultMessages {
    DefaultMessages {
        three_party_abort: constant("call-id: [call_id]\ninternal-cmd: abort_call\n\n"),
        ack: constant(&request("ACK", "[last_Via]", "[last_cseq_number] ACK", ACK_TAIL)),
        ack2: constant(&request("ACK", OWN_VIA, "[last_cseq_number] ACK", ACK_TAIL)),
        bye: constant(&request("BYE", OWN_VIA, "[last_cseq_number+1] BYE", TAIL)),
        cancel: constant(&request("CANCEL", "[last_Via]", "[last_cseq_number] CANCEL", TAIL)),
        ok: constant(
            "SIP/2.0 200 OK\n[last_Via:]\n[last_From:]\n[last_To:]\n[last_Call-ID:]\n[last_CSeq:]\n\
             Contact: <sip:[local_ip]:[local_port];transport=[transport]>\nContent-Length: 0\n\n",
        ),
    }
}

const OWN_VIA: &str = "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]";
const ACK_TAIL: &str = "Contact: <sip:sipp@[local_ip]:[local_port];transport=[transport]>\nMax-Forwards: 70\n\
                        Subject: Performance Test\nContent-Length: 0\n\n";
const TAIL: &str = "Max-Forwards: 70\nContact: <sip:sipp@[local_ip]:[local_port];transport=[transport]>\n\
                    Content-Length: 0\n\n";

fn request(method: &str, via: &str, cseq: &str, tail: &str) -> String {
    format!(
        "{method} [last_Request_URI] SIP/2.0\n{via}\n[last_From]\n[last_To]\nCall-ID: [call_id]\nCSeq: {cseq}\n{tail}"
    )
}

/// A text that is known to be right.
fn constant(text: &str) -> Template {
    let environment = Environment::default();
    let mut names = Names::default();
    let mut keywords = Keywords { names: &mut names, environment: &environment, notes: Vec::new(), newer: Vec::new() };
    keywords.template(text.as_bytes()).ok().expect("a text of this file, which a test reads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_messages_are_texts_with_known_keywords() {
        let messages = default_messages();
        assert!(messages.bye.pieces.len() > 10 && messages.ack2.literal_length > 100);
    }
}
