//! Properties of views: the output is read again as the same value; no bytes make a reader panic.

use crate::flows;
use proptest::prelude::*;
use std::net::IpAddr;
use strowger_message::header::*;
use strowger_message::params::Params;
use strowger_message::uri::UriParams;
use strowger_message::{Host, Method, NameAddr, SipUri, Uri, fuzz_views};
use strowger_message::{Index, Limits, Message};

fn written(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

const TOKEN: &str = "[-A-Za-z0-9.!%*_+`'~]{1,12}";
const QUOTED: &str = "\"([ !#-\\[\\]-~]|\\\\[ -~]){0,10}\"";

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9-]{0,8}(\\.[A-Za-z][a-z0-9]{0,5}){0,3}",
        any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|ip| format!("[{ip}]")),
    ]
}

fn user() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("([-A-Za-z0-9_.!~*'()&=+$,;?/]|%[0-9A-Fa-f]{2}){1,10}")
}

fn uri_params() -> impl Strategy<Value = String> {
    "(;(transport=tcp|lr|maddr=192\\.0\\.2\\.1|ob|gr|user=phone|ttl=5|method=INVITE|[a-z]{1,4}(=([-a-z\\[\\]/:&+$]|%[0-9a-f]{2}){1,6})?)){0,4}"
}

fn sip_uri() -> impl Strategy<Value = String> {
    (
        any::<bool>(),
        user(),
        proptest::option::of("[a-z&=+$,%]{0}[a-z]{0,4}"),
        host(),
        proptest::option::of(any::<u16>()),
        uri_params(),
        "(\\?[a-z]{1,4}=([a-z]|%[0-9a-f]{2}){0,5}(&[a-z]{1,4}=[a-z]{0,3})?)?",
    )
        .prop_map(|(secure, user, password, host, port, params, headers)| {
            let mut text = String::from(if secure { "sips:" } else { "sip:" });
            if let Some(user) = user {
                text += &user;
                if let Some(password) = password {
                    text += ":";
                    text += &password;
                }
                text += "@";
            }
            text += &host;
            if let Some(port) = port {
                text += &format!(":{port}");
            }
            text + &params + &headers
        })
}

fn params() -> impl Strategy<Value = String> {
    let space = "(|\\t| \\r\\n )";
    proptest::collection::vec(
        (
            TOKEN,
            space,
            space,
            proptest::option::of(prop_oneof![TOKEN.prop_map(String::from), QUOTED.prop_map(String::from)]),
        ),
        0..4,
    )
    .prop_map(|list| {
        list.into_iter()
            // Names with a meaning have a grammar of their own.
            .map(|(name, a, b, value)| match value {
                Some(value) => format!("{a};{b}x-{name}{a}={b}{value}"),
                None => format!("{b};{a}x-{name}"),
            })
            .collect()
    })
}

