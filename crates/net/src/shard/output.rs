//! Output of a round: messages to sockets, connections and other shards, and reports of failures to the service.

use super::{NONE, Shard};
use crate::dedicated::{self, SendOutcome};
use crate::extension::Extension;
use crate::links::Content;
use crate::sender::Sender;
use crate::streams::{Post, Streams};
use crate::udp::Udp;
use crate::{Ending, Service, Unsent};
use std::ops::Range;
use std::task::Context;
use strowger_core::{Now, Target, Transport};

impl<S: Service + 'static, X: Extension<S>> Shard<S, X> {
    /// Sends the outbox of the round, and then, repeatedly, the messages with which the service reacts to failures.
    /// Returns whether a round must follow.
    pub(super) fn flush(&mut self, now: Now, cx: &mut Context<'_>) -> bool {
        loop {
            self.take_over(now);
            self.send(now, cx);
            self.dispatcher.out.clear();
            self.streams.start_dials();
            self.streams.resume();
            if !self.streams.made.is_empty() {
                self.report_made();
            }
            if !self.streams.ended.is_empty() {
                self.report_ended(now);
            }
            if self.failed.is_empty()
                && self.streams.unsent.is_empty()
                && self.streams.cut_off.is_empty()
                && self.streams.resend.is_empty()
                && self.dispatcher.out.is_empty()
                && self.streams.not_made.is_empty()
            {
                return self.leave_dedicated();
            }
            self.report_unsent(now);
        }
    }

    /// Reports established connections of the service.
    #[cold]
    fn report_made(&mut self) {
        let service = &mut self.dispatcher.service;
        for (flow, open, at) in self.streams.made.drain(..) {
            if open {
                X::opened(service, flow, at);
            } else {
                X::connected(service, flow, at);
            }
        }
    }

    /// Reports ended connections.
    #[cold]
    fn report_ended(&mut self, now: Now) {
        let dispatcher = &mut self.dispatcher;
        for (flow, ending) in self.streams.ended.drain(..) {
            X::ended(&mut dispatcher.service, now, flow, ending, &mut dispatcher.out);
        }
    }

    /// Reports unsent messages, and messages without a response on an ended connection, to the shards that sent them.
    #[cold]
    fn report_unsent(&mut self, now: Now) {
        let dispatcher = &mut self.dispatcher;
        for (origin, token, cause) in self.streams.unsent.drain(..) {
            if origin == dispatcher.index {
                dispatcher.service.unsent(now, token, cause, &mut dispatcher.out);
            } else {
                let counters = &dispatcher.process.entries[dispatcher.index].counters;
                dispatcher.links.put(origin, Content::Failed { token, cause }, &[], counters);
            }
        }
        for (origin, token) in self.streams.cut_off.drain(..) {
            if origin == dispatcher.index {
                dispatcher.service.cut_off(now, token, &mut dispatcher.out);
            } else {
                let counters = &dispatcher.process.entries[dispatcher.index].counters;
                dispatcher.links.put(origin, Content::CutOff { token }, &[], counters);
            }
        }
        for (target, message) in self.streams.resend.drain(..) {
            let from = dispatcher.out.start();
            dispatcher.out.bytes.extend_from_slice(&message);
            dispatcher.out.send(target, from..dispatcher.out.bytes.len(), 0);
        }
        for token in self.failed.drain(..) {
            dispatcher.service.unsent(now, token, Unsent::Here, &mut dispatcher.out);
        }
        // This comes after the messages of the connection were reported as unsent.
        for flow in self.streams.not_made.drain(..) {
            X::ended(&mut dispatcher.service, now, flow, Ending::Unmade, &mut dispatcher.out);
        }
    }

    fn send(&mut self, now: Now, cx: &mut Context<'_>) {
        let dispatcher = &mut self.dispatcher;
        let counters = &dispatcher.process.entries[dispatcher.index].counters;
        let (index, links) = (dispatcher.index, &mut dispatcher.links);
        let bytes = &dispatcher.out.bytes;
        let mut stream = |streams: &mut Streams, target: &Target, range: Range<usize>, sender: Sender| {
            let leads_to = |shard| links.reaches(shard);
            let post = streams.post(target, bytes, range.clone(), sender, now, leads_to);
            if let Post::Elsewhere(shard, target) = post {
                if links.put(shard, Content::Send { target, sender }, &bytes[range], counters) {
                    counters.crossed_out.add(1);
                } else if sender.token != 0 {
                    streams.unsent.push((sender.shard, sender.token, Unsent::Here));
                }
            }
        };
        for send in dispatcher.out.sends() {
            let target = &send.target;
            let dedicated = target.flow.filter(|&flow| dedicated::is_dedicated(flow));
            // A service that opens no sockets has no dedicated flow.
            if let Some((flow, sockets)) = dedicated.and_then(|flow| Some((flow, X::sockets(&mut dispatcher.service)?)))
            {
                match sockets.send(flow, &bytes[send.range()], target.address, send.token, &mut self.failed) {
                    SendOutcome::Done => (),
                    SendOutcome::By(slot) => self.streams.post_dedicated(slot, flow, send.range(), send.token),
                    SendOutcome::Gone => {
                        counters.unroutable.add(1);
                        if send.token != 0 {
                            self.failed.push(send.token);
                        }
                    }
                }
            } else if target.transport != Transport::Udp {
                let sender = Sender { shard: index, token: send.token, has_fallback: send.has_fallback };
                stream(&mut self.streams, target, send.range(), sender);
            } else if let Some(udp) = socket(&mut self.udp, &self.place, target) {
                udp.push(bytes, send.range(), target.address, send.token, &mut self.failed, counters);
            } else {
                counters.unroutable.add(1);
                if send.token != 0 {
                    self.failed.push(send.token);
                }
            }
        }
        for sent in dispatcher.foreign_sends.drain(..) {
            stream(&mut self.streams, &sent.target, sent.range, sent.sender);
        }
        for udp in &mut self.udp {
            udp.flush(bytes, &mut self.failed, counters);
            if udp.is_waiting() {
                udp.resume(cx, &mut self.failed, counters);
            }
        }
        self.streams.write_round(bytes, now);
    }
}

/// Returns the socket of the target's listener. If this is no UDP listener, returns any socket of the target's address
/// family.
fn socket<'a>(udp: &'a mut [Udp], place: &[u8], target: &Target) -> Option<&'a mut Udp> {
    let v6 = target.address.is_ipv6();
    match place.get(target.listener.0 as usize) {
        Some(&place) if place != NONE && udp[place as usize].v6 == v6 => Some(&mut udp[place as usize]),
        _ => udp.iter_mut().find(|u| u.v6 == v6),
    }
}
