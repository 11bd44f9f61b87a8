//! Media of bridged calls between phones behind routers that translate addresses, and a host that wants to be taken for one of them.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use strowger_tests::account::{challenged, register};
use strowger_tests::baresip::with_users;
use strowger_tests::bridge::{Bridged, description, invite};
use strowger_tests::control::{metric, wait_for_no_calls};
use strowger_tests::dialog::arrives;
use strowger_tests::echo::described;
use strowger_tests::homes::{HOST, Homes, SERVER};
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::program::{CONNTRACK, have};
use strowger_tests::server::Setup;
use strowger_tests::sound::Sound;
use strowger_tests::stalls::Stalls;
use strowger_tests::stranger::Stranger;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;
use strowger_tests::{undisturbed, wait};

const SOON: Duration = Duration::from_secs(20);

/// Time in which a phone must be heard again after its router has forgotten its port.
const AGAIN: Duration = Duration::from_secs(3);

/// Port of the media of both phones.
const MEDIA: u16 = 40_000;

/// Tones of each phone: at first, after the first router has forgotten its port, and after the second one has. No tone is used twice.
const OF_ALICE: [u16; 3] = [700, 800, 900];
const OF_BOB: [u16; 3] = [1_000, 1_100, 1_200];
const OF_STRANGER: u16 = 1_500;

/// Metric of the packets from sources that may not send.
const DROPPED: &str = "strowger_media_packets_dropped_total{reason=\"source\"}";

/// Makes a call between two phones while an outsider sends RTP to all ports of media. `packets`: packets of the outsider a second.
fn call_beside_a_stranger(packets: u32) {
    let net = Homes::new();
    for router in &net.routers {
        // The routers keep the ports of signalling while the phones say nothing.
        router.sysctl("net.netfilter.nf_conntrack_udp_timeout=300");
    }
    let (its_network, its_addresses) = net.stranger();
    its_network.count_datagrams();
    let listener = SocketAddr::new(SERVER, 5060);
    let media = format!("media.addresses = [\"{SERVER}\"]");
    let rule = "[[rule]]\nname = \"bridge\"\nb2bua = true";
    let server = with_users(Setup::default().listen(Udp, listener).with(&media).with(rule).inside(&net.street));
    let wire = |home: &Namespace| {
        let wire = home.inside(|| Wire::connect_from(Udp, SocketAddr::new(HOST, 5060), listener, None));
        wire.expect("the port is free")
    };
    let sound = |home: &Namespace| Sound::at(home.inside(|| UdpSocket::bind((HOST, MEDIA))).expect("the port is free"));
    let [home, other_home] = &net.homes;
    let (mut alice, mut bob) = (wire(home), wire(other_home));
    let (sound_of_alice, sound_of_bob) = (sound(home), sound(other_home));
    register(&mut alice, "alice", "secret-of-alice");
    register(&mut bob, "bob", "secret-of-bob");

    let sockets = its_addresses.map(|address| its_network.inside(|| UdpSocket::bind((address, MEDIA))));
    let sockets = sockets.map(|socket| socket.expect("the port is free")).into();
    // The default of `media.ports`.
    let stranger = Stranger::start(sockets, SERVER, 16_384..=32_767, packets, OF_STRANGER);
    let audio = format!("m=audio {MEDIA} RTP/AVP 0\r\n");
    let invite = invite("sip:bob@example.org", &alice, &description(&alice, &audio));
    let invite = challenged(&mut alice, &invite, "alice", "secret-of-alice");
    let answer = description(&bob, &audio);
    let mut call = Bridged::set_up(&mut alice, &mut bob, &invite, &answer)
        .unwrap_or_else(|refusal| panic!("{}", String::from_utf8_lossy(&refusal)));
    let (to_alice, to_bob) = (described(&call.invite), described(&call.answer));
    let sweep = || stranger.sweep(Duration::from_secs(120));
    let play = |turn: usize| {
        sound_of_alice.play(to_bob, OF_ALICE[turn]);
        sound_of_bob.play(to_alice, OF_BOB[turn]);
    };
    let hear = |turn: usize| {
        let (stalls, begun) = (Stalls::watch(), Instant::now());
        let hear = || sound_of_alice.hears(OF_BOB[turn]) && sound_of_bob.hears(OF_ALICE[turn]);
        let came = wait::until(SOON, hear).then(|| stalls.since(begun));
        assert!(came.is_some_and(|time| time < AGAIN), "tone {turn}: {came:?}\n{}", server.log());
    };

    // Before the first packet of the phones, and after it.
    sweep();
    assert!(sound_of_alice.others(&[]).is_empty() && sound_of_bob.others(&[]).is_empty());
    play(0);
    hear(0);
    sweep();
    // Two sweeps from two addresses reach the RTP ports of both sides, which drop 8 packets at least.
    let is_reached = wait::until(SOON, || metric(&server, DROPPED) >= 8.0);
    assert!(is_reached, "the stranger did not reach the ports of the call");
    for (turn, router) in (1..).zip(&net.routers) {
        let before = router.translated(MEDIA);
        router.forget(MEDIA);
        play(turn);
        hear(turn);
        let after = router.translated(MEDIA);
        assert!(before.is_some() && after.is_some() && before != after, "{before:?} {after:?}");
    }

    arrives(&mut alice, &mut bob, &call.near.request("BYE"), &[]);
    wait_for_no_calls(&server, SOON);
    assert_eq!(sound_of_alice.others(&OF_BOB), Vec::<Vec<u8>>::new());
    assert_eq!(sound_of_bob.others(&OF_ALICE), Vec::<Vec<u8>>::new());
    assert_eq!(its_network.datagrams(), 0, "the stranger got datagrams\n{}", server.log());
}

#[test]
fn phones_with_the_same_private_address_hear_each_other_and_no_stranger() {
    if !namespace::possible() || !have(&[CONNTRACK]) {
        return;
    }
    undisturbed(|| call_beside_a_stranger(16_000));
}

#[test]
#[ignore = "a minute: make test-long"]
fn a_stranger_with_the_rate_of_twenty_calls_is_heard_by_no_phone() {
    if !namespace::possible() || !have(&[CONNTRACK]) {
        return;
    }
    undisturbed(|| call_beside_a_stranger(1_000));
}
