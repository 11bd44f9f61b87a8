//! Shortens a log line that is too long.

use serde_json::Value;
use strowger_config::LogFormat;

const MORE: &str = "...";

/// Bytes that remain of each text in a shortened JSON line.
const TEXT: usize = 200;

/// Shortens the line to at most `most` bytes, including its line end. A JSON line stays valid. Returns `None` if that
/// is impossible.
pub(super) fn shortened(line: &[u8], format: LogFormat, most: usize) -> Option<Vec<u8>> {
    let text = str::from_utf8(line).ok()?;
    match format {
        LogFormat::Text => {
            let mut short = cut(text, most - MORE.len() - "\x1b[0m\n".len()).to_owned() + MORE;
            // Colours end with the line.
            short.push_str(if text.contains('\x1b') { "\x1b[0m\n" } else { "\n" });
            Some(short.into_bytes())
        }
        LogFormat::Json => {
            let mut event: Value = serde_json::from_str(text).ok()?;
            for value in event.as_object_mut()?.values_mut() {
                if let Value::String(long) = value
                    && long.len() > TEXT
                {
                    *long = cut(long, TEXT - MORE.len()).to_owned() + MORE;
                }
            }
            let mut short = serde_json::to_vec(&event).ok()?;
            short.push(b'\n');
            (short.len() <= most).then_some(short)
        }
    }
}

/// Returns the first `most` bytes, without a partial character.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_text_is_cut() {
        let line = format!("2026 INFO é{}\n", "é".repeat(5_000));
        let short = shortened(line.as_bytes(), LogFormat::Text, 2_048).expect("it can be");
        let short = str::from_utf8(&short).expect("it is text");
        assert!(short.len() <= 2_048 && short.starts_with("2026 INFO éé") && short.ends_with("é...\n"), "{short}");
    }

    #[test]
    fn a_line_of_json_stays_json() {
        let line = format!("{{\"level\":\"INFO\",\"count\":7,\"agent\":\"{}\"}}\n", "\\\"x".repeat(5_000));
        let short = shortened(line.as_bytes(), LogFormat::Json, 2_048).expect("it can be");
        let event: Value = serde_json::from_slice(&short).expect("it is JSON");
        assert_eq!((event["level"].as_str(), event["count"].as_u64()), (Some("INFO"), Some(7)));
        let agent = event["agent"].as_str().expect("it is text");
        assert!(agent.len() <= TEXT && agent.starts_with("\"x\"x") && agent.ends_with(MORE), "{agent}");
    }

    #[test]
    fn many_values_are_too_many() {
        let values: Vec<String> = (0..200).map(|n| format!("\"value_{n}\":\"0123456789\"")).collect();
        let line = format!("{{{}}}\n", values.join(","));
        assert_eq!(shortened(line.as_bytes(), LogFormat::Json, 2_048), None);
    }
}
