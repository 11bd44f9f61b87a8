//! Why a call failed.

use super::table::table;

table! {
    /// Why a call failed. Each call has at most one cause, the first.
    Failure:
    /// Its name in requirements, JSON and CSV: `calls.failed.` and this.
    key,
    /// The column of SIPp's `-trace_stat` file that counts it; empty where SIPp has none.
    column,
    /// Its name for people.
    title;

    CannotSendMessage = "cannot_send", "FailedCannotSendMessage", "a message could not be sent";
    MaxUdpRetransmissions = "max_retransmissions", "FailedMaxUDPRetrans", "no answer after the last retransmission";
    TcpConnect = "connect", "FailedTcpConnect", "the connection could not be made";
    TcpClosed = "closed", "FailedTcpClosed", "the connection was closed by the other side";
    UnexpectedMessage = "unexpected", "FailedUnexpectedMessage", "a message that the scenario does not expect";
    CallRejected = "rejected", "FailedCallRejected", "an incoming call was rejected";
    CommandNotSent = "command_not_sent", "FailedCmdNotSent", "a command to another generator could not be sent";
    RegexpDoesntMatch = "regexp_no_match", "FailedRegexpDoesntMatch", "an expression that must match did not";
    RegexpShouldntMatch = "regexp_match", "FailedRegexpShouldntMatch", "an expression that must not match did";
    RegexpHeaderNotFound = "regexp_no_header", "FailedRegexpHdrNotFound", "the header field that an expression looks in is missing";
    OutboundCongestion = "congestion", "FailedOutboundCongestion", "the way out was congested";
    TimeoutOnReceive = "receive_timeout", "FailedTimeoutOnRecv", "an expected message did not come in time";
    TimeoutOnSend = "send_timeout", "FailedTimeoutOnSend", "a request was not answered in time";
    TestDoesntMatch = "test_no_match", "FailedTestDoesntMatch", "a test that must hold did not";
    TestShouldntMatch = "test_match", "FailedTestShouldntMatch", "a test that must not hold did";
    CompareDoesntMatch = "compare_no_match", "FailedStrcmpDoesntMatch", "a comparison that must be equal was not";
    CompareShouldntMatch = "compare_match", "FailedStrcmpShouldntMatch", "a comparison that must not be equal was";
    TlsHandshake = "tls", "", "the TLS handshake failed";
    WebSocketHandshake = "websocket", "", "the WebSocket handshake failed";
    NameResolution = "resolution", "", "the name of the target could not be resolved";
    Refused = "refused", "", "the target's port is closed (ICMP port unreachable)";
    Authentication = "authentication", "", "the challenge could not be answered, or was repeated for the right answer";
    Action = "action", "", "an action of the scenario failed";
    Deadline = "deadline", "", "the call lasted longer than it may";
}

impl Failure {
    /// No answer came: to an open request this is the expiry of Timer B or F (RFC 3261 section 17.1).
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::MaxUdpRetransmissions | Self::TimeoutOnReceive | Self::TimeoutOnSend | Self::Deadline)
    }

    /// The transport failed: to an open request this is what a 503 would be (RFC 3261 section 8.1.3.1).
    pub const fn is_transport(self) -> bool {
        matches!(
            self,
            Self::CannotSendMessage
                | Self::TcpConnect
                | Self::TcpClosed
                | Self::OutboundCongestion
                | Self::TlsHandshake
                | Self::WebSocketHandshake
                | Self::NameResolution
                | Self::Refused
        )
    }
}
