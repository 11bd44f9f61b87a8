//! Planted conditions, each with its truth.

use std::io::Read;
use std::net::UdpSocket;
use std::time::Duration;

use strowger_tests::generator::{Ran, answers_by, peer};
use strowger_tests::plant::{Scheduling, flood, program, spinners, too_long};
use strowger_tests::port;
use strowger_tests::wire::Transport;

use super::site::{
    LATER, LONGEST, NOW, Share, Site, TWICE, asks, beside_slices, beside_spinners, by_tls, in_batches, local, ms, over,
    relay, sound,
};

/// Truth about a run, independent of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    /// The generator could keep its schedule.
    Valid,
    /// The generator could not keep its schedule. The verdict must name one of these thresholds.
    Invalid(&'static [&'static str]),
    /// As [`Self::Invalid`], if the generator did wait for its core according to the kernel.
    Starved(&'static [&'static str]),
    /// The generator kept its schedule except in a part of the run. That part must name one of these thresholds.
    Spoilt(&'static [&'static str]),
}

pub(super) struct Condition {
    pub(super) name: &'static str,
    pub(super) truth: Truth,
    pub(super) plant: fn(&Site) -> Ran,
    /// True if the condition is part of `make test`.
    pub(super) often: bool,
    /// True if planting the condition needs privileges.
    pub(super) privileged: bool,
}

const fn valid(name: &'static str, plant: fn(&Site) -> Ran) -> Condition {
    Condition { name, truth: Truth::Valid, plant, often: false, privileged: false }
}

