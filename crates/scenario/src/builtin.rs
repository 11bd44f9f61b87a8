//! Built-in scenarios: the same flows and messages as SIPp's, written for this program.

use std::path::Path;

use super::keyword::Keywords;
use super::names::Names;
use super::{Cause, DefaultMessages, Environment, Refusal, Scenario, Template};

/// Names for `-sn` and `-sd`.
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

/// Returns the document of a built-in scenario, assembled from the parts below.
///
/// The scenario sends the messages of SIPp's built-in one byte for byte, so that a test against SIPp's `uac` has the same
/// result.
pub fn document(name: &str) -> Option<String> {
    let mut out = Document::default();
    match name {
        "uac" => uac(&mut out),
        "uas" => uas(&mut out),
        "regexp" => regexp(&mut out),
        "branchc" => branch_client(&mut out),
        "branchs" => branch_server(&mut out),
        "uac_pcap" => uac_pcap(&mut out),
        "3pcc-C-A" => controller_a(&mut out),
        "3pcc-C-B" => controller_b(&mut out),
        "3pcc-A" => third_party_end(&mut out, "05", " crlf=\"true\""),
        "3pcc-B" => third_party_end(&mut out, "06", ""),
        "ooc_default" => out_of_call(&mut out),
        "ooc_dummy" => {
            out.line("<!-- Waits for a request that does not come: messages outside a call are counted and not answered. -->");
            out.line("<recv request=\"DUMMY\"/>");
            out.repartitions(RESPONSE_TIMES, CALL_LENGTHS);
        }
        _ => return None,
    }
    Some(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<scenario name=\"{name}\">\n{}</scenario>\n", out.0))
}

impl Scenario {
    /// Compiles a built-in scenario.
    ///
    /// # Errors
    /// A name that is not in [`NAMES`]; for `uac_pcap` also missing captures, which must be in the working folder.
    pub fn builtin(name: &str, environment: &Environment) -> Result<Self, Refusal> {
        match document(name) {
            Some(text) => Self::parse(text.as_bytes(), Path::new(name), environment),
            None => Err(Refusal {
                file: name.to_owned(),
                line: 0,
                column: 0,
                what: format!("there is no built-in scenario `{name}`"),
                hint: Some(format!("one of {}", NAMES.join(", "))),
                cause: Cause::Unreadable,
            }),
        }
    }
}

const RESPONSE_TIMES: &str = "10, 20, 30, 40, 50, 100, 150, 200";
const CALL_LENGTHS: &str = "10, 50, 100, 500, 1000, 5000, 10000";
const RETRANS: &str = " retrans=\"500\"";
const CRLF: &str = " crlf=\"true\"";

/// Indented elements.
#[derive(Default)]
struct Document(String);

impl Document {
    fn line(&mut self, text: &str) {
        self.0.push_str("  ");
        self.0.push_str(text);
        self.0.push('\n');
    }

    /// Adds an element with a message.
    fn message(&mut self, element: &str, attributes: &str, text: &str) {
        self.line(&format!("<{element}{attributes}>"));
        self.line("  <![CDATA[\n");
        for line in text.lines() {
            if !line.is_empty() {
                self.0.push_str("      ");
                self.0.push_str(line);
            }
            self.0.push('\n');
        }
        self.0.push_str("\n    ]]>\n");
        self.line(&format!("</{element}>\n"));
    }

    fn send(&mut self, attributes: &str, text: &str) {
        self.message("send", attributes, text);
    }

    /// Adds optional provisional responses.
    fn provisional(&mut self, codes: &[u16]) {
        for code in codes {
            self.line(&format!("<recv response=\"{code}\" optional=\"true\"/>"));
        }
    }

    /// Adds a `recv` or `recvCmd` with actions.
    fn with_actions(&mut self, start: &str, actions: &[&str]) {
        self.line(&format!("<{start}>"));
        self.line("  <action>");
        actions.iter().for_each(|action| self.line(&format!("    {action}")));
        self.line("  </action>");
        self.line(&format!("</{}>", start.split(' ').next().unwrap_or_default()));
    }

    fn repartitions(&mut self, response_times: &str, call_lengths: &str) {
        self.line(&format!("<ResponseTimeRepartition value=\"{response_times}\"/>"));
        self.line(&format!("<CallLengthRepartition value=\"{call_lengths}\"/>"));
    }
}

