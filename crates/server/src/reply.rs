//! Answers of the server's own.

use crate::shard::Shard;
use strowger_core::Now;
use strowger_core::Outbox;
use strowger_core::proxy::Request;
use strowger_core::transaction::ServerId;

impl Shard {
    /// Answers a request: through its transaction, or without one. `lines` writes further header lines.
    pub(crate) fn reply(
        &mut self,
        now: Now,
        request: &Request<'_>,
        server: Option<ServerId>,
        status: u16,
        lines: impl FnOnce(&mut Vec<u8>),
        out: &mut Outbox,
    ) {
        let Some(server) = server else {
            return self.reply_stateless(request, status, lines, out);
        };
        let from = out.start();
        self.write_reply(request, status, lines, &mut out.bytes);
        let range = from..out.bytes.len();
        self.transactions.respond(now, server, status, range, out);
    }

    /// [`Shard::reply`] without further lines, and counted as refused.
    pub(crate) fn refuse_request(
        &mut self,
        now: Now,
        request: &Request<'_>,
        server: Option<ServerId>,
        status: u16,
        out: &mut Outbox,
    ) {
        self.counters().refused.one();
        self.reply(now, request, server, status, |_| (), out);
    }

    /// 503 with the time after which to try again (RFC 3261 section 21.5.4).
    pub(crate) fn reply_overloaded(
        &mut self,
        now: Now,
        request: &Request<'_>,
        server: Option<ServerId>,
        out: &mut Outbox,
    ) {
        self.counters().overloaded.one();
        self.reply(now, request, server, 503, |text| text.extend_from_slice(b"Retry-After: 5\r\n"), out);
    }
}
