//! Checks of `[media]` and of the rules that need it.

use strowger_core::Transport;

use super::Config;
use super::reader::Reader;
use super::report::Fault;
use super::rule_path::Codec;
use super::rules::RuleTable;

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

/// Notes each rule that answers or bridges calls without an address for their media, and each whose codecs cannot serve a call.
pub(super) fn check_use(config: &Config, reader: &mut Reader) {
    let bridges = config.rules.iter().any(|rule| rule.b2bua == Some(true));
    if bridges {
        check_ports(config, reader);
    }
    for (index, rule) in config.rules.iter().enumerate() {
        let value = |key: &str| format!("rule[{index}].{key}");
        if let Some((key, does)) = uses_media(rule).filter(|_| !config.media.is_on()) {
            let message = format!("rule '{}' {does} calls, and there is no address for their media", rule.name);
            let cure = "add a table [media] with addresses = [\"192.0.2.10\"], an address of this machine";
            reader.push(Fault::error(reader.value_of(&value(key)), message, cure));
        }
        let has_sound = |codecs: &[Codec], others: &[Codec]| {
            codecs.is_empty() || codecs.iter().any(|codec| others.iter().any(|other| codec.has_sound_of(other)))
        };
        let (codecs, callee) = (&rule.codecs, &rule.callee_codecs);
        // A list has sound if it has sound in common with itself.
        for (key, list) in [("codecs", codecs), ("callee_codecs", callee)] {
            if !has_sound(list, list) {
                let message = format!("rule '{}' has `{key}` without a codec for sound", rule.name);
                let cure = "name one, such as \"PCMA\", beside \"telephone-event\" and \"CN\"";
                reader.push(Fault::error(reader.value_of(&value(key)), message, cure));
            }
        }
        if !callee.is_empty() && has_sound(codecs, codecs) && has_sound(callee, callee) && !has_sound(codecs, callee) {
            let message = format!("rule '{}' has no codec in both `codecs` and `callee_codecs`", rule.name);
            let cure = "name one in both lists: the server converts no codec into another";
            reader.push(Fault::error(reader.value_of(&value("callee_codecs")), message, cure));
        }
        let keys = [
            ("codecs", codecs.is_empty()),
            ("callee_codecs", callee.is_empty()),
            ("media_types", rule.media_types.is_empty()),
            ("refer_from", rule.refer_from.is_none()),
        ];
        if let Some((key, _)) = keys.iter().find(|(_, is_empty)| !is_empty).filter(|_| !bridges) {
            let message = format!("rule '{}' has `{key}`, and no rule bridges calls", rule.name);
            let cure = "add b2bua = true, or remove the key: it is for calls with media of this server";
            reader.push(Fault::warning(reader.key_of(&value(key)), message, cure));
        }
    }
}

/// Notes that the ports carry no bridged call: it takes a pair on each side, for audio and for each media type of a rule.
fn check_ports(config: &Config, reader: &mut Reader) {
    let others = config.rules.iter().map(|rule| rule.media_types.len()).max().unwrap_or(0);
    let (pairs, wanted) = (config.media.calls(), 2 * (1 + others));
    if config.media.is_on() && pairs < wanted {
        let (first, last) = (config.media.ports.first, config.media.ports.last);
        let message =
            format!("media.ports ({first}-{last}) is too small for one bridged call, which takes {} ports", 2 * wanted);
        let cure = "name a larger range, such as \"16384-32767\": two ports on each side for audio and for each of `media_types`";
        reader.push(Fault::warning(reader.value_of("media.ports"), message, cure));
    }
}

/// Returns the key of a rule by which this server has media, and the verb for it.
fn uses_media(rule: &RuleTable) -> Option<(&'static str, &'static str)> {
    let bridges = (rule.b2bua == Some(true)).then_some(("b2bua", "bridges"));
    rule.endpoint().map(|_| ("answer", "answers")).or(bridges)
}

#[cfg(test)]
mod tests {
    use strowger_core::b2bua::negotiation::CodecName;

