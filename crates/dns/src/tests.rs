//! Tests with name servers of their own.

use super::*;
use hickory_resolver::proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, NAPTR, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn srv(priority: u16, weight: u16, port: u16, target: &str) -> RData {
    RData::SRV(SRV::new(priority, weight, port, name(target)))
}

fn naptr(order: u16, preference: u16, services: &str, replacement: &str) -> RData {
    let [flags, services, regexp] = ["s", services, ""].map(|t| t.as_bytes().into());
    RData::NAPTR(NAPTR::new(order, preference, flags, services, regexp, name(replacement)))
}

fn waiting(milliseconds: u64) -> ResolverSettings {
    ResolverSettings { deadline: Duration::from_millis(milliseconds), ..ResolverSettings::default() }
}

/// Starts a name server with these records that loses the first `lost` questions. Returns its address and its count of
/// questions.
async fn server(zone: Vec<(&'static str, RData)>, lost: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let (address, asked, _) = serve(zone, lost, 60).await;
    (address, asked)
}

/// Starts a name server as `server` does. Its answers are valid for this many seconds; while the flag `frozen` is set
/// it gives no answers.
async fn serve(
    zone: Vec<(&'static str, RData)>,
    lost: usize,
    ttl: u32,
) -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicBool>) {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let (count, is_frozen) = (asked.clone(), Arc::new(AtomicBool::new(false)));
    let frozen = is_frozen.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 2_000];
        while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
            let question = Message::from_vec(&buffer[..n]).unwrap();
            if count.fetch_add(1, Relaxed) < lost || frozen.load(Relaxed) {
                continue;
            }
            let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
            answer.metadata.recursion_available = true;
            let query = question.queries[0].clone();
            let mut known = false;
            for (of, data) in &zone {
                if name(of).to_lowercase() == query.name().to_lowercase() {
                    known = true;
                    if data.record_type() == query.query_type() {
                        answer.add_answer(Record::from_rdata(query.name().clone(), ttl, data.clone()));
                    }
                }
            }
            if !known {
                answer.metadata.response_code = ResponseCode::NXDomain;
            }
            answer.add_query(query);
            // The answer is delayed so that equal questions meet.
            tokio::time::sleep(Duration::from_millis(20)).await;
            socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    });
    (address, asked, is_frozen)
}

fn zone() -> Vec<(&'static str, RData)> {
    vec![
        ("full.test.", naptr(20, 1, "SIP+D2U", "_sip._udp.full.test.")),
        ("full.test.", naptr(10, 2, "SIP+D2T", "_sip._tcp.full.test.")),
        ("full.test.", naptr(10, 1, "SIPS+D2T", "_sips._tcp.full.test.")),
        ("full.test.", naptr(1, 1, "SIP+D2S", "_sip._sctp.full.test.")),
        ("_sip._udp.full.test.", srv(2, 0, 5_062, "b.test.")),
        ("_sip._udp.full.test.", srv(1, 0, 5_061, "a.test.")),
        ("_sip._tcp.full.test.", srv(1, 0, 5_070, "a.test.")),
        ("_sips._tcp.full.test.", srv(1, 0, 5_071, "a.test.")),
        ("a.test.", RData::A(A::new(192, 0, 2, 1))),
        ("b.test.", RData::A(A::new(192, 0, 2, 2))),
        ("b.test.", RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2))),
    ]
}

fn targets(list: &[(Transport, &str)]) -> Result<Targets, Error> {
    Ok(list.iter().map(|(t, a)| (*t, a.parse().unwrap())).collect())
}

