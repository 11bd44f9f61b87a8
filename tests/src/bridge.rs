//! Bridged calls of a server under test: its settings, documents of the generator for both sides, and both parties by hand.

use std::time::Duration;

use crate::dialog::{End, answer_to, contact};
use crate::server::{Server, Setup};
use crate::text::{Request, field, respond, status, unique};
use crate::wire::{Transport, Wire};

/// Time limit of each step.
const STEP: Duration = Duration::from_secs(10);

/// Time to wait for a message at one party before the other party gets its turn.
const TURN: Duration = Duration::from_millis(20);

/// Returns the settings of a server that bridges each call by a rule with these keys. `ip` and `ports`: address and ports of its media.
pub fn setup(ip: &str, ports: &str, keys: &str) -> Setup {
    let media = format!("media.addresses = [\"{ip}\"]\nmedia.ports = \"{ports}\"");
    let rule = format!("[[rule]]\nname = \"bridge\"\nb2bua = true\n{keys}");
    Setup::on(&[Transport::Udp]).open_registrar().with("server.shards = 1").with(&media).with(&rule)
}

/// Party that ends a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Caller.
    Caller,
    /// Callee.
    Callee,
}

/// Documents of the generator for the two sides of a call.
pub struct Documents {
    /// Document of the caller.
    pub caller: String,
    /// Document of the callee.
    pub callee: String,
}

/// Audio in G.711 at the port of the call.
const AUDIO: &str =
    "v=0\no=- 1 1 IN IP4 [local_ip]\ns=-\nc=IN IP4 [media_ip]\nt=0 0\nm=audio [auto_media_port] RTP/AVP 0";

/// Action that plays `sound.raw` to the end of the call.
const PLAY: &str = "<nop><action><exec rtp_stream=\"sound.raw,-1,0\"/></action></nop>";

/// Step that takes a BYE, and its answer.
const TAKE_BYE: &str = "<recv request=\"BYE\"/><send><![CDATA[\nSIP/2.0 200 OK\n[last_Via:]\n[last_From:]\n[last_To:]\n\
                        [last_Call-ID:]\n[last_CSeq:]\nContent-Length: 0\n\n]]></send>";

/// Returns the documents of a call in which both sides play `sound.raw`. After `talk` the party `ends` hangs up.
pub fn documents(talk: Duration, ends: Ends) -> Documents {
    let pause = format!("<pause milliseconds=\"{}\"/>", talk.as_millis());
    let end = |of: Ends, bye: &str| match of == ends {
        true => format!("{pause}{bye}<recv response=\"200\"/>"),
        false => TAKE_BYE.to_owned(),
    };
    let bye = of_caller("BYE", 2, "");
    let caller = format!(
        "<?xml version=\"1.0\"?><scenario name=\"caller\">{}<recv response=\"100\" optional=\"true\"/>\
         <recv response=\"180\" optional=\"true\"/><recv response=\"200\" rrs=\"true\"/>{}{PLAY}{}</scenario>",
        of_caller("INVITE", 1, AUDIO),
        of_caller("ACK", 1, ""),
        end(Ends::Caller, &bye)
    );
    let answer = "[last_Via:]\n[last_From:]\n[last_To:];tag=a[call_number]\n[last_Call-ID:]\n[last_CSeq:]\n\
                  Contact: <sip:[local_ip]:[local_port]>";
    let parties = "<action><ereg regexp=\".*\" search_in=\"hdr\" header=\"From:\" assign_to=\"1\"/>\
                   <ereg regexp=\".*\" search_in=\"hdr\" header=\"To:\" assign_to=\"2\"/></action>";
    let bye = "<send retrans=\"500\"><![CDATA[\nBYE [next_url] SIP/2.0\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
               From:[$2];tag=a[call_number]\nTo:[$1]\nCall-ID: [call_id]\nCSeq: 1 BYE\nMax-Forwards: 70\nContent-Length: 0\n\n]]></send>";
    let callee = format!(
        "<?xml version=\"1.0\"?><scenario name=\"callee\"><recv request=\"INVITE\" rrs=\"true\">{parties}</recv>\
         <send><![CDATA[\nSIP/2.0 180 Ringing\n{answer}\nContent-Length: 0\n\n]]></send>\
         <send retrans=\"500\"><![CDATA[\nSIP/2.0 200 OK\n{answer}\nContent-Type: application/sdp\nContent-Length: [len]\n\n{AUDIO}\n]]></send>\
         <recv request=\"ACK\"/>{PLAY}{}<Reference variables=\"1,2\"/></scenario>",
        end(Ends::Callee, bye)
    );
    Documents { caller, callee }
}

