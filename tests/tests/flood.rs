//! Random and mutated messages in large numbers: the server survives, carries a call afterwards, and its memory returns
//! to the initial amount.
//!
//! `STROWGER_FLOOD_PERCENT` (5, and 100 with `STROWGER_WHOLE=1`) scales the numbers, `STROWGER_FLOOD_SEED` is the seed of the messages.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use strowger_tests::mutation::Mutations;
use strowger_tests::random::Random;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::Request;
use strowger_tests::wire::Transport::{self, Tcp, Tls, Udp, Ws, Wss};
use strowger_tests::wire::{TRANSPORTS, Wire};
use strowger_tests::{amount, call, corpora, in_background};

const BY_UDP: usize = 1_000_000;
const BY_EACH_STREAM: usize = 100_000;

/// Messages per write to a stream.
const PIECE: usize = 4;

/// Bytes that a flood may leave: tables of additional shards, and partly used pages of the allocator, of 2 MB each if
/// the kernel provides them. Measured are 10 to 12 MB, with pages of 4 KB 2 to 5, at the price of a sixth more
/// processor time per relayed call.
const GROWTH: u64 = 24 << 20;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn scaled(count: usize) -> usize {
    count * amount("STROWGER_FLOOD_PERCENT", 100, 5) as usize / 100
}

fn start(bans: bool) -> Server {
    let bans = if bans { "ban.enabled = true\nban.exempt = []\nban.duration = \"1s\"" } else { "ban.enabled = false" };
    Setup::on(&TRANSPORTS)
        .open_registrar()
        .in_memory()
        .with(bans)
        // Most timers of 32 seconds take 1.28 here, and bindings end as early as allowed.
        .with("timers.t1 = \"20ms\"\ntimers.t2 = \"160ms\"\ntimers.t4 = \"200ms\"\ntimers.timer_c = \"2s\"")
        .with("registrar.min_expires = \"1s\"\nregistrar.max_expires = \"2s\"\nregistrar.default_expires = \"2s\"")
        .with("nat.ping_interval = \"never\"\nproxy.fork_timeout = \"1s\"")
        // An absent name server, and connections that no program accepts: nothing leaves this machine.
        .with("dns.servers = [\"127.0.0.254\"]\ndns.timeout = \"50ms\"")
        .with("log.level = \"error\"")
        .start()
}

/// Returns an address of loopback other than 127.0.0.1, so that no ban affects the observer.
fn source(random: &mut Random) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 1 + random.below(200) as u8, random.below(256) as u8, 1 + random.below(250) as u8))
}

fn further() -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    for set in ["rfc4475", "fuzz-seeds/sip"] {
        let Some(folder) = corpora::folder(set) else { continue };
        let mut files: Vec<_> =
            std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
        files.sort();
        messages.extend(
            files.iter().filter(|file| !file.ends_with("expected.json")).filter_map(|file| std::fs::read(file).ok()),
        );
    }
    messages
}

/// Waits until the server has read all earlier input: an OPTIONS is answered.
fn wait_for(server: &mut Server, probe: &mut Wire) {
    let uri = format!("sip:{}", server.address(Udp));
    for _ in 0..50 {
        let request = Request::new("OPTIONS", &uri, "udp", probe.local());
        probe.send(&request.bytes()).expect("loopback takes datagrams");
        if probe.final_response(Duration::from_millis(200)).is_some() {
            return;
        }
        let ended = server.process().ended();
        assert!(ended.is_none(), "the server ended: {ended:?}");
    }
    panic!("the server has not answered for ten seconds");
}

fn by_udp(server: &mut Server, probe: &mut Wire, mutations: &mut Mutations, count: usize) {
    let mut random = Random::new(count as u64);
    let target = server.address(Udp);
    let mut wire = None;
    for n in 0..count {
        if n % 4_096 == 0 {
            let from = SocketAddr::new(source(&mut random), 0);
            wire = Some(Wire::connect_from(Udp, from, target, None).expect("loopback has many addresses"));
        }
        let message = mutations.message();
        // An empty datagram is no message, and one port may be refused for its earlier messages.
        let _ = wire.as_mut().expect("there is one from the first on").send(&message);
        if n % 128 == 127 {
            wait_for(server, probe);
        }
    }
    wait_for(server, probe);
}

