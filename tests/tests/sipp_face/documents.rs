//! Options and documents of both programs.

pub(super) const TRACES: &[&str] = &[
    "-trace_err",
    "-trace_msg",
    "-trace_shortmsg",
    "-trace_stat",
    "-trace_rtt",
    "-rtt_freq",
    "1",
    "-trace_counts",
    "-trace_logs",
    "-trace_error_codes",
    "-trace_calldebug",
    "-trace_screen",
];

/// A scenario that fills every column: named timers, counters, lost messages, pauses, actions.
pub(super) const CALLER: &str = r#"<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="columns">
<send retrans="500" start_rtd="invite" rtd="first"><![CDATA[
INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[call_number]
To: sut <sip:[service]@[remote_ip]:[remote_port]>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: sip:sipp@[local_ip]:[local_port]
Content-Length: 0

]]></send>
<recv response="100" optional="true"/>
<recv response="180" optional="true" rtd="ringing"/>
<recv response="200" rtd="invite" crlf="true"><action><log message="answered"/></action></recv>
<nop display="in between"><action><assign assign_to="1" value="20"/></action></nop>
<nop/>
<pause distribution="uniform" min="10" max="20"/>
<pause variable="1"/>
<send counter="acks"><![CDATA[
ACK sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[call_number]
To: sut <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 1 ACK
Content-Length: 0

]]></send>
<pause milliseconds="30"/>
<pause/>
<send retrans="500" rtd="bye" lost="0"><![CDATA[
BYE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[call_number]
To: sut <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 2 BYE
Content-Length: 0

]]></send>
<recv response="200" hide="true"/>
<timewait milliseconds="10"/>
<ResponseTimeRepartition value="1000, 2000"/>
<CallLengthRepartition value="1000, 2000"/>
</scenario>
"#;

pub(super) const BUSY: &str = r#"<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="busy">
<recv request="INVITE"/>
<send><![CDATA[
SIP/2.0 486 Busy Here
[last_Via:]
[last_From:]
[last_To:];tag=1
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
<recv request="ACK"/>
</scenario>
"#;
