//! Known answers of the RFCs, other tools and the corpus.

use super::*;

/// User, realm, password, method, uri, nonce, nc, cnonce, body.
type Inputs<'a> = [&'a str; 9];

fn compute(algorithm: Algorithm, qop: Option<Qop>, inputs: Inputs<'_>) -> String {
    let [user, realm, password, method, uri, nonce, nc, cnonce, body] = inputs.map(str::as_bytes);
    let ha1 = Ha1::new(algorithm.hash, user, realm, password);
    let input = ResponseInput { algorithm, qop, nonce, nc, cnonce, method, uri, body };
    response(&ha1, &input).hex().as_str().to_owned()
}

#[test]
fn known_answers_of_the_rfcs() {
    // RFC 2617 section 3.5.
    let mufasa = [
        "Mufasa",
        "testrealm@host.com",
        "Circle Of Life",
        "GET",
        "/dir/index.html",
        "dcd98b7102dd2f0e8b11d0f600bfb0c093",
        "00000001",
        "0a4f113b",
        "",
    ];
    assert_eq!(compute(Algorithm::MD5, Some(Qop::Auth), mufasa), "6629fae49393a05397450978507c4ef1");
    // RFC 7616 section 3.9.1.
    let again = [
        "Mufasa",
        "http-auth@example.org",
        "Circle of Life",
        "GET",
        "/dir/index.html",
        "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
        "00000001",
        "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        "",
    ];
    assert_eq!(compute(Algorithm::MD5, Some(Qop::Auth), again), "8ca523f5e9506fed4657c9700eebdbec");
    assert_eq!(
        compute(Algorithm::SHA_256, Some(Qop::Auth), again),
        "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"
    );
}

#[test]
fn known_answers_computed_by_other_tools() {
    // Computed by chains of `md5sum`, `sha256sum` and `openssl dgst -sha512-256` over the strings of RFC 7616 section
    // 3.4.
    let bob = [
        "bob",
        "biloxi.com",
        "zanzibar",
        "INVITE",
        "sip:alice@atlanta.com",
        "84a4cc6f3082121f32b42a2187831a9e",
        "0000000a",
        "0a4f113b",
        "v=0\r\n",
    ];
    for (algorithm, qop, want) in OWN_ANSWERS {
        assert_eq!(compute(algorithm, qop, bob), want, "{algorithm} {qop:?}");
    }
}

const OWN_ANSWERS: [(Algorithm, Option<Qop>, &str); 18] = [
    (Algorithm::MD5, None, "240ac31b71cac62e00ea935e7fc10f71"),
    (Algorithm::MD5, Some(Qop::Auth), "5b7b9ba997dc45d089cbca18a1af90dc"),
    (Algorithm::MD5, Some(Qop::AuthInt), "032511b746521ffc270f2ad15208dc10"),
    (Algorithm::MD5_SESS, None, "ce091737f35c45428eb04382acaab965"),
    (Algorithm::MD5_SESS, Some(Qop::Auth), "d5909447dc9ab21a828255208b751ff6"),
    (Algorithm::MD5_SESS, Some(Qop::AuthInt), "7fbc54b8b9df2669f4872cdf9490f5fc"),
    (Algorithm::SHA_256, None, "1bbd29d5967fe9913c06ce35f7e782cfd4a922fa46bc53472ecf69ad021c3e1f"),
    (Algorithm::SHA_256, Some(Qop::Auth), "86afedba25b0f8c83716b1720cfc7b5fec65c45a170b37f90c9218b572143b95"),
    (Algorithm::SHA_256, Some(Qop::AuthInt), "123b68f510e18880488549671625aee2e03fdbc704cfbafbaaef54139115b3f6"),
    (Algorithm::SHA_256_SESS, None, "bf42c0e14908e074116b7ae67e3f4329847527265f54912e8ccedd61ba19de08"),
    (Algorithm::SHA_256_SESS, Some(Qop::Auth), "7dacf64d7e7678ae6590dcb48f10387af5f647f889150c03efa0fb2a6757dc6f"),
    (Algorithm::SHA_256_SESS, Some(Qop::AuthInt), "7bc9482e017e922106d9f510e3bec833b9667e0fa5e24605fd457b74eba43e27"),
    (Algorithm::SHA_512_256, None, "7246ac39d7d170cafa4c26f377905503b35a9993bb34e70745026fc9ffe81a01"),
    (Algorithm::SHA_512_256, Some(Qop::Auth), "ac08edc894f9127adff611318a6297dc5cd25cd6bc575fadaf58d678b9e98dc6"),
    (Algorithm::SHA_512_256, Some(Qop::AuthInt), "8969b82e555adafbaa15936e26053b57b42aed06ab57d67139e55b072a479af8"),
    (Algorithm::SHA_512_256_SESS, None, "5d5b78aca342f3e3a05a83b3bfa6c9da744a753adcd315a9c61b865c7b82a306"),
    (Algorithm::SHA_512_256_SESS, Some(Qop::Auth), "e034ddce1f855d9bff66ec45653b13de74257cfe7d039497859e10027501b11c"),
    (
        Algorithm::SHA_512_256_SESS,
        Some(Qop::AuthInt),
        "ad8961b5dce7c4cf05c59368e44fd3db6d9c0f97c1564ee948088ae23d6f8134",
    ),
];

