//! The unread echo: as many datagrams of the same lengths as the stack sends, of which nothing is read.

use super::layer::{Side, Tally, layer};
use super::{Work, wait_until};
use crate::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Target, Transport};
use strowger_net::floor::exchange::{self, Step};

/// Time until both sides go at their best rate.
const WARM_UP: Duration = Duration::from_millis(100);

/// Datagrams of an exchange: the first one, and the steps of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) first: Vec<u8>,
    pub(super) calling: Vec<Step>,
    pub(super) answering: Vec<Step>,
}

/// Records an exchange of two layers in memory.
pub(super) fn script(work: Work) -> Script {
    // Ports with the same number of digits as those that the kernel gives.
    let [one, other] = [40_001, 40_002].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let side = |own, peer, seed: u8| Side { transport: Transport::Udp, own, peer, secret: 1, seed: [seed; 32] };
    let mut layers = [layer(work, &side(one, other, 1), 0), layer(work, &side(other, one, 2), 0)];
    let now = Now { mono: 1_000, wall: 1_700_000_000_000 };
    let mut out = Outbox::new();
    layers[0].begin(now, &Target::new(Transport::Udp, ListenerId(0), other), &mut out);
    let mut waiting: Vec<(usize, Vec<u8>)> = taken(&mut out).into_iter().map(|bytes| (1, bytes)).collect();
    let first = waiting[0].1.clone();
    let mut steps = [Vec::new(), Vec::new()];
    while !waiting.is_empty() {
        let (at, bytes) = waiting.remove(0);
        let remote = if at == 0 { other } else { one };
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
        let tally: Tally = layers[at].receive(now, &arrival, &bytes, &mut out);
        let sends = taken(&mut out);
        waiting.extend(sends.iter().map(|bytes| (1 - at, bytes.clone())));
        steps[at].push(Step { length: bytes.len(), sends, is_last: tally.completed > 0 });
    }
    let [mut calling, answering] = steps;
    for step in calling.iter_mut().filter(|step| step.is_last) {
        step.sends.push(first.clone());
    }
    Script { first, calling, answering }
}

fn taken(out: &mut Outbox) -> Vec<Vec<u8>> {
    let messages = out.sends().iter().map(|send| out.bytes[send.range()].to_vec()).collect();
    out.clear();
    messages
}

/// Measures the exchanges a second of two threads, with `outstanding` exchanges in progress.
pub(super) fn rate(work: Work, outstanding: u32, window: Duration) -> Result<f64, Error> {
    let failed = |source| Error::NotStarted { name: "the unread echo".into(), source };
    let Script { first, calling, answering } = script(work);
    let (caller, called) = (exchange::open().map_err(failed)?, exchange::open().map_err(failed)?);
    let to = called.local_addr().map_err(failed)?;
    let (is_over, completed, answered) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let side = |socket: &UdpSocket, steps: &[Step], count: &AtomicU64| {
        exchange::run(socket, steps, count, &is_over).map_err(failed)
    };
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| side(&called, &answering, &answered)),
            scope.spawn(|| {
                exchange::begin(&caller, to, &first, outstanding).map_err(failed)?;
                side(&caller, &calling, &completed)
            }),
        ];
        std::thread::sleep(WARM_UP);
        let (begin, before) = (Instant::now(), completed.load(Relaxed));
        wait_until(begin + window, || threads.iter().any(|thread| thread.is_finished()));
        let (time, done) = (begin.elapsed(), completed.load(Relaxed) - before);
        is_over.store(true, Relaxed);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(done as f64 / time.as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a call has five datagrams (INVITE, 200, ACK, BYE, 200) and a request two. All datagrams to one side differ in length, by
    /// which the sides distinguish them.
    #[test]
    fn an_exchange_has_the_datagrams_of_its_messages() {
        let starts = |work: Work| {
            let script = script(work);
            let texts = |steps: &[Step]| -> Vec<Vec<String>> {
                let word =
                    |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).split(' ').next().unwrap_or_default().into();
                steps.iter().map(|step| step.sends.iter().map(word).collect()).collect()
            };
            (texts(&script.answering), texts(&script.calling))
        };
        let of = |texts: &[&[&str]]| -> Vec<Vec<String>> {
            texts.iter().map(|texts| texts.iter().map(|text| (*text).to_owned()).collect()).collect()
        };
        for work in [Work::Stateless, Work::Transaction] {
            assert_eq!(starts(work), (of(&[&["SIP/2.0"]]), of(&[&["OPTIONS"]])), "{work}");
        }
        let answering = of(&[&["SIP/2.0"], &[], &["SIP/2.0"]]);
        assert_eq!(starts(Work::Call), (answering, of(&[&["ACK", "BYE"], &["INVITE"]])));
        let script = script(Work::Call);
        for steps in [&script.calling, &script.answering] {
            for (n, step) in steps.iter().enumerate() {
                assert!(steps[..n].iter().all(|other| other.length != step.length), "{steps:?}");
            }
        }
        assert_eq!(script.calling.iter().filter(|step| step.is_last).count(), 1);
    }
}
