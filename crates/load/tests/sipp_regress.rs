//! SIPp's own regression cases, driven by this engine behind SIPp's command line: each test says what the case is about
//! and passes if and only if SIPp's would. The scenarios are read in place from the corpora.
//!
//! Left out: memory errors under valgrind, SRTP patterns (0544), and a BYE made by an abort that follows the dialog's
//! routes (0850), which SIPp 3.6.1, whose messages these are, does not do either.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// One case at a time: they share ports.
static ALONE: Mutex<()> = Mutex::new(());

/// The example that is nothing but SIPp's face; built with the tests.
fn program() -> PathBuf {
    let mut path = std::env::current_exe().expect("a test has a file");
    path.pop();
    path.pop();
    path.join("examples/sipp")
}

/// The folder of a case; nothing without the corpora.
fn folder(case: &str) -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora");
    let root = std::env::var_os("STROWGER_CORPORA").map_or(default, PathBuf::from);
    let folder = root.join("sipp-scenarios/sipp/regress").join(case);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("{} is not there: the case is left out", folder.display());
    None
}

/// A running program, ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(line: &str, folder: &Path, files: &Path) -> Running {
    let place = |word: &str| match word {
        "''" => String::new(),
        _ => word.replace("CASE/", &format!("{}/", folder.display())),
    };
    let child = Command::new(program())
        .args(line.split_whitespace().map(place))
        .arg("-nostdin")
        .current_dir(files)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env("TERM", "bad_term")
        .spawn()
        .expect("the example is built with the tests");
    Running(child)
}

impl Running {
    /// The exit code, if it ends in time.
    fn code(&mut self, patience: Duration) -> Option<i32> {
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.0.try_wait().expect("it is ours") {
                return status.code();
            }
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// In the background: it must not have failed after a second.
    fn looked_at(mut self) -> Self {
        let code = self.code(Duration::from_secs(1));
        assert!(matches!(code, None | Some(0)), "ended with {code:?}");
        self
    }
}

const FOREGROUND: Duration = Duration::from_secs(20);

/// Takes one connection and gives its peer and every byte that comes within a second.
fn tcp_recorder(port: u16) -> Receiver<(SocketAddr, Vec<u8>)> {
    let listener = TcpListener::bind(("0.0.0.0", port)).expect("the port is free");
    let (to, from) = channel();
    std::thread::spawn(move || {
        let Ok((mut stream, peer)) = listener.accept() else { return };
        let _ = stream.set_read_timeout(Some(Duration::from_millis(700)));
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
        while let Ok(n) = stream.read(&mut buffer)
            && n > 0
        {
            bytes.extend_from_slice(&buffer[..n]);
        }
        let _ = to.send((peer, bytes));
    });
    from
}

fn recorded(from: &Receiver<(SocketAddr, Vec<u8>)>) -> (SocketAddr, Vec<u8>) {
    from.recv_timeout(Duration::from_secs(5)).expect("somebody connects")
}

/// Waits for one datagram.
fn udp_recorder(port: u16) -> Receiver<SocketAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", port)).expect("the port is free");
    let (to, from) = channel();
    std::thread::spawn(move || {
        let _ = socket.set_read_timeout(Some(Duration::from_secs(5)));
        if let Ok((_, peer)) = socket.recv_from(&mut [0; 4_096]) {
            let _ = to.send(peer);
        }
    });
    from
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).expect("the file was written")).into_owned()
}

/// Runs a case alone, in a folder of its own.
fn case(name: &str, run: impl FnOnce(&Path, &Path)) {
    let Some(folder) = folder(name) else { return };
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let files = tempfile::tempdir().expect("a temporary folder");
    run(&folder, files.path());
}

#[test]
fn a_literal_bracket_is_no_keyword() {
    case("github-#0018", |folder, files| {
        let heard = tcp_recorder(15_070);
        let _uac = start("-m 1 -sf CASE/notify-brackets.xml -t t1 127.0.0.1:15070", folder, files);
        let (_, bytes) = recorded(&heard);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.contains("X-Literal: [date]"), "{text}");
        assert!(!text.lines().any(|l| l.starts_with("X-Keyword:") && l.contains(['[', ']'])), "{text}");
    });
}

