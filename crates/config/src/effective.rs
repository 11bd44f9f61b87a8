//! Output of a configuration: as a commented file, or as the table of all keys for the documentation.

use std::fmt::Write;

use super::Config;
use super::domains::Top;
use super::reader::{KeyDoc, join};
use super::table_text::{TableText, write_comment};

impl Config {
    /// Writes the whole configuration in force as a commented file. Secrets are masked.
    ///
    /// Reading the file gives the same configuration, apart from the secrets.
    pub fn effective(&self) -> String {
        let mut out = String::from("# The configuration in force, every key with what it admits and its default.\n");
        let short = self.domains.iter().filter(|domain| !domain.has_table);
        let domains = Some(short.map(|domain| domain.name.clone()).collect());
        let top = Top { listen: Vec::new(), domains, realm: Some(self.realm.clone()) };
        let mut text = TableText::new(&top);
        // The listeners follow in their long form.
        text.keys.remove(0);
        text.values.remove(0);
        text.write(&mut out);
        out.push_str(&self.lists());
        for table in self.tables() {
            out.push('\n');
            write_comment(&mut out, table.doc);
            let _ = writeln!(out, "[{}]", table.name);
            table.write(&mut out);
        }
        out
    }
}

/// Keys that most servers set, with their table and their effect in one line, in the order of setting up a server.
const FIRST_KEYS: [(&str, &str, &str); 20] = [
    ("", "domains", "Domains of your users: the part after the `@`."),
    ("", "listen", "Transports, addresses and ports of the listeners; a `[[listener]]` table is the long form."),
    ("listener", "advertise", "Address by which peers reach a listener, such as the public one of the router."),
    ("tls", "certificate", "Certificate chain for the listeners by TLS and secure WebSocket."),
    ("tls", "key", "Private key of this certificate."),
    ("store", "database", "SQLite file of users and registrations."),
    ("store", "subscribers", "URL of a database server with the users, also in tables of OpenSIPS or Kamailio."),
    ("auth", "algorithms", "Digest algorithms that phones are offered; see [phones.md](phones.md)."),
    ("ban", "exempt", "Networks that are never banned for wrong passwords, such as your office."),
    ("proxy", "relay_for", "Callers that may call outside your domains."),
    ("source", "networks", "Addresses of peers such as a carrier; `trusted = true`: they need no password."),
    ("gateway_group", "to", "URIs of the gateways of a carrier, tried one after the other."),
    ("rule", "when", "Condition of a routing rule, such as `number starts_with '00'`; see [rules.md](rules.md)."),
    ("rule", "to", "Targets of the requests that meet it: gateways, groups of gateways or users."),
    ("call_limit", "most", "Most concurrent calls: of all, or of each user, gateway or source (`per`)."),
    ("emergency", "numbers", "Emergency numbers: calls to them go to `target` without password, rules or limits."),
    ("dialogs", "folder", "Folder in which answered calls are kept, so that they continue over a restart."),
    ("accounting", "cdr", "Write a record of each call."),
    ("accounting", "to", "Destination of the records: SQLite, JSON lines, CSV, or a database server (`database`)."),
    ("metrics", "listen", "Address at which Prometheus reads the metrics."),
];

/// Writes [`FIRST_KEYS`] as Markdown, each with a link to the section of its table. Its rows begin with a link, so that no row is mistaken for a row
/// of the reference, which begins with a key between backticks.
fn write_first_keys(out: &mut String, tables: &[TableText]) {
    out.push_str(
        "## Keys that most servers set\n\nA proxy and registrar with TLS, users, gateways, rules, accounting and a database rarely needs more than \
         these keys\nand the `name` of each table in a list. [examples/](../examples) has files for common cases.\n\n\
         | key | effect | default |\n|---|---|---|\n",
    );
    for (table, name, effect) in FIRST_KEYS {
        let keys = tables.iter().filter(|text| text.name == table).flat_map(|text| &text.keys);
        for key in keys.filter(|key| key.name == name) {
            let anchor = if table.is_empty() { "above-the-first-table" } else { table };
            let _ = writeln!(out, "| [`{}`](#{anchor}) | {effect} | {} |", join(table, name), shown_default(key));
        }
    }
    out.push('\n');
}

