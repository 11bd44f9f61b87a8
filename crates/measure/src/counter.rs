//! Counters.

use super::table::table;

table! {
    /// Event that is counted, per second and in all.
    Counter:
    /// Name in requirements, JSON and CSV.
    key,
    /// Name for people.
    title;

    CallsIntended = "calls.intended", "calls that the schedule wanted started";
    CallsOutgoing = "calls.outgoing", "calls started by the schedule";
    CallsIncoming = "calls.incoming", "calls started by a message that came in";
    CallsLimited = "calls.limited", "calls that the limit of concurrent calls held back";
    CallsSuccessful = "calls.successful", "calls that reached the end of their scenario";
    CallsFailed = "calls.failed", "calls that failed";
    CallsStopped = "calls.stopped", "calls that were cut off by the end of the run, or taken back by the caller (CANCEL) while they rang at the answering side";

    ConnectionsAhead = "connections.ahead", "users that connected before the schedule (--connect-rate)";
    ConnectionsAheadRate = "connections.ahead.rate", "of those: a second";
    ConnectionsMade = "connections.made", "connections of calls and users that were made, apart from those before the schedule";
    ConnectionsLost = "connections.lost", "connections that the other side or the network ended while a call or user had them";
    ConnectionsHeld = "connections.held", "sockets and connections that users had when the last call had ended";

    SessionAttempts = "session.attempts", "initial INVITEs sent; one tried again after a challenge is the same attempt";
    SessionAnswered = "session.answered", "session attempts answered with 2xx";
    SessionRedirected = "session.redirected", "session attempts answered with 3xx";
    SessionFailed = "session.failed", "session attempts answered with 4xx (except 401, 402, 407), 5xx or 6xx";
    SessionEffective = "session.effective", "of the failed: 480, 486, 600 or 603, where the network did its part";
    SessionIneffective = "session.ineffective", "of the failed: 408, 500, 503 or 504";
    SessionTimedOut = "session.timed_out", "session attempts without a final response in time (Timer B)";
    SessionTransport = "session.transport", "session attempts that a transport failure ended";
    SessionChallenged = "session.challenged", "session attempts that ended with a challenge that was not answered";
    SessionAbandoned = "session.abandoned", "session attempts that the scenario gave up before a final response";
    SessionUnresolved = "session.unresolved", "session attempts still open when the run ended";
    SessionCompleted = "session.completed", "sessions we asked for that were ended by an answered BYE";
    SessionRegistered = "session.registered", "session attempts concluded in calls that had registered before";
    SessionRegisteredAnswered = "session.registered.answered", "of those: answered with 2xx";
    SessionForked = "session.forked", "further 2xx to an INVITE already answered, from another branch";
    SessionModified = "session.modified", "INVITEs sent within a session";

    RegistrationAttempts = "registration.attempts", "REGISTERs sent; one tried again after a challenge is the same attempt";
    RegistrationSuccessful = "registration.successful", "registrations answered with 2xx";
    RegistrationRedirected = "registration.redirected", "registrations answered with 3xx";
    RegistrationFailed = "registration.failed", "registrations answered with 4xx (except 401, 402, 407), 5xx or 6xx";
    RegistrationTimedOut = "registration.timed_out", "registrations without a final response in time (Timer F)";
    RegistrationTransport = "registration.transport", "registrations that a transport failure ended";
    RegistrationChallenged = "registration.challenged", "registrations that ended with a challenge that was not answered";
    RegistrationAbandoned = "registration.abandoned", "registrations that the scenario gave up before a final response";
    RegistrationUnresolved = "registration.unresolved", "registrations still open when the run ended";

    DisconnectAttempts = "disconnect.attempts", "BYEs sent; one tried again after a challenge or 503 with Retry-After is the same";
    DisconnectSuccessful = "disconnect.successful", "BYEs answered with 2xx";
    DisconnectFailed = "disconnect.failed", "BYEs answered otherwise, or given up";
    DisconnectTimedOut = "disconnect.timed_out", "BYEs without a final response in time (Timer F)";

    RequestAttempts = "request.attempts", "other requests sent (OPTIONS, MESSAGE, SUBSCRIBE and so on)";
    RequestSuccessful = "request.successful", "other requests answered with 2xx";
    RequestFailed = "request.failed", "other requests answered with 3xx to 6xx, challenges apart, or given up";
    RequestTimedOut = "request.timed_out", "other requests without a final response in time (Timer F)";

    Challenges = "challenges", "401, 402 and 407 received";

    IncomingSessions = "incoming.sessions", "initial INVITEs received";
    IncomingAnswered = "incoming.answered", "initial INVITEs that we answered with 2xx";
    IncomingRefused = "incoming.refused", "initial INVITEs that we answered with 3xx to 6xx";
    IncomingCompleted = "incoming.completed", "sessions asked for by the other side that were ended by an answered BYE";

    MessagesSent = "messages.sent", "messages sent, retransmissions included";
    MessagesReceived = "messages.received", "messages received, retransmissions included";
    BytesSent = "bytes.sent", "bytes of messages sent";
    BytesReceived = "bytes.received", "bytes of messages received";
    RetransmissionsSent = "retransmissions", "messages that we sent again";
    RetransmissionsReceived = "retransmissions.received", "messages that came again";
    Unexpected = "unexpected", "messages that the scenario did not expect";
    OutOfCall = "out_of_call", "messages of no call that we know";
    DeadCall = "dead_call", "messages of a call that had ended";
    AutoAnswered = "auto_answered", "requests answered without the scenario";
    Warnings = "warnings", "warnings";
    FatalErrors = "fatal_errors", "errors that ended the run";

    SendFailuresLocal = "send_failures", "messages that this machine could not send (buffers full, no route, too long)";
    SendFailuresRemote = "send_failures.remote", "messages that the target refused (port closed, connection reset)";
    SocketDrops = "socket_drops", "datagrams that the kernel dropped because our receive buffer was full";
    Stalls = "stalls", "times a shard was away from its sockets and timers for longer than asked for";
    SessionCut = "session.cut", "sessions that we asked for whose BYE had not been answered when the run ended";
    MediaSent = "media.sent", "media packets sent";
    MediaBytesSent = "media.bytes_sent", "bytes of media packets sent, without their UDP headers";
    MediaFailures = "media.send_failures", "media packets that this machine could not send (buffers full, no route)";
    MediaLate = "media.late", "media packets that left late (more than 10 ms, unless set otherwise)";
    MediaMissed = "media.missed", "media packets left out because this machine was too late for them";
    MediaRefused = "media.refused", "media actions left out because too many waited";
    MediaReceived = "media.received", "packets that came to the media ports";
    MediaEchoed = "media.echoed", "of those: sent back";
    MediaUnjudged = "media.unjudged", "of those: left out of all streams, because more streams came than are judged at once";
    MediaStreams = "media.streams", "media streams that the calls which ended in this time had received";
    MediaHeard = "media.heard", "packets of these streams, doubled ones included";
    MediaExpected = "media.expected", "packets that the senders of these streams sent, by the sequence numbers";
    MediaLost = "media.lost", "of the expected: never came";
    MediaReordered = "media.reordered", "packets of these streams that came after one with a higher sequence number";
    MediaDoubled = "media.doubled", "packets of these streams that came before";
    MediaSilent = "media.silent", "calls that ended in this time, had played media and received no stream";
}

/// Number of counters.
pub(super) const COUNTERS: usize = Counter::ALL.len();