fn by_stream(
    server: &mut Server,
    probe: &mut Wire,
    mutations: &mut Mutations,
    transport: Transport,
    count: usize,
) -> usize {
    let authority = server.authority();
    let authority = transport.is_secure().then_some(authority.as_path());
    let mut random = Random::new(count as u64);
    let (mut sent, mut connections, mut refused) = (0, 0, 0);
    let mut wire: Option<Wire> = None;
    let end = Instant::now() + Duration::from_secs(600);
    while sent < count {
        assert!(Instant::now() < end, "{sent} of {count} by {} in ten minutes", transport.name());
        let from = SocketAddr::new(source(&mut random), 0);
        let Some(open) = wire.as_mut() else {
            match Wire::connect_from(transport, from, server.address(transport), authority) {
                Ok(open) => {
                    connections += 1;
                    wire = Some(open);
                }
                // The address is banned, or the server is overloaded; another address is used, after a pause.
                Err(error) => {
                    refused += 1;
                    assert!(refused < 10_000, "nobody is let in by {}: {error}", transport.name());
                    assert_ne!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
                    wait_for(server, probe);
                }
            }
            continue;
        };
        // A message that makes the rest of a stream unreadable ends the connection, and the rest of its piece is lost:
        // so pieces are small, and the server has read each before the next.
        let gone = if matches!(transport, Ws | Wss) {
            sent += 1;
            open.send(&mutations.message()).is_err()
        } else {
            let piece: Vec<u8> = (0..PIECE).flat_map(|_| mutations.message()).collect();
            sent += PIECE;
            open.send(&piece).is_err()
        };
        if sent % 16 == 0 || !matches!(transport, Ws | Wss) {
            wait_for(server, probe);
        }
        if gone || open.is_closed() {
            wire = None;
        }
    }
    connections
}

fn flood(bans: bool) {
    let mut server = start(bans);
    let seed = number("STROWGER_FLOOD_SEED", 1);
    let mut mutations = Mutations::new(seed, further());
    let mut probe = server.connect(Udp);
    call::through(&server, Udp);

    // The memory of a server that has worked for a while.
    by_udp(&mut server, &mut probe, &mut mutations, scaled(BY_UDP / 20));
    for transport in [Tcp, Tls, Ws, Wss] {
        by_stream(&mut server, &mut probe, &mut mutations, transport, scaled(BY_EACH_STREAM / 20));
    }
    rest(&mut server);
    let before = server.process().pss();

    let start = Instant::now();
    by_udp(&mut server, &mut probe, &mut mutations, scaled(BY_UDP));
    println!("{} messages by udp in {:.1?}", scaled(BY_UDP), start.elapsed());
    for transport in [Tcp, Tls, Ws, Wss] {
        let start = Instant::now();
        let count = scaled(BY_EACH_STREAM);
        let connections = by_stream(&mut server, &mut probe, &mut mutations, transport, count);
        println!("{count} messages by {} over {connections} connections in {:.1?}", transport.name(), start.elapsed());
    }
    let peak = server.process().pss();
    rest(&mut server);
    let after = server.process().pss();
    println!("bans {bans}: PSS before {before}, at the end of the flood {peak}, after it {after} bytes");

    for transport in TRANSPORTS {
        server.assert_answers(transport);
        call::through(&server, transport);
    }
    assert!(
        after <= before + GROWTH,
        "memory: {before} bytes before, {after} after (seed {seed}); log:\n{}",
        server.process().tail()
    );
}

/// Waits until the last timer has fired and the last binding has ended.
fn rest(server: &mut Server) {
    // Timer D is the longest, with 32 seconds.
    std::thread::sleep(Duration::from_secs(36));
    let ended = server.process().ended();
    assert!(ended.is_none(), "the server ended: {ended:?}");
}

#[test]
fn a_flood_leaves_nothing_behind() {
    in_background(|| flood(false));
}

#[test]
fn a_flood_leaves_nothing_behind_with_bans() {
    in_background(|| flood(true));
}