#[test]
fn the_end_of_a_message_is_neither_cut_nor_stretched() {
    case("github-#0034", |folder, files| {
        for (port, name, end) in [
            (15_070, "notify-1234", &b"\n\x01\x02\x03\x04"[..]),
            (15_071, "notify-manylf", b"0\r\n\r\n"),
            (15_072, "notify-nocrlf", b"0\r\n\r\n"),
            (15_073, "notify-withlf", b"3\r\n\r\nX\r\n"),
        ] {
            let heard = tcp_recorder(port);
            let _uac = start(&format!("-m 1 -sf CASE/{name}.xml -t t1 127.0.0.1:{port}"), folder, files);
            let (_, bytes) = recorded(&heard);
            assert!(bytes.ends_with(end), "{name}: {:?}", String::from_utf8_lossy(&bytes));
        }
    });
}

#[test]
fn connections_come_from_the_address_and_port_that_the_via_names() {
    case("github-#0018", |folder, files| {
        let heard = tcp_recorder(15_070);
        let _uac = start("-m 1 -sn uac -i 127.0.3.1 -t t1 -p 15071 127.0.2.1:15070", folder, files);
        let (peer, bytes) = recorded(&heard);
        assert_eq!(peer.ip().to_string(), "127.0.3.1");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.contains(&format!("Via: SIP/2.0/TCP 127.0.3.1:{};", peer.port())), "{peer} {text}");
    });
}

#[test]
fn automatic_answers_inside_and_outside_of_the_dialog() {
    case("github-#0085", |folder, files| {
        for (aa, ends) in [("-aa", true), ("", false)] {
            let _uas = start(&format!("-sn uas -i 127.0.0.1 -p 15070 -m 1 {aa}"), folder, files).looked_at();
            let mut uac = start("-sf CASE/uac.xml -i 127.0.0.1 -m 1 127.0.0.1:15070", folder, files);
            assert_eq!(uac.code(Duration::from_secs(1)), ends.then_some(0), "{aa}");
        }
    });
}

#[test]
fn a_test_on_a_variable_never_set_does_not_jump() {
    case("github-#0103", |folder, files| {
        let _uas = start("-sf CASE/uas-modified.xml -i 127.0.0.1 -p 15070 -m 1", folder, files).looked_at();
        let mut uac = start("127.0.0.1:15070 -sn uac -i 127.0.0.1 -m 1", folder, files);
        assert_eq!(uac.code(Duration::from_secs(1)), Some(0));
    });
}

#[test]
fn each_address_family_without_a_local_address() {
    case("github-#0018", |folder, files| {
        for target in ["127.0.0.1:15071", "[::1]:15071"] {
            let mut uac = start(&format!("-m 1 -sn uac {target} -p 15070 -timeout 1 -timeout_error"), folder, files);
            assert_eq!(uac.code(FOREGROUND), Some(255), "{target}");
        }
    });
}

#[test]
fn answers_without_to_fail_their_calls_only() {
    case("github-#0152", |folder, files| {
        let _uas = start("-sf CASE/uas.xml -p 15070", folder, files).looked_at();
        let line = "-m 20 -sf CASE/uac.xml 127.0.0.1:15070 -timeout 4 -timeout_error -trace_stat -stf tmp.log";
        let mut uac = start(line, folder, files);
        uac.code(FOREGROUND).expect("it ends");
        let rows = text(&files.join("tmp.log"));
        let last: Vec<&str> = rows.lines().last().unwrap_or_default().split(';').collect();
        assert_eq!(last[11], "20", "{rows}");
        assert!(last[17].parse::<u32>().is_ok_and(|failed| failed > 0), "{rows}");
    });
}