    use super::super::{Announcement, CallEndpoint, EndpointFiles, MediaType, Recording, Report, Source};
    use super::*;

    /// Reads a file with a rule that has these keys.
    fn read(media: &str, keys: &str) -> Result<(Config, Report), Report> {
        let text = format!("{media}[[rule]]\nname = \"out\"\n{keys}\n");
        Config::read(Source { text: &text, ..Source::default() })
    }

    #[test]
    fn a_bridge_needs_an_address_and_codecs_for_its_media() {
        const MEDIA: &str = "media.addresses = [\"192.0.2.1\"]\n";
        for (media, keys, place, message) in [
            ("", "b2bua = true", (3, 9), "rule 'out' bridges calls, and there is no address for their media"),
            (
                MEDIA,
                "b2bua = true\ncodecs = [\"telephone-event\"]",
                (5, 10),
                "rule 'out' has `codecs` without a codec for sound",
            ),
            (
                MEDIA,
                "b2bua = true\ncodecs = [\"PCMA\", \"CN\"]\ncallee_codecs = [\"PCMU\", \"CN\"]",
                (6, 17),
                "rule 'out' has no codec in both `codecs` and `callee_codecs`",
            ),
            (
                MEDIA,
                "b2bua = true\nanswer = 403",
                (4, 9),
                "rule 'out' bridges calls, and says what else becomes of them",
            ),
            (MEDIA, "b2bua = true\nredirect = true", (4, 9), "says what else becomes of them"),
            (MEDIA, "b2bua = true\ntrack = false", (4, 9), "whose path and end the server has in any case"),
            (MEDIA, "b2bua = true\nrecord_route = false", (4, 9), "whose path and end the server has in any case"),
        ] {
            let report = read(media, keys).expect_err(keys);
            let [fault] = report.faults() else { panic!("{report}") };
            assert_eq!(report.position(fault), Some(place), "{report}");
            assert!(fault.message.contains(message) && !fault.cure.is_empty(), "{report}");
        }
        let keys = "b2bua = true\ncodecs = [\"PCMA\", \"telephone-event\"]\ncallee_codecs = [\"PCMU\", \"pcma/8000\"]\n\
                    media_types = [\"video\", \"text\", \"image\"]";
        let (config, report) = read(MEDIA, keys).expect("right");
        assert_eq!(report.faults(), []);
        let path = &config.decisions.rules.iter().next().expect("a rule").action.path;
        let names = |codecs: &[CodecName]| codecs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(
            (path.b2bua, path.record_route, names(&path.codecs)),
            (Some(true), None, "PCMA telephone-event".to_owned())
        );
        assert_eq!(
            (names(&path.callee_codecs), &*path.media_types),
            ("PCMU pcma/8000".to_owned(), &[MediaType::Video, MediaType::Text, MediaType::Image][..])
        );
        assert!(config.decisions.bridge_calls() && !config.decisions.have_endpoint() && config.tracks_calls());
    }

    #[test]
    fn ports_for_less_than_a_bridged_call_are_noted() {
        for (ports, keys, wanted) in [
            ("32000-32001", "b2bua = true", Some("takes 4 ports")),
            ("32001-32004", "b2bua = true", Some("takes 4 ports")),
            ("32000-32003", "b2bua = true", None),
            ("32000-32003", "b2bua = true\nmedia_types = [\"video\"]", Some("takes 8 ports")),
            ("32000-32007", "b2bua = true\nmedia_types = [\"video\"]", None),
            ("32000-32001", "answer = \"echo\"", None),
        ] {
            let media = format!("media.addresses = [\"192.0.2.1\"]\nmedia.ports = \"{ports}\"\n");
            let (_, report) = read(&media, keys).expect("it can be used");
            let said: Vec<&str> = report.faults().iter().map(|fault| &*fault.message).collect();
            assert_eq!(said.len(), usize::from(wanted.is_some()), "{report}");
            let Some(wanted) = wanted else { continue };
            assert!(said[0].contains(ports) && said[0].contains(wanted), "{report}");
            assert_eq!(report.position(&report.faults()[0]).map(|(line, _)| line), Some(2), "{report}");
        }
        // Two addresses have a pair each.
        let media = "media.addresses = [\"192.0.2.1\", \"192.0.2.2\"]\nmedia.ports = \"32000-32001\"\n";
        assert_eq!(read(media, "b2bua = true").expect("right").1.faults(), []);
    }

