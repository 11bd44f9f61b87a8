//! IP versions of the media of bridged calls.

use super::*;
use strowger_core::Transport;

/// Starts a server with listeners and media of both IP versions, which bridges calls to this place.
fn between(to: &str) -> Site {
    Site::start(&format!(
        "listen = [\"udp:127.0.100.1:5060\", \"udp:[2001:db8::1]:5060\"]\ndomains = [\"example.org\"]\nrealm = \"example.org\"\n\
         auth.calls = false\nproxy.relay_for = \"everyone\"\nmedia.addresses = [\"127.0.100.1\", \"2001:db8::1\"]\n\
         media.ports = \"20000-20199\"\n[[rule]]\nname = \"out\"\nb2bua = true\nto = [\"sip:{to}\"]\n"
    ))
}

#[test]
fn each_side_has_media_of_its_own_ip_version() {
    for (to, own) in [("[2001:db8::9]:7001", "IP6 2001:db8::1"), ("127.0.0.9:7001", "IP4 127.0.100.1")] {
        let site = between(to);
        let (alice, bob) = (site.foreign_phone(), phone_at(&site, to));
        let call = alice.call("INVITE", "sip:bob@example.org");
        say(&alice, &call, &sdp(4_000, 1, ""));
        let far = gets(&bob, "INVITE");
        let offer = body(&far);
        assert!(offer.contains(&format!("c=IN {own}\r\n")) && !offer.contains("127.0.0.1"), "{offer}");
        let host = to.rsplit_once(':').map_or(to, |(host, _)| host).trim_matches(['[', ']']);
        let version = own.split(' ').next().unwrap_or_default();
        let answer = sdp(5_000, 1, "").replace("IP4 127.0.0.1", &format!("{version} {host}"));
        respond(&bob, &far, 200, &answer);
        let ok = alice.answer();
        assert_eq!(ok.status(), 200, "{}", ok.0);
        assert!(body(&ok).contains("c=IN IP4 127.0.100.1\r\n") && !ok.0.contains("2001:db8"), "{}", ok.0);
        let (_, stream) = set(&site);
        let far = stream.far.expect("a far side");
        assert_eq!((stream.near.ports.address, usize::from(far.ports.address)), (0, usize::from(version == "IP6")));
        assert_eq!((stream.near.rtp, far.rtp.map(|rtp| rtp.ip())), (at(4_000), host.parse().ok()));
    }
}

#[test]
fn a_name_is_looked_up_before_the_description_is_written() {
    let (site, place) = (between("gw.example.net"), "[2001:db8::9]:7001");
    site.set_name("gw.example.net", &[(Transport::Udp, place.parse().expect("an address"))]);
    let (alice, bob) = (site.foreign_phone(), phone_at(&site, place));
    let call = alice.call("INVITE", "sip:bob@example.org");
    say(&alice, &call, &sdp(4_000, 1, ""));
    let offer = gets(&bob, "INVITE");
    assert!(body(&offer).contains("c=IN IP6 2001:db8::1\r\n"), "{}", offer.0);
    respond(&bob, &offer, 486, "");
    gets(&bob, "ACK");
    assert_eq!(alice.answer().status(), 486);
}
