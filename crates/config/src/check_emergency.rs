//! Check of emergency calls.

use super::Config;
use super::reader::Reader;
use super::report::Fault;

/// Notes emergency numbers for which there is no target.
pub(super) fn check(config: &Config, reader: &mut Reader) {
    let emergency = &config.emergency;
    if emergency.target.is_none() && (!emergency.numbers.is_empty() || emergency.identity.is_some()) {
        let span = reader.first_of(&["emergency.numbers", "emergency.identity"]);
        let cure = "add target, such as target = \"sip:192.0.2.33\" or the name of a [[gateway_group]]";
        reader.push(Fault::error(span, "emergency has no target: emergency calls would go nowhere", cure));
    }
}