#[test]
fn headers_are_taken_not_lookalikes_in_a_body() {
    case("github-#0207", |folder, files| {
        let _uas = start("-m 1 -sf CASE/uas.xml -p 15070", folder, files).looked_at();
        let line = "-m 1 -sf CASE/uac.xml 127.0.0.1:15070 -trace_msg -message_file tmp.log -timeout 4 -timeout_error";
        assert_eq!(start(line, folder, files).code(FOREGROUND), Some(0));
        let log = text(&files.join("tmp.log"));
        let from = log.find("message received").expect("something came");
        let lines: Vec<&str> = log[from..].lines().filter(|l| l.starts_with("From:")).map(str::trim_end).collect();
        assert!(
            lines.iter().filter(|l| **l == "From: Alice <sip:alice@localhost>;tag=uniquetag").count() == 1,
            "{lines:?}"
        );
    });
}

/// Both sides must succeed.
fn both(name: &str, uas: &str, uac: &str, then: impl FnOnce(&Path)) {
    case(name, |folder, files| {
        let mut uas = start(uas, folder, files);
        std::thread::sleep(Duration::from_millis(400));
        let mut uac = start(uac, folder, files);
        assert_eq!((uac.code(FOREGROUND), uas.code(FOREGROUND)), (Some(0), Some(0)));
        then(files);
    });
}

#[test]
fn the_next_url_is_what_stands_between_the_brackets() {
    let uac = "-m 1 -sf CASE/uac.xml 127.0.0.1:15070 -timeout 4 -timeout_error";
    both("github-#0234", "-m 1 -sf CASE/uas.xml -p 15070", uac, |_| ());
}

#[test]
fn headers_are_found_by_name_only_where_that_is_asked() {
    let uac = "-m 1 -sf CASE/uac.xml 127.0.0.1:15070 -trace_msg -message_file tmp.log -timeout 4 -timeout_error";
    both("github-#0238", "-m 1 -sf CASE/uas.xml -p 15070", uac, |files| {
        let log = text(&files.join("tmp.log"));
        let bye = &log[log.find("\nBYE ").expect("a BYE was sent")..];
        let bye = &bye[..bye.find("\r\n\r\n").unwrap_or(bye.len())];
        assert!(
            !bye.contains("From: tom.jones@wales.uk") && bye.contains("\"Fromage\" <sip:cheese@paris.fr>"),
            "{bye}"
        );
    });
}

#[test]
fn entities_in_attributes_are_resolved() {
    let uac = "-m 1 -sf CASE/uac.xml 127.0.0.1:15070 -trace_err -error_file err.log -timeout 4 -timeout_error";
    both("github-#0458", "-m 1 -sf CASE/uas.xml -p 15070", uac, |_| ());
}

#[test]
fn routes_are_kept_in_both_directions() {
    case("github-#0262", |folder, files| {
        let uas = "-sf CASE/uas.xml -p 5070 -i 127.0.127.1 -trace_msg -message_file uas.log";
        let _uas = start(uas, folder, files).looked_at();
        let uac = "-m 1 -sf CASE/uac.xml 127.0.127.1:5070 -i 127.0.127.1 -p 5060 -trace_msg -message_file uac.log \
                   -timeout 5 -timeout_error";
        assert_eq!(start(uac, folder, files).code(FOREGROUND), Some(0));
        for (file, method, ports) in [("uac.log", "ACK", [2, 3, 5_060]), ("uas.log", "BYE", [5_060, 3, 2])] {
            let log = text(&files.join(file));
            let message = &log[log.find(&format!("\n{method} ")).expect("it was sent")..];
            let message = &message[..message.find("\r\n\r\n").unwrap_or(message.len())];
            let want = ports.map(|port| format!("<sip:127.0.127.1:{port};lr>")).join(", ");
            let routes: Vec<&str> = message.lines().filter(|l| l.starts_with("Route:")).collect();
            assert_eq!(routes, [format!("Route: {want}")], "{message}");
        }
    });
}

#[test]
fn a_busy_media_port_is_no_error() {
    case("github-#0018", |folder, files| {
        let _busy = UdpSocket::bind("0.0.0.0:6002");
        let _uas = start("-sn uas -i 127.0.0.1 -p 15070 -m 1 -min_rtp_port 6200", folder, files).looked_at();
        assert_eq!(start("-sn uac -i 127.0.0.1 -m 1 127.0.0.1:15070", folder, files).code(FOREGROUND), Some(0));
    });
}

