//! Bridged calls between phones of other projects. Each phone plays a tone, and the recording of the other must have the tone after the answer, a
//! hold and a transfer. The last tenth of a second of a recording counts.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_tests::baresip::{Baresip, with_users};
use strowger_tests::control::wait_for_no_calls;
use strowger_tests::linphone::Linphone;
use strowger_tests::program::{BARESIP, LINPHONEC, SIPP, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::sipp_phone::{self, ADDRESS, SippSound};
use strowger_tests::stalls::Stalls;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::{undisturbed, wait};

use crate::bridge_media::phone;
use crate::echo_media::over_the_rest;

const SOON: Duration = Duration::from_secs(30);

/// Time in which a phone must hear the other one.
const HEARD: Duration = Duration::from_secs(1);

/// Samples a second of PCMU, and of a recording of Opus.
const PCMU: usize = 8_000;
const OPUS: usize = 48_000;

/// Starts a server with these users that bridges each call by a rule. Its media are at this address of loopback. It trusts SIPp.
fn server(octet: u8) -> Server {
    let media =
        format!("media.addresses = [\"127.0.0.{octet}\"]\nmedia.ports = \"22000-22199\"\nlog.level = \"debug\"");
    let rule = "[[rule]]\nname = \"bridge\"\nb2bua = true";
    let source = format!("[[source]]\nname = \"sipp\"\nnetworks = [\"{ADDRESS}\"]\ntrusted = true");
    let server = with_users(Setup::on(&[Udp]).with(&media).with(rule).with(&source));
    server.add_user("carol@example.org", "secret-of-carol");
    server
}

fn baresip(user: &'static str, server: SocketAddr, tone: u32) -> Baresip {
    let password = match user {
        "alice" => "secret-of-alice",
        "bob" => "secret-of-bob",
        _ => "secret-of-carol",
    };
    let mut phone = Baresip::start_with_tone(&phone(user, password, server), tone);
    phone.registered(SOON);
    phone
}

/// Starts a phone, and waits until it is registered.
fn linphone(user: &str, server: &Server, tone: u16) -> Linphone {
    let phone = Linphone::start(user, &format!("secret-of-{user}"), server.address(Udp), tone);
    server.log_with(&format!("registered aor={user}@example.org"));
    phone
}

/// Phone with its recording, at this sampling rate.
struct Ear<'a> {
    recording: Box<dyn Fn() -> Vec<i16> + 'a>,
    rate: usize,
    /// Tone of the other phone, in hertz.
    tone: f64,
    /// Number of samples at the beginning that do not count.
    begin: usize,
}

impl<'a> Ear<'a> {
    fn of(recording: impl Fn() -> Vec<i16> + 'a, rate: usize, tone: f64) -> Self {
        Self { recording: Box::new(recording), rate, tone, begin: 0 }
    }

    /// Ignores the samples recorded so far.
    fn anew(self) -> Self {
        let begin = (self.recording)().len();
        Self { begin, ..self }
    }

    /// Tells whether the last tenth of a second has the tone, 20 dB over the rest.
    fn hears(&self) -> bool {
        let (sound, window) = ((self.recording)(), self.rate / 10);
        let Some(from) = sound.len().checked_sub(window).filter(|from| *from >= self.begin) else { return false };
        over_the_rest(&sound[from..], self.tone * PCMU as f64 / self.rate as f64) > 20.0
    }
}

