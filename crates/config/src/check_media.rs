//! Checks of `[media]` and of the rules that need it.

use strowger_core::Transport;

use super::Config;
use super::reader::Reader;
use super::report::Fault;

/// Notes a listener whose port is one for media.
pub(super) fn check(config: &Config, reader: &mut Reader) {
    let media = &config.media;
    let (first, last) = (media.ports.first, media.ports.last);
    let is_taken = |listener: &&super::Listener| {
        let (ip, port) = (listener.address.ip(), listener.address.port());
        let is_same = |local: std::net::IpAddr| local == ip || local.is_unspecified() || ip.is_unspecified();
        listener.transport == Transport::Udp
            && (first..=last).contains(&port)
            && media.addresses.iter().any(|address| is_same(address.local))
    };
    if let Some(listener) = config.listeners.iter().find(is_taken) {
        let message = format!("{listener} has a port of media.ports ({first}-{last})");
        let span = reader.first_of(&["media.ports", "media.addresses"]);
        reader.push(Fault::error(span, message, "leave the ports of listeners out of the range"));
    }
}

/// Notes each rule that answers calls without an address for their media.
pub(super) fn check_use(config: &Config, reader: &mut Reader) {
    if config.media.is_on() {
        return;
    }
    for (index, rule) in config.rules.iter().enumerate().filter(|(_, rule)| rule.endpoint().is_some()) {
        let span = reader.value_of(&format!("rule[{index}].answer"));
        let message = format!("rule '{}' answers calls, and there is no address for their media", rule.name);
        let cure = "add a table [media] with addresses = [\"192.0.2.10\"], an address of this machine";
        reader.push(Fault::error(span, message, cure));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CallEndpoint, Source};
    use super::*;

    const ECHO: &str = "[[rule]]\nname = \"echo\"\nwhen = \"user == 'echo'\"\nanswer = \"echo\"\n";

    #[test]
    fn a_rule_that_answers_calls_needs_an_address_for_media() {
        let report = Config::read(Source { text: ECHO, ..Source::default() }).expect_err("no address");
        let [fault] = report.faults() else { panic!("{report}") };
        assert_eq!(report.position(fault), Some((4, 10)), "{report}");
        assert!(fault.message.contains("rule 'echo' answers calls") && fault.cure.contains("[media]"), "{report}");

        let text = format!("media.addresses = [\"192.0.2.1\"]\n{ECHO}");
        let (config, report) = Config::read(Source { text: &text, ..Source::default() }).expect("right");
        assert_eq!(report.faults(), []);
        let rule = config.decisions.rules.iter().next().expect("a rule");
        assert_eq!((rule.action.endpoint, rule.action.ends), (Some(CallEndpoint::Echo), true));
        assert_eq!(rule.action.answer, None);
    }

    #[test]
    fn media_have_ports_of_their_own() {
        for (address, is_wrong) in [("192.0.2.1", true), ("192.0.2.2", false)] {
            let text = format!("listen = [\"udp:192.0.2.1:20000\"]\ndomains = []\nmedia.addresses = [\"{address}\"]\n");
            let read = Config::read(Source { text: &text, ..Source::default() });
            assert_eq!(read.is_err(), is_wrong, "{address}");
        }
    }
}
