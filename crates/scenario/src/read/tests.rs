//! Tests with whole small documents.

use super::*;
use crate::action::{Action, Check, Media, RtpStream, Source};
use crate::step::{Expected, Optional, Pause, Start};
use crate::{Distribution, Scope};

const SEND: &str = "<send><![CDATA[\n  OPTIONS sip:x SIP/2.0\n  A: b\n\n]]></send>\n";

fn load(body: &str, environment: &Environment) -> Result<Scenario, Refusal> {
    let text = format!("<?xml version=\"1.0\"?>\n<scenario name=\"x\">\n{body}</scenario>\n");
    read(text.as_bytes(), Path::new("a.xml"), environment, Limits::default())
}

fn good(body: &str) -> Scenario {
    load(body, &Environment::default()).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn bad(body: &str) -> Refusal {
    match load(body, &Environment::default()) {
        Ok(_) => panic!("{body} was read"),
        Err(refusal) => refusal,
    }
}

/// Parses one action after a send.
fn action(text: &str) -> Action {
    let body = format!("{SEND}<recv response=\"200\"><action>{text}</action></recv>");
    let names: Vec<&str> = ["var1", "var2"].into_iter().filter(|name| text.contains(name)).collect();
    let reference = match names.as_slice() {
        [] => String::new(),
        names => format!("<Reference variables=\"{}\"/>", names.join(",")),
    };
    good(&(body + &reference)).steps[1].actions[0].clone()
}

#[test]
fn places_and_hints_are_named() {
    let refusal = bad(&format!("{SEND}<recv response=\"200\" next=\"nowhere\"/><label id=\"end\"/>\n"));
    assert_eq!((refusal.line, refusal.column, refusal.cause), (8, 28, Cause::Document));
    assert_eq!(refusal.to_string(), "a.xml:8:28: there is no label `nowhere`; known here: end");
    let refusal = bad("<send><![CDATA[\n OPTIONS x SIP/2.0\n A: [Local-IP]\n]]></send>\n");
    assert_eq!((refusal.line, refusal.column, refusal.cause), (5, 5, Cause::Keyword));
    assert!(refusal.hint.is_some_and(|hint| hint.contains("[local_ip]")));
    let refusal = bad(&format!("{SEND}<Recv response=\"200\"/>"));
    assert!(refusal.to_string().contains("is `<recv>` meant?"), "{refusal}");
}

#[test]
fn warnings_name_the_place() {
    let scenario = good(&format!(
        "{SEND}<recv response=\"200\" td=\"1\" rtd=\"1\" rtd=\"2\"><action>\n\
         <ereg regexp=\"<a&b\\\"\" search_in=\"hdr\" header=\"To\" occurence=\"2\" assign_to=\"v\"/>\n\
         </action><foo/></recv><Reference variables=\"v\"/>"
    ));
    let found: Vec<_> = scenario.warnings.iter().map(|w| (w.line, w.column, w.text.as_str())).collect();
    let has = |line: u32, column: u32, words: &str| {
        assert!(
            found.iter().any(|(l, c, text)| (*l, *c) == (line, column) && text.contains(words)),
            "{words}: {found:#?}"
        );
    };
    has(8, 22, "is `rtd` meant?");
    has(8, 37, "is repeated here");
    has(9, 15, "&lt;");
    has(9, 15, "&amp;");
    has(9, 15, "&quot;");
    has(9, 47, "without `:`");
    has(9, 51, "occurence");
    has(10, 10, "<foo>");
    assert_eq!(found.len(), 8, "{found:#?}");
}

#[test]
fn steps_have_their_attributes() {
    let scenario = good(&format!(
        "<label id=\"a\"/>{SEND}<recv response=\"180\" optional=\"true\" next=\"a\" chance=\"0.25\" test=\"v\" crlf=\"no\"/>\
         <recv response=\"200\" rrs=\"1\" auth=\"TRUE\" timeout=\"0x10\" ontimeout=\"z\" lost=\"2.5\" rtd=\"true\"\
          repeat_rtd=\"false\" counter=\"c\" condexec=\"v\" condexec_inverse=\"true\" display=\"d\" hiderest=\"true\"/>\
         <pause variable=\"v\"/><label id=\"z\"/>"
    ));
    let [send, first, second, pause] = scenario.steps.as_slice() else { panic!("{:?}", scenario.steps) };
    assert!(
        matches!(&send.kind, StepKind::Send(send) if matches!(&send.start, Start::Request(m) if *m.text == *b"OPTIONS"))
    );
    let jump = first.next.expect("a jump");
    assert_eq!((jump.to, jump.chance, jump.test.is_some(), first.blank_line), (0, Some(0.25), true, true));
    assert!(matches!(&first.kind, StepKind::Receive(r) if r.optional == Optional::Yes && r.answers(b"OPTIONS")));
    let StepKind::Receive(receive) = &second.kind else { panic!("{second:?}") };
    assert!(matches!(receive.expected, Expected::Response(200)) && receive.record_routes && receive.authenticate);
    assert_eq!((receive.timeout, second.on_timeout, second.lost), (Some(16), Some(4), Some(2.5)));
    assert_eq!((second.stop_timer, second.repeat_timer, second.counter), (Some(0), false, Some(0)));
    assert!(second.condition.is_some_and(|c| c.inverse) && second.hidden && pause.hidden && !first.hidden);
    assert!(matches!(pause.kind, StepKind::Pause(Pause::Variable(slot)) if slot.scope == Scope::Call));
    assert_eq!((scenario.timers, scenario.counters), (vec!["1".to_owned()], vec!["c".to_owned()]));
}

#[test]
fn scopes_of_variables() {
    let log = "<nop><action><log message=\"[$g][$u][$c][$c]\"/></action></nop>";
    let scenario = good(&format!("<Global variables=\"g\"/><User variables=\"u\"/>{log}{SEND}"));
    assert_eq!(scenario.variables.global, ["g"]);
    assert_eq!((scenario.variables.user, scenario.variables.call), (vec!["u".to_owned()], vec!["c".to_owned()]));
    // Declared too late: the name belongs to a variable of the call.
    assert!(bad(&format!("{log}{SEND}<Global variables=\"g\"/>")).what.contains("only once"));
    // Scenarios of one run agree on global variables.
    let environment = Environment { globals: vec!["x".into(), "g".into()], ..Environment::default() };
    let second = load(&format!("{SEND}<pause variable=\"g\"/>"), &environment).expect("a scenario");
    assert_eq!(second.variables.global, ["x", "g"]);
    assert!(
        matches!(second.steps[1].kind, StepKind::Pause(Pause::Variable(slot)) if slot.scope == Scope::Global && slot.index == 1)
    );
}

#[test]
fn init_has_its_own_labels() {
    let init = "<init><label id=\"a\"/><nop next=\"a\"/></init>";
    let scenario = good(&format!("{init}{SEND}<label id=\"a\"/><nop next=\"a\"/>"));
    assert_eq!(scenario.init[0].next.map(|next| next.to), Some(0));
    assert_eq!(scenario.steps[1].next.map(|next| next.to), Some(1));
    bad(&format!("<init>{SEND}</init>{SEND}"));
}

#[test]
fn actions() {
    let Action::Expression(ereg) = action("<ereg regexp=\"(&lt;)\" assign_to=\"var1,var2\" check_it=\"true\"/>") else {
        panic!()
    };
    assert_eq!((&*ereg.expression.text, ereg.expression.groups(), ereg.check), (&b"(<)"[..], 1, Check::Must));
    assert_eq!((ereg.source, ereg.assign_to.len()), (Source::Message, 2));
    let ereg =
        "<ereg regexp=\"a\" search_in=\"hdr\" header=\"To: \" occurrence=\"3\" case_indep=\"1\" assign_to=\"var1\"/>";
    let Action::Expression(ereg) = action(ereg) else { panic!() };
    assert!(matches!(&ereg.source, Source::Header(h) if *h.text == *b"To: " && h.occurrence == 3 && h.ignore_case));
    assert!(matches!(action("<exec command=\"a [pid]\" int_cmd=\"stop_now\"/>"), Action::Command(_)));
    assert!(matches!(action("<exec rtp_stream=\"pause\"/>"), Action::RtpStream(RtpStream::Pause)));
    assert!(matches!(
        action("<sample assign_to=\"var1\" distribution=\"pareto\" k=\"1\" x_m=\"2\"/>"),
        Action::Sample { distribution: Distribution::Pareto { k: 1.0, x_m: 2.0 }, .. }
    ));
}

#[test]
fn media_are_looked_for_beside_the_document() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.xml");
    let body = "<nop><action><exec play_pcap_video=\"v.pcap\"/><exec rtp_stream=\"s.raw,-1,0\"/></action></nop>";
    let text = format!("<?xml version=\"1.0\"?><scenario>{SEND}{body}</scenario>");
    std::fs::write(&file, text).expect("a file");
    let load = || Scenario::load(&file, &Environment::default());
    let missing = load().expect_err("no capture");
    assert_eq!(missing.cause, Cause::MediaFile);
    std::fs::write(folder.path().join("v.pcap"), b"no capture").expect("a file");
    assert!(load().expect_err("no capture").what.contains("no capture"));
    std::fs::write(folder.path().join("v.pcap"), 0xa1b2_c3d4u32.to_le_bytes()).expect("a file");
    assert!(load().expect_err("no stream").what.contains("s.raw"));
    std::fs::write(folder.path().join("s.raw"), [0; 160]).expect("a file");
    let scenario = load().unwrap_or_else(|refusal| panic!("{refusal}"));
    let [Action::PlayPcap { media: Media::Video, file }, Action::RtpStream(RtpStream::Play { loops: -1, .. })] =
        &*scenario.steps[1].actions
    else {
        panic!("{:?}", scenario.steps[1].actions)
    };
    assert_eq!(*file, folder.path().join("v.pcap"));
    assert_eq!(
        Scenario::load(Path::new("/nonesuch.xml"), &Environment::default()).expect_err("no file").cause,
        Cause::Unreadable
    );
}

