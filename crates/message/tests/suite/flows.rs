//! Original call flows in the shapes of RFC 3665: registration with a challenge, a call over two proxies, a busy call,
//! a cancelled one, a redirected one, and one that is refreshed and transferred.

/// Each flow with its messages; `\n` stands for CRLF.
pub(crate) const ALL: &[(&str, &[&str])] = &[
    ("registration", REGISTRATION),
    ("call", CALL),
    ("busy", BUSY),
    ("cancelled", CANCELLED),
    ("redirected", REDIRECTED),
    ("refreshed and transferred", TRANSFERRED),
];

/// The message in its wire format.
pub(crate) fn wire(text: &str) -> Vec<u8> {
    text.replace('\n', "\r\n").into_bytes()
}

const REGISTRATION: &[&str] = &[
    "REGISTER sips:registrar.example.org SIP/2.0
Via: SIP/2.0/TLS phone.example.org:5061;branch=z9hG4bKr1;rport;alias
Max-Forwards: 70
From: \"Carol C. \\\"CC\\\" Clark\" <sips:carol@example.org>;tag=r-1
To: Carol <sips:carol@example.org>
Call-ID: reg-77@phone.example.org
CSeq: 1 REGISTER
Contact: <sips:carol@[2001:db8::17]:5061;ob>;+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000a95a0e128>\";reg-id=1;expires=600
Supported: path, outbound,gruu
Allow: INVITE, ACK, BYE,CANCEL, OPTIONS
User-Agent: Deskphone/3.1 (hall)
Content-Length: 0

",
    "SIP/2.0 401 Unauthorized
Via: SIP/2.0/TLS phone.example.org:5061;branch=z9hG4bKr1;rport=40112;alias;received=2001:db8::17
From: \"Carol C. \\\"CC\\\" Clark\" <sips:carol@example.org>;tag=r-1
To: Carol <sips:carol@example.org>;tag=s-1
Call-ID: reg-77@phone.example.org
CSeq: 1 REGISTER
WWW-Authenticate: Digest realm=\"example.org\", qop=\"auth,auth-int\",
 algorithm=SHA-256,
 nonce=\"5ccc069c403ebaf9f0171e9517f40e41\", opaque=\"\"
Content-Length: 0

",
    "REGISTER sips:registrar.example.org SIP/2.0
Via: SIP/2.0/TLS phone.example.org:5061;branch=z9hG4bKr2;rport;alias
Max-Forwards: 70
From: Carol <sips:carol@example.org>;tag=r-2
To: Carol <sips:carol@example.org>
Call-ID: reg-77@phone.example.org
CSeq: 2 REGISTER
Path: <sips:edge1.example.org;lr;ob>,<sips:edge2.example.org:5071;lr>
Authorization: Digest username=\"carol\", realm=\"example.org\", nonce=\"5ccc069c403ebaf9f0171e9517f40e41\",
 uri=\"sips:registrar.example.org\", response=\"6629fae49393a05397450978507c4ef1\", nc=00000001, cnonce=\"0a4f113b\", qop=auth
Contact: *
Expires: 0
Content-Length: 0

",
    "SIP/2.0 200 OK
Via: SIP/2.0/TLS phone.example.org:5061;branch=z9hG4bKr2;rport=40112;alias;received=2001:db8::17
From: Carol <sips:carol@example.org>;tag=r-2
To: Carol <sips:carol@example.org>;tag=s-2
Call-ID: reg-77@phone.example.org
CSeq: 2 REGISTER
Contact: <sips:carol@192.0.2.17>;q=0.75;expires=3600 ,
  \"Mobile\" <tel:+49-30-901820;phone-context=example.org> ; q = .5
Service-Route: <sips:home.example.org;lr>
Path: <sips:edge1.example.org;lr;ob>,<sips:edge2.example.org:5071;lr>
Date: Sat, 21 Nov 2026 08:09:10 GMT
Min-Expires: 60
Flow-Timer: 120
Content-Length: 0

",
];