/// Returns the session description of an offer or answer.
fn sdp(address: &str, media: &str) -> String {
    format!(
        "v=0\no=user1 53655765 2353687637 IN IP[local_ip_type] [local_ip]\ns=-\nc=IN IP{address}\nt=0 0\nm=audio {media}\n"
    )
}

fn plain_sdp() -> String {
    sdp("[media_ip_type] [media_ip]", "[media_port] RTP/AVP 0\na=rtpmap:0 PCMU/8000")
}

/// Returns a request of a caller. `call` distinguishes the scenarios by their tags; `rest` follows `Subject`.
fn call_request(method: &str, call: &str, cseq: u32, inside: bool, extra: &str, rest: &str) -> String {
    let peer = if inside { "[peer_tag_param]" } else { "" };
    format!(
        "{method} sip:[service]@[remote_ip]:[remote_port] SIP/2.0\n\
         {OWN_VIA}\n\
         From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[pid]SIPpTag{call}[call_number]\n\
         To: [service] <sip:[service]@[remote_ip]:[remote_port]>{peer}\n\
         Call-ID: [call_id]\nCSeq: {cseq} {method}\n{extra}\
         Contact: sip:sipp@[local_ip]:[local_port]\nMax-Forwards: 70\nSubject: Performance Test\n{rest}"
    )
}

fn with_sdp(body: &str) -> String {
    format!("Content-Type: application/sdp\nContent-Length: [len]\n\n{body}")
}

const EMPTY: &str = "Content-Length: 0\n";

/// Returns a response. `tag` follows To.
fn answer(status: &str, tag: &str, rest: &str) -> String {
    format!(
        "SIP/2.0 {status}\n[last_Via:]\n[last_From:]\n[last_To:]{tag}\n[last_Call-ID:]\n[last_CSeq:]\n\
         Contact: <sip:[local_ip]:[local_port];transport=[transport]>\n{rest}"
    )
}

fn tag(call: &str) -> String {
    format!(";tag=[pid]SIPpTag{call}[call_number]")
}

/// Writes `uac`: one call of a client; the server answers 180 and 200.
fn uac(out: &mut Document) {
    out.send(RETRANS, &call_request("INVITE", "00", 1, false, "", &with_sdp(&plain_sdp())));
    out.provisional(&[100, 180, 183]);
    out.line("<recv response=\"200\" rtd=\"true\"/>\n");
    out.send("", &call_request("ACK", "00", 1, true, "", EMPTY));
    out.line("<!-- As long as -d says. -->");
    out.line("<pause/>\n");
    out.send(RETRANS, &call_request("BYE", "00", 2, true, "", EMPTY));
    out.line("<recv response=\"200\" crlf=\"true\"/>");
    out.repartitions(RESPONSE_TIMES, CALL_LENGTHS);
}

fn uas(out: &mut Document) {
    out.line("<recv request=\"INVITE\" crlf=\"true\"/>\n");
    out.send("", &answer("180 Ringing", &tag("01"), EMPTY));
    out.send(RETRANS, &answer("200 OK", &tag("01"), &with_sdp(&plain_sdp())));
    out.line("<recv request=\"ACK\" optional=\"true\" rtd=\"true\" crlf=\"true\"/>");
    out.line("<recv request=\"BYE\"/>\n");
    out.send("", &answer("200 OK", "", EMPTY));
    out.line("<!-- A BYE that comes again is answered again. -->");
    out.line("<timewait milliseconds=\"4000\"/>");
    out.repartitions(RESPONSE_TIMES, CALL_LENGTHS);
}

/// Writes `regexp`, which is `uac` with expressions that extract parts of the answer, and an ACK that shows them.
fn regexp(out: &mut Document) {
    out.send(RETRANS, &call_request("INVITE", "02", 1, false, "", &with_sdp(&plain_sdp())));
    out.provisional(&[100, 180, 183]);
    out.with_actions(
        "recv response=\"200\" start_rtd=\"true\"",
        &[
            "<ereg regexp=\"[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}[:][0-9]{1,5}\" search_in=\"msg\" check_it=\"true\" assign_to=\"1\"/>",
            "<ereg regexp=\".*\" search_in=\"hdr\" header=\"Contact:\" check_it=\"true\" assign_to=\"6\"/>",
            "<ereg regexp=\"o=([[:alnum:]]*) ([[:alnum:]]*) ([[:alnum:]]*)\" search_in=\"msg\" check_it=\"true\" assign_to=\"3,4,5,8\"/>",
        ],
    );
    let found = "retrievedIp: [$1]\nretrievedContact:[$6]\nretrievedSdpOrigin:[$3]\nretrievedSdpOrigin-username:[$4]\n\
                 retrievedSdpOrigin-session-id:[$5]\nretrievedSdpOrigin-version:[$8]\n";
    out.send("", &call_request("ACK", "02", 1, true, found, EMPTY));
    out.line("<pause milliseconds=\"1000\"/>\n");
    out.send(RETRANS, &call_request("BYE", "02", 2, true, "", EMPTY));
    out.line("<recv response=\"200\" crlf=\"true\" rtd=\"true\"/>");
    out.repartitions("1000, 1040, 1080, 1120, 1160, 1200", "1000, 1100, 1200, 1300, 1400");
}

