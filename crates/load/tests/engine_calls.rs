//! Calls between two engines in one process: none is lost, a warm engine allocates nothing, a stall shows as delay.

use std::alloc::System;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use strowger_allocations::{Counting, of_process, set_aside};
use strowger_core::Transport;
use strowger_load::engine::Halt;
use strowger_load::engine::helper::Helper;
use strowger_load::engine::pace::Part;
use strowger_load::engine::run::{Behaviour, Load, Retransmission, Run};
use strowger_load::engine::script::Script;
use strowger_load::engine::sipp_stats::SippStats;
use strowger_load::engine::traffic::{Event, ShardCommand, Traffic};
use strowger_load::engine::watch::{Passage, Watch};
use strowger_measure::{Clock, Collector, Counter, Delay, Page};
use strowger_net::{Listener, Net, NetSettings, Node, Shards, UdpSettings, clock};
use strowger_scenario::{Environment, Scenario};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Runs one test at a time: they measure time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

const CALLER: &str = r#"<scenario name="caller">
<send retrans="500"><![CDATA[
INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:caller@[local_ip]:[local_port]>;tag=[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: <sip:caller@[local_ip]:[local_port]>
Max-Forwards: 70
Content-Length: 0
]]></send>
<recv response="180" optional="true"/>
<recv response="200"/>
<send><![CDATA[
ACK sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:caller@[local_ip]:[local_port]>;tag=[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0
]]></send>
<send retrans="500"><![CDATA[
BYE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:caller@[local_ip]:[local_port]>;tag=[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 2 BYE
Max-Forwards: 70
Content-Length: 0
]]></send>
<recv response="200"/>
</scenario>"#;

const ANSWER: &str = "[last_Via:]\n[last_From:]\n[last_To:];tag=[call_number]\n[last_Call-ID:]\n[last_CSeq:]\n\
                      Contact: <sip:[local_ip]:[local_port]>\nContent-Length: 0\n";

fn callee() -> String {
    format!(
        "<scenario name=\"callee\"><recv request=\"INVITE\"/>\
         <send><![CDATA[\nSIP/2.0 180 Ringing\n{ANSWER}]]></send>\
         <send retrans=\"500\"><![CDATA[\nSIP/2.0 200 OK\n{ANSWER}]]></send>\
         <recv request=\"ACK\"/><recv request=\"BYE\"/>\
         <send><![CDATA[\nSIP/2.0 200 OK\n{}]]></send></scenario>",
        ANSWER.replace(";tag=[call_number]", "")
    )
}

/// One side of the calls.
struct Side {
    node: Node<Traffic>,
    address: SocketAddr,
    events: Receiver<Event>,
    collector: Collector,
}

/// Watch that stops its shard once, after this many messages.
struct Stall {
    messages: u32,
    length: Duration,
}

impl Watch for Stall {
    fn message(&mut self, _: Passage, _: Transport, _: &[u8], _: &[u8]) {
        self.messages = self.messages.wrapping_sub(1);
        if self.messages == 0 {
            // The planted stall.
            std::thread::sleep(self.length);
        }
    }
}

fn start(document: &str, target: Option<SocketAddr>, load: Load) -> Side {
    start_watched(document, target, load, None)
}

fn start_watched(document: &str, target: Option<SocketAddr>, load: Load, watch: Option<Box<dyn Watch>>) -> Side {
    start_with_names(document, target, load, watch, Arc::new(|_, _| None))
}

/// Look-up of names.
type Names = Arc<dyn Fn(&str, u16) -> Option<SocketAddr> + Send + Sync>;

fn start_with_names(
    document: &str,
    target: Option<SocketAddr>,
    load: Load,
    watch: Option<Box<dyn Watch>>,
    names: Names,
) -> Side {
    let document = format!("<?xml version=\"1.0\"?>\n{document}");
    let scenario = Scenario::parse(document.as_bytes(), Path::new("test"), &Environment::default());
    let scenario = Arc::new(scenario.expect("the document is right"));
    let udp =
        UdpSettings { gso: true, gro: true, force_buffers: true, receive_buffer: 16 << 20, ..UdpSettings::default() };
    let settings = NetSettings { shards: Shards::Fixed(1), udp, ..NetSettings::default() };
    let listener = Listener::new(Transport::Udp, SocketAddr::from(([127, 0, 0, 1], 0)));
    let net = Net::bind(settings, vec![listener]).expect("a port is free");
    let address = net.addresses()[0];
    let behaviour = Behaviour { dead_call_wait: 0, ..Behaviour::default() };
    let retransmission = Retransmission { rfc3261: true, ..Retransmission::default() };
    let run = Run { target, local_port: address.port(), load, behaviour, retransmission, ..Run::new(scenario.clone()) };
    let run = Arc::new(run);
    let script = Arc::new(Script::new(scenario, &run));
    let now = clock::micros();
    let mut collector = Collector::new(Clock::new(now, SystemTime::now()), Vec::new(), 1);
    let (to, events) = channel();
    let parts = Mutex::new(Some((collector.recorder(now), to, watch)));
    let node = net
        .spawn_with_sockets(move |shard, handle| {
            let (recorder, to, watch) = parts.lock().unwrap().take().expect("one shard");
            let (mailbox, names) = (handle.mailbox(shard), names.clone());
            let deliver = move |answer| mailbox.send(ShardCommand::Helped(answer));
            let helper = Helper::with_lookup(deliver, move |host, port| names(host, port));
            Traffic::new(run.clone(), script.clone(), None, recorder, to, helper).watched(watch)
        })
        .expect("threads can be started");
    Side { node, address, events, collector }
}

impl Side {
    /// Returns the counts at the end, and the measurements.
    fn wait(mut self) -> (SippStats, Page) {
        let stats = loop {
            match self.events.recv_timeout(Duration::from_millis(200)) {
                Ok(Event::Finished(stats)) => break *stats,
                Ok(other) => panic!("{other:?}"),
                Err(_) => self.collector.poll(clock::micros(), |_| {}),
            }
        };
        drop(self.node);
        (stats, self.collector.finish(|_| {}))
    }
}

fn rate(rate: f64, calls: u64) -> Load {
    Load { profile: vec![Part::Hold { rate }], calls: Some(calls), ..Load::default() }
}

/// Counts the allocations of a second and a half of warm calls; all 8,000 succeed.
fn allocations_of(caller: &str, callee: &str) -> (u64, Page) {
    let callee = start(callee, None, Load::default());
    // A burst first, to fill enough slots for moments in which the machine has other work.
    let profile = vec![Part::Burst { calls: 1_000 }, Part::Hold { rate: 2_000.0 }];
    let caller = start(caller, Some(callee.address), Load { profile, ..rate(0.0, 8_000) });
    // By then tables and buffers have their size.
    std::thread::sleep(Duration::from_millis(2_200));
    set_aside();
    let before = of_process();
    // The time in which allocations are counted.
    std::thread::sleep(Duration::from_millis(1_500));
    let during = of_process() - before;
    let (stats, page) = caller.wait();
    assert_eq!((stats.outgoing, stats.successful, stats.failed), (8_000, 8_000, 0));
    assert_eq!(page.counter(Counter::CallsIntended), 8_000);
    (during, page)
}

#[test]
fn calls_complete_and_nothing_is_allocated_once_warm() {
    let _alone = alone();
    let (during, page) = allocations_of(CALLER, &callee());
    assert_eq!(page.counter(Counter::SessionAnswered), 8_000);
    // About 3,000 calls a side: one allocation a call would be 6,000. A reused slot still grows once for a message a
    // digit longer than any before.
    assert!(during < 300, "{during} allocations");
}

/// Scenario with a challenge answered, texts split and joined, a route set kept.
const REGISTERS: &str = r#"<scenario name="registers">
<send retrans="500"><![CDATA[
REGISTER sip:[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:joe@example.org>;tag=[call_number]
To: <sip:joe@example.org>
Call-ID: [call_id]
CSeq: [cseq] REGISTER
Max-Forwards: 70
Content-Length: 0
]]></send>
<recv response="401" auth="true" rrs="true">
  <action>
    <ereg regexp="realm=.([a-z]+)" search_in="hdr" header="WWW-Authenticate:" check_it="true" assign_to="all,realm"/>
    <assignstr assign_to="name" value="[$realm]-[call_number]-[local_port]"/>
    <strcmp assign_to="same" variable="realm" value="test"/>
    <log message="[$name] [$same] [$all] [msg_index]"/>
    <assignstr assign_to="digits" value="12.5"/>
    <todouble assign_to="number" variable="digits"/>
    <add assign_to="number" value="1"/>
  </action>
</recv>
<send retrans="500"><![CDATA[
REGISTER sip:[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
[routes]
From: <sip:joe@example.org>;tag=[call_number]
To: <sip:joe@example.org>
Call-ID: [call_id]
CSeq: [cseq] REGISTER
X-Name: [$name] [$number] [next_url]
[authentication username="joe[call_number]" password="secret"]
Max-Forwards: 70
Content-Length: [len]

[last_Via:]
]]></send>
<recv response="200"/>
</scenario>"#;

fn registrar() -> String {
    let headers = ANSWER.replace(";tag=[call_number]", ";tag=r[call_number]");
    format!(
        "<scenario name=\"registrar\"><recv request=\"REGISTER\"/>\
         <send><![CDATA[\nSIP/2.0 401 Unauthorized\nRecord-Route: <sip:a;lr>, <sip:b;lr>\n\
         WWW-Authenticate: Digest realm=\"test\", nonce=\"n[call_number]\", qop=\"auth,auth-int\"\n{headers}]]></send>\
         <recv request=\"REGISTER\"><action><verifyauth assign_to=\"right\" username=\"joe[call_number]\" \
         password=\"secret\"/></action></recv>\
         <nop condexec=\"right\" next=\"answer\"/>\
         <send next=\"end\"><![CDATA[\nSIP/2.0 403 Forbidden\n{headers}]]></send>\
         <label id=\"answer\"/>\
         <send><![CDATA[\nSIP/2.0 200 OK\n{headers}]]></send>\
         <label id=\"end\"/></scenario>"
    )
}

#[test]
fn answers_to_challenges_and_actions_allocate_nothing_once_warm() {
    let _alone = alone();
    let (during, page) = allocations_of(REGISTERS, &registrar());
    assert_eq!(page.counter(Counter::RegistrationSuccessful), 8_000);
    // Ten buffers a call may grow once more: still far from one allocation a call.
    assert!(during < 1_000, "{during} allocations");
}

#[test]
fn a_frozen_callee_shows_as_delay_from_the_intended_time_and_no_call_is_missing() {
    let _alone = alone();
    let stall = Stall { messages: 3_000, length: Duration::from_millis(2_000) };
    let callee = start_watched(&callee(), None, Load::default(), Some(Box::new(stall)));
    let (stats, page) = start(CALLER, Some(callee.address), rate(1_000.0, 4_000)).wait();
    // Messages repeated meanwhile were answered again and not taken for new ones.
    assert_eq!((stats.outgoing, stats.successful), (4_000, 4_000), "{stats:?}");
    assert_eq!(page.counter(Counter::CallsIntended), 4_000);
    assert!(page.counter(Counter::RetransmissionsSent) > 1_000);
    // Two seconds of four: half of the calls wait one second on average.
    let mean = page.delays(Delay::ResponseIntended).mean().expect("there were calls");
    assert!((300_000.0..900_000.0).contains(&mean), "{mean} us");
}

#[test]
fn a_callee_that_refuses_shows_as_delay_from_the_intended_time_and_no_call_is_missing() {
    let _alone = alone();
    let callee = start(&callee(), None, Load::default());
    let caller = start(CALLER, Some(callee.address), rate(1_000.0, 3_000));
    // The pause begins in the middle of the load.
    std::thread::sleep(Duration::from_millis(500));
    // New calls are refused for a second, as by a server that drops: their INVITEs are sent again.
    callee.node.handle().mailbox(0).send(ShardCommand::Pause(true));
    std::thread::sleep(Duration::from_millis(1_000));
    callee.node.handle().mailbox(0).send(ShardCommand::Pause(false));
    let (stats, page) = caller.wait();
    assert_eq!((stats.outgoing, stats.successful), (3_000, 3_000), "{stats:?}");
    assert_eq!(page.counter(Counter::CallsIntended), 3_000);
    assert!(page.counter(Counter::RetransmissionsSent) >= 900);
    let longest = page.delays(Delay::ResponseIntended).mean().expect("there were calls");
    assert!(longest > 150_000.0, "{longest} us");
}

#[test]
fn a_limit_holds_calls_back_and_users_call_one_after_the_other() {
    let _alone = alone();
    let callee = start(&callee(), None, Load::default());
    let load = Load { limit: 5, ..rate(5_000.0, 2_000) };
    let (stats, page) = start(CALLER, Some(callee.address), load).wait();
    assert_eq!((stats.successful, stats.peak), (2_000, 5));
    assert_eq!(page.counter(Counter::CallsSuccessful), 2_000);
    let load = Load { users: Some(7), calls: Some(3_000), ..Load::default() };
    let (stats, _) = start(CALLER, Some(callee.address), load).wait();
    assert_eq!((stats.successful, stats.failed, stats.peak), (3_000, 0, 7));
}

/// Checks that `auth` has no effect on a 200, and that `rrs` takes the route set from the first message that has a
/// Record-Route, as in SIPp.
#[test]
fn auth_and_rrs_ignore_other_messages() {
    let _alone = alone();
    let answer = CALLER
        .replace("<recv response=\"200\"/>", "<recv response=\"200\" auth=\"true\"/>")
        .replace("CSeq: 1 ACK\n", "CSeq: 1 ACK\nRecord-Route: <sip:second;lr>\nContact: <sip:c>\n")
        .replace("CSeq: 2 BYE\n", "CSeq: 2 BYE\nRecord-Route: <sip:third;lr>\nContact: <sip:d>\n");
    let check =
        "<ereg regexp=\"sip:second;lr\" search_in=\"hdr\" header=\"X-Was:\" check_it=\"true\" assign_to=\"1\"/>";
    let caller = answer.replace("<recv response=\"200\" auth=\"true\"/>\n</scenario>", &format!(
        "<recv response=\"200\" auth=\"true\"><action>{check}</action></recv>\n<Reference variables=\"1\"/>\n</scenario>"
    ));
    let callee = callee().replace("<recv request=\"INVITE\"/>", "<recv request=\"INVITE\" rrs=\"true\"/>").replace(
        "<recv request=\"ACK\"/><recv request=\"BYE\"/>",
        "<recv request=\"ACK\" rrs=\"true\"/><recv request=\"BYE\" rrs=\"true\"/>",
    );
    let end = callee.rfind("SIP/2.0 200 OK\n").expect("the answer to the BYE");
    let callee = format!("{}SIP/2.0 200 OK\nX-Was: [routes]\n{}", &callee[..end], &callee[end + 15..]);
    let callee = start(&callee, None, Load::default());
    let (stats, _) = start(&caller, Some(callee.address), rate(200.0, 20)).wait();
    assert_eq!((stats.outgoing, stats.successful, stats.failed), (20, 20, 0), "{stats:?}");
}

/// Returns a look-up that blocks for `slow` names until the sender speaks, and finds every name at `address`.
fn slow_names(address: SocketAddr) -> (Sender<()>, Names) {
    let (go, wait) = channel();
    let wait = Mutex::new(wait);
    let names = move |host: &str, _: u16| {
        if host.starts_with("slow") {
            let _ = wait.lock().expect("one look-up of this name").recv();
        }
        (!host.starts_with("unknown")).then_some(address)
    };
    (go, Arc::new(names))
}

/// Waits until `successful` calls have succeeded.
fn wait_for(caller: &Side, successful: u64) {
    loop {
        let (to, from) = sync_channel(1);
        caller.node.handle().mailbox(0).send(ShardCommand::Report(to));
        if from.recv().expect("the shard answers").successful >= successful {
            return;
        }
        // Interval between two reports.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns steps that set the variable `word`: in the first call to one value, in all other calls to another.
fn first_has(first: &str, others: &str) -> String {
    format!(
        "<nop><action><assignstr assign_to=\"number\" value=\"[call_number]\"/>\
         <todouble assign_to=\"place\" variable=\"number\"/>\
         <test assign_to=\"first\" variable=\"place\" compare=\"equal\" value=\"1\"/>\
         <assignstr assign_to=\"word\" value=\"{others}\"/></action></nop>\
         <nop condexec=\"first\"><action><assignstr assign_to=\"word\" value=\"{first}\"/></action></nop>"
    )
}

/// Runs calls of which the first has a `setdest` with a host whose look-up does not end. The other calls continue; the
/// first continues after the address is known.
#[test]
fn a_slow_name_delays_its_call_alone() {
    let _alone = alone();
    let callee = start(&callee(), None, Load::default());
    let (go, names) = slow_names(callee.address);
    let setdest = "<nop><action><setdest host=\"[$word]\" port=\"5060\" protocol=\"udp\"/></action></nop>";
    let actions = first_has("slow.test", "quick.test") + setdest;
    let caller = CALLER.replacen("<send ", &format!("{actions}<send "), 1);
    // Nothing listens at the target of the run.
    let nowhere = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let target = nowhere.local_addr().expect("a bound socket");
    let caller = start_with_names(&caller, Some(target), rate(500.0, 100), None, names);
    wait_for(&caller, 99);
    go.send(()).expect("the look-up waits");
    let (stats, _) = caller.wait();
    assert_eq!((stats.outgoing, stats.successful, stats.failed), (100, 100, 0), "{stats:?}");
    nowhere.set_nonblocking(true).expect("a socket option");
    assert!(nowhere.recv(&mut [0; 64]).is_err(), "no call sends before it has its address");
}

/// Runs calls of which the first sends a file that has no content yet, a pipe without a writer. The other calls
/// continue.
#[test]
fn a_slow_file_delays_its_call_alone() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
    std::fs::write(&file, "content").expect("it is written");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let actions = first_has(&pipe.display().to_string(), &file.display().to_string());
    let header = "Subject: [file name=\"[$word]\"]\nMax-Forwards: 70\n";
    let caller = CALLER.replacen("Max-Forwards: 70\n", header, 1).replacen("<send ", &format!("{actions}<send "), 1);
    let search =
        "<ereg regexp=\"^ content$\" search_in=\"hdr\" header=\"Subject:\" check_it=\"true\" assign_to=\"all\"/>";
    let receive = format!("<recv request=\"INVITE\"><action>{search}</action></recv>");
    let callee = callee()
        .replace("<recv request=\"INVITE\"/>", &receive)
        .replace("</scenario>", "<Reference variables=\"all\"/></scenario>");
    let callee = start(&callee, None, Load::default());
    let caller = start(&caller, Some(callee.address), rate(500.0, 100));
    wait_for(&caller, 99);
    std::fs::write(&pipe, "content").expect("the helper reads the pipe");
    let (stats, _) = caller.wait();
    assert_eq!((stats.outgoing, stats.successful, stats.failed), (100, 100, 0), "{stats:?}");
    let (to, counts) = sync_channel(1);
    callee.node.handle().mailbox(0).send(ShardCommand::Report(to));
    assert_eq!(counts.recv().expect("the shard answers").failed, 0, "each INVITE has its file");
}

/// Checks that a BYE that arrives while the ACK waits for the address is handled after the ACK.
#[test]
fn a_message_waits_for_the_address_of_setdest() {
    let _alone = alone();
    let callee = format!(
        "<scenario name=\"callee\"><recv request=\"INVITE\"/>\
         <send><![CDATA[\nSIP/2.0 200 OK\n{ANSWER}]]></send>\
         <send retrans=\"500\"><![CDATA[\nBYE sip:caller@[remote_ip]:[remote_port] SIP/2.0\n\
         Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
         From: <sip:callee@[local_ip]>;tag=[call_number]\nTo: <sip:caller@[local_ip]>[peer_tag_param]\n\
         Call-ID: [call_id]\nCSeq: 1 BYE\nMax-Forwards: 70\nContent-Length: 0\n]]></send>\
         <recv request=\"ACK\"/><recv response=\"200\"/></scenario>"
    );
    let callee = start(&callee, None, Load::default());
    let (go, names) = slow_names(callee.address);
    let action = "<setdest host=\"slow.test\" port=\"5060\" protocol=\"udp\"/>";
    let (invite, rest) = CALLER.split_once("<recv response=\"200\"/>").expect("the answer to the INVITE");
    let (ack, _) = rest.split_once("<send retrans=\"500\">").expect("the BYE");
    let answer = ANSWER.replace(";tag=[call_number]", "");
    let caller = format!(
        "{invite}<recv response=\"200\"><action>{action}</action></recv>{ack}<recv request=\"BYE\"/>\
         <send><![CDATA[\nSIP/2.0 200 OK\n{answer}]]></send></scenario>"
    );
    let caller = start_with_names(&caller, Some(callee.address), rate(100.0, 1), None, names);
    // Until the BYE has come, and once more after T1.
    std::thread::sleep(Duration::from_millis(700));
    go.send(()).expect("the look-up waits");
    let (stats, page) = caller.wait();
    assert_eq!((stats.successful, stats.failed), (1, 0), "{stats:?}");
    assert_eq!(page.counter(Counter::Unexpected), 0);
}

/// Checks that an unknown name ends the run, as with SIPp.
#[test]
fn an_unknown_name_of_setdest_ends_the_run() {
    let _alone = alone();
    let callee = start(&callee(), None, Load::default());
    let (_go, names) = slow_names(callee.address);
    let action = "<nop><action><setdest host=\"unknown.test\" port=\"5060\" protocol=\"udp\"/></action></nop>";
    let caller = CALLER.replacen("<send ", &format!("{action}<send "), 1);
    let caller = start_with_names(&caller, Some(callee.address), rate(100.0, 10), None, names);
    assert!(matches!(caller.events.recv(), Ok(Event::Halt(Halt::Error))));
}
