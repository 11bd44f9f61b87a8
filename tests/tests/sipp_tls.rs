//! `strowger sipp -tls_version` and `-tls_crl`: refusals of each side, and their error texts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use strowger_tests::binary;
use strowger_tests::duel::Ports;
use strowger_tests::process::Process;

/// The serial number of the certificate, and that of another certificate of the same authority.
const OURS: u64 = 7;
const ANOTHER: u64 = 8;

/// An authority, a certificate of 127.0.0.1, a revocation list with its serial number and one with another.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        // The path of a temporary folder may have blanks, so this one always has.
        let world = Self(tempfile::Builder::new().prefix("tls of sipp ").tempdir().expect("a temporary folder"));
        let key = KeyPair::generate().expect("keys can be made");
        let mut authority = CertificateParams::new(Vec::new()).expect("no names are good names");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        world.write("authority.pem", &authority.self_signed(&key).expect("an authority signs itself").pem());
        let issuer = Issuer::new(authority, key);
        let key = KeyPair::generate().expect("keys can be made");
        let mut own = CertificateParams::new(Vec::new()).expect("no names are good names");
        own.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        own.serial_number = Some(SerialNumber::from(OURS));
        world.write("certificate.pem", &own.signed_by(&key, &issuer).expect("an authority signs").pem());
        world.write("key.pem", &key.serialize_pem());
        for (name, number) in [("ours.pem", OURS), ("another.pem", ANOTHER)] {
            let revoked = RevokedCertParams {
                serial_number: SerialNumber::from(number),
                revocation_time: date_time_ymd(2023, 2, 1),
                reason_code: None,
                invalidity_date: None,
            };
            let list = CertificateRevocationListParams {
                this_update: date_time_ymd(2023, 3, 1),
                next_update: date_time_ymd(2049, 1, 1),
                crl_number: SerialNumber::from(1),
                issuing_distribution_point: None,
                revoked_certs: vec![revoked],
                key_identifier_method: KeyIdMethod::Sha256,
            };
            world.write(name, &list.signed_by(&issuer).expect("an authority signs").pem().expect("it is PEM"));
        }
        world
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder().join(name), text).expect("the folder can be written");
    }

    /// Returns `strowger sipp` in the folder, with arguments that have no blanks.
    fn sipp(&self, words: &str) -> Command {
        let mut command = Command::new(binary::strowger());
        command.arg("sipp").args(words.split_whitespace()).current_dir(self.folder()).env("TERM", "dumb");
        command
    }

    /// Returns the exit code and the standard error of an unusable command line.
    fn refused(&self, words: &str) -> (Option<i32>, String) {
        let output = self.sipp(words).stdin(Stdio::null()).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Plays one call between the two. Returns whether it succeeded, and the error file of each side, the caller's
    /// first.
    fn call(&self, name: &str, caller: &str, callee: &str) -> (bool, [String; 2]) {
        let [here, there] = [Ports::free(), Ports::free()];
        let files: [PathBuf; 2] = ["caller", "callee"].map(|side| self.folder().join(format!("{name}-{side}-errors")));
        let own = "-i 127.0.0.1 -t l1 -nostdin -trace_err -tls_cert certificate.pem -tls_key key.pem";
        let line = |ports: &Ports, file: &Path, more: &str| {
            let mut command = self.sipp(&format!("{more} {own} -cp {} -mp {}", ports.control, ports.media));
            command.arg("-error_file").arg(file);
            command
        };
        let mut answers = line(&there, &files[1], &format!("-sn uas -p {} {callee}", there.own));
        let mut answers = Process::start(&format!("{name}-callee"), self.folder(), &mut answers);
        answers.listens(there.own);
        let mut calls = line(&here, &files[0], &format!("-sn uac 127.0.0.1:{} -m 1 -timeout 20 {caller}", there.own));
        let status = Process::start(&format!("{name}-caller"), self.folder(), &mut calls).end(Duration::from_secs(30));
        // Like the key `q`: the process ends when no call is left, and writes its errors.
        answers.signal(libc::SIGUSR1);
        answers.end(Duration::from_secs(20));
        (status.success(), files.map(|file| std::fs::read_to_string(file).unwrap_or_default()))
    }
}

/// A case: name, arguments of the caller and of the answering side, and their expected errors; none: the call succeeds.
type Case = (&'static str, &'static str, &'static str, Option<[&'static str; 2]>);

const TRUST: &str = "-tls_ca authority.pem";

fn play(cases: &[Case]) {
    let world = World::new();
    std::thread::scope(|scope| {
        for (name, caller, callee, refused) in cases {
            let world = &world;
            scope.spawn(move || {
                let (succeeded, said) = world.call(name, caller, callee);
                assert_eq!(succeeded, refused.is_none(), "{name}: {said:?}");
                match refused {
                    None => assert!(said.iter().all(|text| !text.contains("TLS")), "{name}: {said:?}"),
                    Some(words) => {
                        let all =
                            said.iter().zip(words).all(|(text, word)| text.contains("TLS") && text.contains(word));
                        assert!(all, "{name}: {said:?}");
                    }
                }
            });
        }
    });
}

#[test]
fn sides_without_a_common_version_do_not_talk() {
    let refused = Some(["speaks no version of TLS that is allowed here"; 2]);
    play(&[
        ("any", "-tls_version 1.3", "", None),
        ("same", "-tls_version 1.2", "-tls_version 1.2", None),
        ("newer", "-tls_version 1.3", "-tls_version 1.2", refused),
        ("older", "-tls_version 1.2", "-tls_version 1.3", refused),
    ]);
}

#[test]
fn a_revoked_certificate_is_refused_by_whoever_sees_it() {
    let list = |name: &str, more: &str| -> &'static str { format!("{TRUST} -tls_crl {name}.pem {more}").leak() };
    let by_caller = Some(["our certificate is revoked", "the peer's certificate is revoked"]);
    let by_callee = Some(["the peer's certificate is revoked", "our certificate is revoked"]);
    play(&[
        ("another", list("another", ""), list("another", ""), None),
        ("server", list("ours", ""), "", by_callee),
        ("client12", TRUST, list("ours", "-tls_version 1.2"), by_caller),
        ("client13", TRUST, list("ours", "-tls_version 1.3"), by_caller),
    ]);
}

#[test]
fn what_cannot_be_used_is_said_before_the_first_call() {
    let world = World::new();
    world.write("empty.pem", "");
    let own = "-t l1 -i 127.0.0.1 -nostdin -tls_cert certificate.pem -tls_key key.pem";
    for (words, code, said) in [
        ("-sn uas -tls_version 1.0", 1, "'-tls_version 1.0': TLS before 1.2 is deprecated (RFC 8996)"),
        ("-sn uac 127.0.0.1:9 -tls_version 1.1", 1, "'-tls_version 1.1': TLS before 1.2 is deprecated (RFC 8996)"),
        ("-sn uas -tls_version 2", 1, "wants 1.2 or 1.3, not '2'"),
        ("-sn uas -tls_crl ours.pem", 1, "-tls_crl ours.pem needs -tls_ca FILE"),
        ("-sn uas -tls_ca authority.pem -tls_crl empty.pem", 255, "empty.pem: no certificate revocation list in it"),
        ("-sn uac 127.0.0.1:9 -tls_ca authority.pem -tls_crl none.pem", 255, "none.pem: I/O error: No such file"),
    ] {
        let (exit, text) = world.refused(&format!("{words} {own}"));
        assert_eq!(exit, Some(code), "{words}: {text}");
        assert!(text.contains(said), "{words}: {text}");
    }
}
