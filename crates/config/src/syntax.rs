//! Faults of a file that is not valid TOML.

use super::report::Fault;

/// Returns the faults of the TOML text, without faults that only follow from an earlier fault.
pub fn faults(errors: &[toml::de::Error], text: &str) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    let mut duplicate_table = false;
    for error in errors {
        let fault = fault(error, text);
        let line_start = fault.span.as_ref().map_or(0, |span| text[..span.start].rfind('\n').map_or(0, |at| at + 1));
        if error.message().contains("duplicate key") {
            // All keys of a duplicate table are duplicates too.
            if duplicate_table {
                continue;
            }
            duplicate_table = text[line_start..].trim_start().starts_with('[');
        }
        let same_line = faults.last().and_then(|last| last.span.as_ref()).is_some_and(|last| last.start >= line_start);
        if !same_line {
            faults.push(fault);
        }
        // After an unclosed bracket the parser reads the whole remaining file as a part of the list.
        if error.message().contains("array") || error.message().contains("inline table") {
            break;
        }
    }
    faults
}

/// Returns the fault for an error of the TOML parser.
fn fault(error: &toml::de::Error, text: &str) -> Fault {
    let span = error.span().map(|span| span.start.min(text.len())..span.end.min(text.len()));
    let message = error.message();
    let written = span.clone().and_then(|span| text.get(span)).unwrap_or_default();
    let cure = if matches!(&written.to_ascii_lowercase()[..], "yes" | "no" | "on" | "off" | "true" | "false") {
        "write true or false, without quotes"
    } else if message.contains("duplicate key") {
        "a key or table may stand only once: remove one of the two"
    } else if message.contains("string") {
        "text stands between two quotes on one line: key = \"text\""
    } else if message.contains("array") {
        "a list stands in brackets with commas between its items: key = [\"a\", \"b\"]"
    } else if message.contains("table") || message.contains("key") {
        "a line is `key = value`, `[table]`, `[[listener]]` or a # comment"
    } else {
        "write text in quotes, numbers and true or false without, lists in brackets: key = value"
    };
    Fault::error(span, format!("this is not TOML: {message}"), cure)
}
