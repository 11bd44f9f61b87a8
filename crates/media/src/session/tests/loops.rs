//! Packets of a session that come back to it.

use super::*;

#[test]
fn a_packet_that_comes_back_by_the_other_side_goes_no_further() {
    let mut call = Call::new(relay());
    let sent = call.hear(0, Side::Near, NEAR, &rtp(97, 7, 500));
    // Each side has described the port towards the other one.
    let mut back = sent[0].bytes.clone();
    back[1] = 97;
    assert!(call.hear(20, Side::Near, NEAR, &back).is_empty());
    assert_eq!((call.near().dropped, call.out.dropped[DropReason::Rate as usize]), (1, 1));
    // The far peer is an echo, which the near peer hears.
    assert_eq!(call.hear(40, Side::Far, FAR, &sent[0].bytes).len(), 1);
}
