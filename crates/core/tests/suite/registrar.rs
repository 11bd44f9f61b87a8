//! Decisions of the registrar, rule by rule (RFC 3261 section 10.3, RFC 3327, RFC 3608, RFC 5626).

use strowger_core::Now;
use strowger_core::registrar::{ExistingBinding, PathRule, Refusal, RegisterOutcome, Registrar, RegistrarSettings};
use strowger_message::{Index, Limits, Message};

/// Binding in the test's own location table.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    uri: String,
    call_id: String,
    cseq: u32,
    expires_at: u64,
    q: Option<u16>,
    instance: String,
    reg_id: u32,
    unreachable: bool,
    path: String,
}

/// Registrar with one address-of-record and a clock.
struct Office {
    registrar: Registrar,
    kept: Vec<Kept>,
    now: Now,
}

type RegisterAnswer = Result<String, Refusal>;

impl Office {
    fn new(settings: RegistrarSettings) -> Self {
        // Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 2616.
        Self { registrar: Registrar::new(settings), kept: Vec::new(), now: Now { mono: 0, wall: 784_111_777_000 } }
    }

    /// Serves a REGISTER with these header lines, executes its plan, and returns the lines of the 200.
    fn serve(&mut self, call_id: &str, cseq: u32, lines: &str) -> RegisterAnswer {
        let text = format!(
            "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n\
             From: <sip:a@example.org>;tag=1\r\nTo: <sip:a@example.org>\r\nCall-ID: {call_id}\r\nCSeq: {cseq} REGISTER\r\n\
             {}{}Content-Length: 0\r\n\r\n",
            lines.replace('\n', "\r\n"),
            if lines.is_empty() { "" } else { "\r\n" },
        );
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("the test writes messages that can be read");
        let message = Message::new(text.as_bytes(), &index);
        let current: Vec<ExistingBinding<'_>> = self
            .kept
            .iter()
            .map(|k| ExistingBinding {
                uri: k.uri.as_bytes(),
                call_id: k.call_id.as_bytes(),
                cseq: k.cseq,
                expires_at: k.expires_at,
                q: k.q,
                instance: k.instance.as_bytes(),
                reg_id: k.reg_id,
                unreachable: k.unreachable,
                elsewhere: false,
            })
            .collect();
        let outcome = match self.registrar.decide(self.now, &message, &current) {
            Ok(outcome) => outcome,
            Err(refusal) => {
                assert_eq!(
                    self.registrar.removals().count() + self.registrar.upserts().len(),
                    0,
                    "a refusal changes nothing"
                );
                return Err(refusal);
            }
        };
        let mut ok = Vec::new();
        self.registrar.write_ok(self.now, &message, &current, &mut ok);
        let changes = self.registrar.removals().count() + self.registrar.upserts().len();
        assert_eq!(outcome == RegisterOutcome::Changed, changes > 0);
        let mut kept: Vec<Option<Kept>> = self.kept.iter().cloned().map(Some).collect();
        for i in self.registrar.removals() {
            kept[i] = None;
        }
        for upsert in self.registrar.upserts() {
            let part = |r: std::ops::Range<usize>| String::from_utf8(text.as_bytes()[r].to_vec()).unwrap();
            let new = Kept {
                uri: part(upsert.uri.clone()),
                call_id: call_id.to_owned(),
                cseq,
                expires_at: upsert.expires_at,
                q: upsert.q,
                instance: part(upsert.instance.clone()),
                reg_id: upsert.reg_id,
                unreachable: false,
                path: String::from_utf8(self.registrar.path().to_vec()).unwrap(),
            };
            match upsert.replaces {
                Some(i) => kept[i] = Some(new),
                None => kept.push(Some(new)),
            }
        }
        self.kept = kept.into_iter().flatten().collect();
        Ok(String::from_utf8(ok).unwrap().replace("\r\n", "\n"))
    }

    fn wait(&mut self, seconds: u64) {
        self.now.wall += seconds * 1000;
        self.now.mono += seconds * 1000;
    }

    fn uris(&self) -> Vec<&str> {
        self.kept.iter().map(|k| k.uri.as_str()).collect()
    }
}

/// Returns the lines of a 200 without Date.
fn contacts(ok: &str) -> Vec<&str> {
    ok.lines().filter(|l| !l.starts_with("Date:")).collect()
}

