//! Reordered messages in calls of the ready workloads. UDP keeps no order, and a server of several processes keeps none
//! even on loopback: a correct message that arrives late fails no call. Documents of the user behave as in SIPp.

use super::call_runner::CallRunner;
use super::received_message::{ReceivedMessage, cseq};
use strowger_message::Method;

impl CallRunner<'_> {
    /// Takes a provisional response that no step waits for: a 1xx with a code that the step does not list, or one after
    /// the final response to its request. It only affects the retransmission of its request (RFC 3261 sections 17.1.1.2
    /// and 17.1.2.2).
    pub(super) fn absorb(&mut self, heard: &ReceivedMessage<'_>) -> bool {
        if !self.script.scenario.ready || !(100..200).contains(&heard.code) {
            return false;
        }
        let shard = &mut *self.shard;
        shard.recorder.response_received(
            &mut self.call.book,
            shard.came,
            heard.method,
            heard.code,
            false,
            heard.bytes.len(),
        );
        let number = cseq(heard.bytes, &shard.index).0;
        if self.call.retransmit_at != 0 && self.sent_method() == heard.method && self.is_sent_last(number) {
            self.call.retransmit_at = match heard.method {
                Method::Invite => 0,
                _ => self.shard.ms + u64::from(self.shard.run.retransmission.t2),
            };
        }
        true
    }

    /// Takes a second final response to a request: a stateless server may answer each retransmission with different
    /// bytes. A second response to an INVITE is passed to its step, which acknowledges it.
    pub(super) fn comes_again(&mut self, heard: &ReceivedMessage<'_>) -> bool {
        let call = &*self.call;
        if !self.script.scenario.ready || heard.code < 200 || heard.method == Method::Invite || call.concluded == 0 {
            return false;
        }
        let late = cseq(heard.bytes, &self.shard.index).0 <= call.concluded;
        if late {
            self.shard.recorder.received_again(heard.bytes.len());
        }
        late
    }

    /// Returns whether the To tag of a response may name the dialog. In the ready workloads only an INVITE makes a
    /// dialog: a late response to a REGISTER does not replace its tag.
    pub(super) fn names_dialog(&self, heard: &ReceivedMessage<'_>) -> bool {
        heard.method == Method::Invite || heard.method == Method::Bye || !self.script.scenario.ready
    }
}