#[tokio::test]
async fn names_lead_to_targets_as_the_rfc_says() {
    use Transport::*;
    let (address, _) = server(zone(), 0).await;
    let dns = Resolver::of(&[address], waiting(5_000)).unwrap();
    let [a, b, b6] = ["192.0.2.1", "192.0.2.2", "[2001:db8::2]"];
    let at = |ip: &str, port: u16| format!("{ip}:{port}");
    assert_eq!(
        dns.resolve("Full.test", None, None, false).await,
        targets(&[
            (Tls, &at(a, 5_071)),
            (Tcp, &at(a, 5_070)),
            (Udp, &at(a, 5_061)),
            (Udp, &at(b, 5_062)),
            (Udp, &at(b6, 5_062)),
        ])
    );
    assert_eq!(dns.resolve("full.test", None, None, true).await, targets(&[(Tls, &at(a, 5_071))]));
    assert_eq!(dns.resolve("full.test", None, Some(Tcp), false).await, targets(&[(Tcp, &at(a, 5_070))]));
    // The name has no services, so its address is used. With a port there is no question for services.
    assert_eq!(dns.resolve("a.test", None, None, false).await, targets(&[(Udp, &at(a, 5_060))]));
    assert_eq!(dns.resolve("a.test", Some(99), Some(Tcp), true).await, targets(&[(Tls, &at(a, 99))]));
    assert_eq!(dns.resolve("a.test", None, Some(Ws), false).await, targets(&[(Ws, &at(a, 80))]));
    assert_eq!(dns.resolve("none.test", None, None, false).await, Err(Error::NotFound));
}

#[tokio::test]
async fn addresses_need_no_server() {
    let dns = Resolver::of(&["127.0.0.1:9".parse().unwrap()], waiting(5_000)).unwrap();
    let udp = Transport::Udp;
    assert_eq!(dns.resolve("192.0.2.7", None, None, false).await, targets(&[(udp, "192.0.2.7:5060")]));
    assert_eq!(dns.resolve("[::1]", Some(7), None, true).await, targets(&[(Transport::Tls, "[::1]:7")]));
    let both = targets(&[(udp, "127.0.0.1:5060"), (udp, "[::1]:5060")]);
    assert_eq!(dns.resolve("LOCALHOST", None, None, false).await, both);
}

#[tokio::test]
async fn equal_questions_are_asked_once_and_failures_remembered() {
    let (address, asked) = server(zone(), 0).await;
    let dns = Resolver::of(&[address], waiting(5_000)).unwrap();
    let many: Vec<_> = (0..50)
        .map(|_| {
            let dns = dns.clone();
            tokio::spawn(async move { dns.resolve("none.test", Some(5_060), None, false).await })
        })
        .collect();
    for one in many {
        assert_eq!(one.await.unwrap(), Err(Error::NotFound));
    }
    let first = asked.load(Relaxed);
    assert!(first <= 4, "{first} questions");
    assert_eq!(dns.resolve("none.test", Some(5_060), None, false).await, Err(Error::NotFound));
    assert_eq!(asked.load(Relaxed), first);
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let (address, _) = server(Vec::new(), usize::MAX).await;
    let dns = Resolver::of(&[address], waiting(200)).unwrap();
    assert_eq!(dns.resolve("a.test", None, None, false).await, Err(Error::Late));
}

#[tokio::test]
async fn a_lost_question_is_asked_again() {
    let (address, asked) = server(zone(), 2).await;
    let settings = ResolverSettings { timeout: Duration::from_millis(100), ..waiting(2_000) };
    let dns = Resolver::of(&[address], settings).unwrap();
    let found = dns.resolve("a.test", Some(5_060), None, false).await;
    assert_eq!(found, targets(&[(Transport::Udp, "192.0.2.1:5060")]), "{asked:?} questions");
}

#[tokio::test]
async fn failures_are_bounded_and_forgotten() {
    let (address, _) = server(zone(), 0).await;
    let settings = ResolverSettings { entries: 10, failure: Duration::from_millis(200), ..waiting(5_000) };
    let dns = Resolver::of(&[address], settings).unwrap();
    for n in 0..30 {
        let name = format!("none{n}.test");
        assert_eq!(dns.resolve(&name, Some(5_060), None, false).await, Err(Error::NotFound));
    }
    assert!((1..=10).contains(&dns.inner.asked().len()));
    tokio::time::sleep(settings.failure).await;
    dns.tidy();
    assert_eq!(dns.inner.asked().capacity(), 0);
}

/// Waits for this time, in which a name server of this machine acts.
async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

