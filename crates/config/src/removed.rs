//! Keys of earlier versions that are constants now. A file that still has one gets a warning, and starts.

/// Removed keys, each with its table, and with the end of a sentence that gives the present value and its reason.
const REMOVED: [(&str, &str, &str); 58] = [
    ("server", "kernel_steering", "the kernel gives each datagram to the shard of its call wherever it can"),
    ("server", "udp_send_buffer", "4 MiB hold more than a shard sends in a round"),
    ("server", "udp_batch", "64 datagrams are taken by a system call, more save nothing"),
    ("server", "udp_batches", "8 batches are taken from a socket in a turn, enough under full load"),
    ("server", "udp_linger", "datagrams are received at once: waiting saved little and delayed each call"),
    ("proxy", "max_breadth", "60 parallel branches is the value of RFC 5393; proxy.max_branches bounds all of them"),
    ("proxy", "loop_detection", "RFC 5393 demands it of each proxy that forks"),
    ("registrar", "linger", "a binding waits 2 ms for others of its commit, less than a disk takes"),
    ("registrar", "commit_rows", "4096 bindings are committed together, more save nothing"),
    ("registrar", "commit_queue", "20,000 bindings may wait to be committed; strowger_journal_queued shows them"),
    ("registrar", "max_binding_size", "16 KiB hold each binding of a phone"),
    ("auth", "clock_skew", "clocks of servers that share a secret may differ by 10 s: use NTP"),
    ("ban", "sources", "65,536 sources are watched, and users as many; strowger_sources_watched shows them"),
    ("store", "breaker_after", "five look-ups in a row that miss store.lookup_timeout show an outage"),
    ("store", "stale_wait", "an expired answer is used after 200 ms of silence, before a phone sends again"),
    ("store", "cache_absent_entries", "it is a tenth of store.cache_entries"),
    ("store", "cache_absent_lifetime", "it is 30 s, or store.cache_lifetime if that is shorter"),
    ("store", "poll_interval", "changes are looked for every 500 ms, which costs nothing"),
    ("store", "page_cache", "16 MiB hold the pages in use: bindings and answers are kept in memory"),
    ("store", "max_size", "the disk bounds the file: use a quota or a volume of its own"),
    ("limits", "body_size", "a body may be as large as limits.message_size admits"),
    ("limits", "header_count", "256 header fields are more than any phone or gateway writes"),
    ("limits", "uri_length", "4096 bytes are longer than any URI of a phone or gateway"),
    ("limits", "request_memory", "64 KiB hold a request with its branches; limits.message_size bounds the request"),
    (
        "limits",
        "sent_messages",
        "16,384 messages are remembered in each shard; strowger_sent_forgotten_total counts the others",
    ),
    ("limits", "partial_message_timeout", "30 s let the slowest line finish a message"),
    ("limits", "connect_timeout", "a peer that answers no SYN in 5 s is away"),
    ("limits", "handshake_timeout", "10 s let the slowest phone finish a handshake"),
    (
        "limits",
        "udp_queue",
        "4096 datagrams may wait for a full socket; strowger_datagrams_dropped_total counts the others",
    ),
    ("limits", "connection_queue", "1 MiB, and at least limits.message_size, may wait for a peer that does not read"),
    (
        "limits",
        "shard_queue",
        "4096 messages may wait between two shards; strowger_crossings_dropped_total counts the others",
    ),
    ("limits", "messages_per_turn", "64 messages of a connection delay the others by less than a millisecond"),
    ("limits", "lookup_queue", "10,000 look-ups may wait; further requests are answered 503 and counted"),
    ("limits", "lookups_per_source", "1000 names may be looked up at once for one source"),
    ("limits", "lookup_memory", "256 MiB hold the requests that wait for look-ups"),
    ("limits", "held_messages_per_call", "32 messages of a call are more than any phone sends before an answer"),
    ("timers", "timer_d", "it is 32 s, or 64 times timers.t1 if that is longer (RFC 3261 section 17.1.1.2)"),
    ("timers", "step", "ends of transactions are rounded up to 100 ms, which no peer can see"),
    (
        "dns",
        "max_targets",
        "16 addresses of a name are tried; strowger_name_addresses_left_out_total counts the others",
    ),
    ("dns", "names_per_request", "4 names in the Routes of a request are looked up"),
    ("dns", "attempts", "a question is asked twice: a datagram may be lost"),
    ("dns", "cache_entries", "8192 answers are kept; strowger_names_known shows them"),
    ("dns", "ask_ahead", "64 names are asked for ahead at a time"),
    ("dns", "retry_after", "a next hop is set aside for 5 minutes at most by its own Retry-After"),
    ("dns", "set_aside_targets", "4096 next hops may be set aside; strowger_targets_aside shows them"),
    ("dialogs", "group_interval", "changes of calls wait 100 ms for others of their group"),
    ("dialogs", "count_interval", "servers publish their numbers of calls every 100 ms"),
    ("dialogs", "count_lifetime", "the calls of a server that is silent count for 5 s"),
    ("accounting", "queue", "100,000 rows may wait in memory; lost ones are counted"),
    ("accounting", "retry_interval", "writing is tried again each second"),
    ("log", "queue", "1 MiB of lines may wait for standard error; dropped ones are counted"),
    ("log", "open_calls", "20,000 calls without an end are logged; further ones are counted"),
    ("log", "longest_call", "a logged call is forgotten after 12 h; forgotten ones are counted"),
    ("metrics", "connections", "16 connections are more than collectors and supervisors need"),
    ("metrics", "timeout", "5 s are more than a collector on the network needs"),
    ("control", "connections", "8 commands are more than an operator needs at a time"),
    ("control", "timeout", "a connection may be silent for 10 s"),
    ("cache", "connections", "two connections to each server carry all its requests: they are pipelined"),
];

