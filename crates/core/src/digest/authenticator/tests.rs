use super::*;

#[test]
fn loose_and_exact_uris() {
    for (parameter, request_uri, loose) in [
        ("sip:biloxi.com", "sip:biloxi.com", true),
        ("sip:biloxi.com", "sips:BILOXI.com:5061;transport=tls", true),
        ("sip:bob@biloxi.com", "sip:bob:pw@biloxi.com;user=phone?a=b", true),
        ("sip:bob@biloxi.com", "sip:Bob@biloxi.com", false),
        ("sip:bob@biloxi.com", "sip:biloxi.com", false),
        ("sip:[::1]:5060", "sip:[::1]", true),
        ("sip:[::1]", "sip:[::2]", false),
        ("tel:+1555", "tel:+1555;phone-context=x", true),
        ("sip:a;b@h", "sip:a@h", false),
        ("sip:%2B1555@h", "sip:+1555@h.", true),
        ("sip:a%2@h", "sip:a%2@H", true),
        ("sip:a%20@h", "sip:a@h", false),
        ("sip:+1555@h", "sip:+1900@h", false),
        ("sip:bob@h", "sip:bob@h.evil.example", false),
        ("sip:bob@h", "sip:bob@evil.example;x=@h", false),
        ("sip:bob@h", "sip:bob%40h@evil.example", false),
    ] {
        let (a, uri) = (parameter.as_bytes(), request_uri.as_bytes());
        let attempt = |to_registrar| SignedRequest {
            method: b"INVITE",
            uri,
            body: b"",
            to_registrar,
            source: b"",
            source_is_proven: false,
            algorithms: &[],
        };
        assert_eq!(UriCheck::Loose.accepts(a, &attempt(false)), loose, "{parameter} {request_uri}");
        assert!(UriCheck::Loose.accepts(a, &attempt(true)));
        for registrar in [false, true] {
            assert_eq!(UriCheck::Exact.accepts(a, &attempt(registrar)), parameter == request_uri);
        }
        assert!(UriCheck::Off.accepts(a, &attempt(false)));
    }
}