fn name_addr() -> impl Strategy<Value = String> {
    (
        prop_oneof![Just(String::new()), "[a-z]{1,5} ( )?[a-z]{0,5}", QUOTED.prop_map(String::from)],
        "( |\\r\\n\\t)?",
        sip_uri(),
    )
        .prop_map(|(display, space, uri)| format!("{display}{space}<{uri}>"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn uris(text in sip_uri()) {
        let uri = Uri::parse(text.as_bytes()).unwrap();
        let out = written(|out| uri.write(out));
        // An IPv6 address may be written shorter than it came.
        prop_assert!(out.len() <= text.len());
        let again = Uri::parse(&out).unwrap();
        prop_assert!(uri.eq(&again));
        prop_assert!(again.eq(&uri));
        prop_assert!(uri == Uri::parse(text.as_bytes()).unwrap());
    }

    #[test]
    fn uris_from_values(user in user(), host in host(), port in proptest::option::of(any::<u16>()), params in uri_params()) {
        let uri = SipUri {
            port,
            params: UriParams::parse(params.as_bytes()).unwrap(),
            ..SipUri::new(user.as_deref().map(str::as_bytes), Host::parse(host.as_bytes()).unwrap())
        };
        let out = written(|out| uri.write(out));
        let Uri::Sip(again) = Uri::parse(&out).unwrap() else { panic!() };
        prop_assert_eq!(again.user, uri.user);
        prop_assert_eq!(again.host, uri.host);
        prop_assert_eq!(again.port, uri.port);
        prop_assert_eq!(again.params.text(), uri.params.text());
        // Some write a value to it, as in `lr=on`: only its presence counts.
        let lr = |param: &str| param.split('=').next().is_some_and(|name| name.eq_ignore_ascii_case("lr"));
        prop_assert_eq!(again.params.lr(), params.split(';').any(lr));
        prop_assert!(again == uri);
    }

    #[test]
    fn escaping_any_letter_that_is_not_reserved_changes_nothing(name in "[a-z0-9_.!~*'()-]{1,12}", which in any::<u16>()) {
        let plain = format!("sip:{name}@example.com");
        let at = which as usize % name.len();
        let escaped = format!("sip:{}%{:02X}{}@EXAMPLE.com", &name[..at], name.as_bytes()[at], &name[at + 1..]);
        let (a, b) = (Uri::parse(plain.as_bytes()).unwrap(), Uri::parse(escaped.as_bytes()).unwrap());
        prop_assert!(a.eq(&b));
        prop_assert!(b.eq(&a));
        prop_assert_eq!(written(|out| a.write_aor(out)), written(|out| b.write_aor(out)));
    }

    #[test]
    fn addresses(addr in name_addr(), params in params(), tag in proptest::option::of(TOKEN)) {
        let text = addr + &params + &tag.as_ref().map(|t| format!(" ; tag = {t}")).unwrap_or_default();
        let party = Party::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(party.tag, tag.as_deref().map(str::as_bytes));
        let out = written(|out| party.write(out));
        prop_assert!(memchr::memchr2(b'\r', b'\n', &out).is_none());
        prop_assert_eq!(Party::parse(&out).unwrap(), party);
    }

    #[test]
    fn contacts(addr in name_addr(), q in proptest::option::of(0u16..=1000), expires in proptest::option::of(any::<u32>()), reg_id in proptest::option::of(1u32..)) {
        let mut contact = Contact::new(NameAddr::parse(addr.as_bytes()).unwrap());
        (contact.q, contact.expires, contact.reg_id) = (q, expires, reg_id);
        contact.instance = reg_id.map(|_| &b"\"<urn:uuid:f81d4fae>\""[..]);
        let out = written(|out| contact.write(out));
        let again = Contact::parse(&out).unwrap();
        prop_assert_eq!((again.q, again.expires, again.reg_id, again.instance), (q, expires, reg_id, contact.instance));
        prop_assert!(again.addr.uri == contact.addr.uri);
        prop_assert_eq!(again.display_name(), contact.display_name());
    }

    #[test]
    fn vias(
        transport in "UDP|TCP|TLS|WSS|x-[a-z]{1,4}",
        host in host(),
        port in proptest::option::of(any::<u16>()),
        branch in proptest::option::of(TOKEN),
        received in proptest::option::of(any::<IpAddr>()),
        rport in proptest::option::of(proptest::option::of(any::<u16>())),
        ttl in proptest::option::of(any::<u8>()),
        alias in any::<bool>(),
    ) {
        let (received_text, rport_text) = (received.map(|ip| ip.to_string()), rport.map(|p| p.map(|p| p.to_string()).unwrap_or_default()));
        let mut via = Via::new(transport.as_bytes(), Host::parse(host.as_bytes()).unwrap(), port);
        via.branch = branch.as_deref().map(str::as_bytes);
        via.received = received_text.as_deref().map(str::as_bytes);
        via.rport = rport_text.as_deref().map(str::as_bytes);
        via.ttl = ttl;
        via.alias = alias;
        let out = written(|out| via.write(out));
        let again = Via::parse(&out).unwrap();
        prop_assert_eq!(again, via);
        prop_assert_eq!(again.received_ip(), received);
        prop_assert_eq!(again.rport_port(), rport.flatten());
        prop_assert_eq!(again.text, &out[..]);
        prop_assert_eq!(written(|out| again.write(out)), out);
    }

    #[test]
    fn numbers(number in 0u32..1 << 31, date in -62_135_596_800i64..253_402_300_800) {
        for &method in Method::KNOWN {
            let cseq = CSeq::new(number, method);
            let out = written(|out| cseq.write(out));
            prop_assert_eq!(CSeq::parse(&out).unwrap(), cseq);
        }
        prop_assert_eq!(Date::parse(&written(|out| Date::new(date).write(out))).unwrap().unix, date);
        prop_assert_eq!(DeltaSeconds::parse(&written(|out| DeltaSeconds::new(number).write(out))).unwrap().seconds, number);
    }

    #[test]
    fn parameters(text in params()) {
        let params = Params::parse(text.trim_start().as_bytes()).unwrap();
        let out = written(|out| params.write(out));
        prop_assert_eq!(Params::parse(&out).unwrap().iter().count(), params.iter().count());
        prop_assert!(text.contains('\r') || Params::parse(&out).unwrap() == params);
    }

    #[test]
    fn messages_bent_out_of_shape(pick in any::<prop::sample::Index>(), changes in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<bool>()), 1..6)) {
        let all: Vec<_> = flows::ALL.iter().flat_map(|(_, messages)| messages.iter()).collect();
        let mut bytes = flows::wire(all[pick.index(all.len())]);
        for (at, by, insert) in changes {
            let at = at as usize % bytes.len();
            if insert {
                bytes.insert(at, b"\"<>;,=@:?% \r\n"[by as usize % 13]);
            } else {
                bytes[at] = by;
            }
        }
        let mut index = Index::new();
        if index.parse(&bytes, &Limits::default()).is_ok() {
            fuzz_views::message(&Message::new(&bytes, &index));
        }
    }

    #[test]
    fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..80)) {
        fuzz_views::views(&data);
    }

    #[test]
    fn bytes_that_mean_something(name in any::<u8>(), data in "([ \\t\\r\\n\"<>;,=@:?%/()\\[\\]*.\\\\]|sip:|tel:|SIP/2\\.0/|UDP |tag|branch|rport|q|expires|[0-9]{1,3}|[a-c]|\u{0}|é){0,30}") {
        let mut bytes = vec![name];
        bytes.extend_from_slice(data.as_bytes());
        fuzz_views::views(&bytes);
    }

    #[test]
    fn values_bent_out_of_shape(name in any::<u8>(), addr in name_addr(), params in params(), at in any::<u16>(), by in any::<u8>()) {
        let mut bytes = vec![name];
        bytes.extend_from_slice(addr.as_bytes());
        bytes.extend_from_slice(params.as_bytes());
        let at = at as usize % bytes.len();
        bytes[at] = by;
        fuzz_views::views(&bytes);
    }
}