/// Returns a step of the caller's document that sends a request; `body` is its description.
fn of_caller(method: &str, cseq: u32, body: &str) -> String {
    let (uri, tag, kind) = match body {
        "" => ("[next_url]", "[peer_tag_param]", ""),
        _ => ("sip:callee@[remote_ip]:[remote_port]", "", "Content-Type: application/sdp\n"),
    };
    let retrans = if method == "ACK" { "" } else { " retrans=\"500\"" };
    format!(
        "<send{retrans}><![CDATA[\n{method} {uri} SIP/2.0\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
         From: <sip:caller@[local_ip]>;tag=[call_number]\nTo: <sip:callee@[remote_ip]>{tag}\nCall-ID: [call_id]\n\
         CSeq: {cseq} {method}\nContact: <sip:caller@[local_ip]:[local_port]>\nMax-Forwards: 70\n{kind}\
         Content-Length: [len]\n\n{body}\n]]></send>"
    )
}

/// Bridged call by hand.
pub struct Bridged {
    /// Dialog of the caller.
    pub near: End,
    /// Dialog of the callee.
    pub far: End,
    /// INVITE as the callee got it.
    pub invite: Vec<u8>,
    /// 200 as the caller got it.
    pub answer: Vec<u8>,
}

impl Bridged {
    /// Sends the INVITE of the caller, which the callee accepts with this description.
    ///
    /// # Errors
    /// The response by which the server refuses the call.
    ///
    /// # Panics
    /// A message does not arrive.
    pub fn set_up(caller: &mut Wire, callee: &mut Wire, invite: &Request, answer: &str) -> Result<Self, Vec<u8>> {
        caller.send(&invite.bytes()).expect("the server takes messages");
        let end = callee.clock() + STEP;
        let got = loop {
            if let Some(got) = callee.request("INVITE", TURN) {
                break got;
            }
            let is_of_invite = |answer: &Vec<u8>| {
                field(answer, "Call-ID").as_deref() == Some(&invite.call_id)
                    && field(answer, "CSeq") == Some(format!("{} INVITE", invite.cseq))
            };
            if let Some(refusal) = caller.final_response(TURN).filter(is_of_invite) {
                caller.send(&invite.ack(&refusal).bytes()).expect("the server takes messages");
                return Err(refusal);
            }
            assert!(callee.clock() < end, "the INVITE does not arrive");
        };
        let (tag, line) = (unique("callee"), [contact("callee", callee)]);
        callee.send(&respond(&got, 180, &tag, &line)).expect("the server takes messages");
        callee.send(&described(&respond(&got, 200, &tag, &line), answer)).expect("the server takes messages");
        let accepted = answer_to(invite, caller, 200).expect("the call is answered");
        assert_eq!(status(&accepted), Some(200), "{}", String::from_utf8_lossy(&accepted));
        let mut near = End::caller(invite, &accepted);
        let ack = Request { cseq: invite.cseq, ..near.request("ACK") };
        caller.send(&ack.bytes()).expect("the server takes messages");
        callee.request("ACK", STEP).expect("the ACK arrives");
        let far = End::called(&got, &tag, callee);
        Ok(Self { near, far, invite: got, answer: accepted })
    }
}

/// Returns a message with this description in place of its empty body.
pub fn described(message: &[u8], description: &str) -> Vec<u8> {
    let end = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{description}", description.len());
    String::from_utf8_lossy(message).replace("Content-Length: 0\r\n\r\n", &end).into_bytes()
}

/// Returns an INVITE of alice with this description.
pub fn invite(uri: &str, wire: &Wire, description: &str) -> Request {
    let mut invite = crate::dialog::invite(uri, wire).with("Content-Type: application/sdp");
    invite.from = format!("<sip:alice@example.org>;tag={}", unique("alice"));
    invite.body = description.as_bytes().to_vec();
    invite
}

/// Returns a description with the media of this address; `media` has the lines from the first `m=` on.
pub fn description(wire: &Wire, media: &str) -> String {
    let ip = wire.local().ip();
    format!("v=0\r\no=- 4711 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n{media}")
}

/// Connects a party from this address of loopback by UDP.
///
/// # Panics
/// The address is none of loopback, or has no free port.
pub fn party(server: &Server, ip: &str) -> Wire {
    let from = format!("{ip}:0").parse().expect("an address");
    Wire::connect_from(Transport::Udp, from, server.address(Transport::Udp), None).expect("loopback has a port")
}

/// Returns the body of a message.
pub fn body(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}
