//! Writes a configuration back: as a commented file, or as the table of all keys for the documentation.

use std::fmt::Write;

use super::Config;
use super::domains::Top;
use super::listen::{Listener, ListenerTable};
use super::reader::{KeyDoc, Section};
use super::secret::Secret;

/// A table with its values as TOML.
pub(super) struct TableText {
    name: &'static str,
    doc: &'static [&'static str],
    keys: Vec<KeyDoc>,
    values: Vec<String>,
}

impl TableText {
    pub(super) fn new<S: Section>(section: &S) -> Self {
        Self { name: S::NAME, doc: S::DOC, keys: S::docs(), values: section.values() }
    }

    fn write(&self, out: &mut String) {
        for (key, value) in self.keys.iter().zip(&self.values) {
            out.push('\n');
            write_comment(out, key.doc);
            // A default that says all there is to say is not repeated.
            let restart = if key.fixed { "; needs a restart" } else { "" };
            let _ = writeln!(out, "# {}; default {}{restart}", key.allowed.replace('`', ""), key.default);
            if value.trim_matches('"') == Secret::MASK {
                let _ = writeln!(out, "# {} = {value} (set, not shown)", key.name);
            } else {
                let _ = writeln!(out, "{} = {value}", key.name);
            }
        }
    }
}

fn write_comment(out: &mut String, doc: &[&str]) {
    for line in doc {
        let _ = writeln!(out, "# {}", line.trim().replace('`', ""));
    }
}

impl Config {
    /// The whole configuration in force as a commented file, secrets masked.
    ///
    /// Read again it gives the same configuration, apart from the secrets.
    pub fn effective(&self) -> String {
        let mut out = String::from("# The configuration in force, every key with what it admits and its default.\n");
        let top = Top { listen: Vec::new(), domains: Some(self.domains.clone()), realm: Some(self.realm.clone()) };
        let mut text = TableText::new(&top);
        // The listeners follow in their long form.
        text.keys.remove(0);
        text.values.remove(0);
        text.write(&mut out);
        for listener in &self.listeners {
            let _ = writeln!(out, "\n[[{}]]", ListenerTable::NAME);
            for (name, value) in listener_keys(listener) {
                let _ = writeln!(out, "{name} = {value}");
            }
        }
        for table in self.tables() {
            out.push('\n');
            write_comment(&mut out, table.doc);
            let _ = writeln!(out, "[{}]", table.name);
            table.write(&mut out);
        }
        out
    }
}

fn listener_keys(listener: &Listener) -> Vec<(&'static str, String)> {
    let keys = ListenerTable::KEYS.iter().copied().zip(ListenerTable::from(listener).values());
    let only_secure = ["certificate", "key", "client_ca"];
    keys.filter(|(name, _)| listener.identity.is_some() || !only_secure.contains(name)).collect()
}

/// All keys with defaults and ranges as Markdown, one table for each table of the file.
pub fn reference() -> String {
    let mut out = String::from(
        "# All keys of the configuration\n\nOne TOML file; every key has a default, so none is needed. `strowger check --keys` writes this page, \
         `strowger check FILE`\nfinds what is wrong in a file, `strowger check --effective FILE` shows it with all defaults filled in. \
         `strowger reload` (or SIGHUP)\ngives the file to a running server, which then goes by it, except for the keys that need a restart: \
         it names those that were changed.\n\n",
    );
    let config = Config::default();
    let top = TableText::new(&Top::default());
    let listener = TableText::new(&ListenerTable::default());
    for table in [top, listener].into_iter().chain(config.tables()) {
        let title = match table.name {
            "" => "Above the first table".to_owned(),
            ListenerTable::NAME => format!("`[[{}]]`", table.name),
            name => format!("`[{name}]`"),
        };
        let words = |doc: &[&str]| doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            out,
            "## {title}\n\n{}\n\n| key | default | admits | what it does |\n|---|---|---|---|",
            words(table.doc)
        );
        for key in table.keys {
            let restart = if key.fixed { " **Needs a restart.**" } else { "" };
            let KeyDoc { name, default, allowed, doc, .. } = key;
            let _ = writeln!(out, "| `{name}` | `{default}` | {allowed} | {}{restart} |", words(doc));
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    #[test]
    fn the_effective_file_gives_the_same_configuration() {
        let text = "listen = [\"udp:127.0.0.1:5070\", \"ws:[::1]:8080\"]\nrealm = \"a \\\"quoted\\\" one\"\n\
            [limits]\nidle_connection_timeout = \"never\"\n[timers]\nt1 = \"250ms\"\n[auth]\nalgorithms = [\"SHA-512-256\"]\n";
        for text in ["", text] {
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
    fn the_reference_names_every_key() {
        let reference = reference();
        for (section, keys) in super::super::Tables::names() {
            for key in keys {
                assert!(reference.contains(&format!("| `{key}` |")), "{section}.{key}");
            }
        }
    }
}