const CALL: &[&str] = &[
    "INVITE sip:dave%20d@example.net;user=ip?Subject=hi SIP/2.0
Via: SIP/2.0/UDP p2.example.org:5060;branch=z9hG4bKc3
Via: SIP/2.0/UDP p1.example.org;branch=z9hG4bKc2;received=192.0.2.2 , SIP/2.0/TCP pc.example.org;branch=z9hG4bKc1;keep;rport
Max-Forwards: 68
Record-Route: <sip:p2.example.org;lr>, <sip:p1.example.org;lr;x=%41>
Route: <sip:p3.example.net;lr>
f: Carol Clark <sip:carol@example.org>;tag=c-1
t: <sip:dave%20d@example.net>
i: 4711@pc.example.org
CSeq: 314159 INVITE
m: <sip:carol@pc.example.org;transport=tcp>
P-Asserted-Identity: \"Carol\" <sip:carol@example.org>, tel:+4930901820
Privacy: id;critical
Session-Expires: 1800;refresher=uac
Min-SE: 90
k: timer,100rel
Require: 100rel
Accept: application/sdp;level=1, application/*;q=0.4
Accept-Encoding: gzip;q=1.0, identity; q=0.5
Accept-Language: da, en-gb;q=0.8
Alert-Info: <http://www.example.org/sounds/moo.wav>
Call-Info: <http://www.example.org/c.jpg> ;purpose=icon, <http://www.example.org/c/> ;purpose=info
Identity: eyJhbGciOi.eyJhdHQ.rq3pjT1+/w==;info=<https://cert.example.org/p.cer>;alg=ES256
Organization: Lamps & Chairs
Priority: urgent
s: A folded
  subject, with commas
Timestamp: 54.21
In-Reply-To: 70710@example.net, 17320@example.net
MIME-Version: 1.0
X-Odd: ;;,, \"
c: application/sdp ;charset=\"utf-8\"
Content-Disposition: session;handling=required
Content-Encoding: identity
Content-Language: fr, de
l: 114

v=0
o=carol 1 1 IN IP4 192.0.2.1
s=-
c=IN IP4 192.0.2.1
t=0 0
m=audio 49172 RTP/AVP 0
a=rtpmap:0 PCMU/8000
",
    "SIP/2.0 183 Session Progress
Via: SIP/2.0/UDP p2.example.org:5060;branch=z9hG4bKc3
Via: SIP/2.0/UDP p1.example.org;branch=z9hG4bKc2;received=192.0.2.2
Via: SIP/2.0/TCP pc.example.org;branch=z9hG4bKc1;keep=30;rport=1024
From: Carol Clark <sip:carol@example.org>;tag=c-1
To: <sip:dave%20d@example.net>;tag=d-1
Call-ID: 4711@pc.example.org
CSeq: 314159 INVITE
Contact: <sip:dave@[2001:db8::2:1]:5070;transport=udp>
Require: 100rel
RSeq: 988789
Content-Length: 0

",
    "PRACK sip:dave@[2001:db8::2:1]:5070;transport=udp SIP/2.0
Via: SIP/2.0/TCP pc.example.org;branch=z9hG4bKc4
Max-Forwards: 70
From: Carol Clark <sip:carol@example.org>;tag=c-1
To: <sip:dave%20d@example.net>;tag=d-1
Call-ID: 4711@pc.example.org
CSeq: 314160 PRACK
RAck: 988789 314159 INVITE
Content-Length: 0

",
    "SIP/2.0 200 OK
Via: SIP/2.0/TCP pc.example.org;branch=z9hG4bKc4
From: Carol Clark <sip:carol@example.org>;tag=c-1
To: <sip:dave%20d@example.net>;tag=d-1
Call-ID: 4711@pc.example.org
CSeq: 314160 PRACK
Content-Length: 0

",
];

const BUSY: &[&str] = &[
    "INVITE urn:service:sos.police SIP/2.0
Via: SIP/2.0/WSS df7jal23ls0d.invalid;branch=z9hG4bKb1
Max-Forwards: 70
From: sip:erin@example.org;tag=e-1
To: <urn:service:sos.police>
Call-ID: b-1
CSeq: 1 INVITE
Contact: sip:erin@df7jal23ls0d.invalid;transport=ws
Content-Length: 0

",
    "SIP/2.0 486 Busy Here
Via: SIP/2.0/WSS df7jal23ls0d.invalid;branch=z9hG4bKb1;received=192.0.2.201
From: sip:erin@example.org;tag=e-1
To: <urn:service:sos.police>;tag=b-2
Call-ID: b-1
CSeq: 1 INVITE
Retry-After: 18000 (lunch (long));duration=3600
Warning: 370 example.net \"Not enough, \\\"sorry\\\"\", 399 192.0.2.9:5060 \"x\"
Error-Info: <sip:busy@announcements.example.net>
Reason: Q.850;cause=17;text=\"User busy\"
Content-Length: 0

",
    "ACK urn:service:sos.police SIP/2.0
Via: SIP/2.0/WSS df7jal23ls0d.invalid;branch=z9hG4bKb1
Max-Forwards: 70
From: sip:erin@example.org;tag=e-1
To: <urn:service:sos.police>;tag=b-2
Call-ID: b-1
CSeq: 1 ACK
Content-Length: 0

",
];

const CANCELLED: &[&str] = &[
    "CANCEL tel:+1-201-555-0123;ext=7 SIP/2.0
Via: SIP/2.0/UDP 192.0.2.4:5060;branch=z9hG4bKk1;maddr=224.0.1.75;ttl=1
Max-Forwards: 0
From: <sip:f@example.org>;tag=f-1
To: <tel:+1-201-555-0123;ext=7>
Call-ID: k-1
CSeq: 9 CANCEL
Reason: SIP ;cause=200 ;text=\"Call completed elsewhere\"
Content-Length: 0

",
    "SIP/2.0 487 Request Terminated
Via: SIP/2.0/UDP 192.0.2.4:5060;branch=z9hG4bKk1;maddr=224.0.1.75;ttl=1
From: <sip:f@example.org>;tag=f-1
To: <tel:+1-201-555-0123;ext=7>;tag=g-1
Call-ID: k-1
CSeq: 9 INVITE
Content-Length: 0

",
];

const REDIRECTED: &[&str] = &[
    "SIP/2.0 302 Moved Temporarily
Via: SIP/2.0/TCP h.example.org;branch=z9hG4bKm1
From: H <sip:h@example.org>;tag=h-1
To: I <sip:i@example.net>;tag=i-1
Call-ID: m-1
CSeq: 1 INVITE
Contact: <sip:i@chicago.example.net>;q=1, <mailto:i@example.net>;q=0.1
Diversion: <sip:i@example.net>;reason=unconditional
History-Info: <sip:i@example.net?Reason=SIP%3Bcause%3D302>;index=1, <sip:i@chicago.example.net>;index=1.1
Content-Length: 0

",
    "ACK sip:i@example.net SIP/2.0
Via: SIP/2.0/TCP h.example.org;branch=z9hG4bKm1
Max-Forwards: 70
From: H <sip:h@example.org>;tag=h-1
To: I <sip:i@example.net>;tag=i-1
Call-ID: m-1
CSeq: 1 ACK
Content-Length: 0

",
];

const TRANSFERRED: &[&str] = &[
    "REFER sip:j@192.0.2.7 SIP/2.0
Via: SIP/2.0/UDP 192.0.2.6;branch=z9hG4bKt1
Max-Forwards: 70
From: <sip:l@example.org>;tag=l-1
To: <sip:j@example.net>;tag=j-1
Call-ID: t-1
CSeq: 93809823 REFER
Refer-To: <sip:k@example.com?Replaces=12345%40192.0.2.6%3Bto-tag%3D12345%3Bfrom-tag%3D5FFE-3994>
Referred-By: <sip:l@example.org>;cid=\"20398823.2UWQFN309shb3@l.example.org\"
Contact: <sip:l@192.0.2.6>
Reply-To: Boss <sip:boss@example.org>
Content-Length: 0

",
    "INVITE sip:k@example.com SIP/2.0
Via: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bKt2
Max-Forwards: 70
From: <sip:j@example.net>;tag=j-2
To: <sip:k@example.com>
Call-ID: t-2
CSeq: 1 INVITE
Replaces: 12345@192.0.2.6;to-tag=12345;from-tag=5FFE-3994;early-only
Accept-Contact: *;audio;require
Reject-Contact: *;actor=\"msg-taker\";video
Request-Disposition: proxy, parallel
Contact: <sip:j@192.0.2.7>
Content-Length: 0

",
    "NOTIFY sip:l@192.0.2.6 SIP/2.0
Via: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bKt3
Max-Forwards: 70
From: <sip:j@example.net>;tag=j-1
To: <sip:l@example.org>;tag=l-1
Call-ID: t-1
CSeq: 2 NOTIFY
Event: refer;id=93809823
Subscription-State: terminated;reason=noresource;retry-after=9
Allow-Events: presence, message-summary
Content-Type: message/sipfrag;version=2.0
Content-Length: 16

SIP/2.0 200 OK
",
];
