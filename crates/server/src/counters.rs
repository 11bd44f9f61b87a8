//! Counters of the server, one set for each shard: written only by its shard, read from any thread.

use strowger_message::Method;
use strowger_message::status::KNOWN;
use strowger_metrics::{Count, Histogram, Metric, MetricKind, Observed, Unit};

pub use strowger_metrics::counted;

strowger_metrics::metrics! {
    of = "server";
    /// Counters of one shard since its start.
    pub struct Counters;
    /// Values of [`Counters`] at one moment, of one shard or the sums of all shards.
    pub struct Counts;

    /// Messages that could not be parsed and not be answered.
    unreadable: Counter as "messages_unreadable";
    /// Requests refused for a fault of their own (400, 403, 405, 413, 414, 416, 420, 421, 422, 423, 440, 482, 483, 489, 501, 505, 513, and 500
    /// to a REGISTER out of order).
    refused: Counter as "requests_refused";
    /// Messages of banned sources and of scanners, dropped unread.
    banned: Counter as "messages_banned";
    /// UDP requests that were not answered: they proved nothing, and the answer would have been more than three times as long.
    withheld: Counter as "answers_withheld";
    /// Requests forwarded, but for ACKs.
    forwarded: Counter as "requests_forwarded";
    /// REGISTER requests answered 200.
    registrations: Counter;
    /// Challenges sent (401, 407).
    challenges: Counter;
    /// Wrong passwords and unknown users.
    failed_authentications: Counter;
    /// Right responses challenged again because no more used nonces can be remembered, either of all users or of the
    /// user of the response.
    nonces_refused: Counter;
    /// Requests that no rule lets their sender relay there: most are answered 403, an ACK is dropped.
    relay_denied: Counter as "requests_relay_denied";
    /// Requests that lead nowhere, answered 404, 430, 480 or 500: no such user, one who is not registered, a next hop without an address.
    not_found: Counter as "requests_not_found";
    /// Times that a request began to wait for a look-up.
    parked: Counter as "requests_suspended";
    /// Messages that had to wait behind others of their call and found no room: datagrams are dropped, requests over
    /// connections answered 503.
    held_dropped: Counter as "messages_held_dropped";
    /// Requests answered 500 because a look-up of a subscriber failed or was late.
    failed_lookups: Counter;
    /// REGISTER requests answered 500 because their bindings could not be kept.
    failed_writes: Counter;
    /// Requests challenged again since the cache of credentials has none of their user: it is not registered.
    credentials_missing: Counter;
    /// Registrations whose credentials could not be stored in their cache.
    credentials_not_stored: Counter;
    /// Refused calls that have no row of accounting, because their source, or all callers without a password together,
    /// had reached the maximum of rows a minute.
    refusals_unaccounted: Counter;
    /// Requests answered 503 because a bound was reached.
    overloaded: Counter as "requests_overloaded";
    /// Requests within known dialogs that were served from the reserve, because a bound was reached.
    reserved: Counter as "requests_reserved";
    /// Requests refused by an overloaded shard, without a transaction (503), by class.
    overload_other: Counter as "overload_refused" {class = "other"};
    /// Requests refused by an overloaded shard, without a transaction (503), by class.
    overload_calls: Counter as "overload_refused" {class = "call"};
    /// Requests refused by an overloaded shard, without a transaction (503), by class.
    overload_registrations: Counter as "overload_refused" {class = "registration"};
    /// Requests refused by an overloaded shard, without a transaction (503), by class.
    overload_refreshes: Counter as "overload_refused" {class = "refresh"};
    /// Datagrams to be refused by an overloaded shard that were dropped: they had waited for more than 500 ms, so that their senders had sent
    /// them again.
    overload_dropped: Counter;
    /// ACKs for refusals of an overloaded shard. They are dropped.
    overload_acks: Counter;
    /// Overloaded shards.
    overloaded_shards: Gauge as "shards_overloaded";
    /// Share of the work of new requests that the most overloaded shard refuses, in percent.
    overload_percent: Highest as "overload_refused_percent";
    /// Requests answered 503 because the server was shutting down.
    refused_at_shutdown: Counter as "requests_refused_at_shutdown";
    /// Keep-alive requests sent to phones.
    pings: Counter as "pings_sent";
    /// Keep-alive requests without a final response in time (64*T1).
    pings_unanswered: Counter;
    /// Keep-alive requests sent outside a transaction, and so never retransmitted, because an eighth of
    /// `limits.transactions` had no response.
    pings_unrepeated: Counter;
    /// Keep-alive requests that wait for a final response.
    pings_pending: Gauge;
    /// Calls that were not logged because 20,000 logged calls have not ended.
    calls_unlogged: Counter;
    /// Calls of which the log forgot the beginning, since no BYE came for 12 h.
    calls_forgotten: Counter;
    /// Calls that are logged and have not ended.
    calls_logged: Gauge;
    /// Calls that are tracked and have not ended.
    calls_tracked: Gauge;
    /// Calls that are bridged: each is one call with the caller and one with the callee.
    calls_bridged: Gauge;
    /// Tracked dialogs whose callee rings.
    dialogs_early: Gauge;
    /// Tracked dialogs whose callee has answered.
    dialogs_confirmed: Gauge;
    /// BYEs that this server sent: to both parties where a call had lasted too long, its session timer had run out, a party had lost it or an
    /// operator ended it, and to a party that had not answered the BYE of the other.
    byes: Counter as "byes_sent";
    /// Calls that an earlier process tracked and that an INVITE has resumed: its route token let it through without a password.
    earlier_calls: Counter as "invites_in_earlier_calls";
    /// Answered calls that have ended, of those that are tracked, accounted or in the log.
    calls_ended: Counter;
    /// Time from the answer to the end of those calls.
    call_time: Counter in Seconds as "call_seconds";
    /// Media streams of ended sessions, one for each peer that had an address for media.
    media_streams: Counter;
    /// Ended media streams with a MOS by the E-model (ITU-T G.107), which has constants for their codec. The loss alone determines it.
    media_streams_rated: Counter;
    /// Ended media streams with a MOS below 3.6, which dissatisfies many users (ITU-T G.109).
    media_streams_poor: Counter;
    /// Sum of the MOS of ended media streams, in hundredths.
    media_mos: Counter as "media_mos_hundredths";
    /// Packets of ended media streams that came, duplicates included.
    media_stream_packets: Counter;
    /// Packets of ended media streams that never came, by their sequence numbers.
    media_stream_lost: Counter as "media_stream_packets_lost";
    /// Packets of ended media streams that came after one with a higher sequence number.
    media_stream_reordered: Counter as "media_stream_packets_reordered";
    /// Packets of ended media streams that came before.
    media_stream_doubled: Counter as "media_stream_packets_doubled";
    /// 2xx responses to INVITEs that were dropped: their call has as many answered dialogs as one may have, or this server could not end their dialog.
    answers_dropped: Counter;
    /// Server transactions.
    server_transactions: Gauge;
    /// Client transactions.
    client_transactions: Gauge;
    /// Forwarded requests without a final response.
    unanswered: Gauge as "requests_unanswered";
    /// Requests waiting for a look-up or a commit.
    waiting: Gauge as "requests_waiting";
    /// Bytes of messages kept for retransmission.
    kept_bytes: Gauge in Bytes;
    /// Bytes that are charged to sources, for messages kept for requests without a final response or waiting for a
    /// look-up.
    charged_bytes: Gauge in Bytes;
    /// Messages that were not kept in full, because they and their branches take more than 64 KiB, or their source has
    /// no room for them or may be forged. Such a message is sent once.
    kept_abridged: Counter as "messages_kept_abridged";
    /// Requests and responses sent again by timers or on request.
    retransmissions: Counter;
    /// Transactions that ended without an answer, except keep-alive requests.
    timeouts: Counter as "transaction_timeouts";
    /// Number of times that a next hop was set aside because it was not reached, did not answer, or answered 503 with
    /// Retry-After.
    set_aside: Counter as "target_failures";
}