#[test]
fn a_contact_is_bound_refreshed_fetched_and_removed() {
    let mut office = Office::new(RegistrarSettings::default());
    let ok = office.serve("c", 1, "Contact: <sip:a@192.0.2.1:5060>\nExpires: 600").unwrap();
    assert_eq!(ok, "Contact: <sip:a@192.0.2.1:5060>;expires=600\nDate: Sun, 06 Nov 1994 08:49:37 GMT\n");
    office.wait(100);
    let ok = office.serve("other", 1, "").unwrap();
    assert_eq!(contacts(&ok), ["Contact: <sip:a@192.0.2.1:5060>;expires=500"]);
    let ok = office.serve("c", 2, "Contact: <sip:a@192.0.2.1:5060>\nExpires: 600").unwrap();
    assert_eq!(contacts(&ok), ["Contact: <sip:a@192.0.2.1:5060>;expires=600"]);
    assert_eq!(office.kept.len(), 1);
    let ok = office.serve("c", 3, "Contact: <sip:a@192.0.2.1:5060>;expires=0").unwrap();
    assert!(contacts(&ok).is_empty());
    assert!(office.kept.is_empty());
    // The removal of an absent contact is no fault.
    office.serve("c", 4, "Contact: <sip:a@192.0.2.1:5060>;expires=0").unwrap();
}

#[test]
fn several_contacts_each_with_its_own_interval_and_preference() {
    let mut office = Office::new(RegistrarSettings::default());
    let ok = office
        .serve("c", 1, "Contact: \"A\" <sip:a@192.0.2.1>;expires=100;q=0.5, <sip:a@192.0.2.2;transport=tcp>;q=1\nm: sip:a@192.0.2.3;q=0.05\nExpires: 200")
        .unwrap();
    assert_eq!(
        contacts(&ok),
        [
            "Contact: <sip:a@192.0.2.1>;expires=100;q=0.5",
            "Contact: <sip:a@192.0.2.2;transport=tcp>;expires=200;q=1",
            "Contact: <sip:a@192.0.2.3>;expires=200;q=0.05",
        ]
    );
    assert_eq!(office.kept.iter().map(|k| k.q).collect::<Vec<_>>(), [Some(500), Some(1000), Some(50)]);
    // One is removed, one is added, one stays.
    let ok = office.serve("c", 2, "Contact: <sip:a@192.0.2.2;transport=tcp>;expires=0, <sip:b@192.0.2.4>").unwrap();
    assert_eq!(contacts(&ok).len(), 3);
    assert_eq!(office.uris(), ["sip:a@192.0.2.1", "sip:a@192.0.2.3", "sip:b@192.0.2.4"]);
}

#[test]
fn contacts_are_the_same_when_their_uris_are() {
    let mut office = Office::new(RegistrarSettings::default());
    office.serve("c", 1, "Contact: <sip:%61lice@Example.COM;transport=TCP>").unwrap();
    office.serve("c", 2, "Contact: <sip:alice@example.com;Transport=tcp>").unwrap();
    assert_eq!(office.uris(), ["sip:alice@example.com;Transport=tcp"]);
    // An explicit port differs from none (section 19.1.4).
    office.serve("c", 3, "Contact: <sip:alice@example.com:5060;transport=tcp>").unwrap();
    assert_eq!(office.kept.len(), 2);
}

#[test]
fn intervals_have_a_least_a_most_and_a_default() {
    let settings =
        RegistrarSettings { min_expires: 60, max_expires: 1800, default_expires: 900, ..RegistrarSettings::default() };
    let mut office = Office::new(settings);
    assert_eq!(office.serve("c", 1, "Contact: <sip:a@h>;expires=59"), Err(Refusal::IntervalTooBrief(60)));
    let mut lines = Vec::new();
    office.registrar.write_refusal(Refusal::IntervalTooBrief(60), &mut lines);
    assert_eq!(lines, b"Min-Expires: 60\r\n");
    for (cseq, asked, granted) in [
        (2, "Contact: <sip:a@h>", 900),
        (3, "Contact: <sip:a@h>\nExpires: 60", 60),
        (4, "Contact: <sip:a@h>\nExpires: 86400", 1800),
        (5, "Contact: <sip:a@h>;expires=70\nExpires: 90", 70),
        // A malformed interval counts as an hour (section 20.10), of which half is granted.
        (6, "Contact: <sip:a@h>;expires=\"soon\"\nExpires: 90", 1800),
        (7, "Contact: <sip:a@h>;expires=280297596632815\nExpires: 90", 1800),
    ] {
        let ok = office.serve("c", cseq, asked).unwrap();
        assert_eq!(contacts(&ok), [format!("Contact: <sip:a@h>;expires={granted}")], "{asked}");
    }
}

