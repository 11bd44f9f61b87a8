//! Calls that the server records: the file during a call, at its end, after a kill, and where nothing can be written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use strowger_media::g711::Law;
use strowger_media::wave::Wave;
use strowger_tests::control::{json, metric};
use strowger_tests::echo::Caller;
use strowger_tests::server::{Server, Setup};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;

const SOON: Duration = Duration::from_secs(20);

/// Starts a server whose media are at an address, and that records the callers of `echo` into a folder.
fn start(ip: &str, folder: &Path) -> Server {
    let media = format!("media.addresses = [\"{ip}\"]\nmedia.ports = \"22000-22199\"");
    let rule = format!(
        "[[rule]]\nname = \"note\"\nwhen = \"request.user == 'echo'\"\nanswer = \"recording\"\nrecord_to = \"{}\"",
        folder.display()
    );
    Setup::on(&[Udp]).open_registrar().with("server.shards = 1").with(&media).with(&rule).start()
}

fn call(server: &Server) -> Caller {
    Caller::call(server).unwrap_or_else(|answer| panic!("{}\n{}", String::from_utf8_lossy(&answer), server.log()))
}

/// Returns the recordings in a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.sort();
    files
}

/// Returns the samples of a file, as its header counts them.
fn samples(file: &Path) -> Vec<i16> {
    let bytes = fs::read(file).unwrap_or_default();
    Wave::read(&bytes).map(|wave| wave.samples().collect()).unwrap_or_default()
}

/// Says this octet of PCMU until the file has it.
fn say_until_recorded(caller: &mut Caller, file: &Path, octet: u8) {
    let (begun, sample) = (Instant::now(), Law::Mu.decode(octet));
    while !samples(file).contains(&sample) {
        assert!(begun.elapsed() < SOON, "{} samples", samples(file).len());
        caller.play(octet);
        std::thread::sleep(Duration::from_millis(20)); // packet time of a phone
    }
}

#[test]
fn a_caller_is_recorded_and_a_kill_leaves_a_file_that_can_be_played() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut server = start("127.0.0.94", folder.path());
    let mut caller = call(&server);
    // The tone is 0.4 s of 1,000 Hz: each period has eight samples.
    let tone: Vec<u8> = (0..20).flat_map(|_| caller.payload(SOON).expect("a packet of the tone")).collect();
    assert_eq!((tone.len(), caller.payload(Duration::from_millis(300))), (3_200, None));
    assert!(tone.windows(9).all(|period| period[0] == period[8]), "{tone:?}");
    let found = files(folder.path());
    let [file] = &found[..] else { panic!("{found:?}\n{}", server.log()) };
    say_until_recorded(&mut caller, file, 0x20);
    assert_eq!(fs::metadata(file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let shown = file.display().to_string();
    assert!(server.log_with("call recorded").contains(&shown), "{}", server.log());
    let list = json(&server, &["calls", "list"]);
    let id = list[0]["id"].as_str().unwrap_or_else(|| panic!("{list}"));
    assert_eq!(json(&server, &["calls", "show", id])["recording"], shown);
    caller.hang_up();
    server.log_with("recording complete");
    let length = fs::metadata(file).expect("it is there").len();
    assert_eq!(samples(file).len() as u64, (length - 44) / 2);

    // The next call has another file, and the process is killed.
    let mut second = call(&server);
    let other = wait::look(SOON, || files(folder.path()).into_iter().find(|other| other != file));
    let other = other.unwrap_or_else(|| panic!("no other file\n{}", server.log()));
    say_until_recorded(&mut second, &other, 0x30);
    server.kill();
    assert!(samples(&other).contains(&Law::Mu.decode(0x30)));
}

#[test]
fn a_recording_that_cannot_be_written_ends_its_call_alone() {
    let parent = tempfile::tempdir().expect("a temporary folder can be made");
    let folder = parent.path().join("notes");
    fs::create_dir(&folder).expect("it can be made");
    let server = start("127.0.0.95", &folder);
    let mut first = call(&server);
    let file = wait::look(SOON, || files(&folder).pop()).expect("a file");
    say_until_recorded(&mut first, &file, 0x20);
    let away = parent.path().join("away");
    fs::rename(&folder, &away).expect("it can be renamed");
    let bye = call(&server).hung_up(SOON).expect("the call ends");
    assert!(bye.contains("text=\"recording failed\""), "{bye}");
    server.log_with("recording failed");
    assert!(wait::until(SOON, || metric(&server, "strowger_media_recordings_failed_total") == 1.0));
    // The call whose file is open goes on.
    say_until_recorded(&mut first, &away.join(file.file_name().expect("a name")), 0x30);
    first.hang_up();
    fs::rename(&away, &folder).expect("it can be renamed");
    call(&server).hang_up();
    assert_eq!(metric(&server, "strowger_media_recordings_failed_total"), 1.0);
}
