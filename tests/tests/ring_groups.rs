//! Third-party phones as ring group and hunt group, and calls that are forwarded on busy and on no answer.

use std::time::Duration;

use strowger_tests::baresip::{Baresip, Phone, end, with_users};
use strowger_tests::program::{BARESIP, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::wire::Transport::Udp;

const SOON: Duration = Duration::from_secs(15);

/// Dora has no phone, and there is no user named nobody.
const RULES: &str = "[[failure]]\nname = \"busy\"\nstatuses = [\"486\"]\nto = [\"sip:dora@example.org\", \"sip:ben@example.org\"]\n\
    [[failure]]\nname = \"away\"\nstatuses = [\"408\"]\nto = [\"sip:ben@example.org\"]\n\
    [[rule]]\nname = \"sales\"\nwhen = \"request.user == 'sales'\"\nat_once = true\n\
    to = [\"sip:anna@example.org\", \"sip:ben@example.org\", \"sip:dora@example.org\", \"sip:nobody@example.org\"]\n\
    [[rule]]\nname = \"support\"\nwhen = \"request.user == 'support'\"\nring_timeout = \"2s\"\n\
    to = [\"sip:dora@example.org\", \"sip:ben@example.org\", \"sip:anna@example.org\"]\n\
    [[rule]]\nname = \"anna\"\nwhen = \"request.user == 'anna'\"\nring_timeout = \"2s\"\non_failure = [\"busy\", \"away\"]";

fn telephone(server: &Server, user: &str) -> Baresip {
    let mut phone = Baresip::start(&Phone {
        user,
        domain: "example.org",
        password: &format!("secret-of-{user}"),
        server: server.address(Udp),
        outbound_name: None,
        transport: "udp",
        authority: None,
        answers: false,
        namespace: None,
        listen: end(),
    });
    phone.registered(SOON);
    phone
}

/// This phone answers the call of the caller, who then hangs up.
fn talks(caller: &mut Baresip, phone: &mut Baresip) {
    phone.order("accept", "");
    phone.expect("CALL_ESTABLISHED", SOON);
    caller.expect("CALL_ESTABLISHED", SOON);
    caller.order("hangup", "");
    phone.expect("CALL_CLOSED", SOON);
    caller.expect("CALL_CLOSED", SOON);
}

#[test]
fn telephones_ring_at_once_in_turn_and_in_place_of_another() {
    if !have(&[BARESIP]) {
        return;
    }
    let server = with_users(Setup::on(&[Udp]).with(RULES));
    for user in ["anna", "ben", "dora"] {
        server.add_user(&format!("{user}@example.org"), &format!("secret-of-{user}"));
    }
    let [mut alice, mut anna, mut ben] = ["alice", "anna", "ben"].map(|user| telephone(&server, user));

    // Ring group: both ring, and the other phone stops when one answers.
    alice.order("dial", "sip:sales@example.org");
    anna.expect("CALL_INCOMING", SOON);
    ben.expect("CALL_INCOMING", SOON);
    ben.order("accept", "");
    anna.expect("CALL_CLOSED", SOON);
    ben.expect("CALL_ESTABLISHED", SOON);
    alice.expect("CALL_ESTABLISHED", SOON);
    ben.order("hangup", "");
    alice.expect("CALL_CLOSED", SOON);
    ben.expect("CALL_CLOSED", SOON);

    // Hunt group: the next phone rings after a busy one, and after one that does not answer.
    alice.order("dial", "sip:support@example.org");
    ben.expect("CALL_INCOMING", SOON);
    ben.order("hangup", "");
    anna.expect("CALL_INCOMING", SOON);
    talks(&mut alice, &mut anna);
    alice.order("dial", "sip:support@example.org");
    ben.expect("CALL_INCOMING", SOON);
    anna.expect("CALL_INCOMING", SOON);
    talks(&mut alice, &mut anna);

    // Call forward on busy, and on no answer.
    alice.order("dial", "sip:anna@example.org");
    anna.expect("CALL_INCOMING", SOON);
    anna.order("hangup", "");
    ben.expect("CALL_INCOMING", SOON);
    talks(&mut alice, &mut ben);
    alice.order("dial", "sip:anna@example.org");
    anna.expect("CALL_INCOMING", SOON);
    anna.expect("CALL_CLOSED", SOON);
    ben.expect("CALL_INCOMING", SOON);
    talks(&mut alice, &mut ben);
}

/// The log names each user of a rule whom the database lacks: at the start, and after a reload.
#[test]
fn the_log_names_users_of_rules_who_do_not_exist() {
    let rule = "[[rule]]\nname = \"sales\"\nwhen = \"request.user == 'sales'\"\n\
                to = [\"sip:alice@example.org\", \"sip:nobody@example.org\"]";
    let server = with_users(Setup::on(&[Udp]).with(rule));
    server.log_with("a rule names an unknown user");
    let log = server.log_with("nobody@example.org");
    assert!(!log.contains("user=alice@example.org"), "{log}");
}
