//! Control bytes of a peer: neither interface of the generator passes them to a terminal, directly or through a file.

use std::path::Path;
use std::process::{Command, Stdio};

use strowger_tests::binary;
use strowger_tests::generator::{output, peer};

/// Response with control sequences: title, colour, cursor report, erase.
const HOSTILE: &str = "486 \u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}6n\r\nX-Note: \u{1b}[2Jgone\u{8}\r\nRetry-After: 1";

#[track_caller]
fn is_harmless(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let found = text.char_indices().find(|(at, letter)| {
        let ends_line = *letter == '\r' && text[*at..].starts_with("\r\n");
        letter.is_control() && !matches!(letter, '\n' | '\t') && !ends_line
    });
    assert!(found.is_none(), "{what}: {found:?} in {text}");
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let all = std::fs::read_dir(folder).expect("the folder can be read").flatten();
    all.map(|file| (file.file_name().display().to_string(), std::fs::read(file.path()).expect("it can be read")))
        .collect()
}

#[test]
fn no_control_byte_of_a_peer_reaches_a_terminal() {
    let target = peer(|_, _| Some(HOSTILE)).to_string();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let words = "-sn uac -m 3 -r 50 -trace_err -trace_msg -trace_shortmsg -trace_screen -trace_stat -trace_error_codes -trace_calldebug -nostdin";
    let sipp = Command::new(binary::strowger())
        .args(["sipp", &target])
        .args(words.split(' '))
        .env("TERM", "dumb")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    assert_eq!(sipp.status.code(), Some(1), "{}", String::from_utf8_lossy(&sipp.stderr));
    is_harmless("stdout", &sipp.stdout);
    is_harmless("stderr", &sipp.stderr);
    let written = files(folder.path());
    let shown =
        written.iter().filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains("\\x1b]0;owned\\x07")).count();
    assert!(shown >= 2 && written.len() >= 5, "shown in {shown} of {} files", written.len());
    written.iter().for_each(|(name, bytes)| is_harmless(name, bytes));

    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let [html, json] = ["a.html", "a.json"].map(|name| folder.path().join(name).display().to_string());
    for workload in ["call", "register", "options"] {
        let ran = output(&[&target, "-w", workload, "-r", "50", "-m", "3", "--html", &html, "--json", &json]);
        assert!(matches!(ran.status.code(), Some(1 | 4)), "{}", String::from_utf8_lossy(&ran.stderr));
        is_harmless("stdout", &ran.stdout);
        is_harmless("stderr", &ran.stderr);
        files(folder.path()).iter().for_each(|(name, bytes)| is_harmless(name, bytes));
    }
}