/// Writes `branchc`: a registration, then a call; its steps depend on the responses.
fn branch_client(out: &mut Document) {
    let request = |method: &str, from: &str, cseq: u32, peer: &str, rest: &str| {
        format!(
            "{method} sip:ua2@CA.cym.com SIP/2.0\n{OWN_VIA}\n\
             From: {from} <sip:ua1@nnl.cym:[local_port]>{}\nTo: ua2 <sip:ua2@nnl.cym:[remote_port]>{peer}\n\
             Call-ID: [call_id]\nCSeq: {cseq} {method}\nContact: sip:ua1@[local_ip]:[local_port]\nMax-Forwards: 70\n\
             Subject: Performance Test\n{rest}",
            tag("07b")
        )
    };
    let register = format!(
        "REGISTER sip:CA.cym.com SIP/2.0\n{OWN_VIA}\nFrom: ua1 <sip:ua1@nnl.cym:[local_port]>{}\n\
         To: ua1 <sip:ua1@nnl.cym:[local_port]>\nCall-ID: [call_id]\nCSeq: 1 REGISTER\n\
         Contact: sip:ua1@[local_ip]:[local_port]\nContent-Length: 0\nExpires: 300\n",
        tag("07")
    );
    out.send(RETRANS, &register);
    out.line("<recv response=\"200\" rtd=\"true\" next=\"5\"/>");
    out.line("<!-- Always jumped over. -->");
    out.line("<recv response=\"200\"/>");
    out.line("<label id=\"5\"/>\n");
    out.send(RETRANS, &request("INVITE", "ua[call_number]", 1, "", &with_sdp(&plain_sdp())));
    out.provisional(&[100, 180, 183]);
    out.line("<recv response=\"403\" optional=\"true\" next=\"1\"/>");
    out.with_actions(
        "recv response=\"200\"",
        &["<ereg regexp=\"ua25\" search_in=\"hdr\" header=\"From: \" assign_to=\"8\"/>"],
    );
    out.line("<!-- Call 25 hangs up at once. -->");
    out.send(" next=\"1\" test=\"8\"", &request("ACK", "ua1", 1, "[peer_tag_param]", EMPTY));
    out.line("<pause milliseconds=\"5000\"/>");
    out.line("<label id=\"1\"/>\n");
    out.send(RETRANS, &request("BYE", "ua1", 2, "[peer_tag_param]", EMPTY));
    out.line("<recv response=\"200\" crlf=\"true\"/>");
    out.line("<pause milliseconds=\"4000\"/>");
    out.repartitions(RESPONSE_TIMES, CALL_LENGTHS);
}

/// Writes `branchs`, the other end of `branchc`, which serves callers named ua2… and answers other callers with 403.
fn branch_server(out: &mut Document) {
    out.line("<recv request=\"REGISTER\"/>\n");
    out.send("", &answer("200 OK", &tag("08"), "Content-Length: 0\nExpires: 300\n"));
    out.with_actions(
        "recv request=\"INVITE\" crlf=\"true\"",
        &["<ereg regexp=\"ua2\" search_in=\"hdr\" header=\"From: \" assign_to=\"3\"/>"],
    );
    out.send(" next=\"1\" test=\"3\"", &answer("180 Ringing", &tag("08b"), EMPTY));
    out.send(" next=\"2\"", &answer("403 Error", &tag("08b"), EMPTY));
    out.line("<label id=\"1\"/>\n");
    out.send("", &answer("100 Trying", &tag("08b"), EMPTY));
    out.send(RETRANS, &answer("200 OK", &tag("08b"), &with_sdp(&plain_sdp())));
    out.line("<recv request=\"ACK\" optional=\"true\" rtd=\"true\" crlf=\"true\"/>");
    out.line("<label id=\"2\"/>");
    out.line("<recv request=\"BYE\"/>\n");
    out.send("", &answer("200 OK", "", EMPTY));
    out.line("<timewait milliseconds=\"4000\"/>");
    out.repartitions(RESPONSE_TIMES, CALL_LENGTHS);
}