#[test]
fn a_star_removes_all_and_stands_alone() {
    let mut office = Office::new(RegistrarSettings::default());
    office.serve("c", 7, "Contact: <sip:a@h>, <sip:b@h>").unwrap();
    for lines in [
        "Contact: *",
        "Contact: *\nExpires: 1",
        "Contact: *, <sip:a@h>\nExpires: 0",
        "Contact: <sip:a@h>, *\nExpires: 0",
        "Contact: *\nContact: <sip:a@h>\nExpires: 0",
        "Contact: *;expires=0\nExpires: 0",
    ] {
        assert!(matches!(office.serve("c", 8, lines), Err(Refusal::BadRequest(_))), "{lines}");
        assert_eq!(office.kept.len(), 2);
    }
    assert_eq!(office.serve("c", 6, "Contact: *\nExpires: 0"), Err(Refusal::OutOfOrder));
    assert_eq!(office.serve("c", 7, "Contact: *\nExpires: 0"), Err(Refusal::OutOfOrder));
    let ok = office.serve("c", 8, "Contact: *\nExpires: 0").unwrap();
    assert!(contacts(&ok).is_empty() && office.kept.is_empty());
    // A retransmission of the REGISTER finds no binding and gets the same response.
    assert_eq!(office.serve("c", 8, "Contact: *\nExpires: 0").unwrap(), ok);
}

#[test]
fn an_older_request_of_the_same_call_changes_nothing() {
    let mut office = Office::new(RegistrarSettings::default());
    office.serve("c", 5, "Contact: <sip:a@h>;expires=600").unwrap();
    let before = office.kept.clone();
    assert_eq!(office.serve("c", 4, "Contact: <sip:new@h>, <sip:a@h>;expires=0"), Err(Refusal::OutOfOrder));
    assert_eq!(office.kept, before, "not even the part that would have been right");
    // In another call, any number is valid.
    office.serve("d", 1, "Contact: <sip:a@h>;expires=700").unwrap();
    assert_eq!((office.kept[0].call_id.as_str(), office.kept[0].cseq), ("d", 1));
}

#[test]
fn a_retransmission_gets_the_same_answer_and_changes_nothing() {
    let mut office = Office::new(RegistrarSettings::default());
    let lines = "Contact: <sip:a@h>;expires=600;q=0.3, <sip:b@h>";
    let ok = office.serve("c", 5, lines).unwrap();
    let before = office.kept.clone();
    assert_eq!(office.serve("c", 5, lines).unwrap(), ok);
    assert_eq!(office.kept, before);
    // The same number with another content is no retransmission.
    assert_eq!(office.serve("c", 5, "Contact: <sip:a@h>;expires=0"), Err(Refusal::OutOfOrder));
    assert_eq!(office.serve("c", 5, "Contact: <sip:a@h>;q=0.4"), Err(Refusal::OutOfOrder));
}

#[test]
fn an_expired_binding_counts_as_absent() {
    let mut office = Office::new(RegistrarSettings { max_contacts: 1, ..RegistrarSettings::default() });
    office.serve("c", 5, "Contact: <sip:a@h>;expires=60").unwrap();
    office.wait(60);
    assert!(contacts(&office.serve("x", 1, "").unwrap()).is_empty());
    // Neither its order nor its place counts any more.
    let ok = office.serve("c", 4, "Contact: <sip:a@h>;expires=60").unwrap();
    assert_eq!(contacts(&ok), ["Contact: <sip:a@h>;expires=60"]);
    assert_eq!(office.kept.len(), 1, "the new one stands in the place of the old");
    office.wait(60);
    office.serve("c", 6, "Contact: <sip:b@h>;expires=60").unwrap();
}

#[test]
fn contacts_are_bounded() {
    let mut office = Office::new(RegistrarSettings { max_contacts: 2, ..RegistrarSettings::default() });
    assert_eq!(office.serve("c", 1, "Contact: <sip:a@h>, <sip:b@h>, <sip:c@h>"), Err(Refusal::TooManyContacts));
    office.serve("c", 2, "Contact: <sip:a@h>, <sip:b@h>").unwrap();
    assert_eq!(office.serve("c", 3, "Contact: <sip:c@h>"), Err(Refusal::TooManyContacts));
    office.serve("c", 4, "Contact: <sip:c@h>, <sip:a@h>;expires=0").unwrap();
    assert_eq!(office.uris(), ["sip:b@h", "sip:c@h"]);
    office.serve("c", 5, "Contact: <sip:c@h>").unwrap();
}