impl Counts {
    /// Tells whether anything is in progress that a caller waits for.
    pub const fn busy(&self) -> bool {
        self.waiting > 0 || self.unanswered > 0
    }
}

/// Durations that one shard measured, in microseconds. Durations of signalling are exact to the millisecond.
#[derive(Debug, Default)]
pub struct Durations {
    /// Set-up time of calls. [`Durations::TABLE`] describes all fields.
    pub call_setup: Histogram,
    /// Wait of requests for the database.
    pub subscriber_lookup: Histogram,
    /// Wait of requests for a name.
    pub name_lookup: Histogram,
    /// Turns of a shard in which it takes another configuration.
    pub reload: Histogram,
    /// Maximum packet delay of each ended media stream.
    pub media_max_delay: Histogram,
    /// Mean jitter of each ended media stream.
    pub media_jitter: Histogram,
}

impl Durations {
    const fn metric(field: &'static str, family: &'static str, help: &'static str) -> Metric {
        let (kind, unit) = (MetricKind::Histogram, Unit::Seconds);
        Metric { field, family, kind, unit, help, labels: &[], by: &[] }
    }

    /// Descriptions, in the order of [`Durations::observed`].
    pub const TABLE: [Metric; 6] = [
        Self::metric(
            "call_setup",
            "call_setup_seconds",
            "From an INVITE that is forwarded to the first response beyond 100 that its caller gets, or to its 2xx (RFC 6076 section 4.3.1), to the millisecond.",
        ),
        Self::metric(
            "subscriber_lookup",
            "subscriber_lookup_seconds",
            "Waiting time of requests for a subscriber that is not cached, or for credentials of `auth.credential_cache`, to the millisecond.",
        ),
        Self::metric(
            "name_lookup",
            "name_lookup_seconds",
            "How long requests waited for a name to be resolved, to the millisecond.",
        ),
        Self::metric("reload", "reload_seconds", "How long a shard was held up by taking another configuration."),
        Self::metric(
            "media_max_delay",
            "media_max_delay_seconds",
            "Maximum packet delay of each media stream that has ended: the largest time between two of its packets.",
        ),
        Self::metric(
            "media_jitter",
            "media_jitter_seconds",
            "Mean interarrival jitter of each media stream that has ended (RFC 3550 section 6.4.1).",
        ),
    ];

