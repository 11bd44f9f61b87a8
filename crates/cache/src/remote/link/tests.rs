use super::*;
use crate::request::Life;
use proptest::prelude::*;

const TIMEOUT: Duration = Duration::from_millis(100);

fn link(wire: Wire) -> Link {
    let mut link = Link::new(wire, Bounds { value: 1000, timeout: TIMEOUT, misses: 3 }, false);
    link.opened();
    link
}

fn flight(number: u64, op: Op, due: Instant) -> Flight {
    Flight {
        op,
        key: key(number).as_slice().into(),
        value: None,
        size: 0,
        ticket: Some(Ticket { value: number, ..Ticket::NONE }),
        due,
        hops: 0,
        is_asking: false,
        _claim: None,
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

/// Returns the value of a key in this test. It is so long that no garbage of a few octets turns it into the value
/// of another key.
fn value_of(key: &str) -> String {
    format!("{key}--------------------------{key}")
}

/// Returns the replies of a server to these bytes; each reply has the value of its key.
fn replies(sent: &[u8], wire: Wire) -> Vec<Vec<u8>> {
    let text = String::from_utf8(sent.to_vec()).unwrap();
    let value = |key: &str| value_of(key);
    match wire {
        Wire::Memcached => {
            let line = |line: &str| {
                let words: Vec<&str> = line.split(' ').collect();
                let token = words.last().unwrap();
                match words[0] {
                    "mg" => {
                        let value = value(words[1]);
                        format!("VA {} f0 k{} {token}\r\n{value}\r\n", value.len(), words[1]).into_bytes()
                    }
                    _ => format!("HD {token}\r\n").into_bytes(),
                }
            };
            text.lines().map(line).collect()
        }
        Wire::Redis => {
            let words: Vec<&str> = text.split("\r\n").collect();
            let command = |words: &[&str]| match words {
                [.., "GET", _, key] => {
                    let value = value(key);
                    Some(format!("${}\r\n{value}\r\n", value.len()).into_bytes())
                }
                [.., "DEL", _, _] => Some(b":1\r\n".to_vec()),
                _ => None,
            };
            words.windows(3).filter_map(command).collect()
        }
    }
}

/// Returns tickets with their answers.
fn answers(events: Vec<Event>) -> Vec<(u64, Result<CacheAnswer, CacheError>, Vec<u8>)> {
    let answer = |event| match event {
        Event::Answered(answering) => Some((answering.ticket.value, answering.result, answering.value.into_vec())),
        Event::Denied(_) => None,
        other => panic!("{other:?}"),
    };
    events.into_iter().filter_map(answer).collect()
}

/// Action of a simulated server.
#[derive(Clone, Debug)]
enum Act {
    Ask(bool),
    /// Sends at most this many of the owed bytes.
    Send(usize),
    /// Lets time pass, in milliseconds.
    Wait(u64),
    /// Replaces owed bytes at this place.
    Garble(usize, Vec<u8>),
    /// Closes the connection, and accepts another.
    Break,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => any::<bool>().prop_map(Act::Ask),
        6 => (1_usize..60).prop_map(Act::Send),
        2 => (1_u64..60).prop_map(Act::Wait),
        1 => (0_usize..60, proptest::collection::vec(
            prop_oneof![any::<u8>(), proptest::sample::select(b"VAENHD kO$+-:0123456789\r\n".to_vec())], 1..12))
            .prop_map(|(at, bytes)| Act::Garble(at, bytes)),
        1 => Just(Act::Break),
    ];
    proptest::collection::vec(act, 1..80)
}

/// Memcached repeats keys and tokens: no garbage makes a value the answer to another request. Redis repeats
/// nothing, so there the server is slow, closes and accepts again, and garbles nothing.
fn no_answer_goes_to_another_request(wire: Wire, acts: Vec<Act>) {
    let start = Instant::now();
    let (mut now, mut asked, mut link) = (start, 0_u64, link(wire));
    let (mut owed, mut input, mut events) = (Vec::new(), Vec::new(), Vec::new());
    let mut got = std::collections::BTreeMap::new();
    for act in acts {
        let mut is_broken = false;
        match act {
            Act::Ask(is_fetch) => {
                let op = if is_fetch { Op::Fetch } else { Op::Remove };
                link.ask(flight(asked, op, now + TIMEOUT), &[], &mut events);
                asked += 1;
                let mut sent = Vec::new();
                link.take_output(&mut sent);
                owed.extend(replies(&sent, wire).concat());
            }
            Act::Send(most) => {
                let most = most.min(owed.len());
                input.extend(owed.drain(..most));
                is_broken = link.received(&mut input, &mut events).is_err();
            }
            Act::Wait(ms) => {
                now += Duration::from_millis(ms);
                is_broken = link.expire(now, &mut events);
            }
            Act::Garble(at, bytes) if wire == Wire::Memcached => {
                let at = at.min(owed.len());
                owed.splice(at..(at + bytes.len()).min(owed.len()), bytes);
            }
            Act::Garble(..) => {}
            Act::Break => is_broken = true,
        }
        if is_broken {
            link.lost(State::Opening, &mut events);
            link.opened();
            owed.clear();
            input.clear();
        }
        for (number, result, value) in answers(std::mem::take(&mut events)) {
            assert!(number < asked && got.insert(number, ()).is_none(), "an answer of its own, once");
            if result == Ok(CacheAnswer::Found) && !value.is_empty() {
                // Garbage inside of a value is undetected; a value of another request would be complete.
                for other in (0..asked).filter(|other| *other != number) {
                    assert_ne!(value, value_of(&format!("key{other}")).into_bytes(), "for {number}");
                }
                if wire == Wire::Redis {
                    assert_eq!(value, value_of(&format!("key{number}")).into_bytes());
                }
            }
        }
    }
    // End of the last requests.
    link.expire(now + TIMEOUT, &mut events);
    link.lost(State::Down, &mut events);
    for (number, ..) in answers(events) {
        assert!(got.insert(number, ()).is_none());
    }
    assert_eq!(got.len() as u64, asked, "each has one answer");
}

proptest! {
    #[test]
    fn a_memcached_that_errs_answers_no_request_by_the_reply_to_another(acts in acts()) {
        no_answer_goes_to_another_request(Wire::Memcached, acts);
    }

    #[test]
    fn a_redis_that_is_late_answers_no_request_by_the_reply_to_another(acts in acts()) {
        no_answer_goes_to_another_request(Wire::Redis, acts);
    }
}

#[test]
fn a_late_reply_is_passed_over() {
    for wire in [Wire::Memcached, Wire::Redis] {
        let (mut link, mut events, now) = (link(wire), Vec::new(), Instant::now());
        link.ask(flight(1, Op::Fetch, now + TIMEOUT), &[], &mut events);
        link.ask(flight(2, Op::Fetch, now + TIMEOUT * 2), &[], &mut events);
        assert!(!link.expire(now + TIMEOUT, &mut events));
        assert_eq!(answers(std::mem::take(&mut events)), [(1, Err(CacheError::TimedOut), vec![])]);
        let mut sent = Vec::new();
        link.take_output(&mut sent);
        link.received(&mut replies(&sent, wire).concat(), &mut events).unwrap();
        assert_eq!(answers(events), [(2, Ok(CacheAnswer::Found), value_of("key2").into_bytes())]);
    }
}

#[test]
fn a_server_that_does_not_do_it_says_why() {
    let (mut link, mut events, now) = (link(Wire::Redis), Vec::new(), Instant::now());
    for number in 1..=3 {
        link.ask(flight(number, Op::Fetch, now + TIMEOUT), &[], &mut events);
    }
    let mut input = b"-NOPERM it may not\r\n$-1\r\n-READONLY it is none\r\n".to_vec();
    link.received(&mut input, &mut events).expect_err("the last is the end of it");
    let is_said = |event: &Event| match event {
        Event::Denied(words) => Some(words.clone()),
        _ => None,
    };
    assert_eq!(events.iter().filter_map(is_said).collect::<Vec<_>>(), ["NOPERM it may not", "READONLY it is none"]);
    let results: Vec<_> = answers(events).into_iter().map(|(_, result, _)| result).collect();
    assert_eq!(results, [Err(CacheError::Denied), Ok(CacheAnswer::Absent), Err(CacheError::Unavailable)]);
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let (mut link, mut events, now) = (link(Wire::Redis), Vec::new(), Instant::now());
    link.ask(flight(1, Op::Fetch, now + TIMEOUT), &[], &mut events);
    assert!(!link.expire(now + TIMEOUT, &mut events));
    assert!(link.expire(now + TIMEOUT * 2, &mut events), "a deadline later");
    link.lost(State::Down, &mut events);
    link.ask(flight(2, Op::Fetch, now + TIMEOUT), &[], &mut events);
    let want = [(1, Err(CacheError::TimedOut), vec![]), (2, Err(CacheError::Unavailable), vec![])];
    assert_eq!(answers(events), want);
}

#[test]
fn deadlines_are_looked_after_when_the_first_of_them_comes() {
    let (mut link, mut events, now) = (link(Wire::Redis), Vec::new(), Instant::now());
    assert_eq!(link.next_due(), None);
    link.ask(flight(1, Op::Fetch, now + TIMEOUT * 3), &[], &mut events);
    link.ask(flight(2, Op::Fetch, now + TIMEOUT * 2), &[], &mut events);
    assert_eq!(link.next_due(), Some(now + TIMEOUT * 2));
    link.expire(now + TIMEOUT * 2, &mut events);
    assert_eq!(link.next_due(), Some(now + TIMEOUT * 3));
    // None waits any more, whether the server hangs or not.
    link.expire(now + TIMEOUT * 3, &mut events);
    assert_eq!(link.next_due(), Some(now + TIMEOUT * 4));
    link.lost(State::Opening, &mut events);
    link.ask(flight(3, Op::Fetch, now + TIMEOUT), &[], &mut events);
    assert_eq!(link.next_due(), Some(now + TIMEOUT));
}

#[test]
fn requests_wait_for_a_connection_as_long_as_they_may() {
    let (mut link, mut events, now) = (link(Wire::Memcached), Vec::new(), Instant::now());
    link.lost(State::Opening, &mut events);
    link.ask(flight(1, Op::Store(Life::FOREVER), now + TIMEOUT), b"a", &mut events);
    link.ask(flight(2, Op::Store(Life::FOREVER), now + TIMEOUT * 2), b"b", &mut events);
    link.expire(now + TIMEOUT, &mut events);
    assert_eq!(answers(events), [(1, Err(CacheError::TimedOut), vec![])]);
    link.opened();
    let mut sent = Vec::new();
    link.take_output(&mut sent);
    assert!(sent.starts_with(b"ms key2 1 T0 F0 O") && sent.ends_with(b"\r\nb\r\n"), "{}", sent.escape_ascii());
}
