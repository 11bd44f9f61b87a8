//! Answers of the server's own.

use crate::asked::Asked;
use crate::shard::Shard;
use strowger_net::shown::shown;

impl Shard {
    /// Answers a request: through its transaction, or without one. `lines` writes further header lines.
    pub(crate) fn reply(&mut self, asked: &mut Asked<'_, '_>, status: u16, lines: impl FnOnce(&mut Vec<u8>)) {
        if status >= 300 {
            let request = asked.request;
            tracing::debug!(
                status,
                method = %shown(request.message.method_text()),
                uri = %shown(request.message.request_uri()),
                from = %shown(request.essentials.from.addr.uri_text),
                call_id = %shown(request.call_id),
                source = %request.arrival.remote,
                "request not granted"
            );
        }
        let Some(server) = asked.server else {
            return self.reply_stateless(asked.request, status, lines, asked.out);
        };
        let from = asked.out.start();
        self.write_reply(asked.request, status, lines, &mut asked.out.bytes);
        let range = from..asked.out.bytes.len();
        self.transactions.respond(asked.now, server, status, range, asked.out);
    }

    /// [`Shard::reply`] without further lines, and counted as refused.
    pub(crate) fn refuse_request(&mut self, asked: &mut Asked<'_, '_>, status: u16) {
        self.counters().refused.one();
        self.reply(asked, status, |_| ());
    }

    /// 503 with the time after which to try again (RFC 3261 section 21.5.4).
    pub(crate) fn reply_overloaded(&mut self, asked: &mut Asked<'_, '_>) {
        self.counters().overloaded.one();
        self.reply(asked, 503, |text| text.extend_from_slice(b"Retry-After: 5\r\n"));
    }
}