#[test]
fn a_tab_alone_ends_the_headers() {
    case("github-#0337", |folder, files| {
        let heard = tcp_recorder(15_070);
        let _uac = start("-m 1 -sf CASE/reply488.xml -t t1 127.0.0.1:15070", folder, files);
        let (_, bytes) = recorded(&heard);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let length = text.lines().find_map(|l| l.strip_prefix("Content-Length:")).map(str::trim);
        assert!(bytes.ends_with(b"ncy\r\n") && length == Some("232"), "{text}");
    });
}

#[test]
fn a_key_may_be_empty() {
    case("github-#0364", |folder, files| {
        let heard = tcp_recorder(15_070);
        let line = "-m 1 -sf CASE/empty-keyword-allowed.xml -t t1 127.0.0.1:15070 -key keyword ''";
        let _uac = start(line, folder, files);
        let (_, bytes) = recorded(&heard);
        assert!(String::from_utf8_lossy(&bytes).contains("X-Keyword: --"));
    });
}

#[test]
fn a_code_may_be_an_expression() {
    case("github-#0769", |folder, files| {
        let _uas = start("-sn uas -i 127.0.0.1 -p 15070 -m 1", folder, files).looked_at();
        let mut uac = start("-sf CASE/uac.xml -i 127.0.0.1 -m 1 127.0.0.1:15070", folder, files);
        assert_eq!(uac.code(Duration::from_secs(1)), Some(0));
    });
}

#[test]
fn the_local_port_of_a_controller_is_its_own() {
    case("github-#0018", |folder, files| {
        let b = "127.0.0.1:15070 -sn 3pcc-C-B -3pcc 127.0.0.1:19000 -i 127.0.0.1 -p 15071 -m 1";
        let _b = start(b, folder, files).looked_at();
        let a = "127.0.0.1:15072 -sn 3pcc-C-A -3pcc 127.0.0.1:19000 -i 127.0.0.1 -p 15073 -m 1 -trace_msg \
                 -message_file tmp.log";
        let _a = start(a, folder, files).looked_at();
        assert!(text(&files.join("tmp.log")).contains("127.0.0.1:15073;"), "no Via with the port");
    });
}

#[test]
fn media_leave_from_the_port_that_was_told() {
    case("github-#0192", |folder, files| {
        std::os::unix::fs::symlink(folder.join("beep_1sec_50x160b.alaw"), files.join("beep_1sec_50x160b.alaw"))
            .unwrap();
        let heard = udp_recorder(15_071);
        let _uas = start("-sf CASE/uas.xml -p 15070 -key custom_media_port 15071", folder, files).looked_at();
        let line = "-m 1 -sf CASE/uac.xml 127.0.0.1:15070 -trace_msg -message_file tmp.log -timeout 5 -timeout_error";
        assert_eq!(start(line, folder, files).code(FOREGROUND), Some(0));
        let from = heard.recv_timeout(Duration::from_secs(5)).expect("media come");
        let log = text(&files.join("tmp.log"));
        let told = log.lines().find_map(|l| l.strip_prefix("m=audio ")?.split(' ').next()?.parse::<u16>().ok());
        assert_eq!(told, Some(from.port()));
    });
}

#[test]
fn media_are_found_inside_a_multipart_body() {
    case("github-#0862", |folder, files| {
        if let Some(other) = self::folder("github-#0192") {
            let name = "beep_1sec_50x160b.alaw";
            let _ = std::os::unix::fs::symlink(other.join(name), files.join(name));
        }
        let heard = udp_recorder(5_072);
        let _uas = start("-sf CASE/uas.xml -i 127.0.0.1 -p 15070 -m 1", folder, files).looked_at();
        let line = "-m 1 -sf CASE/uac.xml 127.0.0.1:15070 -i 127.0.0.1 -trace_msg -message_file tmp.log -timeout 6 \
                    -timeout_error";
        assert_eq!(start(line, folder, files).code(FOREGROUND), Some(0));
        heard.recv_timeout(Duration::from_secs(5)).expect("media come");
    });
}
