//! Observers of real processes, compared with the totals of the kernel.

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strowger_measure::{Heading, Log, LogError, Note, Observed, Observer, Run, Span};

/// Waits until the log has a value, and returns it.
fn wait<T>(path: &Path, found: impl Fn(&Observed) -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let observed = Observed::read(path, Span::WHOLE);
        if let Some(found) = observed.ok().as_ref().and_then(&found) {
            return found;
        }
        assert!(Instant::now() < end, "it never came: {:?}", Observed::read(path, Span::WHOLE));
        // A sample takes a tenth of a second.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the processor time of all children that this process has waited for, and of theirs.
fn children() -> Duration {
    // SAFETY: the kernel fills the structure, of which all bits may be 0.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage), 0);
        usage
    };
    let time = |of: libc::timeval| Duration::new(of.tv_sec as u64, of.tv_usec as u32 * 1_000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Script with one long-lived child and six short-lived children.
const WORK: &str = r#"burn() { i=0; while [ $i -lt $1 ]; do i=$((i+1)); done; }
read go; burn 3000000 & for n in 1 2 3 4 5 6; do (burn 100000); done; burn 300000; wait; echo burnt; read end"#;

#[test]
fn the_time_of_a_tree_is_what_the_kernel_charges() {
    // SAFETY: no handler is lost. Where SIGCHLD is ignored the kernel keeps no times of children.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.log");
    let observer = Observer::start(&path, Heading { generator: "here".into(), ..Heading::default() }, 10).unwrap();
    let before = children();
    let mut child = Command::new("sh").args(["-c", WORK]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    observer.watch("tree", child.id());
    wait(&path, |observed| observed.tree("tree"));
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "burnt\n");
    observer.stop("enough").unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    let charged = (children() - before).as_micros() as f64;

    let observed = Observed::read(&path, Span::WHOLE).unwrap();
    assert_eq!((observed.names(), observed.missing.as_deref()), (vec!["tree"], None));
    let tree = observed.tree("tree").unwrap();
    assert!(charged > 300_000.0, "{charged} µs is too little to measure");
    for (what, us) in [("exact", tree.cpu), ("by ticks", tree.user + tree.system)] {
        let ratio = us as f64 / charged;
        assert!((0.9..1.1).contains(&ratio), "{what}: {us} of {charged} µs: {tree:?}");
    }
    assert!(tree.threads[0].name == "sh" && tree.threads[0].cpu > 100_000, "{tree:?}");
    assert!(observed.trees.iter().any(|sample| sample.processes > 1), "{observed:?}");
    assert!(tree.pss.is_some_and(|pss| pss > 50_000) && tree.rss >= tree.pss, "{tree:?}");
    // One clock times the samples of both; the machine was at least as busy as the tree.
    let machine = observed.whole_machine().unwrap();
    assert!(machine.interval >= tree.interval && machine.at == tree.at, "{machine:?}");
    let busy = machine.busy() * machine.cores.len() as f64 * machine.interval as f64;
    assert!(busy > charged * 0.9, "{busy} {charged}");
}

#[test]
fn unread_datagrams_are_drops_of_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.log");
    let (full, beside) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0"));
    let observer = Observer::start(&path, Heading::default(), 10).unwrap();
    observer.watch("itself", std::process::id());
    let first = wait(&path, |observed| observed.tree("itself"));
    wait(&path, |observed| observed.tree("itself")?.udp_drops);
    let to = full.local_addr().unwrap();
    for _ in 0..2_000 {
        full.send_to(&[0; 1_200], to).unwrap();
    }
    observer.stop("enough").unwrap();
    let mut read = 0;
    full.set_nonblocking(true).unwrap();
    while full.recv_from(&mut [0; 1_500]).is_ok() {
        read += 1;
    }
    let observed = Observed::read(&path, Span::WHOLE).unwrap();
    assert_eq!(observed.tree("itself").unwrap().udp_drops, Some(2_000 - read), "{first:?} {beside:?}");
}

#[test]
fn samples_of_a_span_and_logs_of_samples_alone() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["samples.log", "calls.log"].map(|name| folder.path().join(name));
    let observer = Observer::start(&paths[0], Heading::default(), 10).unwrap();
    observer.watch("itself", std::process::id());
    // A sample of one second: one that began in the second before belongs to both.
    let ends = wait(&paths[0], |observed| {
        let within = observed.trees.iter().skip(1).find(|sample| sample.at % 1_000_000 > sample.interval);
        within.filter(|_| observed.trees.len() > 3).map(|sample| sample.at)
    });
    let killed = Observed::read(&paths[0], Span::WHOLE).unwrap();
    assert!(killed.missing.is_some_and(|text| text.contains("samples.log has no ending: its observer was killed")));
    observer.stop("enough").unwrap();

    let second = ends / 1_000_000;
    let part = Observed::read(&paths[0], Span { from: second, until: second + 1 }).unwrap();
    assert!(part.trees.iter().any(|sample| sample.at == ends) && part.missing.is_none(), "{part:?}");
    let before = Observed::read(&paths[0], Span { from: second - 20, until: second - 10 }).unwrap();
    assert!(before.trees.is_empty() && before.tree("itself").is_none() && before.whole_machine().is_none());
    assert!(before.missing.is_some_and(|text| text.ends_with("has samples of 0.0 of the 10 seconds wanted.")));

    // Logs of observers are no logs of generators.
    assert!(matches!(Run::read(&paths[..1]), Err(LogError::NoCalls(_))));
    let mut log = Log::create(&paths[1], &Heading { generator: "west".into(), ..Heading::default() }).unwrap();
    log.note(&Note { at: 1, level: strowger_measure::Level::Info, text: "a word".into() });
    let run = Run::read(&paths).unwrap();
    assert_eq!(run.everyone().map(|generator| generator.heading.generator.as_str()).collect::<Vec<_>>(), ["west"]);
}