#[test]
fn known_answers_of_the_corpus() {
    let root = std::env::var_os("STROWGER_CORPORA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora"),
        |given| {
            let given = PathBuf::from(given);
            if given.is_absolute() { given } else { PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(given) }
        },
    );
    let path = root.join("digest/kat.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("not there, so its known answers were not tried: {}", path.display());
        return;
    };
    let cases: Vec<Value> = serde_json::from_str(&text).expect("kat.json is JSON");
    let mut tried = 0;
    for case in &cases {
        let name = case["name"].as_str().expect("every case has a name");
        // An example whose recomputation is known to differ is skipped.
        if case["match"] == Value::Bool(false) {
            continue;
        }
        let want = case["expected"].as_str().or_else(|| case["computed"].as_str()).expect("a value to compare with");
        let input = &case["inputs"];
        let text = |key: &str| input[key].as_str().unwrap_or_default();
        let mut algorithm = Algorithm::parse(text("a").as_bytes()).expect("a known algorithm");
        algorithm.session = input["sess"] == Value::Bool(true);
        let qop = input["qop"].as_str().map(|qop| Qop::parse(qop.as_bytes()).expect("a known qop"));
        let inputs = ["u", "r", "p", "m", "uri", "nonce", "nc", "cn", "body"].map(text);
        assert_eq!(compute(algorithm, qop, inputs), want, "{name}");

        // The same through the texts of both headers.
        let [user, realm, password, method, uri, nonce, nc, cnonce, body] = inputs;
        let qop_param = qop.map_or(String::new(), |qop| format!(", qop=\"{}\"", qop.name()));
        let challenge = format!("Digest realm=\"{realm}\", nonce=\"{nonce}\", algorithm={algorithm}{qop_param}");
        let mut header = Vec::new();
        ChallengeAnswer {
            user: user.as_bytes(),
            secret: Secret::Password(password.as_bytes()),
            method: method.as_bytes(),
            uri: uri.as_bytes(),
            body: body.as_bytes(),
            cnonce: cnonce.as_bytes(),
            nc: u32::from_str_radix(nc, 16).unwrap_or(1),
        }
        .write(&Challenge::parse(challenge.as_bytes()).expect("valid"), &mut header)
        .expect("supported");
        let read = Credentials::parse(&header).expect("own writing");
        assert_eq!(read.response.raw(), want.as_bytes(), "{name}");
        tried += 1;
    }
    assert_eq!(tried, 25, "known answers that match");
}