#[tokio::test]
async fn a_name_that_is_used_when_its_time_ends_is_asked_for_beside_those_who_use_it() {
    let (address, asked, _) = serve(zone(), 0, 2).await;
    // An answer is refreshed in the last of its two seconds.
    let dns = Resolver::of(&[address], waiting(1_000)).unwrap();
    let (found, at) = (targets(&[(Transport::Udp, "192.0.2.1:5060")]), Instant::now());
    let resolve = || dns.resolve("a.test", Some(5_060), None, false);
    for _ in 0..3 {
        assert_eq!(resolve().await, found);
    }
    let first = asked.load(Relaxed);
    // The answer is valid for at most two seconds from now, so this wait ends in the last second.
    pause(1_300).await;
    for _ in 0..3 {
        assert_eq!(resolve().await, found);
    }
    assert!(at.elapsed() < Duration::from_millis(1_900), "the machine is too slow for this test");
    pause(200).await;
    assert_eq!((asked.load(Relaxed), dns.counters().asked_ahead()), (2 * first, 1), "each question once more");
    pause(700).await;
    assert_eq!(resolve().await, found);
    assert_eq!(asked.load(Relaxed), 2 * first, "the first answer is over, the second is not");
}

#[tokio::test]
async fn a_silent_server_is_waited_for_briefly_and_once_where_an_answer_is_known() {
    let (address, _, is_frozen) = serve(zone(), 0, 1).await;
    let failure = Duration::from_millis(400);
    let dns = Resolver::of(&[address], ResolverSettings { failure, ahead: 1, ..waiting(3_000) }).unwrap();
    let found = targets(&[(Transport::Udp, "192.0.2.1:5060")]);
    let resolve = || async {
        let begun = Instant::now();
        (dns.resolve("a.test", Some(5_060), None, false).await, begun.elapsed())
    };
    assert_eq!(resolve().await.0, found);
    is_frozen.store(true, Relaxed);
    pause(1_100).await;
    // Simultaneous requests wait for the same question.
    let (first, second) = tokio::join!(resolve(), resolve());
    for (first, took) in [first, second] {
        assert!(first == found && took >= PATIENCE && took < PATIENCE * 4, "{first:?} after {took:?}");
    }
    // The first question is still in progress.
    for _ in 0..10 {
        let (next, took) = resolve().await;
        assert!(next == found && took < Duration::from_millis(100), "{next:?} after {took:?}");
        pause(20).await;
    }
    assert_eq!(dns.counters().stale(), 12);
    // When the name server answers again, the next request refreshes the answer, and the one after that gets it.
    is_frozen.store(false, Relaxed);
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let before = dns.counters().stale();
        assert_eq!(resolve().await.0, found);
        if dns.counters().stale() == before {
            break;
        }
        assert!(Instant::now() < end, "the new answer is not used");
        pause(100).await;
    }
    // An unknown name fails.
    is_frozen.store(true, Relaxed);
    let dns = Resolver::of(&[address], waiting(300)).unwrap();
    assert_eq!(dns.resolve("b.test", Some(5_060), None, false).await, Err(Error::Late));
}

/// Checks that RFC 8767 applies only to silence and failure of the name servers: a negative answer is an answer.
#[tokio::test]
async fn a_name_that_ended_is_not_revived_by_silence() {
    let (address, _, is_frozen) = serve(zone(), 0, 1).await;
    let dns = Resolver::of(&[address], waiting(400)).unwrap();
    let resolve = || dns.resolve("a.test", Some(5_060), None, false);
    assert!(resolve().await.is_ok());
    dns.inner.kept().forget(&("a.test".to_owned(), Some(5_060), None, false));
    pause(1_100).await;
    is_frozen.store(true, Relaxed);
    assert_eq!(resolve().await, Err(Error::Late));
    // No stale answer is used if the settings forbid it.
    let settings = ResolverSettings { stale: Duration::ZERO, ..waiting(400) };
    is_frozen.store(false, Relaxed);
    let dns = Resolver::of(&[address], settings).unwrap();
    let resolve = || dns.resolve("a.test", Some(5_060), None, false);
    assert!(resolve().await.is_ok());
    is_frozen.store(true, Relaxed);
    pause(1_100).await;
    assert_eq!(resolve().await, Err(Error::Late));
}