/// Returns the reason why a key was removed; `None` if it is no removed key.
pub(super) fn reason(table: &str, key: &str) -> Option<&'static str> {
    REMOVED.iter().find(|removed| (removed.0, removed.1) == (table, key)).map(|removed| removed.2)
}

/// Removed keys for the protection of a connection, each with its table and with the key whose URL contains the protection now.
const IN_URL: [(&str, &str, &str); 10] = [
    ("store", "subscriber_tls", "store.subscribers"),
    ("store", "subscriber_ca", "store.subscribers"),
    ("store", "binding_tls", "store.bindings"),
    ("store", "binding_ca", "store.bindings"),
    ("dialogs", "database_tls", "dialogs.database"),
    ("dialogs", "database_ca", "dialogs.database"),
    ("accounting", "database_tls", "accounting.database"),
    ("accounting", "database_ca", "accounting.database"),
    ("set", "tls", "database"),
    ("set", "ca", "database"),
];

/// Returns the key whose URL contains the setting of this removed key. A file with such a key is refused, because the server would otherwise connect
/// without the protection.
pub(super) fn url_of(table: &str, key: &str) -> Option<&'static str> {
    IN_URL.iter().find(|moved| (moved.0, moved.1) == (table, key)).map(|moved| moved.2)
}

#[cfg(test)]
mod tests {
    use super::super::report::Severity;
    use super::super::{Config, Source, Tables, tables::Document};
    use super::*;

    fn line(table: &str, key: &str) -> String {
        match table {
            "cache" => format!("[[cache]]\nname = \"c\"\n{key} = 1\n"),
            table => format!("{table}.{key} = 1\n"),
        }
    }

    #[test]
    fn each_removed_key_gives_its_warning() {
        for (table, key, reason) in REMOVED {
            let text = line(table, key);
            let read = Config::read(Source { text: &text, ..Source::default() });
            let (_, report) = read.unwrap_or_else(|report| panic!("{table}.{key}: {report}"));
            let fault = report.faults().iter().find(|fault| fault.message.contains(reason));
            let fault = fault.unwrap_or_else(|| panic!("{table}.{key}: {report}"));
            assert!(fault.message.starts_with(&format!("{table}.{key} ")), "{report}");
            assert_eq!((fault.severity, &*fault.cure), (Severity::Warning, "remove the line"));
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(text.lines().count()), "{report}");
        }
    }

    #[test]
    fn a_file_with_all_of_them_starts() {
        let mut text = String::new();
        for (table, key, _) in REMOVED.iter().filter(|(table, ..)| *table != "cache") {
            text += &line(table, key);
        }
        text += &line("cache", "connections");
        let read = Config::read(Source { text: &text, ..Source::default() });
        let (config, report) = read.unwrap_or_else(|report| panic!("{report}"));
        assert!(report.errors() == 0 && report.warnings() >= REMOVED.len(), "{report}");
        let (without, _) =
            Config::read(Source { text: "[[cache]]\nname = \"c\"", ..Source::default() }).expect("right");
        assert_eq!(config, without);
    }

    /// The server would connect without TLS.
    #[test]
    fn a_file_with_the_protection_beside_the_url_is_refused() {
        for (table, key, url) in IN_URL {
            let text = match table {
                "set" => format!("[[set]]\nname = \"a\"\n{key} = \"required\"\n"),
                table => format!("{table}.{key} = \"required\"\n"),
            };
            let report = Config::read(Source { text: &text, ..Source::default() }).expect_err(&text);
            let [fault] = report.faults() else { panic!("{report}") };
            assert!(fault.message.contains(&format!("URL of {url}")), "{report}");
            assert!(fault.severity == Severity::Error && fault.cure.contains("?tls=required"), "{report}");
        }
    }

    #[test]
    fn a_removed_key_is_no_key() {
        let tables = Tables::names();
        for (name, key, _) in REMOVED.into_iter().chain(IN_URL) {
            let table = tables.iter().find(|table| table.name == name);
            assert!(table.is_some_and(|table| !table.keys.contains(&key)), "{name}.{key}");
        }
    }
}
