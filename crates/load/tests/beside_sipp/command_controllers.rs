//! Third party call control: our controllers with each other, and with SIPp's in every role.

use crate::command_process::Who;
use crate::listening::{wait_for_tcp, wait_for_udp};
use std::path::Path;

fn count(file: &Path, text: &str) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().matches(text).count()
}

/// Returns an address of the test's own, so that tests run in parallel. SIPp binds its 3PCC port at every address, so
/// each test has ports of its own too.
fn address(test: u8, n: usize) -> String {
    format!("127.0.{test}.{}", n + 1)
}

#[test]
fn two_controllers_connect_two_ends() {
    const CALLS: usize = 5;
    let mut n = 0;
    for a in Who::all() {
        for b in Who::all() {
            println!("controller A {a:?}, controller B {b:?}, ends {b:?} and {a:?}");
            let ip = address(71, n);
            n += 1;
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let _end_a = b.start(folder, &format!("-sn 3pcc-A -i {ip} -p 5072"));
            let _end_b = a.start(folder, &format!("-sn 3pcc-B -i {ip} -p 5070"));
            wait_for_udp(&format!("{ip}:5072"));
            wait_for_udp(&format!("{ip}:5070"));
            let common = format!("-3pcc {ip}:9071 -i {ip} -m {CALLS} -trace_msg");
            let mut second = b.start(folder, &format!("-sn 3pcc-C-B {ip}:5070 -p 5071 -message_file b.log {common}"));
            wait_for_tcp(&format!("{ip}:9071"));
            let mut first = a.start(folder, &format!("-sn 3pcc-C-A {ip}:5072 -p 5073 -message_file a.log {common}"));
            first.ends_well(30);
            second.ends_well(30);
            for log in ["a.log", "b.log"] {
                let log = folder.join(log);
                assert_eq!(count(&log, "TCP control message sent"), CALLS, "{}", log.display());
                assert_eq!(count(&log, "TCP control message received"), CALLS);
                assert_eq!(count(&log, "BYE sip:"), CALLS);
            }
            // The offer of one end reaches the other, and its answer comes back.
            let port = |log: &str| {
                let text = std::fs::read_to_string(folder.join(log)).unwrap();
                let mut ports: Vec<String> =
                    text.lines().filter(|l| l.starts_with("m=audio ")).map(str::to_owned).collect();
                ports.sort();
                ports.dedup();
                ports
            };
            assert_eq!(port("a.log").len(), 2, "{:?}", port("a.log"));
            assert_eq!(port("a.log"), port("b.log"));
        }
    }
}

/// Runs SIPp's regression case 0098.
#[test]
fn the_local_port_of_a_controller_is_its_own() {
    for (n, who) in Who::all().into_iter().enumerate() {
        let ip = address(72, n);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let other = Who::all().into_iter().next_back().unwrap_or(who);
        let _b = other.start(folder, &format!("{ip}:5070 -sn 3pcc-C-B -3pcc {ip}:9072 -i {ip} -p 5071 -m 1"));
        wait_for_tcp(&format!("{ip}:9072"));
        let _a = who.start(
            folder,
            &format!("{ip}:5072 -sn 3pcc-C-A -3pcc {ip}:9072 -i {ip} -p 5073 -m 1 -trace_msg -message_file tmp.log"),
        );
        let via = format!("Via: SIP/2.0/UDP {ip}:5073;");
        let found = (0..200).any(|_| {
            // Between two looks.
            std::thread::sleep(std::time::Duration::from_millis(25));
            count(&folder.join("tmp.log"), &via) > 0
        });
        assert!(found, "{who:?}: no {via}");
    }
}

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"ISO-8859-1\" ?>\n<!DOCTYPE scenario SYSTEM \"sipp.dtd\">\n";

const ASK: &str = "<send retrans=\"500\"><![CDATA[

      OPTIONS sip:[service]@[remote_ip]:[remote_port] SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[pid]t[call_number]
      To: [service] <sip:[service]@[remote_ip]:[remote_port]>
      Call-ID: [call_id]
      CSeq: 1 OPTIONS
      Max-Forwards: 70
      Content-Length: 0

]]></send>
<recv response=\"200\"/>
";

const ANSWER: &str = "<recv request=\"OPTIONS\"/><send><![CDATA[

      SIP/2.0 200 OK
      [last_Via:]
      [last_From:]
      [last_To:];tag=1
      [last_Call-ID:]
      [last_CSeq:]
      Content-Length: 0

]]></send>
";