/// Writes `uac_pcap`: as `uac`, with a voice and a DTMF digit from captures.
fn uac_pcap(out: &mut Document) {
    let body = sdp(
        "[local_ip_type] [local_ip]",
        "[auto_media_port] RTP/AVP 8 101\na=rtpmap:8 PCMA/8000\na=rtpmap:101 telephone-event/8000\na=fmtp:101 0-11,16",
    );
    out.send(RETRANS, &call_request("INVITE", "09", 1, false, "", &with_sdp(&body)));
    out.provisional(&[100, 180]);
    out.line("<recv response=\"200\" rtd=\"true\" crlf=\"true\"/>\n");
    out.send("", &call_request("ACK", "09", 1, true, "", EMPTY));
    out.with_actions("nop", &["<exec play_pcap_audio=\"pcap/g711a.pcap\"/>"]);
    out.line("<pause milliseconds=\"8000\"/>");
    out.with_actions("nop", &["<exec play_pcap_audio=\"pcap/dtmf_2833_1.pcap\"/>"]);
    out.line("<pause milliseconds=\"1000\"/>\n");
    out.send(RETRANS, &call_request("BYE", "09", 2, true, "", EMPTY));
    out.line("<recv response=\"200\" crlf=\"true\"/>");
    out.repartitions(RESPONSE_TIMES, CALL_LENGTHS);
}

/// Returns the action that keeps the headers of the body and the body itself in a variable.
fn body_into(variable: u8) -> String {
    format!("<ereg regexp=\"Content-Type:.*\" search_in=\"msg\" assign_to=\"{variable}\"/>")
}

/// Writes controller A, which calls the first end without an offer and sends the offer of that end to the other
/// controller (RFC 3725 flow I).
fn controller_a(out: &mut Document) {
    out.send(RETRANS, &call_request("INVITE", "03", 1, false, "", EMPTY));
    out.provisional(&[100, 180, 183]);
    out.with_actions("recv response=\"200\" crlf=\"true\" start_rtd=\"true\"", &[&body_into(1)]);
    out.message("sendCmd", "", "Call-ID: [call_id]\n[$1]\n");
    out.with_actions("recvCmd", &[&body_into(2)]);
    out.send(" rtd=\"true\"", &call_request("ACK", "03", 1, true, "", "[$2]\n"));
    out.line("<pause milliseconds=\"1000\"/>\n");
    out.send(RETRANS, &call_request("BYE", "03", 2, true, "", EMPTY));
    out.line("<recv response=\"200\" crlf=\"true\"/>");
}

/// Writes controller B: calls the second end with the offer of the first controller, and sends the answer back.
fn controller_b(out: &mut Document) {
    out.with_actions("recvCmd", &[&body_into(1)]);
    out.send(RETRANS, &call_request("INVITE", "04", 1, false, "", "[$1]\n"));
    out.provisional(&[100, 180, 183]);
    out.with_actions("recv response=\"200\" crlf=\"true\"", &[&body_into(2)]);
    out.send(" start_rtd=\"true\"", &call_request("ACK", "04", 1, true, "", EMPTY));
    out.message("sendCmd", "", "Call-ID: [call_id]\n[$2]\n");
    out.line("<pause milliseconds=\"1000\"/>\n");
    out.send(" retrans=\"500\" rtd=\"true\"", &call_request("BYE", "04", 2, true, "", EMPTY));
    out.line("<recv response=\"200\" crlf=\"true\"/>");
}

/// Writes an end that the controllers call.
fn third_party_end(out: &mut Document, call: &str, bye: &str) {
    out.line("<recv request=\"INVITE\" crlf=\"true\"/>\n");
    out.send("", &answer("200 OK", &tag(call), &with_sdp(&plain_sdp())));
    out.line(&format!("<recv request=\"ACK\" rtd=\"true\"{CRLF}/>"));
    out.line(&format!("<recv request=\"BYE\"{bye}/>\n"));
    out.send("", &answer("200 OK", "", EMPTY));
    out.line("<timewait milliseconds=\"2000\"/>");
}