fn shown_default(key: &KeyDoc) -> String {
    if key.required { "required".into() } else { format!("`{}`", key.default) }
}

/// Writes all keys with defaults and ranges as Markdown: first those that most servers set, then one table for each table of the file.
pub fn reference() -> String {
    let mut out = String::from(
        "# All keys of the configuration\n\nOne TOML file; every key has a default, so none is needed. `strowger check --keys` writes this page, \
         `strowger check FILE`\nfinds mistakes in a file, `strowger check --effective FILE` shows it with all defaults filled in. \
         `strowger reload` (or SIGHUP)\ngives the file to a running server, which then uses it, except for the keys that need a restart: \
         it names those that were changed.\n\n",
    );
    let config = Config::default();
    let top = TableText::new(&Top::default());
    let tables: Vec<TableText> = [top].into_iter().chain(Config::list_items()).chain(config.tables()).collect();
    write_first_keys(&mut out, &tables);
    for table in tables {
        let title = match table.name {
            "" => "Above the first table".to_owned(),
            name if table.is_list => format!("`[[{name}]]`"),
            name => format!("`[{name}]`"),
        };
        let words = |doc: &[&str]| doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            out,
            "## {title}\n\n{}\n\n| key | default | admits | effect |\n|---|---|---|---|",
            words(table.doc)
        );
        for key in table.keys {
            let restart = if key.fixed { " **Needs a restart.**" } else { "" };
            let default = shown_default(&key);
            let KeyDoc { name, allowed, doc, .. } = key;
            let _ = writeln!(out, "| `{name}` | {default} | {allowed} | {}{restart} |", words(doc));
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::super::tables::Document;
    use super::super::{Source, Tables};
    use super::*;

    #[test]
    fn the_effective_file_gives_the_same_configuration() {
        let text = "listen = [\"udp:127.0.0.1:5070\", \"ws:[::1]:8080\"]\nrealm = \"a \\\"quoted\\\" one\"\n\
            [limits]\nidle_connection_timeout = \"never\"\n[timers]\nt1 = \"250ms\"\n[auth]\nalgorithms = [\"SHA-512-256\"]\n";
        let domains = "domains = [\"a.example\"]\nrealm = \"r\"\n[[domain]]\nname = \"b.example\"\n\
            [[domain]]\nname = \"c.example\"\nrealm = \"r\"\n";
        for text in [
            "",
            text,
            domains,
            "domains = []",
            &domains[domains.find('[').expect("a list")..].replacen("[\"a", "# [\"a", 1),
        ] {
            let (config, _) = Config::read(Source { text, ..Source::default() }).expect("right");
            let effective = config.effective();
            let (again, _) = Config::read(Source { text: &effective, ..Source::default() })
                .unwrap_or_else(|report| panic!("{report}\n{effective}"));
            assert_eq!(config, again);
        }
    }

    #[test]
    fn secrets_are_masked() {
        let text = "auth.secret = \"correct horse battery\"";
        let (config, _) = Config::read(Source { text, ..Source::default() }).expect("right");
        let effective = config.effective();
        assert!(!effective.contains("horse"));
        assert!(effective.contains("# secret = \"********\""));
    }

    #[test]
    fn the_reference_begins_with_the_keys_that_most_servers_set() {
        let reference = reference();
        let first = reference.split("\n## ").nth(1).expect("a first section");
        for (table, name, _) in FIRST_KEYS {
            assert!(first.contains(&format!("| [`{}`](#", join(table, name))), "{table} {name}");
        }
    }

    #[test]
    fn the_reference_names_every_key() {
        let reference = reference();
        for table in Tables::names() {
            let title =
                if table.name.is_empty() { "Above the first table".into() } else { format!("`{}`", table.heading()) };
            let start = reference.find(&format!("## {title}\n")).unwrap_or_else(|| panic!("{title}"));
            let part = reference[start + 2..].split("\n## ").next().expect("a split has a first part");
            for key in table.keys {
                assert!(part.contains(&format!("| `{key}` |")), "{title} {key}");
            }
        }
    }
}