    #[test]
    fn codecs_without_a_bridge_have_no_effect() {
        let (config, report) = read("", "track = true\ncodecs = [\"PCMA\"]").expect("it can be used");
        let [warning] = report.faults() else { panic!("{report}") };
        assert_eq!(report.position(warning), Some((4, 1)), "{report}");
        assert!(warning.message.contains("has `codecs`, and no rule bridges calls"), "{report}");
        assert!(!config.decisions.bridge_calls());
        // The rule that bridges may be another one.
        let other = "b2bua = true\n[[rule]]\nname = \"codecs\"\ncodecs = [\"PCMA\"]";
        let (_, report) = read("media.addresses = [\"192.0.2.1\"]\n", other).expect("right");
        assert_eq!(report.faults(), []);
    }

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
    fn an_announcement_has_a_file_and_no_other_answer_has_one() {
        let read = |answer: &str| {
            let text = format!(
                "media.addresses = [\"192.0.2.1\"]\n[[rule]]\nname = \"closed\"\n{answer}\nwhen = \"request.user == 'office'\"\n"
            );
            Config::read(Source { text: &text, ..Source::default() })
        };
        for (answer, line, message) in [
            ("answer = \"announcement\"", 4, "announces, and names no file"),
            ("answer = \"announcement\"\nrepeat = true", 4, "announces, and names no file"),
            ("answer = \"tone\"\nplay = \"a.wav\"", 5, "has a file and no announcement"),
            ("answer = 486\nrepeat = true", 5, "repeats no announcement"),
        ] {
            let report = read(answer).expect_err(answer);
            let [fault] = report.faults() else { panic!("{report}") };
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(line), "{report}");
            assert!(fault.message.contains(message), "{report}");
        }
        let (config, report) = read("answer = \"announcement\"\nplay = \"/closed.wav\"\nrepeat = true").expect("right");
        assert_eq!(report.faults(), []);
        let action = &config.decisions.rules.iter().next().expect("a rule").action;
        let announcement = EndpointFiles::Announcement(Announcement { file: "/closed.wav".into(), repeats: true });
        assert_eq!((action.endpoint, &action.files), (Some(CallEndpoint::Announcement), &Some(announcement)));
        // The process reads the file.
        assert!(config.decisions.sound("/closed.wav").is_none());
    }

    #[test]
    fn a_recording_has_a_folder_and_no_other_answer_has_one() {
        let read = |answer: &str| {
            let text = format!("media.addresses = [\"192.0.2.1\"]\n[[rule]]\nname = \"note\"\n{answer}\n");
            Config::read(Source { text: &text, ..Source::default() })
        };
        for (answer, line, message) in [
            ("answer = \"recording\"", 4, "records, and names no folder"),
            ("answer = \"echo\"\nrecord_to = \"/notes\"", 5, "has a folder and no recording"),
            ("answer = 486\nrecord_limit = \"1m\"", 5, "limits no recording"),
        ] {
            let report = read(answer).expect_err(answer);
            let [fault] = report.faults() else { panic!("{report}") };
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(line), "{report}");
            assert!(fault.message.contains(message), "{report}");
        }
        for (limit, seconds) in [("", 600), ("record_limit = \"1m\"", 60)] {
            let (config, report) =
                read(&format!("answer = \"recording\"\nrecord_to = \"/notes\"\n{limit}")).expect("right");
            assert_eq!(report.faults(), []);
            let action = &config.decisions.rules.iter().next().expect("a rule").action;
            let limit = std::time::Duration::from_secs(seconds);
            let recording = EndpointFiles::Recording(Recording { folder: "/notes".into(), limit });
            assert_eq!(action.files, Some(recording));
        }
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