const fn invalid(name: &'static str, by: &'static [&'static str], plant: fn(&Site) -> Ran) -> Condition {
    Condition { name, truth: Truth::Invalid(by), plant, often: false, privileged: false }
}

const fn starved(name: &'static str, by: &'static [&'static str], plant: fn(&Site) -> Ran) -> Condition {
    Condition { truth: Truth::Starved(by), ..invalid(name, by, plant) }
}

impl Condition {
    const fn often(self) -> Self {
        Self { often: true, ..self }
    }

    const fn privileged(self) -> Self {
        Self { privileged: true, ..self }
    }
}

/// Thresholds that a shared core may exceed.
const SHARED: &[&str] = &["core_wait", "saturated", "lag_p99", "receive_lag", "run_queue"];

pub(super) const CONDITIONS: &[Condition] = &[
    // ---- nothing is in the generator's way
    valid("calls over UDP", |site| site.calls(&["-r", "200", "-d", "1s"])).often(),
    valid("calls over TCP", |site| {
        let uas = site.answers(&["--transport", "tcp"]);
        site.run(&[&format!("tcp://{}", uas.address), "-r", "200", "-d", "1s"])
    }),
    valid("calls over TLS", |site| by_tls(site, &["-r", "100", "-d", "1s"]).1.end(LONGEST)),
    valid("a connection for each call", |site| {
        let uas = site.answers(&["--transport", "tcp"]);
        let target = format!("tcp://{}", uas.address);
        site.run(&[&target, "-r", "100", "-d", "1s", "--connections", "per-call"])
    }),
    valid("a socket for each call", |site| site.calls(&["-r", "100", "-d", "1s", "--connections", "per-call"])),
    valid("sockets of users, and less of them than calls", |site| {
        site.calls(&["-r", "100", "-d", "1s", "--connections", "per-call", "--max-sockets", "5", "--hold", "100ms"])
    }),
    valid("arrivals at random", |site| site.calls(&["-r", "300", "-d", "1s", "--arrivals", "poisson"])),
    valid("a rate that rises", |site| site.calls(&["--rate-profile", "50-800:1500ms"])),
    valid("many calls a second", |site| site.calls(&["-r", "3000", "-d", "1s"])).often(),
    valid("few calls a second", |site| site.calls(&["-r", "5", "-d", "2s"])),
    valid("many calls open at once", |site| site.calls(&["-r", "800", "-d", "1s", "--hold", "1s"])),
    valid("both ends here", |site| {
        let relay = relay();
        let target = relay.address(Transport::Udp).to_string();
        site.run(&[&target, "--pair", "-r", "200", "-d", "1s"])
    }),
    valid("two generators on one core", |site| {
        let uas = site.answers(&[]);
        let target = uas.address.to_string();
        let mut other = site.start(&[&target, "-r", "100", "-d", "3s"]);
        site.under_way(&other);
        let ran = site.run(&[&target, "-r", "100", "-d", "1s"]);
        other.end(LONGEST);
        ran
    }),
    valid("sound beside calls", |site| {
        let (uas, document) = (site.answers(&[]), sound(site));
        site.run(&[&uas.address.to_string(), "--scenario", &document, "-r", "20", "-d", "1s"])
    }),
    // ---- many at once
    valid("a burst", |site| site.calls(&["--rate-profile", "burst:1000,50:500ms"])).often(),
    valid("a large burst", |site| site.calls(&["--rate-profile", "burst:5000,50:500ms"])),
    valid("a burst beyond the limit of concurrent calls", |site| {
        site.calls(&["--rate-profile", "burst:2000,50:500ms", "-l", "1000"])
    })
    .often(),
    valid("bursts one after the other", |site| {
        site.calls(&["--rate-profile", "100:300ms,burst:500,100:300ms,burst:800,100:300ms"])
    }),
    // ---- the server is the limit
    valid("an answerer that takes its time", |site| {
        let uas = site.answers(&["--ring", "300ms"]);
        site.run(&[&uas.address.to_string(), "-r", "200", "-d", "1s"])
    }),
    valid("a server that is stopped", |site| {
        let uas = site.answers(&[]);
        let mut generator = site.start(&[&uas.address.to_string(), "-r", "300", "-d", "2s"]);
        site.under_way(&generator);
        uas.stop_for(ms(1_000));
        generator.end(LONGEST)
    }),
    valid("a server that is stopped, and a limit of concurrent calls", |site| {
        let uas = site.answers(&[]);
        let words = ["-r", "500", "-l", "300", "-d", "3s"];
        let mut generator = site.start(&[&[uas.address.to_string().as_str()], &words[..]].concat());
        site.under_way(&generator);
        uas.stop_for(ms(1_700));
        generator.end(LONGEST)
    })
    .often(),
    valid("a server that is stopped for good", |site| {
        let uas = site.answers(&[]);
        let words = ["-r", "200", "-l", "50", "-d", "1500ms", "--timeout", "400ms"];
        let mut generator = site.start(&[&[uas.address.to_string().as_str()], &words[..]].concat());
        site.under_way(&generator);
        uas.signal(libc::SIGSTOP);
        let ran = generator.end(LONGEST);
        uas.signal(libc::SIGCONT);
        ran
    }),
    valid("a peer that answers in batches", |site| asks(site, in_batches(ms(150)), &["-r", "400", "-d", "1s"])).often(),
    valid("a peer that carries less than is asked of it", |site| {
        let slow = peer(|_, _| {
            // As slow as that: 200 answers a second.
            std::thread::sleep(ms(5));
            Some("200 OK")
        });
        asks(site, slow, &["-r", "400", "-d", "1s"])
    }),
    valid("a peer that carries less, and a limit of concurrent calls", |site| {
        let slow = peer(|_, _| {
            // As slow as that: 200 answers a second.
            std::thread::sleep(ms(5));
            Some("200 OK")
        });
        asks(site, slow, &["-r", "400", "-d", "1s", "-l", "20"])
    }),
    valid("a limit too low for rate times call length", |site| {
        site.calls(&["-r", "200", "-d", "1s", "--hold", "500ms", "-l", "50"])
    }),
    valid("a peer that refuses everything", |site| {
        asks(site, peer(|_, _| Some("503 Service Unavailable")), &["-r", "300", "-d", "1s"])
    }),
    valid("a peer that says nothing", |site| {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        asks(site, silent.local_addr().expect("it is bound"), &["-r", "100", "-d", "1s", "-l", "30"])
    }),
    valid("a server that starts late", |site| {
        let address = local(port::free());
        let mut generator = site.start(&[&address.to_string(), "-r", "100", "-d", "2s"]);
        site.under_way(&generator);
        let _uas = site.answers_at(&address.to_string(), &[]);
        generator.end(LONGEST)
    }),
    valid("a server whose core is taken", |site| {
        let _spinners = spinners(4, site.other, Scheduling::Ordinary);
        let uas = answers_by(program(site.other, Scheduling::Ordinary), local(port::free()), &[]);
        site.run(&[&uas.address.to_string(), "-r", "200", "-d", "1s"])
    }),
    // ---- the link
    valid("a link that loses", |site| over(site, |n| if n % 19 == 7 { &[] } else { NOW }, &[])),
    valid("a link that delays", |site| over(site, |_| LATER, &[])),
    valid("a link that doubles and mixes up", |site| over(site, |n| if n % 5 == 0 { LATER } else { TWICE }, &[])),
    // ---- the disk of the log
    valid("a log that no program reads", |site| {
        let pipe = site.folder.path().join("log");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts");
        assert!(made.success(), "a pipe can be made");
        let reads = pipe.clone();
        // So little is read that the pipe is full.
        let reader = std::thread::spawn(move || {
            let mut file = std::fs::File::open(reads).expect("it was made");
            let (mut bytes, mut all) = ([0; 512], 0);
            while let Ok(length @ 1..) = file.read(&mut bytes) {
                all += length;
                // A reader that is slower than what is written.
                std::thread::sleep(ms(20));
            }
            all
        });
        let ran = site.calls(&["-r", "300", "-d", "2s", "--log", &pipe.display().to_string()]);
        assert!(reader.join().expect("the reader lives") > 1_000, "something was written");
        ran
    }),
    valid("a disk that is full", |site| site.calls(&["-r", "200", "-d", "1s", "--log", "/dev/full"])).often(),
    // ---- the generator is kept from its work
    invalid("stopped for a third of a second", &["stall"], |site| {
        site.held_up(&["-r", "200", "-d", "2s"], |generator| generator.stop_for(ms(320)))
    })
    .often(),
    invalid("stopped for a moment", &["lag_p99", "receive_lag"], |site| {
        site.held_up(&["-r", "200", "-d", "2s"], |generator| generator.stop_for(ms(60)))
    }),
    invalid("stopped for long", &["stall"], |site| {
        site.held_up(&["-r", "100", "-d", "2s"], |generator| generator.stop_for(ms(1_500)))
    }),
    invalid("stopped twice", &["stall"], |site| {
        site.held_up(&["-r", "200", "-d", "3s"], |generator| {
            generator.stop_for(ms(300));
            // Between the two stops it runs.
            std::thread::sleep(ms(300));
            generator.stop_for(ms(300));
        })
    }),
    invalid("stopped again and again for a little", &["lag_p99", "receive_lag"], |site| {
        site.held_up(&["-r", "300", "-d", "2s"], |generator| {
            for _ in 0..30 {
                generator.stop_for(ms(8));
                // Between two stops it runs.
                std::thread::sleep(ms(12));
            }
        })
    })
    .often(),
    invalid("stopped while the server is", &["stall", "receive_lag"], |site| {
        let uas = site.answers(&[]);
        let words = ["-r", "300", "-l", "100", "-d", "3s"];
        let mut generator = site.start(&[&[uas.address.to_string().as_str()], &words[..]].concat());
        site.under_way(&generator);
        uas.signal(libc::SIGSTOP);
        // Only the peer is stopped.
        std::thread::sleep(ms(300));
        generator.signal(libc::SIGSTOP);
        // Both are stopped.
        std::thread::sleep(ms(400));
        uas.signal(libc::SIGCONT);
        // Only the generator is stopped.
        std::thread::sleep(ms(300));
        generator.signal(libc::SIGCONT);
        generator.end(LONGEST)
    }),
    invalid("stopped, over TLS", &["stall"], |site| {
        let (_uas, mut generator) = by_tls(site, &["-r", "100", "-d", "2s"]);
        site.under_way(&generator);
        generator.stop_for(ms(400));
        generator.end(LONGEST)
    }),
    invalid("stopped, both ends here", &["stall"], |site| {
        let relay = relay();
        let target = relay.address(Transport::Udp).to_string();
        let mut generator = site.start(&[&target, "--pair", "-r", "100", "-d", "2s"]);
        site.under_way(&generator);
        generator.stop_for(ms(350));
        generator.end(LONGEST)
    }),
    invalid("an answerer that is stopped", &["stall"], |site| {
        let uas = site.answers(&[]);
        let mut generator = site.start(&[&uas.address.to_string(), "-r", "100", "-d", "2s"]);
        site.under_way(&generator);
        uas.stop_for(ms(400));
        generator.end(LONGEST);
        // The report of the answering side.
        uas.report()
    }),
    invalid("sound that was not sent", &["media_losses", "stall"], |site| {
        let (uas, document) = (site.answers(&[]), sound(site));
        let mut generator = site.start(&[&uas.address.to_string(), "--scenario", &document, "-r", "20", "-d", "2s"]);
        site.under_way(&generator);
        generator.stop_for(ms(600));
        generator.end(LONGEST)
    }),
    // ---- other programs use the generator's core
    starved("six others on its core, and a limit of concurrent calls", &["lag_p99", "receive_lag"], |site| {
        beside_spinners(site, 6, &["-r", "6000", "-l", "20", "-m", "1000"])
    })
    .often(),
    starved("three others on its core, and a limit of concurrent calls", &["lag_p99", "receive_lag"], |site| {
        beside_spinners(site, 3, &["-r", "4000", "-l", "40", "-m", "1500"])
    }),
    starved("three others on its core", &["lag_p99", "receive_lag"], |site| {
        beside_spinners(site, 3, &["-r", "100", "-d", "1500ms"])
    })
    .often(),
    starved("two others on its core, over TCP", &["lag_p99", "receive_lag"], |site| {
        let uas = site.quick_answers(&["--transport", "tcp"]);
        let _spinners = spinners(2, site.own, Scheduling::Ordinary);
        let target = format!("tcp://{}", uas.address);
        site.start_as(Scheduling::Ordinary, &[&target, "-r", "200", "-d", "1500ms"]).end(LONGEST)
    }),
    starved("nice, and another on its core", &["lag_p99", "receive_lag", "run_queue", "stall"], |site| {
        let uas = site.quick_answers(&[]);
        let mut generator = site.start_as(Scheduling::Nice, &[&uas.address.to_string(), "-r", "50", "-d", "2s"]);
        site.under_way(&generator);
        let spinner = spinners(1, site.own, Scheduling::Ordinary);
        // As long as the other program has the core.
        std::thread::sleep(ms(1_000));
        drop(spinner);
        generator.end(LONGEST)
    }),
    invalid("another before it on its core in short slices, and a limit of concurrent calls", SHARED, |site| {
        beside_slices(site, 1, Scheduling::RealTime, 1_500, 700)
    })
    .privileged(),
    starved("busy neighbours, and a limit of concurrent calls", SHARED, |site| {
        beside_slices(site, 4, Scheduling::Ordinary, 300, 500)
    }),
    invalid("another before it on its core", &["lag_p99", "receive_lag", "stall"], |site| {
        let uas = site.answers(&[]);
        let mut generator = site.start_as(Scheduling::Ordinary, &[&uas.address.to_string(), "-r", "200", "-d", "2s"]);
        site.under_way(&generator);
        let spinner = spinners(1, site.own, Scheduling::RealTime);
        // As long as the other program has the core.
        std::thread::sleep(ms(400));
        drop(spinner);
        generator.end(LONGEST)
    })
    .privileged(),
    invalid("a twentieth of a core", &["lag_p99", "receive_lag", "stall"], |site| {
        let uas = site.answers(&[]);
        let share = Share::of_a_core(5).expect("the privileged can make groups");
        let words = [&uas.address.to_string(), "-r", "2000", "-d", "2s"];
        let mut generator = site.start_as(Scheduling::Ordinary, &words);
        site.under_way(&generator);
        share.take(generator.id());
        let ran = generator.end(LONGEST);
        drop(generator);
        ran
    })
    .privileged(),
    // ---- the load is too high for the generator
    invalid("more calls than it can begin", &["lag_p99", "rate_error"], |site| {
        site.calls(&["-r", "400000", "-m", "10000", "-l", "10000"])
    })
    .often(),
    invalid("more calls than it can begin, a connection for each", &["lag_p99", "rate_error"], |site| {
        let uas = site.answers(&["--transport", "tcp"]);
        let target = format!("tcp://{}", uas.address);
        site.run(&[&target, "-r", "100000", "-m", "3000", "--connections", "per-call"])
    }),
    invalid("datagrams that its kernel dropped", &["socket_drops"], |site| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
        let target = socket.local_addr().expect("it is bound").to_string();
        let words = ["-w", "message", "-r", "10", "--duration", "1s", "--timeout", "500ms"];
        let generator = &mut site.start(&[&[target.as_str()], &words[..]].concat());
        let (_, from) = socket.recv_from(&mut [0; 65_536]).expect("a request comes");
        generator.signal(libc::SIGSTOP);
        flood(&socket, from);
        generator.signal(libc::SIGCONT);
        generator.end(LONGEST)
    }),
    invalid("messages too long to be sent", &["send_failures"], |site| {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let target = silent.local_addr().expect("it is bound").to_string();
        site.run(&[&target, "--scenario", &too_long(site.folder.path()), "-r", "50", "-m", "5"])
    }),
    // ---- a part of the run
    Condition {
        truth: Truth::Spoilt(&["stall"]),
        ..valid("one stall in a longer run", |site| {
            site.held_up(&["-r", "50", "-d", "8s", "--window", "1s", "--max-bad-windows", "40%"], |generator| {
                // In the second window.
                std::thread::sleep(ms(1_500));
                generator.stop_for(ms(300));
            })
        })
    },
];