/// Checks that the number of contacts is bounded, because each is compared with those before it.
#[test]
fn the_first_contact_beyond_the_bound_ends_the_request() {
    let mut office = Office::new(RegistrarSettings { max_contacts: 2, ..RegistrarSettings::default() });
    let many: Vec<String> = (0..250).map(|n| format!("<sip:{n}@h>")).collect();
    // The rest behind it is not parsed.
    let contacts = format!("Contact: {}, @", many.join(", "));
    assert_eq!(office.serve("c", 1, &contacts), Err(Refusal::TooManyContacts));
    assert!(office.kept.is_empty());
    // Existing bindings do not count.
    office.serve("c", 2, "Contact: <sip:a@h>, <sip:b@h>").unwrap();
    office.registrar = Registrar::new(RegistrarSettings { max_contacts: 1, ..RegistrarSettings::default() });
    office.serve("c", 3, "Contact: <sip:a@h>, <sip:b@h>").unwrap();
}

#[test]
fn an_unreachable_binding_gives_way() {
    let mut office = Office::new(RegistrarSettings { max_contacts: 3, ..RegistrarSettings::default() });
    office.serve("c", 1, "Contact: <sip:a@h>, <sip:b@h>, <sip:c@h>").unwrap();
    office.kept[0].unreachable = true;
    office.kept[1].unreachable = true;
    // While there is room they stay: a phone may connect again and refresh.
    office.serve("c", 2, "Contact: <sip:c@h>;expires=0").unwrap();
    office.serve("c", 3, "Contact: <sip:d@h>").unwrap();
    assert_eq!(office.uris(), ["sip:a@h", "sip:b@h", "sip:d@h"]);
    let ok = office.serve("c", 4, "Contact: <sip:e@h>, <sip:a@h>").unwrap();
    assert!(!ok.contains("sip:b@h"), "{ok}");
    assert_eq!(office.uris(), ["sip:a@h", "sip:d@h", "sip:e@h"], "the one that refreshes is there again");
    office.kept[1].unreachable = true;
    assert_eq!(office.serve("c", 5, "Contact: <sip:f@h>, <sip:g@h>"), Err(Refusal::TooManyContacts));
    assert_eq!(office.uris(), ["sip:a@h", "sip:d@h", "sip:e@h"], "a refusal removes no binding");
    office.serve("c", 6, "Contact: <sip:f@h>").unwrap();
    assert_eq!(office.uris(), ["sip:a@h", "sip:e@h", "sip:f@h"]);
}

/// Checks that the monotonic clock counts the remaining time of a binding, while Date shows the wall clock.
#[test]
fn a_step_of_the_systems_clock_moves_no_expiry() {
    let mut office = Office::new(RegistrarSettings::default());
    office.serve("c", 1, "Contact: <sip:a@h>;expires=600").unwrap();
    for (step, date) in [(0, "Thu, 01 Jan 1970 00:00:00"), (4_102_444_800_000, "Fri, 01 Jan 2100 00:00:00")] {
        office.now.wall = step;
        let ok = office.serve("d", 1, "").unwrap();
        assert_eq!(ok, format!("Contact: <sip:a@h>;expires=600\nDate: {date} GMT\n"));
    }
    office.wait(200);
    assert_eq!(contacts(&office.serve("d", 2, "").unwrap()), ["Contact: <sip:a@h>;expires=400"]);
    office.wait(400);
    assert_eq!(contacts(&office.serve("d", 3, "").unwrap()), [""; 0]);
}

#[test]
fn the_later_of_two_equal_contacts_holds() {
    let mut office = Office::new(RegistrarSettings::default());
    office.serve("c", 1, "Contact: <sip:a@h>;expires=100, <sip:a@H>;expires=200").unwrap();
    assert_eq!(office.kept.len(), 1);
    assert_eq!(office.kept[0].expires_at, office.now.mono + 200_000);
    office.serve("c", 2, "Contact: <sip:a@h>;expires=0, <sip:a@h>;expires=300").unwrap();
    assert_eq!(office.kept[0].expires_at, office.now.mono + 300_000);
    office.serve("c", 3, "Contact: <sip:a@h>;expires=300, <sip:a@h>;expires=0").unwrap();
    assert!(office.kept.is_empty());
}

