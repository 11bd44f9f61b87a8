//! SIPp's command lines.

use super::*;

fn parse(line: &str) -> Result<Options, String> {
    let words: Vec<String> = line.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect();
    Options::parse(&words)
}

#[test]
fn a_usual_command_line() {
    let o = parse(
        "-sn uac 127.0.0.1:5070 -m 5 -r 20 -rp 2s -d 100 -l 7 -p 5071 -t t1 -key a b -set v 1 -nd -bg -timeout 3",
    )
    .unwrap();
    assert_eq!(o.remote, Some(("127.0.0.1".into(), 5070)));
    assert_eq!((o.calls, o.rate, o.rate_period, o.duration, o.limit), (Some(5), 20.0, 2_000, Some(100), Some(7)));
    assert_eq!((o.transport, o.timeout, o.background, o.keyboard), (Transport::Tcp, Some(3_000), true, false));
    assert_eq!(o.behaviours, Behaviours::NONE);
    assert_eq!(parse("[::1]:5071").unwrap().remote, Some(("::1".into(), 5071)));
    assert_eq!(parse("::1").unwrap().remote, Some(("::1".into(), 5060)));
}

#[test]
fn wrong_options_are_explained() {
    for line in
        ["-bogus", "-m", "-m x", "-t x1", "-max_log_size 1 -ringbuffer_size 2", "-p 70000", "-default_behaviors what"]
    {
        assert!(parse(line).is_err(), "{line}");
    }
    assert!(parse("-watchdog_reset 5 -skip_rlimit").is_ok());
}

#[test]
fn sockets_of_calls() {
    let o =
        parse("-t ui -ip_field 2 -max_socket 70 -max_reconnect -1 -reconnect_close false -reconnect_sleep 5").unwrap();
    assert_eq!((o.sockets, o.ip_field, o.max_sockets), (Sockets::PerAddress, Some(2), 70));
    assert_eq!((o.max_reconnect, o.reconnect_close, o.reconnect_sleep), (-1, false, 5));
    assert_eq!(parse("-t ln").unwrap().sockets, Sockets::PerCall);
    for line in ["-t ti", "-max_socket 0", "-max_reconnect often", "-reconnect_close perhaps"] {
        assert!(parse(line).is_err(), "{line}");
    }
}
