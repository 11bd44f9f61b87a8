//! Format of records.

use crate::written::{self, Process, through_bytes};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU32;
use strowger_core::record::{self, Unreadable};
use strowger_core::{Flow, ListenerId, PeerName, Target, Transport};

fn read(bytes: &[u8]) -> Result<Vec<Target>, Unreadable> {
    record::read(bytes, &Process(0))
}

/// Returns one target of each kind.
fn targets() -> Vec<Target> {
    let addresses: [SocketAddr; 3] = [
        "192.0.2.1:5060".parse().unwrap(),
        (IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]), 5061).into(),
        SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 5062, 0, 3).into(),
    ];
    let flow = Flow { node: 1, process: 2, shard: 3, slot: u32::MAX, generation: 5 };
    let all = addresses.into_iter().zip(Transport::ALL).enumerate().map(|(n, (address, transport))| Target {
        flow: (n == 1).then_some(flow),
        listens: n as u16,
        name: NonZeroU32::new(n as u32).map(PeerName),
        ..Target::new(transport, ListenerId(n as u16), address)
    });
    all.collect()
}

#[test]
fn targets_come_back_as_they_were_with_the_scope_of_their_addresses() {
    assert_eq!(through_bytes(targets()), targets());
    let there: Vec<Target> = record::read(&record::write(targets(), &Process(0)), &Process(9)).unwrap();
    assert_eq!(there.iter().map(|target| target.listener.0).collect::<Vec<_>>(), [9, 10, 11]);
    assert_eq!(there.iter().filter_map(|target| Some(target.name?.0.get())).collect::<Vec<_>>(), [10, 11]);
}

#[test]
fn a_listener_that_there_is_not_is_named() {
    let target = Target::new(Transport::Udp, ListenerId(written::LISTENERS), "192.0.2.1:5060".parse().unwrap());
    let unreadable = read(&record::write(vec![target], &Process(0))).unwrap_err();
    assert_eq!(
        unreadable.to_string(),
        format!("a record of the listener \"listener {}\", which there is not", written::LISTENERS)
    );
}

/// Checks that no bytes make the process panic, and that bytes of another version, or with numbers without a name, are
/// refused.
#[test]
fn bytes_that_were_changed_are_read_or_refused() {
    let bytes = record::write(targets(), &Process(0));
    let mut refused = 0;
    for at in 0..bytes.len() {
        assert_eq!(read(&bytes[..at]), Err(Unreadable::Malformed));
        for value in 0..=u8::MAX {
            let mut changed = bytes.clone();
            changed[at] = value;
            refused += usize::from(read(&changed).is_err());
        }
    }
    assert!(refused > 2_000, "{refused} of {}", bytes.len() * 256);
    assert_eq!(read(&[&bytes[..], b"more"].concat()), Err(Unreadable::Malformed));
    let another = record::VERSION + 1;
    assert_eq!(read(&[&[another], &bytes[1..]].concat()), Err(Unreadable::Version(another)));
    // The table of this record has one listener and no name of a peer: higher numbers are invalid.
    let one = record::write(targets()[..1].to_vec(), &Process(0));
    let listener = one.windows(10).position(|part| part == b"listener 0").expect("its name") + 10 + 3;
    assert_eq!(one[listener], 0);
    let beyond = [&one[..listener], &[1], &one[listener + 1..]].concat();
    assert_eq!(read(&beyond), Err(Unreadable::Malformed));
}