/// Runs a master that sends a command to one slave, then the answer of that slave to the other.
#[test]
fn a_master_and_two_slaves() {
    const CALLS: usize = 3;
    let write = |folder: &Path, name: &str, steps: &str| {
        let text = format!("{HEAD}<scenario name=\"{name}\">\n{steps}</scenario>\n");
        std::fs::write(folder.join(format!("{name}.xml")), text).unwrap();
    };
    let say = |to: &str, me: &str, what: &str| {
        format!(
            "<sendCmd dest=\"{to}\"><![CDATA[\n   Call-ID: [call_id]\n   From: {me}\n   X-What: {what}\n]]></sendCmd>\n"
        )
    };
    let hear = |from: &str| {
        format!(
            "<recvCmd src=\"{from}\"><action><ereg regexp=\"X-What: *(.*)\" search_in=\"msg\" assign_to=\"all,{from}\"/></action></recvCmd>\n"
        )
    };
    let mut n = 0;
    for master in Who::all() {
        for slave in Who::all() {
            println!("master {master:?}, slaves {slave:?}");
            let ip = address(73, n);
            n += 1;
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let first = say("s1", "m", "one-[call_number]") + &hear("s1");
            let second = say("s2", "m", "[$s1]-two") + &hear("s2");
            let log = "<nop><action><log message=\"end [$s2]\"/></action></nop>\n<Reference variables=\"all\"/>\n";
            write(folder, "master", &format!("{ASK}{first}{second}{log}"));
            for me in ["s1", "s2"] {
                let back = say("m", me, &format!("[$m]-{me}"));
                write(folder, me, &format!("{}{ASK}{back}<Reference variables=\"all\"/>\n", hear("m")));
            }
            write(folder, "answer", ANSWER);
            std::fs::write(folder.join("cfg"), format!("s1;{ip}:9101\ns2;{ip}:9102\nm;{ip}:9100\n")).unwrap();
            // All three use one Call-ID, so each has an end of its own.
            let _ends = [5080, 5081, 5082].map(|port| {
                let end = Who::Ours.start(folder, &format!("-sf answer.xml -i {ip} -p {port}"));
                wait_for_udp(&format!("{ip}:{port}"));
                end
            });
            // Slaves end with their master.
            let common = format!("-slave_cfg cfg -i {ip}");
            let mut slaves = [("s1", 5081), ("s2", 5082)].map(|(name, port)| {
                let words = format!("-sf {name}.xml -slave {name} {ip}:{port} -p 1{port} {common}");
                slave.start(folder, &words)
            });
            wait_for_tcp(&format!("{ip}:9101"));
            wait_for_tcp(&format!("{ip}:9102"));
            let words =
                format!("-sf master.xml -master m {ip}:5080 -p 15080 -m {CALLS} -trace_logs -log_file l.log {common}");
            let mut lead = master.start(folder, &words);
            lead.ends_well(30);
            let said = std::fs::read_to_string(folder.join("l.log")).unwrap();
            for call in 1..=CALLS {
                let line = format!("end one-{call}-s1-two-s2");
                assert!(said.contains(&line), "no '{line}' in {said}");
            }
            for slave in &mut slaves {
                let code = slave.code(30);
                // SIPp 3.6.1 as a slave sometimes fails an assertion when its master goes.
                assert!(code == Some(0) || matches!(master, Who::Theirs) || code.is_none(), "{code:?}");
            }
        }
    }
}

/// Checks that a call that one controller gives up is also given up by the other, and that the other's end receives a
/// BYE.
#[test]
fn a_call_is_given_up_on_both_sides() {
    const CALLS: usize = 2;
    let mut n = 0;
    for a in Who::all() {
        for b in Who::all() {
            println!("controller A {a:?}, controller B {b:?}");
            let ip = address(75, n);
            n += 1;
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let busy = ANSWER.replace("OPTIONS", "INVITE").replace("200 OK", "486 Busy Here");
            let busy = format!("{HEAD}<scenario name=\"busy\">{busy}<recv request=\"ACK\"/></scenario>\n");
            std::fs::write(folder.join("busy.xml"), busy).unwrap();
            let _end_a = Who::Ours.start(folder, &format!("-sn 3pcc-A -i {ip} -p 5072"));
            let _end_b = Who::Ours.start(folder, &format!("-sf busy.xml -i {ip} -p 5070"));
            wait_for_udp(&format!("{ip}:5072"));
            wait_for_udp(&format!("{ip}:5070"));
            let common = format!("-3pcc {ip}:9075 -i {ip} -m {CALLS} -trace_msg");
            let mut second = b.start(folder, &format!("-sn 3pcc-C-B {ip}:5070 -p 5071 -message_file b.log {common}"));
            wait_for_tcp(&format!("{ip}:9075"));
            let mut first = a.start(folder, &format!("-sn 3pcc-C-A {ip}:5072 -p 5073 -message_file a.log {common}"));
            assert_eq!(first.code(30), Some(1), "its calls have failed");
            assert_eq!(second.code(30), Some(1), "its calls have failed");
            let log = folder.join("a.log");
            assert_eq!(count(&log, "internal-cmd: abort_call"), CALLS);
            assert_eq!(count(&log, "BYE sip:"), CALLS);
        }
    }
}

#[test]
fn a_controller_that_is_alone_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let ip = address(74, 0);
    let words = format!("{ip}:5072 -sn 3pcc-C-A -3pcc {ip}:9074 -i {ip} -p 5073 -m 1");
    assert_eq!(Who::Ours.start(folder.path(), &words).code(30), Some(255));
    // The other one goes in the middle: the call that waits for its command fails, and the run ends.
    let _end = Who::Ours.start(folder.path(), &format!("-sn 3pcc-A -i {ip} -p 5072"));
    wait_for_udp(&format!("{ip}:5072"));
    let other = std::net::TcpListener::bind(format!("{ip}:9074")).unwrap();
    let mut alone = Who::Ours.start(folder.path(), &words);
    let (mut stream, _) = other.accept().unwrap();
    let mut byte = [0];
    while byte != [0x1b] {
        std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
    }
    drop(stream);
    assert_eq!(alone.code(30), Some(1));
}
