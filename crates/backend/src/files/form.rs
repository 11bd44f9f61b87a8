//! Rows as lines of text: JSON (RFC 8259), an object per line, and CSV (RFC 4180) with a header line.

use serde_json::Map;
use strowger_store::accounting::cdr::{Row, Table, Value};

/// Text format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON: an object per line.
    Json,
    /// CSV: values separated by commas; the first line names the columns.
    Csv,
}

impl Form {
    /// Returns the file name extension.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Json => "jsonl",
            Self::Csv => "csv",
        }
    }

    /// Returns the text before the first row.
    pub fn heading(self, table: Table) -> String {
        match self {
            Self::Json => String::new(),
            Self::Csv => {
                let names: Vec<&str> = table.columns().into_iter().map(|(name, _)| name).collect();
                names.join(",") + "\r\n"
            }
        }
    }

    /// Appends a row with its line end.
    pub fn write(self, row: &Row, out: &mut Vec<u8>) {
        match self {
            Self::Json => write_json(row, out),
            Self::Csv => write_csv(row, out),
        }
    }

    /// Returns the identity of the row in this line; `None` for other lines, such as the header of a CSV file.
    pub fn identity(self, line: &str) -> Option<&str> {
        let rest = match self {
            Self::Json => line.strip_prefix("{\"identity\":\"")?,
            Self::Csv => line,
        };
        let end = rest.find(['"', ','])?;
        Some(&rest[..end]).filter(|identity| *identity != "identity")
    }
}

fn write_json(row: &Row, out: &mut Vec<u8>) {
    out.push(b'{');
    for (n, (value, (name, _))) in row.values().into_iter().zip(row.table().columns()).enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write_json_text(name, out);
        out.push(b':');
        match value {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Value::Text(text) => write_json_text(&text, out),
            Value::Fields(fields) => out.extend_from_slice(object(fields).as_bytes()),
        }
    }
    out.extend_from_slice(b"}\n");
}

fn write_json_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a vector takes all, and a text can be written");
}

/// Returns names and values as a JSON object.
pub fn object(fields: &[(String, String)]) -> String {
    let map: Map<String, serde_json::Value> =
        fields.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    serde_json::Value::Object(map).to_string()
}

fn write_csv(row: &Row, out: &mut Vec<u8>) {
    for (n, value) in row.values().into_iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        match value {
            Value::Null => (),
            Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Value::Text(text) => write_csv_text(&text, out),
            Value::Fields([]) => (),
            Value::Fields(fields) => write_csv_text(&object(fields), out),
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a text in quotes if necessary, with quotes in it doubled (section 2, items 5 to 7).
fn write_csv_text(text: &str, out: &mut Vec<u8>) {
    if !text.contains([',', '"', '\r', '\n']) {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_store::accounting::cdr::{Cdr, Event};

    fn line(form: Form, row: &Row) -> String {
        let mut out = Vec::new();
        form.write(row, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn row() -> Row {
        Row::Cdr(Cdr {
            identity: "0a".into(),
            call_id: "one, \"two\"\nthree".into(),
            setup: 5,
            answer: Some(7),
            fields: vec![("User-Agent".into(), "a \"phone\"".into())],
            ..Cdr::default()
        })
    }

    #[test]
    fn a_line_of_json_is_an_object_with_every_column() {
        let text = line(Form::Json, &row());
        assert_eq!((text.matches('\n').count(), text.ends_with("}\n")), (1, true));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value.as_object().unwrap().len(), Table::Cdr.columns().len());
        assert_eq!((&value["call_id"], &value["setup_at"]), (&"one, \"two\"\nthree".into(), &5.into()));
        assert_eq!((&value["end_at"], &value["answer_at"]), (&serde_json::Value::Null, &7.into()));
        assert_eq!(value["fields"]["User-Agent"], "a \"phone\"");
    }

    #[test]
    fn csv_quotes_what_would_part_it() {
        let text = line(Form::Csv, &row());
        assert!(text.starts_with("0a,\"one, \"\"two\"\"\nthree\",5,,7,,,,"), "{text}");
        let media = ",".repeat(18);
        let end = format!(",\"{{\"\"User-Agent\"\":\"\"a \\\"\"phone\\\"\"\"\"}}\"{media}\r\n");
        assert!(text.ends_with(&end), "{text}");
        let heading = Form::Csv.heading(Table::Events);
        let event = line(Form::Csv, &Row::Event(Event { identity: "1".into(), ..Event::default() }));
        assert_eq!(heading.matches(',').count(), event.matches(',').count());
        assert!(heading.starts_with("identity,call_identity,event,") && heading.ends_with(",fields\r\n"));
    }

    #[test]
    fn a_line_tells_whose_it_is() {
        for form in [Form::Json, Form::Csv] {
            assert_eq!(form.identity(&line(form, &row())), Some("0a"));
            assert_eq!(form.identity(&form.heading(Table::Cdr)), None);
            assert_eq!(form.identity(""), None);
        }
    }
}