#[test]
fn third_party_call_control_needs_its_options() {
    let command = "<sendCmd dest=\"m\"><![CDATA[ Call-ID: [call_id]\n]]></sendCmd>";
    assert_eq!(bad(&format!("{SEND}<recvCmd/>")).cause, Cause::ThirdParty);
    let run = |body: &str, third_party, peers: &[&str]| {
        let peers = peers.iter().map(|name| (*name).to_owned()).collect();
        load(body, &Environment { third_party, peers, ..Environment::default() })
    };
    let classic = |body: &str| run(body, ThirdParty::Classic, &[]).map(|scenario| scenario.third_party);
    assert_eq!(classic(&format!("{SEND}{}", command.replace(" dest=\"m\"", ""))).ok(), Some(Some(ThirdPartyRole::A)));
    assert_eq!(classic(&format!("<recvCmd/>{SEND}")).ok(), Some(Some(ThirdPartyRole::B)));
    assert_eq!(classic(SEND).map_err(|refusal| refusal.cause), Err(Cause::ThirdParty));
    let extended = |body: &str, peers: &[&str]| run(body, ThirdParty::Extended, peers).map(|scenario| scenario.peers);
    assert_eq!(extended(&format!("{SEND}{command}"), &["m"]).ok(), Some(vec!["m".to_owned()]));
    assert!(extended(&format!("{SEND}{command}"), &["s"]).is_err());
    assert!(extended(&format!("{SEND}<recvCmd/>"), &["m"]).is_err());
}

