//! Addresses and ports of media and of RTCP (RFC 3605, RFC 5761).

use std::net::SocketAddr;

use strowger_core::b2bua::negotiation::LegState;

use super::{Bridge, FAR, NEAR};

/// Returns addresses of RTP and RTCP of the near peer after an exchange in which it offers this.
fn near_addresses(offered: &str) -> (Option<SocketAddr>, Option<SocketAddr>) {
    let mut bridge = Bridge::new();
    bridge.exchange(offered, &format!("{FAR}m=audio 5000 RTP/AVP 8\r\n"));
    let streams = bridge.streams();
    let near = &streams[0].as_ref().expect("agreed").near;
    (near.rtp, near.rtcp)
}

#[test]
fn addresses_of_a_peer() {
    for (media, rtp, rtcp) in [
        ("m=audio 4000 RTP/AVP 8\r\n", "192.0.2.77:4000", "192.0.2.77:4001"),
        ("m=audio 4000 RTP/AVP 8\r\nc=IN IP6 2001:db8::5\r\n", "[2001:db8::5]:4000", "[2001:db8::5]:4001"),
        ("m=audio 4000 RTP/AVP 8\r\na=rtcp:53020\r\n", "192.0.2.77:4000", "192.0.2.77:53020"),
        ("m=audio 4000 RTP/AVP 8\r\na=rtcp:53020 IN IP4 192.0.2.78\r\n", "192.0.2.77:4000", "192.0.2.78:53020"),
        ("m=audio 4000 RTP/AVP 8\r\na=rtcp-mux\r\n", "192.0.2.77:4000", "192.0.2.77:4000"),
        ("m=audio 4000 RTP/AVP 8\r\na=rtcp-mux\r\na=rtcp:53020\r\n", "192.0.2.77:4000", "192.0.2.77:4000"),
        ("m=audio 4000 RTP/AVP 8\r\na=rtcp:0\r\n", "192.0.2.77:4000", ""),
        ("m=audio 4000 RTP/AVP 8\r\na=rtcp:4001 IN IP4 224.0.1.1\r\n", "192.0.2.77:4000", ""),
        ("m=audio 65535 RTP/AVP 8\r\n", "192.0.2.77:65535", ""),
        ("m=audio 4000 RTP/AVP 8\r\nc=IN IP4 phone.example.org\r\n", "", ""),
        ("m=audio 4000 RTP/AVP 8\r\nc=IN IP4 233.252.0.1/127\r\n", "", ""),
        ("m=audio 4000 RTP/AVP 8\r\nc=IN IP4 255.255.255.255\r\n", "", ""),
        ("m=audio 4000 RTP/AVP 8\r\nc=IN IP4 0.0.0.0\r\n", "", ""),
        ("m=audio 4000 RTP/AVP 8\r\nc=IN IP6 ::\r\n", "", ""),
    ] {
        let address = |text: &str| text.parse::<SocketAddr>().ok();
        assert_eq!(near_addresses(&format!("{NEAR}{media}")), (address(rtp), address(rtcp)), "{media}");
    }
}

/// One port for RTP and RTCP is agreed on each leg alone, and offered again once it is.
#[test]
fn rtcp_mux() {
    let plain = |head: &str| format!("{head}m=audio 4000 RTP/AVP 8\r\n");
    let mux = |head: &str| format!("{head}m=audio 4000 RTP/AVP 8\r\na=rtcp-mux\r\n");
    let has_mux = |text: &str| text.contains("a=rtcp-mux\r\n");
    let mut bridge = Bridge::new();
    let (offer, answer) = bridge.exchange(&mux(NEAR), &plain(FAR));
    assert!(!has_mux(&offer) && has_mux(&answer));
    // An answer that accepts what was not offered.
    let (_, answer) = bridge.exchange(&plain(NEAR), &mux(FAR));
    assert!(!has_mux(&answer));
    let far_rtcp = |bridge: &Bridge| bridge.streams()[0].as_ref().and_then(|stream| stream.far.rtcp);
    assert_eq!(far_rtcp(&bridge).map(|address| address.port()), Some(4_001));

    bridge.far_policy.has_rtcp_mux = true;
    let (offer, answer) = bridge.exchange(&plain(NEAR), &mux(FAR));
    assert!(has_mux(&offer) && !has_mux(&answer));
    assert_eq!(far_rtcp(&bridge).map(|address| address.port()), Some(4_000));
    bridge.far_policy.has_rtcp_mux = false;
    assert!(has_mux(&bridge.offer(true, &plain(NEAR)).expect("common")), "it was agreed");
    bridge.answer(true, &plain(FAR)).expect("open");
    assert!(!has_mux(&bridge.offer(true, &plain(NEAR)).expect("common")), "it is no longer agreed");
}

/// A stream at another address than that of the leg.
#[test]
fn an_address_of_a_stream() {
    let mut bridge = Bridge::new();
    bridge.far = LegState::new(u64::MAX, "192.0.2.8".parse().expect("an address"));
    let offer = bridge.offer(true, &format!("{NEAR}m=audio 4000 RTP/AVP 8\r\n")).expect("common");
    let head = "v=0\r\no=- 9223372036854775807 1 IN IP4 192.0.2.8\r\ns=-\r\nc=IN IP4 192.0.2.8\r\nt=0 0\r\n";
    assert!(offer.starts_with(&format!("{head}m=audio 30000 RTP/AVP 8\r\nc=IN IP6 2001:db8::9\r\n")), "{offer}");
}
