//! Requests of a document beside its messages: media, circuits, commands, local time; and the errors that precede the
//! first message.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use strowger_tests::wait;

use strowger_tests::duel::Ports;
use strowger_tests::generator::{refused, reply};
use strowger_tests::peer::{sends_back, until_read};
use strowger_tests::program::{self, SIPP};
use strowger_tests::{binary, together};

#[test]
fn documents_act() {
    together(&[
        ("digits_are_telephone_events", digits_are_telephone_events),
        ("a_wav_file_is_streamed_without_its_header", a_wav_file_is_streamed_without_its_header),
        ("a_wav_file_of_another_coding_is_refused", a_wav_file_of_another_coding_is_refused),
        ("keywords_of_srtp_are_refused", keywords_of_srtp_are_refused),
        ("what_sipp_refuses_is_said", what_sipp_refuses_is_said),
        ("calls_have_a_circuit_each", calls_have_a_circuit_each),
        ("circuits_are_no_keyword_without_a_map", circuits_are_no_keyword_without_a_map),
        ("captured_text_is_no_part_of_a_command", captured_text_is_no_part_of_a_command),
        ("commands_can_be_refused", commands_can_be_refused),
        ("scenarios_of_the_other_direction_are_refused", scenarios_of_the_other_direction_are_refused),
        ("moments_are_local", moments_are_local),
        ("the_version_names_what_is_there", the_version_names_what_is_there),
    ]);
}

/// Returns the document of a call with an extra line in the INVITE, and actions when it is answered.
fn document(line: &str, actions: &str, hold: u32) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"ISO-8859-1\" ?>\n<scenario name=\"acts\">\n<send retrans=\"500\"><![CDATA[\n\
         INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0\n\
         Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
         From: <sip:a@[local_ip]:[local_port]>;tag=[call_number]\nTo: <sip:b@[remote_ip]>\nCall-ID: [call_id]\nCSeq: 1 INVITE\n\
         Contact: <sip:a@[local_ip]:[local_port]>\nX: {line}\nContent-Type: application/sdp\nContent-Length: [len]\n\n\
         v=0\no=- 1 1 IN IP4 [local_ip]\ns=-\nc=IN IP4 [media_ip]\nt=0 0\nm=audio [media_port] RTP/AVP 8 96\n]]></send>\n\
         <recv response=\"200\">{}</recv>\n<nop>{}</nop>\n<pause milliseconds=\"{hold}\"/>\n</scenario>\n",
        if actions.contains("<ereg") { actions } else { "" },
        if actions.contains("<ereg") || actions.is_empty() {
            String::new()
        } else {
            format!("<action>{actions}</action>")
        },
    )
}

/// Answers each INVITE with a description that names the port of `media`, and passes the received messages on.
fn phone(media: &UdpSocket) -> (SocketAddr, Receiver<String>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be set");
    let own = socket.local_addr().expect("it is bound");
    let port = media.local_addr().expect("it is bound").port();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if sends_back(&socket, &buffer[..length], from) {
                continue;
            }
            let request = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let body = format!("v=0\r\nc=IN IP4 127.0.0.1\r\nm=audio {port} RTP/AVP 8 96\r\n");
            let head = format!(
                "Subject: hi; touch pwned\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let answer = reply("200 OK", &request, own).replace("Content-Length: 0\r\n\r\n", &head);
            let _ = socket.send_to(answer.as_bytes(), from);
            let _ = tell.send(request);
        }
    });
    (own, told)
}

fn media() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
    socket
}

