use super::*;

#[test]
fn all_that_a_candidate_keeps_is_counted() {
    let flow = Target::new(Transport::Udp, crate::ListenerId(0), "192.0.2.1:5060".parse().unwrap());
    let [own, other, path] = [[b'a'; 1_000], [b'b'; 1_000], [b'c'; 1_000]];
    let candidate =
        Candidate { uri: Some(&own), uris: &[(flow, &other)], path: &path, targets: &[flow], ..Candidate::default() };
    let owned = OwnedCandidate::of(&candidate);
    assert!(owned.texts() == 3_000 && owned.memory() > 3_000 + 2 * size_of::<Target>());
    assert_eq!((owned.uri_for(flow), candidate.uri_for(flow)), (Some(&other[..]), Some(&other[..])));
}