#[test]
fn required_extensions_must_be_supported() {
    let mut office = Office::new(RegistrarSettings { supported: vec!["gruu".into()], ..RegistrarSettings::default() });
    let refused = office.serve("c", 1, "Require: path, nothing,gruu\nRequire: more\nContact: <sip:a@h>");
    assert_eq!(refused, Err(Refusal::BadExtension));
    let mut lines = Vec::new();
    office.registrar.write_refusal(Refusal::BadExtension, &mut lines);
    assert_eq!(lines, b"Unsupported: nothing, more\r\n");
    office.serve("c", 2, "Require: Path\nContact: <sip:a@h>").unwrap();
}

#[test]
fn a_path_is_kept_and_echoed() {
    let path = "Path: <sip:p1.example.org;lr>,<sip:p2.example.org;lr>\nPath: <sip:p3.example.org;lr>\n";
    let kept = "<sip:p1.example.org;lr>, <sip:p2.example.org;lr>, <sip:p3.example.org;lr>";
    let mut office = Office::new(RegistrarSettings::default());
    let ok = office.serve("c", 1, &format!("{path}Contact: <sip:a@h>")).unwrap();
    assert_eq!(office.kept[0].path, kept);
    assert!(ok.contains(&format!("Path: {kept}\n")));

    let mut office = Office::new(RegistrarSettings { path: PathRule::Demand, ..RegistrarSettings::default() });
    assert_eq!(office.serve("c", 1, &format!("{path}Contact: <sip:a@h>")), Err(Refusal::PathNotSupported));
    office.serve("c", 1, &format!("{path}Supported: x, path\nContact: <sip:a@h>")).unwrap();
    assert_eq!(office.kept[0].path, kept);

    let mut office = Office::new(RegistrarSettings { path: PathRule::Ignore, ..RegistrarSettings::default() });
    assert_eq!(office.serve("c", 1, "Require: path\nContact: <sip:a@h>"), Err(Refusal::BadExtension));
    let ok = office.serve("c", 1, &format!("{path}Contact: <sip:a@h>")).unwrap();
    assert!(office.kept[0].path.is_empty() && !ok.contains("Path"));
}

#[test]
fn a_service_route_is_written() {
    let mut office = Office::new(RegistrarSettings {
        service_route: b"<sip:edge.example.org;lr>".to_vec(),
        ..RegistrarSettings::default()
    });
    let ok = office.serve("c", 1, "Contact: <sip:a@h>").unwrap();
    assert!(ok.contains("Service-Route: <sip:edge.example.org;lr>\n"));
}

#[test]
fn a_flow_is_known_by_instance_and_number() {
    let instance = "<urn:uuid:00000000-0000-1000-8000-AABBCCDDEEFF>";
    let contact = |port: u16, reg: u32| {
        format!("Supported: outbound\nContact: <sip:a@192.0.2.1:{port};ob>;reg-id={reg};+sip.instance=\"{instance}\"")
    };
    let mut office = Office::new(RegistrarSettings::default());
    office.serve("c", 1, &contact(1000, 1)).unwrap();
    office.serve("d", 1, &contact(2000, 2)).unwrap();
    assert_eq!(office.kept.len(), 2);
    // The phone restarted: another port and Call-ID, the same flow.
    let ok = office.serve("e", 1, &contact(3000, 1)).unwrap();
    assert_eq!(office.uris(), ["sip:a@192.0.2.1:3000;ob", "sip:a@192.0.2.1:2000;ob"]);
    assert_eq!(office.kept[0].instance, instance);
    assert!(ok.contains(&format!(";+sip.instance=\"{instance}\";reg-id=1\n")), "{ok}");
    let two = format!("{}\n{}", contact(4000, 3), contact(5000, 4));
    assert!(matches!(office.serve("f", 1, &two), Err(Refusal::BadRequest(_))));
}

#[test]
fn a_malformed_contact_refuses_the_whole_request() {
    for lines in [
        "Contact: <sip:a@h>, <sip:b@h",
        "Contact: <sip:a@h>;q=2",
        "Contact: <sip:a@h>\nExpires: 99999999999",
        "Contact: <not a uri>",
    ] {
        let mut office = Office::new(RegistrarSettings::default());
        assert!(matches!(office.serve("c", 1, lines), Err(Refusal::BadRequest(_))), "{lines}");
    }
}
