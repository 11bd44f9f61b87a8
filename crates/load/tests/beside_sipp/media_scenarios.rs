//! Media of whole scenarios in processes: SIPp's own regression cases about media, and captures compared with SIPp's.

use crate::command_process::{Process, Who, regression};
use crate::listening::wait_for_udp;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

fn recorder(ip: &str, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((ip, port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// Returns the source port of the first datagram.
fn source(socket: &UdpSocket) -> u16 {
    let (_, from) = socket.recv_from(&mut [0; 2_048]).expect("media come");
    from.port()
}

fn end_of_media(log: &Path) -> Option<u16> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("m=audio "))?;
    line.split(' ').nth(1)?.parse().ok()
}

/// Returns the scenarios of a case, with `uas.xml` of another if it has none.
fn pair(case: &str) -> Option<(std::path::PathBuf, std::path::PathBuf)> {
    let folder = regression(case)?;
    let uas = folder.join("uas.xml");
    let uas = if uas.is_file() { uas } else { regression("0192")?.join("uas.xml") };
    Some((folder.join("uac.xml"), uas))
}

/// Copies the samples, which SIPp finds in the working folder only.
fn samples(uac: &Path, folder: &Path) {
    let name = "beep_1sec_50x160b.alaw";
    std::fs::copy(uac.with_file_name(name), folder.join(name)).unwrap();
}

/// Returns the pairs of programs: ours in either role with SIPp in the other, then ours in both.
fn parts() -> Vec<(Who, Who)> {
    let mut parts = vec![(Who::Ours, Who::Ours)];
    if Who::all().contains(&Who::Theirs) {
        parts.extend([(Who::Ours, Who::Theirs), (Who::Theirs, Who::Ours)]);
    }
    parts
}

fn answering(who: Who, folder: &Path, ip: &str, words: &str) -> Process {
    let process = who.start(folder, &format!("-i {ip} -p 5070 {words}"));
    wait_for_udp(&format!("{ip}:5070"));
    process
}

/// Runs cases 0192 and 0196, in which media are sent from the port in the offer.
#[test]
fn streams_come_from_the_announced_port() {
    for (case, net) in [("0192", 81), ("0196", 82)] {
        let Some((uac, uas)) = pair(case) else { return };
        for (n, (calls, answers)) in parts().into_iter().enumerate() {
            // The minimum is an option of SIPp 3.7.
            let newer = case == "0196" && calls == Who::Ours;
            let ip = format!("127.0.{net}.{}", n + 1);
            println!("{case}: {calls:?} calls {answers:?}");
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            samples(&uac, folder);
            let recorder = recorder(&ip, 5071);
            let _uas = answering(answers, folder, &ip, &format!("-sf {} -key custom_media_port 5071", uas.display()));
            let least = if newer { "-min_rtp_port 5072" } else { "" };
            let words = format!("-m 1 -sf {} {ip}:5070 -i {ip} -timeout 8 -timeout_error {least}", uac.display());
            let mut uac = calls.start(folder, &format!("{words} -trace_msg -message_file tmp.log"));
            uac.ends_well(30);
            let from = source(&recorder);
            assert_eq!(Some(from), end_of_media(&folder.join("tmp.log")));
            if newer {
                assert_eq!(from, 5_072);
            }
        }
    }
}

/// Runs case 0862: the address of the peer is in a part of a multipart body.
#[test]
fn an_offer_inside_multipart_is_found() {
    let Some(folder) = regression("0862") else { return };
    let (uac, uas) = (folder.join("uac.xml"), folder.join("uas.xml"));
    for (n, (calls, answers)) in
        [(Who::Ours, Who::Ours), (Who::all()[Who::all().len() - 1], Who::Ours)].into_iter().enumerate()
    {
        let ip = format!("127.0.83.{}", n + 1);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let recorder = recorder(&ip, 5072);
        let mut answering = answering(answers, folder, &ip, &format!("-sf {} -m 1", uas.display()));
        let words = format!("-m 1 -sf {} {ip}:5070 -i {ip} -timeout 8 -timeout_error", uac.display());
        calls.start(folder, &words).ends_well(30);
        answering.ends_well(30);
        source(&recorder);
    }
}

/// Runs case 0259, with a check that it lacks: the echo is on, off, on again.
#[test]
fn the_echo_is_switched_off_and_on() {
    let Some((_, uas)) = pair("0259") else { return };
    let ip = "127.0.84.1";
    let folder = tempfile::tempdir().unwrap();
    let _uas = answering(Who::Ours, folder.path(), ip, &format!("-sf {} -rtp_echo", uas.display()));
    let Some((uac, _)) = pair("0259") else { return };
    let words = format!("-m 1 -sf {} {ip}:5070 -i {ip} -timeout 10 -timeout_error", uac.display());
    let mut calls = Who::Ours.start(folder.path(), &words);
    // A third sender throughout: the answering side has 6000, the calling side the next pair.
    let probe = recorder(ip, 0);
    probe.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut heard = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(9) {
        probe.send_to(b"probe", (ip, 6_000)).unwrap();
        heard.push(probe.recv(&mut [0; 64]).is_ok());
        // Between two probes.
        std::thread::sleep(Duration::from_millis(50));
    }
    heard.dedup();
    assert_eq!(heard, [true, false, true]);
    calls.ends_well(30);
}

/// Runs case 0276.
#[test]
fn a_busy_port_in_the_range_is_no_error() {
    for (n, (calls, answers)) in parts().into_iter().enumerate() {
        let ip = format!("127.0.85.{}", n + 1);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let _busy = recorder(&ip, 6_002);
        let _uas = answering(answers, folder, &ip, "-sn uas -m 1");
        calls.start(folder, &format!("-sn uac -i {ip} -m 1 {ip}:5070")).ends_well(30);
    }
}

const ANSWER: &str = r#"<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="answer">
  <recv request="INVITE"/>
  <send retrans="500"><![CDATA[

      SIP/2.0 200 OK
      [last_Via:]
      [last_From:]
      [last_To:];tag=[pid]-[call_number]
      [last_Call-ID:]
      [last_CSeq:]
      Contact: <sip:[local_ip]:[local_port]>
      Content-Type: application/sdp
      Content-Length: [len]

      v=0
      o=user1 53655765 2353687637 IN IP4 [local_ip]
      s=-
      c=IN IP4 [local_ip]
      t=0 0
      m=audio 7070 RTP/AVP 8 101

  ]]></send>
  <recv request="ACK"/>
  <recv request="BYE"/>
  <send><![CDATA[

      SIP/2.0 200 OK
      [last_Via:]
      [last_From:]
      [last_To:]
      [last_Call-ID:]
      [last_CSeq:]
      Content-Length: 0

  ]]></send>
</scenario>
"#;

const CALL: &str = r#"<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="call">
  <send retrans="500"><![CDATA[

      INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[pid]c[call_number]
      To: [service] <sip:[service]@[remote_ip]:[remote_port]>
      Call-ID: [call_id]
      CSeq: 1 INVITE
      Contact: sip:sipp@[local_ip]:[local_port]
      Content-Type: application/sdp
      Content-Length: [len]

      v=0
      o=user1 53655765 2353687637 IN IP4 [local_ip]
      s=-
      c=IN IP4 [local_ip]
      t=0 0
      m=audio [auto_media_port] RTP/AVP 8 101

  ]]></send>
  <recv response="200"/>
  <send><![CDATA[

      ACK sip:[service]@[remote_ip]:[remote_port] SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[pid]c[call_number]
      To: [service] <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
      Call-ID: [call_id]
      CSeq: 1 ACK
      Content-Length: 0

  ]]></send>
  <nop><action><exec play_pcap_audio="sound.pcap"/></action></nop>
  <pause milliseconds="700"/>
  <send retrans="500"><![CDATA[

      BYE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[pid]c[call_number]
      To: [service] <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
      Call-ID: [call_id]
      CSeq: 2 BYE
      Content-Length: 0

  ]]></send>
  <recv response="200"/>
</scenario>
"#;

/// Creates 20 RTP packets, 20 ms apart, in Ethernet frames.
fn capture() -> Vec<u8> {
    let mut file: Vec<u8> = Vec::new();
    for n in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(n.to_le_bytes());
    }
    for packet in 0..20u8 {
        let mut payload = vec![0x80, 8, 0, packet];
        payload.extend((u32::from(packet) * 160).to_be_bytes());
        payload.extend([1, 2, 3, 4]);
        payload.extend([packet; 160]);
        let length = payload.len() as u16;
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((28 + length).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x10, 0, 0x20, 0]);
        frame.extend((8 + length).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        for n in [1, u32::from(packet) * 20_000, frame.len() as u32, frame.len() as u32] {
            file.extend(n.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// Runs three calls at a time, and checks that port and datagrams of each equal SIPp's.
#[test]
fn captures_are_played_as_sipp_plays_them() {
    let mut seen = Vec::new();
    for (n, who) in Who::all().into_iter().enumerate() {
        let ip = format!("127.0.86.{}", n + 1);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("answer.xml"), ANSWER).unwrap();
        std::fs::write(folder.join("call.xml"), CALL).unwrap();
        std::fs::write(folder.join("sound.pcap"), capture()).unwrap();
        let recorder = recorder(&ip, 7_070);
        let _answering = answering(Who::Ours, folder, &ip, "-sf answer.xml");
        let words = format!("-sf call.xml {ip}:5070 -i {ip} -m 3 -r 50 -timeout 8 -timeout_error");
        who.start(folder, &words).ends_well(30);
        recorder.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut datagrams: Vec<(u16, Vec<u8>)> = Vec::new();
        let mut bytes = [0; 2_048];
        while let Ok((n, from)) = recorder.recv_from(&mut bytes) {
            datagrams.push((from.port(), bytes[..n].to_vec()));
        }
        if who == Who::Theirs && datagrams.is_empty() {
            println!("SIPp plays captures by raw sockets, which this user may not have: nothing to compare");
            continue;
        }
        datagrams.sort();
        let mut ports: Vec<u16> = datagrams.iter().map(|d| d.0).collect();
        ports.dedup();
        println!("{who:?}: {} datagrams from {ports:?}", datagrams.len());
        if who == Who::Ours {
            assert_eq!((datagrams.len(), ports.len()), (60, 3));
        }
        seen.push(datagrams);
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "ours and SIPp's differ");
}
