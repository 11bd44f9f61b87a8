//! Causes of failed calls.

use super::table::table;

table! {
    /// Cause of a failed call. A call has at most one cause, which is the first to occur.
    Failure:
    /// Name in requirements, JSON and CSV: `calls.failed.` and this.
    key,
    /// Column of SIPp's `-trace_stat` file that counts the cause; empty if SIPp has none.
    column,
    /// Name for people.
    title;

    CannotSendMessage = "cannot_send", "FailedCannotSendMessage", "a message could not be sent";
    MaxUdpRetransmissions = "max_retransmissions", "FailedMaxUDPRetrans", "no answer after the last retransmission";
    TcpConnect = "connect", "FailedTcpConnect", "the connection could not be made";
    TcpClosed = "closed", "FailedTcpClosed", "the connection was closed by the other side";
    UnexpectedMessage = "unexpected", "FailedUnexpectedMessage", "a message that the scenario does not expect";
    CallRejected = "rejected", "FailedCallRejected", "an action of the scenario rejected the call";
    RegexpDoesntMatch = "regexp_no_match", "FailedRegexpDoesntMatch", "an expression that must match did not";
    RegexpShouldntMatch = "regexp_match", "FailedRegexpShouldntMatch", "an expression that must not match did";
    RegexpHeaderNotFound = "regexp_no_header", "FailedRegexpHdrNotFound", "the header field that an expression looks in is missing";
    TimeoutOnReceive = "receive_timeout", "FailedTimeoutOnRecv", "no answer, or awaited request, in time";
    TestDoesntMatch = "test_no_match", "FailedTestDoesntMatch", "a test that must hold did not";
    TestShouldntMatch = "test_match", "FailedTestShouldntMatch", "a test that must not hold did";
    CompareDoesntMatch = "compare_no_match", "FailedStrcmpDoesntMatch", "a comparison that must be equal was not";
    CompareShouldntMatch = "compare_match", "FailedStrcmpShouldntMatch", "a comparison that must not be equal was";
    TlsHandshake = "tls", "FailedTcpConnect", "the TLS handshake failed";
    WebSocketHandshake = "websocket", "FailedTcpConnect", "the WebSocket handshake failed";
    Refused = "refused", "FailedMaxUDPRetrans", "the target's port is closed, or there is no way to it (ICMP)";
    Authentication = "authentication", "FailedUnexpectedMessage", "a challenge (401, 407) that no password was given for, or that came again after the answer to it";
    CommandNotSent = "command_not_sent", "FailedCmdNotSent", "a command to another controller could not be sent";
    Congestion = "congestion", "FailedOutboundCongestion", "every TDM circuit (-tdmmap) was busy";
}

impl Failure {
    /// Causes that are measures. The causes after them concern commands to other controllers and circuits, which exist
    /// only in `strowger sipp`, and have SIPp's columns.
    pub const MEASURES: &'static [Self] = Self::ALL.split_at(Self::CommandNotSent as usize).0;

    /// Returns whether no response came: for an open request the expiry of Timer B or F (RFC 3261 section 17.1).
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::MaxUdpRetransmissions | Self::TimeoutOnReceive)
    }

    /// Returns whether the transport failed: for an open request the same as a 503 (RFC 3261 section 8.1.3.1).
    pub const fn is_transport(self) -> bool {
        matches!(
            self,
            Self::CannotSendMessage
                | Self::TcpConnect
                | Self::TcpClosed
                | Self::TlsHandshake
                | Self::WebSocketHandshake
                | Self::Refused
        )
    }
}
