//! One shard: a thread, its sockets, and the rounds in which it drives its service.

use crate::batch::Receiver;
use crate::cross::Roads;
use crate::desk::Desk;
use crate::handle::Shared;
use crate::udp::Udp;
use crate::{Service, clock};
use std::future::Future;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::task::{Context, Poll};
use strowger_core::call::BUCKETS;
use strowger_core::{Arrival, Now, Target, Transport};
use tokio::io::Interest;
use tokio::time::Sleep;

pub(crate) struct Shard<S: Service> {
    desk: Desk<S>,
    udp: Vec<Udp>,
    /// Place in `udp` of each listener, `NONE` where it is not UDP.
    place: Vec<u8>,
    receiver: Receiver,
    failed: Vec<u64>,
    sleep: Pin<Box<Sleep>>,
    /// When `sleep` ends, if it runs.
    armed: Option<u64>,
}

const NONE: u8 = u8::MAX;

impl<S: Service> Shard<S> {
    /// Inside the runtime of its thread.
    pub(crate) fn new(
        shared: Arc<Shared<S>>,
        index: usize,
        owner: [u8; BUCKETS],
        service: S,
        udp: Vec<Udp>,
        roads: Roads<S>,
    ) -> Self {
        let mut place = vec![NONE; shared.listeners.len()];
        for (i, socket) in udp.iter().enumerate() {
            place[socket.listener.0 as usize] = i as u8;
        }
        Self {
            receiver: Receiver::new(shared.settings.batch.clamp(1, 1_024)),
            desk: Desk::new(shared, index, owner, service, roads),
            udp,
            place,
            failed: Vec::with_capacity(64),
            sleep: Box::pin(tokio::time::sleep_until(clock::instant(0).into())),
            armed: None,
        }
    }

    /// The main future: works until nothing is left to do, then sleeps until a socket, a timer or the bell.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = self.desk.shared.clone();
        let seat = &shared.seats[self.desk.index];
        seat.bell.rise();
        seat.bell.hang(cx.waker());
        for _ in 0..shared.settings.batches.max(1) {
            if shared.stopping.load(Acquire) {
                return Poll::Ready(());
            }
            let now = clock::now();
            seat.counters.rounds.add(1);
            self.desk.roads.look();
            let mut more = self.read_udp(now, cx);
            let empty = !more;
            more |= self.desk.read_mail(now);
            more |= self.desk.read_roads(now);
            more |= self.desk.turn(empty);
            if self.desk.service.deadline().is_some_and(|at| at <= now.mono) {
                self.desk.service.poll(now, &mut self.desk.out);
            }
            self.flush(now, cx);
            more |= self.desk.let_go(now);
            self.desk.roads.send_off(&shared.seats, &seat.counters);
            if more || self.arm(cx) {
                continue;
            }
            seat.bell.rest();
            if self.desk.is_idle() {
                return Poll::Pending;
            }
            seat.bell.rise();
        }
        // There is more, but the connections want their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// One batch of each socket; whether there is more to read.
    fn read_udp(&mut self, now: Now, cx: &mut Context<'_>) -> bool {
        let shared = self.desk.shared.clone();
        let counters = &shared.seats[self.desk.index].counters;
        let mut more = false;
        for udp in &mut self.udp {
            if udp.socket.poll_recv_ready(cx).is_pending() {
                continue;
            }
            let mut n = 0;
            let receiver = &mut self.receiver;
            // Fewer than asked: the socket is empty. To say so at once saves the call that would find it empty;
            // what comes from now on makes the descriptor ready anew.
            let whole = udp.socket.try_io(Interest::READABLE, || {
                n = receiver.receive(udp.socket.as_fd())?;
                if n < receiver.batch() { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match whole {
                Ok(()) => more = true,
                Err(e) if e.kind() == ErrorKind::WouldBlock => more |= udp.socket.poll_recv_ready(cx).is_ready(),
                Err(e) => {
                    if e.kind() != ErrorKind::Interrupted {
                        counters.receive_errors.add(1);
                    }
                    more = true;
                }
            }
            if n == 0 {
                continue;
            }
            counters.batches_in.add(1);
            counters.datagrams_in.add(n as u64);
            let mut bytes = 0;
            for i in 0..n {
                let Some(datagram) = self.receiver.datagram(i) else { continue };
                bytes += datagram.bytes.len() as u64;
                if datagram.bytes.len() <= 4 && datagram.bytes.iter().all(|b| matches!(b, b'\r' | b'\n' | 0)) {
                    counters.datagram_pings.add(1);
                    continue;
                }
                let arrival =
                    Arrival { transport: Transport::Udp, listener: udp.listener, remote: datagram.source, flow: None };
                self.desk.arrive(now, &arrival, datagram.bytes);
            }
            counters.datagram_bytes_in.add(bytes);
        }
        more
    }

    /// Sends what the round left in the outbox, and what the service says to failures of that, and so on.
    fn flush(&mut self, now: Now, cx: &mut Context<'_>) {
        loop {
            self.send(cx);
            self.desk.out.clear();
            if self.failed.is_empty() {
                return;
            }
            for token in self.failed.drain(..) {
                self.desk.service.failed(now, token, &mut self.desk.out);
            }
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        let desk = &mut self.desk;
        let counters = &desk.shared.seats[desk.index].counters;
        for send in desk.out.sends() {
            match socket(&mut self.udp, &self.place, &send.target) {
                Some(udp) => udp.push(
                    &desk.out.bytes,
                    send.range(),
                    send.target.address,
                    send.token,
                    &mut self.failed,
                    counters,
                ),
                None => {
                    counters.unroutable.add(1);
                    if send.token != 0 {
                        self.failed.push(send.token);
                    }
                }
            }
        }
        for stranger in desk.strangers.drain(..) {
            counters.unroutable.add(1);
            desk.roads.put(stranger.origin, crate::cross::Content::Failed { token: stranger.token }, &[], counters);
        }
        for udp in &mut self.udp {
            udp.flush(&desk.out.bytes, &mut self.failed, counters);
            if udp.is_waiting() {
                udp.resume(cx, &mut self.failed, counters);
            }
        }
    }

    /// Sets the alarm if the service's deadline moved earlier; whether it has passed already.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.desk.service.deadline() else { return false };
        if self.armed.is_some() && self.sleep.is_elapsed() {
            self.armed = None;
        }
        if self.armed.is_none_or(|armed| at < armed) {
            self.sleep.as_mut().reset(clock::instant(at).into());
            self.armed = Some(at);
            if self.sleep.as_mut().poll(cx).is_ready() {
                self.armed = None;
                return true;
            }
        }
        false
    }
}

/// The socket of the target's listener, or any of its address family if that is no UDP listener.
fn socket<'a>(udp: &'a mut [Udp], place: &[u8], target: &Target) -> Option<&'a mut Udp> {
    let v6 = target.address.is_ipv6();
    if target.transport != Transport::Udp {
        return None;
    }
    match place.get(target.listener.0 as usize) {
        Some(&place) if place != NONE && udp[place as usize].v6 == v6 => Some(&mut udp[place as usize]),
        _ => udp.iter_mut().find(|u| u.v6 == v6),
    }
}
