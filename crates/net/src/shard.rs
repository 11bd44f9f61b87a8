//! One shard: a thread, its sockets, and the rounds in which it drives its service.

use crate::batch::Receiver;
use crate::clock;
use crate::handle::{Letter, Shared};
use crate::udp::Udp;
use crate::Service;
use std::future::Future;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::task::{Context, Poll};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Target, Transport};
use tokio::io::Interest;
use tokio::time::Sleep;

pub(crate) struct Shard<S: Service> {
    shared: Arc<Shared<S>>,
    index: usize,
    service: S,
    out: Outbox,
    udp: Vec<Udp>,
    /// Place in `udp` of each listener, `NONE` where it is not UDP.
    place: Vec<u8>,
    receiver: Receiver,
    failed: Vec<u64>,
    letters: Vec<Letter<S>>,
    sleep: Pin<Box<Sleep>>,
    /// When `sleep` ends, if it runs.
    armed: Option<u64>,
}

const NONE: u8 = u8::MAX;

impl<S: Service> Shard<S> {
    /// Inside the runtime of its thread.
    pub(crate) fn new(shared: Arc<Shared<S>>, index: usize, service: S, udp: Vec<Udp>) -> Self {
        let mut place = vec![NONE; shared.listeners.len()];
        for (i, socket) in udp.iter().enumerate() {
            place[socket.listener.0 as usize] = i as u8;
        }
        Self {
            receiver: Receiver::new(shared.settings.batch.clamp(1, 1_024)),
            shared,
            index,
            service,
            out: Outbox::new(),
            udp,
            place,
            failed: Vec::with_capacity(64),
            letters: Vec::new(),
            sleep: Box::pin(tokio::time::sleep_until(clock::instant(0).into())),
            armed: None,
        }
    }

    /// The main future: works until nothing is left to do, then sleeps until a socket, a timer or the bell.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = self.shared.clone();
        let seat = &shared.seats[self.index];
        seat.bell.rise();
        seat.bell.hang(cx.waker());
        for _ in 0..shared.settings.batches.max(1) {
            if shared.stopping.load(Acquire) {
                return Poll::Ready(());
            }
            let now = clock::now();
            seat.counters.rounds.add(1);
            let mut more = self.read_udp(now, cx);
            more |= self.read_mail(now);
            if self.service.deadline().is_some_and(|at| at <= now.mono) {
                self.service.poll(now, &mut self.out);
            }
            self.flush(now, cx);
            if more {
                continue;
            }
            if self.arm(cx) {
                continue;
            }
            seat.bell.rest();
            if !seat.mail.load(Acquire) && !shared.stopping.load(Acquire) {
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
        let counters = &self.shared.seats[self.index].counters;
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
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    more |= udp.socket.poll_recv_ready(cx).is_ready();
                }
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
                let arrival = Arrival {
                    transport: Transport::Udp,
                    listener: udp.listener,
                    remote: datagram.source,
                    flow: None,
                };
                self.service.receive(now, &arrival, datagram.bytes, &mut self.out);
            }
            counters.datagram_bytes_in.add(bytes);
        }
        more
    }

    fn read_mail(&mut self, now: Now) -> bool {
        let seat = &self.shared.seats[self.index];
        if !seat.mail.load(Acquire) {
            return false;
        }
        {
            let mut posted = seat.posted.lock().unwrap_or_else(|e| e.into_inner());
            std::mem::swap(&mut *posted, &mut self.letters);
            seat.mail.store(false, Release);
        }
        for letter in self.letters.drain(..) {
            match letter {
                Letter::Answer(answer) => {
                    seat.counters.answers.add(1);
                    self.service.answered(now, answer, &mut self.out);
                }
            }
        }
        true
    }

    /// Sends what the round left in the outbox, and what the service says to failures of that, and so on.
    fn flush(&mut self, now: Now, cx: &mut Context<'_>) {
        loop {
            self.send(cx);
            self.out.clear();
            if self.failed.is_empty() {
                return;
            }
            for token in self.failed.drain(..) {
                self.service.failed(now, token, &mut self.out);
            }
            if self.out.is_empty() {
                self.out.clear();
                return;
            }
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        let counters = &self.shared.seats[self.index].counters;
        for send in self.out.sends() {
            match self.place.get(send.target.listener.0 as usize) {
                Some(&place) if place != NONE && self.udp[place as usize].v6 == send.target.address.is_ipv6() => {
                    self.udp[place as usize].push(
                        &self.out.bytes,
                        send.range(),
                        send.target.address,
                        send.token,
                        &mut self.failed,
                        counters,
                    );
                }
                _ => match other(&mut self.udp, &send.target) {
                    Some(udp) => {
                        let (range, to) = (send.range(), send.target.address);
                        udp.push(&self.out.bytes, range, to, send.token, &mut self.failed, counters);
                    }
                    None => {
                        counters.unroutable.add(1);
                        if send.token != 0 {
                            self.failed.push(send.token);
                        }
                    }
                },
            }
        }
        for udp in &mut self.udp {
            udp.flush(&self.out.bytes, &mut self.failed, counters);
            if udp.is_waiting() {
                udp.resume(cx, &mut self.failed, counters);
            }
        }
    }

    /// Sets the alarm if the service's deadline moved earlier; whether it has passed already.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.service.deadline() else { return false };
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

/// Any UDP socket of the family, for a target whose listener is none.
#[cold]
fn other<'a>(udp: &'a mut [Udp], target: &Target) -> Option<&'a mut Udp> {
    let _: ListenerId = target.listener;
    udp.iter_mut().find(|u| target.transport == Transport::Udp && u.v6 == target.address.is_ipv6())
}