#[test]
fn default_messages_replace_the_built_in_ones() {
    let text = "<DefaultMessage id=\"bye\"><![CDATA[\n BYE x SIP/2.0\n X: [$v]\n]]></DefaultMessage>";
    let scenario = good(&format!("{text}{SEND}"));
    assert_eq!(scenario.default_messages.bye.pieces.len(), 3);
    assert_eq!(scenario.default_messages.cancel, builtin::default_messages().cancel);
    assert_eq!(scenario.variables.call, ["v"]);
    bad(&format!("{}{SEND}", text.replace("[$v]", "[foo]")));
    bad(&format!("{}{SEND}", text.replace("bye", "hello")));
}

#[test]
fn where_an_unexpected_message_leads() {
    let log = "<nop><action><log message=\"[$_unexp.retaddr][$_unexp.retaddr]\"/></action></nop>";
    let scenario = good(&format!("{SEND}<label id=\"_unexp.main\"/>{log}"));
    let unexpected = scenario.unexpected.expect("a label");
    assert_eq!((unexpected.main, unexpected.return_address.is_some(), unexpected.paused), (1, true, None));
}

#[test]
fn a_long_document_is_read_with_a_warning() {
    let long = format!("<!-- {} -->{SEND}", "x".repeat(70_000));
    assert!(good(&long).warnings[0].text.contains("65535"));
    let text = format!("<?xml version=\"1.0\"?><scenario>{long}</scenario>");
    let small = Limits { document: 1000 };
    assert!(read(text.as_bytes(), Path::new("a.xml"), &Environment::default(), small).is_err());
}

#[test]
fn a_raw_angle_in_an_attribute_is_read_as_it_is_meant() {
    let body = format!(
        "{SEND}<recv response=\"200\"><action><ereg regexp=\"<sip:([^>]*)>\" search_in=\"msg\" assign_to=\"v\"/></action></recv>\
         <Reference variables=\"v\"/>"
    );
    let scenario = good(&body);
    let tolerated = scenario.tolerated.expect("SIPp refuses it");
    assert!(tolerated.text.contains("SIPp 3.6 refuses"), "{tolerated:?}");
    assert!(matches!(&scenario.steps[1].actions[0], Action::Expression(e) if *e.expression.text == *b"<sip:([^>]*)>"));
    assert!(good(&body.replace("<sip", "&lt;sip")).tolerated.is_none());
}