/// Returns SIPp's command line for a document in this folder.
fn command(program: &[&Path], folder: &Path, document: &str, target: SocketAddr, words: &[&str]) -> Command {
    std::fs::write(folder.join("acts.xml"), document).expect("the folder can be written");
    let ports = Ports::free();
    let [port, control, media] = [ports.own, ports.control, ports.media].map(|port| port.to_string());
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(["-sf", "acts.xml", &target.to_string(), "-nostdin", "-i", "127.0.0.1"]);
    command.args(["-p", &port, "-cp", &control, "-mp", &media, "-m", "1"]).args(words);
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// Runs `strowger sipp` to its end. By then the phone has read all its messages.
fn run(folder: &Path, document: &str, target: SocketAddr, words: &[&str]) -> Output {
    let program = [binary::strowger(), Path::new("sipp")];
    let output = command(&program, folder, document, target, words).output().expect("it starts");
    until_read(target);
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that a run did not begin, and that its error has these words.
#[track_caller]
fn is_refused(output: &Output, heard: &Receiver<String>, words: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    assert!(heard.try_recv().is_err(), "nothing is sent: {said}");
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

/// Payload type, marker, event, end, duration of each packet of telephone events.
type Event = (u8, bool, u8, bool, u16);

fn digits_are_telephone_events() {
    let ours: &[&Path] = &[binary::strowger(), Path::new("sipp")];
    let mut programs = vec![ours];
    // SIPp sends media over raw sockets, which need root.
    let theirs = SIPP.path().filter(|_| program::is_root());
    let theirs: Vec<&Path> = theirs.iter().map(|path| path.as_path()).collect();
    if !theirs.is_empty() {
        programs.push(&theirs);
    }
    let played: Vec<Vec<Event>> = std::thread::scope(|scope| {
        let threads: Vec<_> = programs.iter().map(|program| scope.spawn(|| events(program))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it plays")).collect()
    });
    let wanted = [1, 11].into_iter().flat_map(|event| {
        let tone = (0..10).map(move |packet| (96, packet == 0, event, false, packet * 160));
        tone.chain([(96, false, event, true, 1_600); 3])
    });
    let wanted: Vec<Event> = wanted.collect();
    for (program, played) in programs.iter().zip(&played) {
        assert_eq!(*played, wanted, "{program:?}");
    }
}

/// Returns the events that a program sends for `1#`.
fn events(program: &[&Path]) -> Vec<Event> {
    let (folder, media) = (folder(), media());
    let (target, _heard) = phone(&media);
    let text = document("digits", "<exec play_dtmf=\"1#\"/>", 2_000);
    let mut child = command(program, folder.path(), &text, target, &[]);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let (mut events, mut buffer) = (Vec::new(), [0; 2_048]);
    while events.len() < 26 {
        let length = media.recv(&mut buffer).expect("events come");
        let packet = &buffer[..length];
        if packet[1] & 0x7f == 96 {
            let duration = u16::from_be_bytes([packet[14], packet[15]]);
            events.push((packet[1] & 0x7f, packet[1] & 0x80 != 0, packet[12], packet[13] & 0x80 != 0, duration));
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    events
}

/// Returns a WAV file of this coding, mono at 8 kHz.
fn wave(coding: u16, sound: &[u8]) -> Vec<u8> {
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0".to_vec();
    file.extend(coding.to_le_bytes());
    file.extend([1, 0, 0x40, 0x1f, 0, 0, 0x40, 0x1f, 0, 0, 1, 0, 8, 0]);
    file.extend(b"data");
    file.extend((sound.len() as u32).to_le_bytes());
    file.extend(sound);
    file
}

fn a_wav_file_is_streamed_without_its_header() {
    let (folder, media) = (folder(), media());
    let (target, _heard) = phone(&media);
    let sound: Vec<u8> = (0..320).map(|n| n as u8).collect();
    std::fs::write(folder.path().join("a.wav"), wave(6, &sound)).expect("the folder can be written");
    let ran = run(folder.path(), &document("sound", "<exec rtp_stream=\"a.wav,1,8\"/>", 60), target, &[]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let (mut came, mut buffer) = (Vec::new(), [0; 2_048]);
    for _ in 0..2 {
        let length = media.recv(&mut buffer).expect("sound comes");
        came.extend_from_slice(&buffer[12..length]);
    }
    assert_eq!(came, sound);
}

fn a_wav_file_of_another_coding_is_refused() {
    let (folder, media) = (folder(), media());
    let (target, heard) = phone(&media);
    std::fs::write(folder.path().join("a.wav"), wave(1, &[0; 320])).expect("the folder can be written");
    let text = document("sound", "<exec rtp_stream=\"a.wav,1,8\"/>", 60);
    is_refused(&run(folder.path(), &text, target, &[]), &heard, &["acts.xml:", "PCM", "A-law"]);
}

fn keywords_of_srtp_are_refused() {
    let (folder, media) = (folder(), media());
    let (target, heard) = phone(&media);
    let text = document("[cryptotag1audio] [cryptokeyparams1audio]", "", 0);
    is_refused(&run(folder.path(), &text, target, &[]), &heard, &["acts.xml:", "[cryptotag1audio]", "SRTP"]);
    let path = folder.path().join("acts.xml").display().to_string();
    let target = target.to_string();
    for words in [&[target.as_str(), "--scenario", &path][..], &[&target, "--scenario", &path, "--dry-run"]] {
        let (code, said) = refused(words);
        assert!(code == 2 && said.contains("SRTP"), "{words:?}: {code}: {said}");
    }
    assert!(heard.try_recv().is_err(), "nothing is sent");
}

fn what_sipp_refuses_is_said() {
    let (folder, media) = (folder(), media());
    let (target, _heard) = phone(&media);
    let text = document("new", "<assignstr assign_to=\"a\" value=\"b c\"/><urlencode variable=\"a\"/>", 0);
    let ran = run(folder.path(), &text, target, &[]);
    assert!(said(&ran).contains("is of SIPp 3.7: SIPp 3.6 refuses"), "{}", said(&ran));
    let path = folder.path().join("acts.xml").display().to_string();
    let (_, said) = refused(&[&target.to_string(), "--scenario", &path, "--dry-run"]);
    assert!(said.contains("is of SIPp 3.7: SIPp 3.6 refuses"), "{said}");
}

fn calls_have_a_circuit_each() {
    let (folder, media) = (folder(), media());
    let (target, heard) = phone(&media);
    let words = ["-tdmmap", "{0-0}{99}{5-5}{1-2}", "-m", "3", "-r", "100"];
    let ran = run(folder.path(), &document("circuit [tdmmap]", "", 1_000), target, &words);
    // The third call finds no free circuit.
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    let mut circuits: Vec<String> = heard
        .try_iter()
        .filter(|request| request.starts_with("INVITE"))
        .filter_map(|request| Some(request.lines().find(|line| line.starts_with("X:"))?.to_owned()))
        .collect();
    circuits.sort_unstable();
    assert_eq!(circuits, ["X: circuit 0.99.5/1", "X: circuit 0.99.5/2"]);
}

fn circuits_are_no_keyword_without_a_map() {
    let (folder, media) = (folder(), media());
    let (target, heard) = phone(&media);
    let ran = run(folder.path(), &document("circuit [tdmmap]", "", 0), target, &[]);
    assert!(!ran.status.success() && said(&ran).contains("-tdmmap"), "{}", said(&ran));
    assert!(heard.try_recv().is_err(), "nothing is sent");
    let ran = run(folder.path(), &document("circuit", "", 0), target, &["-tdmmap", "{5-0}{99}{5-5}{1-2}"]);
    is_refused(&ran, &heard, &["-tdmmap"]);
}

fn captured_text_is_no_part_of_a_command() {
    let (folder, media) = (folder(), media());
    let (target, _heard) = phone(&media);
    let actions = "<action><ereg regexp=\"hi.*\" search_in=\"hdr\" header=\"Subject:\" assign_to=\"subject\"/>\
                   <log message=\"[$subject]\"/><exec command=\"sh ./note\"/></action>";
    let script = "printf %s \"$SIPP_subject\" > part\nmv part whole\n";
    std::fs::write(folder.path().join("note"), script).expect("the folder can be written");
    let ran = run(folder.path(), &document("command", actions, 300), target, &[]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let whole = folder.path().join("whole");
    // The run ends without waiting for its command.
    wait::until(Duration::from_secs(10), || whole.exists());
    assert_eq!(std::fs::read_to_string(whole).unwrap_or_default(), "hi; touch pwned");
    assert!(!folder.path().join("pwned").exists());
}

fn commands_can_be_refused() {
    let (folder, media) = (folder(), media());
    let (target, heard) = phone(&media);
    let text = document("command", "<exec command=\"touch there\"/>", 300);
    is_refused(&run(folder.path(), &text, target, &["-no_exec"]), &heard, &["acts.xml:", "exec command", "-no_exec"]);
    let path = folder.path().join("acts.xml").display().to_string();
    let (code, said) = refused(&[&target.to_string(), "--scenario", &path, "--no-exec"]);
    assert!(code == 2 && said.contains("--no-exec"), "{code}: {said}");
    // A dry run only prints.
    let there = folder.path().join("there").display().to_string();
    let first = format!("<nop><action><exec command=\"touch {there}\"/></action></nop>\n<send retrans");
    let early = document("command", "", 0).replace("<send retrans", &first);
    std::fs::write(&path, early).expect("the folder can be written");
    let (_, said) = refused(&[&target.to_string(), "--scenario", &path, "--dry-run"]);
    assert!(said.contains(&format!("a dry run runs no command: touch {there}")), "{said}");
    assert!(!folder.path().join("there").exists());
}

fn scenarios_of_the_other_direction_are_refused() {
    let (folder, media) = (folder(), media());
    let (target, heard) = phone(&media);
    for (option, value) in [("-rxsf", "acts.xml"), ("-rxsn", "uas"), ("-rxinf", "data.csv")] {
        is_refused(
            &run(folder.path(), &document("other", "", 0), target, &[option, value]),
            &heard,
            &[option, "second"],
        );
    }
}

/// Returns the seconds of the day in `..HH:MM:SS`, which follows a date and one character.
fn of_day(text: &str) -> i64 {
    let part = |at: usize| text.get(at..at + 2).and_then(|part| part.parse::<i64>().ok()).unwrap_or(-1);
    part(11) * 3_600 + part(14) * 60 + part(17)
}

fn moments_are_local() {
    let (folder, media) = (folder(), media());
    let (target, heard) = phone(&media);
    let program = [binary::strowger(), Path::new("sipp")];
    let text = document("[timestamp]", "", 0);
    let words = ["-trace_msg", "-message_file", "messages.log"];
    let ran = command(&program, folder.path(), &text, target, &words).env("TZ", "XYZ-5:30").output();
    assert!(ran.expect("it starts").status.success());
    until_read(target);
    let invite = heard.try_recv().expect("a call came");
    let stamp = invite.lines().find_map(|line| line.strip_prefix("X: ")).expect("the line is there");
    let (_, epoch) = stamp.rsplit_once('\t').expect("two tabs");
    let epoch: f64 = epoch.parse().expect("seconds");
    let wanted = (epoch as i64 + 19_800) % 86_400;
    assert_eq!(of_day(stamp), wanted, "{stamp}");
    let log = std::fs::read_to_string(folder.path().join("messages.log")).expect("it was written");
    let (_, traced) = log.split_once("--- ").expect("a line of moments");
    assert!((of_day(traced) - wanted).rem_euclid(86_400) <= 5, "{traced} after {stamp}");
}

fn the_version_names_what_is_there() {
    let output = Command::new(binary::strowger()).args(["sipp", "-v"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("v3.6.1-TLS-PCAP-RTPSTREAM") && !said.contains("SCTP"), "{said}");
}
