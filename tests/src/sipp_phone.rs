//! SIPp as a phone: one call with sound to a user of the server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use strowger_media::g711::Law;
use strowger_media::tone::Tone;

use crate::port;
use crate::process::Process;
use crate::program::SIPP;

/// Address of the phone. SIPp of Debian has no TLS library, without which it answers no challenge, so the server must trust this address.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 95);

/// Sound of the phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SippSound {
    /// Tone of this frequency in hertz.
    Tone(u16),
    /// Each packet that it receives.
    Received,
}

/// Description of the phone; its version follows the first text.
const DESCRIPTION: [&str; 2] =
    ["v=0\no=- 1 ", " IN IP4 [local_ip]\ns=-\nc=IN IP4 [media_ip]\nt=0 0\nm=audio [media_port] RTP/AVP 0\na="];

/// Starts a call to this user, in PCMU. The callee ends it; it may hold it once before, and resume it.
///
/// # Panics
/// SIPp is missing, or the folder cannot be written.
pub fn call(folder: &Path, server: SocketAddr, user: &str, sound: SippSound) -> Process {
    let file =
        |name: &str, content: &[u8]| std::fs::write(folder.join(name), content).expect("the folder can be written");
    file("phone.xml", document(user, sound).as_bytes());
    if let SippSound::Tone(frequency) = sound {
        let tone = Tone::new(f64::from(frequency), -10.0, 8_000).take(8_000);
        file("tone.ul", &tone.map(|sample| Law::Mu.encode(sample)).collect::<Vec<u8>>());
    }
    let [own, media] = [port::free(), port::pair()].map(|port| port.to_string());
    let mut command = Command::new(SIPP.path().expect("sipp is there"));
    command.arg(server.to_string()).args(["-sf", "phone.xml", "-i", &ADDRESS.to_string(), "-p", &own, "-mp", &media]);
    command.args(["-m", "1", "-nostdin", "-trace_err", "-error_file", "errors"]).current_dir(folder);
    if sound == SippSound::Received {
        command.arg("-rtp_echo");
    }
    Process::start("sipp-phone", folder, &mut command)
}

/// Returns the document of the call.
fn document(user: &str, sound: SippSound) -> String {
    let described = |version: u8, direction: &str| format!("{}{version}{}{direction}", DESCRIPTION[0], DESCRIPTION[1]);
    let parties = format!(
        "From: <sip:alice@example.org>;tag=[call_number]\nTo: <sip:{user}@example.org>[peer_tag_param]\nCall-ID: [call_id]\n"
    );
    let request = |method: &str, uri: &str, rest: &str| {
        let via = "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n";
        format!("{method} {uri} SIP/2.0\n{via}{parties}CSeq: 1 {method}\nMax-Forwards: 70\n{rest}")
    };
    let contact = "Contact: <sip:alice@[local_ip]:[local_port]>\n";
    let with = |description: &str| format!("Content-Type: application/sdp\nContent-Length: [len]\n\n{description}\n");
    let send = |retrans: &str, message: &str| format!("<send{retrans}><![CDATA[\n{message}\n]]></send>");
    let again = " retrans=\"500\"";
    let invite =
        request("INVITE", &format!("sip:{user}@example.org"), &format!("{contact}{}", with(&described(1, "sendrecv"))));
    let ack = request("ACK", "[next_url]", "Content-Length: 0\n\n");
    let answer = |rest: &str| {
        format!("SIP/2.0 200 OK\n[last_Via:]\n[last_From:]\n[last_To:]\n[last_Call-ID:]\n[last_CSeq:]\n{contact}{rest}")
    };
    let change = |version: u8, direction: &str| {
        let answer = send(again, &answer(&with(&described(version, direction))));
        format!("<recv request=\"INVITE\"/>{answer}<recv request=\"ACK\"/>")
    };
    let play = match sound {
        SippSound::Tone(_) => "<nop><action><exec rtp_stream=\"tone.ul,-1,0,PCMU/8000\"/></action></nop>",
        SippSound::Received => "",
    };
    format!(
        "<?xml version=\"1.0\"?><scenario name=\"phone\">{}<recv response=\"100\" optional=\"true\"/>\
         <recv response=\"180\" optional=\"true\"/><recv response=\"200\" rrs=\"true\"/>{}{play}{}{}\
         <recv request=\"BYE\"/>{}</scenario>",
        send(again, &invite),
        send("", &ack),
        change(2, "recvonly"),
        change(3, "sendrecv"),
        send("", &answer("Content-Length: 0\n\n")),
    )
}