/// Writes the answer to any request outside a call.
fn out_of_call(out: &mut Document) {
    out.line("<recv request=\".*\" regexp_match=\"true\"/>\n");
    out.send("", &answer("200 OK", "", EMPTY));
    out.line("<timewait milliseconds=\"4000\"/>");
    out.repartitions(RESPONSE_TIMES, CALL_LENGTHS);
}

/// Returns the messages sent where the scenario has none: SIPp's texts, because they are visible on the wire.
pub(super) fn default_messages() -> DefaultMessages {
    DefaultMessages {
        three_party_abort: constant("call-id: [call_id]\ninternal-cmd: abort_call\n\n"),
        ack: constant(&request("ACK", "[last_Via]", "[last_cseq_number] ACK", ACK_TAIL)),
        ack2: constant(&request("ACK", OWN_VIA, "[last_cseq_number] ACK", ACK_TAIL)),
        bye: constant(&request("BYE", OWN_VIA, "[last_cseq_number+1] BYE", TAIL)),
        routed_ack: constant(&routed("ACK", "[last_cseq_number] ACK")),
        routed_bye: constant(&routed("BYE", "[last_cseq_number+1] BYE")),
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

/// Returns a request along the route set of a dialog.
fn routed(method: &str, cseq: &str) -> String {
    request(method, &format!("{OWN_VIA}\n[routes]"), cseq, TAIL).replace("[last_Request_URI]", "[next_url]")
}

/// Parses a text known to be valid.
fn constant(text: &str) -> Template {
    let environment = Environment::default();
    let mut names = Names::default();
    let mut keywords = Keywords { names: &mut names, environment: &environment, notes: Vec::new() };
    keywords.template(text.as_bytes()).ok().expect("a text of this file, which a test reads")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{Step, StepKind};
    use crate::{Piece, ThirdParty};

    fn environment(name: &str) -> Environment {
        let third_party = if name.starts_with("3pcc-C") { ThirdParty::Classic } else { ThirdParty::None };
        Environment { third_party, ..Environment::default() }
    }

    /// Reads a document without its `play_pcap` elements, whose captures are not here.
    fn read(document: &str, name: &str) -> Scenario {
        let mut text = String::new();
        document.lines().filter(|line| !line.contains("play_pcap")).for_each(|line| text.extend([line, "\n"]));
        Scenario::parse(text.as_bytes(), Path::new(name), &environment(name))
            .unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    #[test]
    fn default_messages_are_texts_with_known_keywords() {
        let messages = default_messages();
        assert!(messages.bye.pieces.len() > 10 && messages.ack2.literal_length > 100);
    }

    #[test]
    fn each_name_is_a_scenario_without_a_flaw() {
        for name in NAMES {
            let scenario = read(&document(name).expect(name), name);
            assert!(scenario.warnings.is_empty() && scenario.newer.is_empty(), "{name}: {:?}", scenario.warnings);
            assert_eq!(scenario.name, *name);
        }
        assert!(document("nonesuch").is_none());
        let refusal = Scenario::builtin("nonesuch", &Environment::default()).expect_err("no such name");
        assert!(refusal.to_string().contains("uac"), "{refusal}");
        let uac = Scenario::builtin("uac", &Environment::default()).expect("a scenario");
        let StepKind::Send(invite) = &uac.steps[0].kind else { panic!("{:?}", uac.steps[0]) };
        assert!(invite.template.pieces.contains(&Piece::Length(0)) && invite.template.has_length);
    }

    /// Checks that SIPp's own documents, parsed by the same reader, give the same steps and texts.
    #[test]
    fn flows_and_messages_are_those_of_sipp() {
        let plain = |steps: &[Step]| -> Vec<String> {
            steps.iter().map(|step| format!("{:?}", Step { line: 0, ..step.clone() })).collect()
        };
        for name in NAMES {
            let Ok(output) = std::process::Command::new("sipp").args(["-sd", name]).output() else {
                println!("sipp is not installed: its own documents are not compared with ours");
                return;
            };
            let theirs = read(&String::from_utf8_lossy(&output.stdout), name);
            let ours = read(&document(name).expect(name), name);
            for (ours, theirs) in plain(&ours.steps).iter().zip(plain(&theirs.steps)) {
                assert_eq!(*ours, theirs, "{name}");
            }
            assert_eq!(ours.steps.len(), theirs.steps.len(), "{name}");
            assert_eq!(ours.timers, theirs.timers, "{name}");
            assert_eq!(ours.call_length_repartition, theirs.call_length_repartition, "{name}");
            assert_eq!(ours.response_time_repartition, theirs.response_time_repartition, "{name}");
        }
    }
}
