use super::*;

#[test]
fn all_that_a_candidate_keeps_is_counted() {
    let flow = Target::new(Transport::Udp, crate::ListenerId(0), "192.0.2.1:5060".parse().unwrap());
    let [own, other, path] = [[b'a'; 1_000], [b'b'; 1_000], [b'c'; 1_000]];
    let candidate = Candidate {
        uri: Some(&own),
        flows: &[(flow, &other, &path)],
        path: &path,
        targets: &[flow],
        ..Candidate::default()
    };
    let owned = OwnedCandidate::of(&candidate);
    assert!(owned.texts() == 4_000 && owned.memory() > 4_000 + 2 * size_of::<Target>());
    let share = Share { breadth: 1, left: 1 };
    for branch in [owned.branch(flow, share, DialogUse::NONE), candidate.branch(flow, share, DialogUse::NONE)] {
        assert_eq!((branch.uri, branch.path, branch.registered), (Some(&other[..]), &path[..], false));
    }
    // A large request goes the same way.
    let mut large = owned;
    large.enlarge(|target| Some(Target { transport: Transport::Tcp, ..target }));
    let first = large.targets[0];
    assert_eq!(first.transport, Transport::Tcp);
    assert_eq!(large.branch(first, share, DialogUse::NONE).uri, Some(&other[..]));
}
