//! Servers that get their configuration by a reload: a key must work as it does from the start.
//!
//! With `STROWGER_BY_RELOAD=1` each server of a test starts with only the keys that need a restart, and gets the rest
//! of its configuration while it runs (`make test-reload`).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use toml::{Table, Value};

/// Tells whether servers are started this way.
pub fn is_wanted() -> bool {
    std::env::var_os("STROWGER_BY_RELOAD").is_some_and(|value| value == "1")
}

/// Names of the keys that need a restart, with their tables, from the documents.
static FIXED: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let text = std::fs::read_to_string(file).expect("the documents are there");
    let mut table = "";
    let mut fixed = BTreeSet::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            table = title.trim_matches(['`', '[', ']']);
        } else if let Some(key) = line.strip_prefix("| `").filter(|_| line.contains("**Needs a restart.**")) {
            fixed.insert(format!("{table}.{}", key.split('`').next().unwrap_or_default()));
        }
    }
    fixed
});

/// Returns the part of a configuration that a start needs: addresses, certificates, caches, and the keys that need a
/// restart.
///
/// # Panics
/// The text is no TOML.
pub fn first(text: &str) -> String {
    let all: Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut first = Table::new();
    for (name, value) in all {
        let kept = match value {
            Value::Table(mut table) => {
                table.retain(|key, _| FIXED.contains(&format!("{name}.{key}")) || is_certificate(&name, key));
                Value::Table(table)
            }
            Value::Array(tables) if name == "listener" => {
                Value::Array(tables.into_iter().map(|table| listener(&table)).collect())
            }
            value if ["listen", "certificate", "cache"].contains(&&*name) => value,
            _ => continue,
        };
        first.insert(name, kept);
    }
    first.to_string()
}

/// Tells whether the key is a certificate, without which a TLS listener does not start.
fn is_certificate(table: &str, key: &str) -> bool {
    table == "tls" && ["certificate", "key"].contains(&key)
}

fn listener(table: &Value) -> Value {
    let mut table = table.as_table().expect("a table").clone();
    table.retain(|key, _| ["transport", "address", "port", "certificate", "key", "certificates"].contains(&key));
    Value::Table(table)
}
