//! Answers to challenges against known answers of other programs: `STROWGER_CORPORA`/digest.

use std::path::{Path, PathBuf};

use serde_json::Value;
use strowger_load::aka::{self, AkaSecret, Milenage};
use strowger_load::authentication::{Credentials, Request, verify, write_answer};

fn known_answers(file: &str) -> Option<Value> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpora = std::env::var_os("STROWGER_CORPORA").map_or_else(|| "../shared/corpora".into(), PathBuf::from);
    match std::fs::read(workspace.join(corpora).join("digest").join(file)) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
        Err(_) => {
            println!("STROWGER_CORPORA is not there: {file} was not compared");
            None
        }
    }
}

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    std::array::from_fn(byte)
}

/// Returns a parameter of the answer.
fn parameter<'a>(line: &'a str, name: &str) -> &'a str {
    let value = line.split(&format!(",{name}=\"")).nth(1).unwrap();
    value.split('"').next().unwrap()
}

#[test]
fn known_answers_of_rfc_2617_and_7616() {
    let Some(Value::Array(cases)) = known_answers("kat.json") else { return };
    let mut compared = 0;
    for case in &cases {
        let input = |name: &str| case["inputs"][name].as_str().unwrap_or_default();
        // A truncated SHA-512 is not the SHA-512/256 of RFC 7616.
        if input("a") == "SHA-512trunc" {
            continue;
        }
        let session = case["inputs"]["sess"].as_bool().unwrap_or_default();
        let algorithm = format!("{}{}", input("a"), if session { "-sess" } else { "" });
        let (user, password, body) = (input("u").as_bytes(), input("p").as_bytes(), input("body"));
        let expected = ["computed", "expected", "response"].iter().find_map(|name| case[*name].as_str()).unwrap();
        let qop = match input("qop") {
            "" => String::new(),
            qop => format!(", qop={qop}, nc={}", input("nc")),
        };
        let credentials = format!(
            "Digest username=\"{}\", realm=\"{}\", nonce=\"{}\", uri=\"{}\", response=\"{expected}\", \
             algorithm={algorithm}{qop}, cnonce=\"{}\"",
            input("u"),
            input("r"),
            input("nonce"),
            input("uri"),
            input("cn"),
        );
        let message = format!("{} x SIP/2.0\r\nAuthorization: {credentials}\r\n\r\n{body}", input("m"));
        assert!(verify(message.as_bytes(), user, password), "{case}");
        assert!(!verify(message.as_bytes(), user, b"another"), "{case}");
        compared += 1;
        // Our cnonce is a number, so an answer without one is written and compared.
        if qop.is_empty() && !session {
            let challenge =
                format!("Digest realm=\"{}\", nonce=\"{}\", algorithm={algorithm}", input("r"), input("nonce"));
            let (method, uri) = (input("m").as_bytes(), input("uri").as_bytes());
            let request = Request { method, uri, body: body.as_bytes(), count: 1, cnonce: 0 };
            let mut line = Vec::new();
            let who = Credentials { username: user, password, aka: None };
            write_answer(challenge.as_bytes(), false, &who, &request, &mut line).unwrap();
            assert_eq!(parameter(std::str::from_utf8(&line).unwrap(), "response"), expected, "{case}");
        }
    }
    println!("{compared} of {} known answers verified", cases.len());
    assert!(compared >= 26, "{compared}");
}

#[test]
fn known_answers_of_aka() {
    let Some(known) = known_answers("aka_kat.json") else { return };
    let text = |name: &str| known[name].as_str().unwrap();
    let function = |name: &str| known["milenage"][name].as_str().unwrap();
    // 3GPP TS 35.208 test set 1.
    let secret = AkaSecret {
        key: hex("465b5ce8b199b49faa5f0a2ee238a6bc"),
        operator: hex("cdc202d5123e20f62b6d676ac72cb318"),
        management: hex(text("AMF")),
    };
    let milenage = Milenage::new(&secret, &hex("23553cbe9637a89d218ae64dae47bf35"));
    assert_eq!(milenage.f1(&hex(text("SQN")), &secret.management), (hex(function("f1")), hex(function("f1s"))));
    assert_eq!(milenage.f2_f5(), (hex(function("f2")), hex(function("f5"))));
    assert_eq!((milenage.f3(), milenage.f4()), (hex(function("f3")), hex(function("f4"))));
    assert_eq!(milenage.f5_star(), hex(function("f5s")));
    let res = aka::response(&secret, text("nonce").as_bytes()).unwrap();
    assert_eq!(res, hex(text("RES")));

    let credentials = format!(
        "Digest username=\"{}\", realm=\"{}\", nonce=\"{}\", uri=\"{}\", response=\"{}\", qop={}, nc={}, cnonce=\"{}\"",
        text("user"),
        text("realm"),
        text("nonce"),
        text("uri"),
        text("response"),
        text("qop"),
        text("nc"),
        text("cnonce"),
    );
    let message = format!("{} x SIP/2.0\r\nAuthorization: {credentials}\r\n\r\n", text("method"));
    assert!(verify(message.as_bytes(), text("user").as_bytes(), &res));

    // The answer to the same challenge verifies with RES as the password.
    let challenge =
        format!("Digest realm=\"{}\", nonce=\"{}\", algorithm=AKAv1-MD5, qop=\"auth\"", text("realm"), text("nonce"));
    let who = Credentials { username: text("user").as_bytes(), password: b"", aka: Some(&secret) };
    let request = Request { method: b"REGISTER", uri: b"sip:a", body: b"", count: 1, cnonce: 0x1234_5678 };
    let mut line = Vec::new();
    write_answer(challenge.as_bytes(), false, &who, &request, &mut line).unwrap();
    let line = String::from_utf8(line).unwrap().replace("algorithm=AKAv1-MD5", "algorithm=MD5");
    assert!(verify(format!("REGISTER x SIP/2.0\r\n{line}\r\n\r\n").as_bytes(), text("user").as_bytes(), &res));
}
