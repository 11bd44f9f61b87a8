//! A server whose part has failed ends, for a supervisor to restart it; a server that only cannot grow continues.

use std::process::Command;
use std::time::Duration;
use strowger_tests::wait;

use strowger_tests::process::Process;
use strowger_tests::program::{STRACE, have};
use strowger_tests::server::Setup;
use strowger_tests::wire::Transport::{Tcp, Udp};

/// The kernel reports EBADF for the poll descriptor of the shard's runtime, a fatal error there.
#[test]
fn a_shard_that_panics_ends_the_process_with_an_exit_code() {
    if !have(&[STRACE]) {
        return;
    }
    let mut server = Setup::on(&[Udp, Tcp]).in_memory().start();
    let shard = server.process().thread("shard-0");
    let mut strace = Command::new(STRACE.path().expect("it is there"));
    strace.args(["-e", "trace=epoll_wait,epoll_pwait", "-e", "inject=epoll_wait,epoll_pwait:error=EBADF"]);
    strace.args(["-p", &shard.to_string()]);
    let _strace = Process::start("strace", server.folder(), &mut strace);
    let status = server.process().end(Duration::from_secs(10));
    assert_eq!(status.code(), Some(70), "{}", server.log());
    let log = server.log();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    let [panic, end] = errors[..] else { panic!("{log}") };
    assert!(panic.contains("panic thread=\"shard-0\"") && end.contains("shard 0 panicked"), "{log}");
}

/// No descriptor is left for the sockets or the runtime of one more shard.
#[test]
fn a_shard_that_cannot_start_leaves_the_server_as_it_is() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return eprintln!("skipped: a machine of one core has one shard");
    }
    let mut server = Setup::on(&[Udp, Tcp]).in_memory().start();
    let id = server.process().id();
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).expect("the process lives").count() as u64;
    let said = |log: &str| {
        let of = |word: &str| log.matches(word).count();
        (of("the number of shards stays as it is"), of("number of shards changes"))
    };
    for stays in 0..64 {
        let limit = libc::rlimit { rlim_cur: open + stays as u64, rlim_max: open + 64 };
        // SAFETY: the kernel reads our own variable; the process was started here and was not waited for.
        let done = unsafe { libc::prlimit(id as i32, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        server.process().signal(libc::SIGUSR1);
        let is_said = wait::until(Duration::from_secs(10), || {
            assert!(server.process().ended().is_none(), "with {stays} descriptors: {}", server.log());
            said(&server.log()) != (stays, 0)
        });
        assert!(is_said, "with {stays} descriptors nothing is said: {}", server.log());
        if said(&server.log()).1 == 1 {
            assert!(stays > 3, "{}", server.log());
            return server.assert_answers(Udp);
        }
        server.assert_answers(Udp);
    }
    panic!("no second shard: {}", server.log());
}