    /// Returns the durations so far.
    pub fn observed(&self) -> [Observed; 6] {
        let Self { call_setup, subscriber_lookup, name_lookup, reload, media_max_delay, media_jitter } = self;
        [call_setup, subscriber_lookup, name_lookup, reload, media_max_delay, media_jitter].map(Histogram::observed)
    }
}

/// Messages by method and status code, and calls by their final response, of one shard.
#[derive(Debug, Default)]
pub struct Messages {
    /// Requests received, retransmissions included.
    pub requests: ByMethod,
    /// Responses received.
    pub received: ByCode,
    /// Responses sent, retransmissions included.
    pub sent: ByCode,
    /// INVITEs that begin calls, by the final response that their callers got; a challenge (401, 407) is none.
    pub calls: ByCode,
}

const METHODS: usize = Method::KNOWN.len();
/// Known status codes.
pub const CODES: usize = KNOWN.len();

/// Counter for each known method, and one for all others.
#[derive(Debug)]
pub struct ByMethod([Count; METHODS + 1]);

impl Default for ByMethod {
    fn default() -> Self {
        Self([const { Count::ZERO }; METHODS + 1])
    }
}

impl ByMethod {
    /// Counts one message.
    #[inline]
    pub fn one(&self, method: Method) {
        let place = (method as usize).min(METHODS);
        self.0[place].one();
    }

    /// Adds the counts to these sums, in the order of [`method_names`].
    pub fn add_to(&self, sums: &mut [u64; METHODS + 1]) {
        sums.iter_mut().zip(&self.0).for_each(|(sum, count)| *sum += count.value());
    }

    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Count::value).sum()
    }
}

/// Returns the label values of a [`ByMethod`].
pub fn method_names() -> impl Iterator<Item = &'static str> {
    let known = Method::KNOWN.iter().map(|method| std::str::from_utf8(method.text()).unwrap_or(OTHER));
    known.chain([OTHER])
}

/// Label value of unknown methods and status codes: a peer adds no time series.
pub const OTHER: &str = "other";

/// Counter for each known status code, and one for all others.
#[derive(Debug)]
pub struct ByCode([Count; CODES + 1]);

impl Default for ByCode {
    fn default() -> Self {
        Self([const { Count::ZERO }; CODES + 1])
    }
}

impl ByCode {
    /// Counts one message.
    #[inline]
    pub fn one(&self, code: u16) {
        self.0[place_of(code)].one();
    }

    /// Adds the counts to these sums: the codes of [`KNOWN`] in its order, then all others.
    pub fn add_to(&self, sums: &mut [u64; CODES + 1]) {
        sums.iter_mut().zip(&self.0).for_each(|(sum, count)| *sum += count.value());
    }

    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Count::value).sum()
    }
}

/// Sums of [`ByMethod::add_to`].
pub type MethodSums = [u64; METHODS + 1];
/// Sums of [`ByCode::add_to`].
pub type CodeSums = [u64; CODES + 1];

/// Returns the place of a status code among [`KNOWN`]; [`CODES`] if it is not there.
#[inline]
pub fn place_of(code: u16) -> usize {
    static PLACES: [u8; 700] = {
        let mut places = [CODES as u8; 700];
        let mut place = 0;
        while place < CODES {
            places[KNOWN[place].0 as usize] = place as u8;
            place += 1;
        }
        places
    };
    PLACES.get(usize::from(code)).map_or(CODES, |place| usize::from(*place))
}
