//! `strowger limits`: calls that count under the limits of the running server.

use std::fmt::Write;

use strowger_node::control::{ControlOrder, Limit, LimitList, Reply};

use super::arguments::LimitsArguments;
use super::{as_json, ask, printable, reach, unexpected};
use crate::output::{self, CommandOutcome};

pub(crate) fn limits(arguments: &LimitsArguments) -> anyhow::Result<CommandOutcome> {
    let LimitsArguments { name, key, most, server } = arguments;
    reach(server, |client| {
        let order = ControlOrder::Limits { name: name.clone(), key: key.clone(), most: *most };
        let LimitList { limits } = match ask(client, &order)? {
            Reply::Limits(list) => list,
            other => return unexpected(&other),
        };
        if server.json {
            return output::print(&as_json(&limits)?);
        }
        output::print(&table(&limits))
    })
}

fn table(limits: &[Limit]) -> String {
    if limits.is_empty() {
        return "no limits of calls\n".into();
    }
    let mut text = format!("{:<28} {:<15} {:>9} {:>9} {:>9} {:>9}\n", "limit", "per", "most", "calls", "keys", "full");
    for limit in limits {
        let (name, per) = (printable(&limit.name), if limit.per.is_empty() { "removed" } else { &limit.per });
        let most = limit.most.map_or_else(|| "-".into(), |most| most.to_string());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<28} {per:<15} {most:>9} {:>9} {:>9} {:>9}", limit.calls, limit.keys, limit.full);
        for row in &limit.highest {
            let key = if row.key.is_empty() { "(all)".into() } else { printable(&row.key) };
            let _ = writeln!(text, "  {key:<52} {:>9}", row.calls);
        }
    }
    text
}
