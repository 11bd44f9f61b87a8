//! Memory per registered contact: `memory_contacts [CONTACTS]`, 1,000,000 by default.
//!
//! A contact here has an address-of-record of 30 bytes, a URI of 60, a Call-ID of 36, an instance, a received address,
//! a flow and one of 200 User-Agents; its timer and its index entry are included. PSS is read from
//! `/proc/self/smaps_rollup` before and after, so waste of the allocator counts. A second round refreshes every contact
//! with a Call-ID of another length, as a restarted phone would, to measure the cost of churn. Exit code 1 when a
//! contact costs more than 450 bytes.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use strowger_benches::memory::pss;
use strowger_benches::processor_time;
use strowger_store::binding::{Binding, Received};
use strowger_store::location::{ExistingBindings, LocationSettings, LocationTable, Step};
use strowger_store::ticket::Ticket;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MOST: f64 = 450.0;
const AIM: f64 = 350.0;
const NOW: u64 = 1_700_000_000_000;

fn register(table: &LocationTable, ticket: Ticket, n: u64, call_id: &str) {
    let aor = format!("sip:user{n:010}@example.com");
    let uri = format!("sip:user{n:010}@192.168.100.200:50600;transport=udp;ob");
    let aor = &aor.as_bytes()[..aor.len().min(30)];
    let mut uri = uri.into_bytes();
    uri.resize(60, b'x');
    let instance = format!("<urn:uuid:f81d4fae-7dec-11d0-a765-{n:012}>");
    let agent = format!("Softphone {:03} build 77.10", n % 200);
    let binding = Binding {
        aor,
        uri: &uri,
        call_id: call_id.as_bytes(),
        instance: instance.as_bytes(),
        user_agent: agent.as_bytes(),
        cseq: 1,
        expires_at: NOW + 3_600_000 + n % 600_000,
        updated_at: NOW,
        received: Some(Received { transport: 1, address: ([192, 0, 2, 1], 50_600).into() }),
        flow: Some([0, 1, 0, 1, 0, 0, 0, 0, 7, 0, 0, 0, 9]),
        listener: 1,
        node: 1,
        reg_id: 1,
        flags: 1,
        ..Binding::EMPTY
    };
    let decide = |current: &ExistingBindings<'_>| {
        Ok::<_, ()>(vec![match current.iter().next() {
            Some(old) => Step::Replace(old.id(), binding),
            None => Step::Add(binding),
        }])
    };
    table.update(aor, NOW, 5, ticket, decide).expect("the table has room");
}

fn main() -> ExitCode {
    let contacts = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("the argument is a number"));
    let table = LocationTable::new(LocationSettings::default());
    let ticket = Ticket::NONE;
    let before = pss();
    let start = processor_time::of_thread();
    for n in 0..contacts {
        register(&table, ticket, n, &format!("{n:020}@abcdefghijklmno"));
    }
    let added = processor_time::of_thread() - start;
    let each = |now: u64| (now.saturating_sub(before)) as f64 / contacts as f64;
    let first = each(pss());

    let start = processor_time::of_thread();
    let mut found = 0;
    for n in 0..contacts {
        let aor = format!("sip:user{:010}@example.com", n * 7919 % contacts);
        table.lookup(&aor.as_bytes()[..aor.len().min(30)], NOW, &mut |b| found += u64::from(b.flags()));
    }
    let looked = processor_time::of_thread() - start;
    assert_eq!(found, contacts);

    for n in 0..contacts {
        register(&table, ticket, n, &format!("{n:030}@abcdefghijklmnop"));
    }
    let refreshed = each(pss());

    let start = processor_time::of_thread();
    let expired = table.expire(NOW + 4_300_000, usize::MAX, &mut |b| {
        black_box(b.id());
    });
    let cleaned = processor_time::of_thread() - start;
    assert_eq!(expired as u64, contacts);

    let ns = |d: Duration| d.as_nanos() as u64 / contacts.max(1);
    println!("contacts                {contacts}");
    println!("PSS per contact         {first:.0} bytes (at most {MOST:.0}, aim {AIM:.0})");
    println!("PSS after a refresh     {refreshed:.0} bytes (Call-ID 11 bytes longer)");
    println!("register                {} ns CPU", ns(added));
    println!("look up                 {} ns CPU", ns(looked));
    println!("expire                  {} ns CPU", ns(cleaned));
    if first > MOST { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