/// Asserts that each of these phones hears the other one within a second from now on, without the times in which the machine stood still.
#[track_caller]
fn all_hear(ears: &[Ear<'_>], server: &Server) {
    let (stalls, begun) = (Stalls::watch(), Instant::now());
    let came = wait::until(SOON, || ears.iter().all(Ear::hears)).then(|| stalls.since(begun));
    assert!(came.is_some_and(|time| time < HEARD), "{came:?}\n{}", server.log());
}

/// Text of Linphone at the start of media, after an answer and after a resume.
const MEDIA: &str = "Media streams established";

/// Time without a further sample after which a recording has stopped.
const SILENCE: Duration = Duration::from_millis(500);

/// Lets a phone hold its call for the first time. Returns the length of its recording, to which nothing is added during the hold.
fn hold(phone: &mut Linphone) -> usize {
    phone.order("pause");
    phone.prints("is now paused", 1, SOON);
    // Linphone writes the buffered rest. Packets that come during the hold would lengthen the recording without end.
    let stalls = Stalls::watch();
    let (mut length, mut since) = (phone.recording().len(), Instant::now());
    let has_stopped = wait::until(SOON, || {
        let now = phone.recording().len();
        if now != length {
            (length, since) = (now, Instant::now());
        }
        since.elapsed() >= SILENCE && stalls.since(since) >= SILENCE
    });
    assert!(has_stopped, "sound during the hold");
    length
}

/// Lets a phone resume its call after the first hold.
fn resume(phone: &mut Linphone) {
    phone.order("resume");
    phone.prints(MEDIA, 2, SOON);
}

/// Waits until Baresip gives the recording of its next call another name.
fn next_second() {
    // The names of its recordings have the second of their start.
    std::thread::sleep(Duration::from_secs(1));
}

/// Asserts that bob and carol, whose tones are 700 and 1,300 Hz, hear each other within a second after the transfer. Carol hangs up.
fn talk_after_a_transfer(bob: &mut Baresip, carol: &mut Baresip, server: &Server) {
    carol.expect("CALL_ESTABLISHED", SOON);
    bob.expect("CALL_ESTABLISHED", SOON);
    let ears = [Ear::of(|| carol.recording(), PCMU, 700.0), Ear::of(|| bob.recording(), PCMU, 1_300.0)];
    all_hear(&ears, server);
    drop(ears);
    carol.order("hangup", "");
}

#[test]
fn baresip_transfers_its_party_to_a_third_phone() {
    if !have(&[BARESIP]) {
        return;
    }
    undisturbed(|| {
        let server = server(101);
        let address = server.address(Udp);
        let (mut bob, mut carol) = (baresip("bob", address, 700), baresip("carol", address, 1_300));
        let mut alice = baresip("alice", address, 1_000);
        alice.order("dial", "sip:bob@example.org");
        alice.expect("CALL_ESTABLISHED", SOON);
        bob.expect("CALL_ESTABLISHED", SOON);
        let ears = [Ear::of(|| alice.recording(), PCMU, 700.0), Ear::of(|| bob.recording(), PCMU, 1_000.0)];
        all_hear(&ears, &server);
        drop(ears);
        next_second();
        alice.order("transfer", "sip:carol@example.org");
        talk_after_a_transfer(&mut bob, &mut carol, &server);
        alice.expect("CALL_CLOSED", SOON);
        wait_for_no_calls(&server, SOON);
    });
}

#[test]
fn linphone_transfers_its_party_to_a_third_phone() {
    if !have(&[BARESIP, LINPHONEC]) {
        return;
    }
    undisturbed(|| {
        let server = server(108);
        let address = server.address(Udp);
        let (mut bob, mut carol) = (baresip("bob", address, 700), baresip("carol", address, 1_300));
        let mut alice = linphone("alice", &server, 1_000);
        alice.order("call sip:bob@example.org");
        alice.prints(MEDIA, 1, SOON);
        bob.expect("CALL_ESTABLISHED", SOON);
        next_second();
        alice.order("transfer sip:carol@example.org");
        talk_after_a_transfer(&mut bob, &mut carol, &server);
        alice.prints("ended (No error)", 1, SOON);
        wait_for_no_calls(&server, SOON);
    });
}

#[test]
fn linphone_and_baresip_hear_each_other() {
    if !have(&[BARESIP, LINPHONEC]) {
        return;
    }
    undisturbed(|| {
        let server = server(102);
        let mut bob = baresip("bob", server.address(Udp), 700);
        let mut alice = linphone("alice", &server, 1_000);
        alice.order("call sip:bob@example.org");
        alice.prints(MEDIA, 1, SOON);
        let ears = [Ear::of(|| alice.recording(), PCMU, 700.0), Ear::of(|| bob.recording(), PCMU, 1_000.0)];
        all_hear(&ears, &server);
        drop(ears);
        let begin = hold(&mut alice);
        resume(&mut alice);
        let ear = Ear { begin, ..Ear::of(|| alice.recording(), PCMU, 700.0) };
        all_hear(&[ear], &server);
        bob.order("hangup", "");
        wait_for_no_calls(&server, SOON);
    });
}

#[test]
fn two_linphones_hear_each_other_in_opus() {
    if !have(&[LINPHONEC]) {
        return;
    }
    undisturbed(|| {
        let server = server(103);
        let mut bob = linphone("bob", &server, 700);
        let mut alice = linphone("alice", &server, 1_000);
        alice.order("call sip:bob@example.org");
        alice.prints(MEDIA, 1, SOON);
        let ears = [Ear::of(|| alice.recording(), OPUS, 700.0), Ear::of(|| bob.recording(), OPUS, 1_000.0)];
        all_hear(&ears, &server);
        drop(ears);
        let begin = hold(&mut alice);
        // Linphone plays its file to the party that it holds.
        all_hear(&[Ear::of(|| bob.recording(), OPUS, 1_000.0).anew()], &server);
        resume(&mut alice);
        let ear = Ear { begin, ..Ear::of(|| alice.recording(), OPUS, 700.0) };
        all_hear(&[ear, Ear::of(|| bob.recording(), OPUS, 1_000.0).anew()], &server);
        bob.order("terminate");
        wait_for_no_calls(&server, SOON);
    });
}

/// Lets SIPp with this sound call a phone of bob, which must hear a tone: that of SIPp, or its own, which SIPp sends back.
fn sipp_and_linphone(octet: u8, sound: SippSound, heard: f64) {
    let server = server(octet);
    let mut bob = linphone("bob", &server, 700);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut sipp = sipp_phone::call(folder.path(), server.address(Udp), "bob", sound);
    bob.prints(MEDIA, 1, SOON);
    all_hear(&[Ear::of(|| bob.recording(), PCMU, heard)], &server);
    let begin = hold(&mut bob);
    resume(&mut bob);
    let ear = Ear { begin, ..Ear::of(|| bob.recording(), PCMU, heard) };
    all_hear(&[ear], &server);
    bob.order("terminate");
    let status = sipp.end(SOON);
    assert!(status.success(), "{status:?}\n{}", server.log());
    wait_for_no_calls(&server, SOON);
}

#[test]
fn linphone_hears_sipp() {
    if have(&[LINPHONEC, SIPP]) {
        undisturbed(|| sipp_and_linphone(104, SippSound::Tone(1_300), 1_300.0));
    }
}

#[test]
fn sipp_hears_linphone() {
    if have(&[LINPHONEC, SIPP]) {
        undisturbed(|| sipp_and_linphone(105, SippSound::Received, 700.0));
    }
}

/// Lets SIPp with this sound call a phone of bob, as [`sipp_and_linphone`]. Baresip records nothing after
/// its first hold, so after the resume the signalling alone is tested.
fn sipp_and_baresip(octet: u8, sound: SippSound, heard: f64) {
    let server = server(octet);
    let mut bob = baresip("bob", server.address(Udp), 700);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut sipp = sipp_phone::call(folder.path(), server.address(Udp), "bob", sound);
    bob.expect("CALL_ESTABLISHED", SOON);
    all_hear(&[Ear::of(|| bob.recording(), PCMU, heard)], &server);
    for order in ["hold", "resume"] {
        bob.order(order, "");
        bob.expect("CALL_REMOTE_SDP", SOON);
    }
    bob.order("hangup", "");
    let status = sipp.end(SOON);
    assert!(status.success(), "{status:?}\n{}", server.log());
    wait_for_no_calls(&server, SOON);
}

#[test]
fn baresip_hears_sipp() {
    if have(&[BARESIP, SIPP]) {
        undisturbed(|| sipp_and_baresip(106, SippSound::Tone(1_300), 1_300.0));
    }
}

#[test]
fn sipp_hears_baresip() {
    if have(&[BARESIP, SIPP]) {
        undisturbed(|| sipp_and_baresip(107, SippSound::Received, 700.0));
    }
}
