//! Call to the echo of the server: the generator plays a tone there, and judges the media that come back.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use strowger_load::campaign::{Plan, Work};
use strowger_load::engine::pace::Part;
use strowger_measure::{Counter, Delay};

use super::load;

/// Address of the echo, see the rule in the configuration of the server.
const ECHO: &str = "sip:echo@example.org";

/// Document of the caller. The server demands a password only of its own users.
const DOCUMENT: &str = r#"<?xml version="1.0"?>
<scenario name="echo">
<send><![CDATA[
INVITE sip:echo@example.org SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:visitor@example.net>;tag=[call_number]
To: <sip:echo@example.org>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: <sip:visitor@[local_ip]:[local_port]>
Max-Forwards: 70
Content-Type: application/sdp
Content-Length: [len]

v=0
o=- 1 1 IN IP[media_ip_type] [media_ip]
s=-
c=IN IP[media_ip_type] [media_ip]
t=0 0
m=audio [auto_media_port] RTP/AVP 0
]]></send>
<recv response="100" optional="true"/>
<recv response="200" rrs="true"/>
<send><![CDATA[
ACK [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:visitor@example.net>;tag=[call_number]
To: <sip:echo@example.org>[peer_tag_param]
Call-ID: [call_id]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0
]]></send>
<nop><action><exec rtp_stream="tone.raw,-1,0"/></action></nop>
<pause milliseconds="1000"/>
<send><![CDATA[
BYE [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:visitor@example.net>;tag=[call_number]
To: <sip:echo@example.org>[peer_tag_param]
Call-ID: [call_id]
CSeq: 2 BYE
Max-Forwards: 70
Content-Length: 0
]]></send>
<recv response="200"/>
</scenario>
"#;

/// Period of a tone of 1 kHz in mu-law (digital milliwatt, ITU-T G.711).
const PERIOD: [u8; 8] = [0x1e, 0x0b, 0x0b, 0x1e, 0x9e, 0x8b, 0x8b, 0x9e];

/// Figures of the media that came back.
pub(super) struct HeardTone {
    packets: u64,
    lost: u64,
    /// Longest time between two packets, in milliseconds.
    gap: f64,
}

/// Calls the echo and plays a tone of one second.
///
/// # Errors
/// The call failed or nothing came back.
pub(super) fn call(server: SocketAddr) -> anyhow::Result<HeardTone> {
    let folder = tempfile::Builder::new().prefix("strowger-demo-").tempdir();
    let folder = folder.context("no temporary folder can be made")?;
    let document = folder.path().join("echo.xml");
    std::fs::write(&document, DOCUMENT).context("the folder cannot be written")?;
    std::fs::write(folder.path().join("tone.raw"), PERIOD.repeat(1_000)).context("the folder cannot be written")?;
    let plan = Plan {
        work: Work::Document(document),
        profile: vec![Part::Ramp { from: 1.0, to: 1.0, micros: 1_000_000 }],
        calls: Some(1),
        seed: 1,
        ..Plan::to(server.to_string().parse().context("an address is a target")?)
    };
    let ended = load::complete(plan, |_| ())?;
    let totals = &ended.run.totals;
    let (packets, lost) = (totals.counter(Counter::MediaHeard), totals.counter(Counter::MediaLost));
    let gap = totals.delays(Delay::MediaMaxDelta).percentile(100.0).map_or(0.0, |us| us as f64 / 1e3);
    ensure!(totals.counter(Counter::CallsSuccessful) == 1, "the call to the echo failed");
    ensure!(packets > 0, "the echo sent nothing back");
    Ok(HeardTone { packets, lost, gap })
}

impl HeardTone {
    pub(super) fn text(&self) -> String {
        let Self { packets, lost, gap } = self;
        format!(
            "  {ECHO} is an echo of the server: a phone that calls it hears itself.\n  \
             A tone of one second came back: {packets} packets, {lost} lost, at most {gap:.1} ms between two.\n"
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({"uri": ECHO, "packets": self.packets, "lost": self.lost, "max_delta_ms": self.gap})
    }
}
