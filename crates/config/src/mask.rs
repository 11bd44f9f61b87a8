//! Secrets in the text of a configuration, which no report may show, even if the text is not valid TOML.

use std::ops::Range;

use strowger_rules::nearest;

/// Keys whose values are secrets.
const SECRET: &str = "secret";

/// Delimiters of a multi-line string.
const FENCES: [&str; 2] = ["\"\"\"", "'''"];

/// Returns the parts of `text` that may be secret. On each line this is the value of a key named `secret` or similarly, up to the end of a multi-line
/// string that begins there; on a line without such a key it is the password of a URL.
pub(super) fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let (mut at, mut covered) = (0, 0);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if start < covered {
            continue;
        }
        let Some(value) = value_of(line) else {
            found.extend(password_of(line).map(|password| start + password.start..start + password.end));
            continue;
        };
        let value = start + value;
        covered = end_of(text, value, at);
        found.push(value..covered);
    }
    found
}

/// Returns the start of the value of a secret in this line; `None` if the line has no secret. The path in `secret_file` is not secret.
fn value_of(line: &str) -> Option<usize> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut next = 0;
    let end = line.split(|c| !is_part(c)).find_map(|word| {
        let (start, end) = (next, next + word.len());
        next = end + line[end..].chars().next().map_or(0, char::len_utf8);
        let plain = word.to_ascii_lowercase();
        let is_named = plain.contains(SECRET) || nearest(&plain, [SECRET].into_iter()).is_some();
        (is_named && plain != "secret_file" && !is_text(line, start, end)).then_some(end)
    })?;
    // The sign after the key and the opening quotes are shown, but no character of the value.
    let between = line[end..].find(|c: char| !c.is_whitespace() && !matches!(c, '"' | '\'' | '=' | ':'));
    let between = &line[end..end + between.unwrap_or(line.len() - end)];
    let sign = between.find(['=', ':']).map_or(0, |at| at + 1);
    let space = between[sign..].len() - between[sign..].trim_start_matches([' ', '\t']).len();
    Some(end + sign + space)
}

/// Returns the password in the first URL of this line that has one: everything between the user name and the host.
fn password_of(line: &str) -> Option<Range<usize>> {
    let mut from = 0;
    while let Some(at) = line[from..].find("://") {
        let begin = from + at + 3;
        let end = line[begin..].find(['"', '\'', '\r', '\n']).map_or(line.len(), |end| begin + end);
        let url = &line[begin..end];
        // A password may contain any character, even one that should be escaped.
        if let (Some(colon), Some(at)) = (url.find(':'), url.rfind('@'))
            && colon < at
        {
            return Some(begin + colon + 1..begin + at);
        }
        from = begin;
    }
    None
}

/// Tells whether this range of the line is inside a quoted value.
fn is_text(line: &str, start: usize, end: usize) -> bool {
    let before = &line[..start];
    before.contains('=') && before.matches(['"', '\'']).count() % 2 == 1 && !line[end..].contains('=')
}

/// Returns the end of the value that begins at `from`: the end of its line, or of the multi-line string that it opens.
fn end_of(text: &str, from: usize, line: usize) -> usize {
    let value = &text[from..line];
    let Some((open, fence)) = FENCES.iter().filter_map(|fence| Some((value.find(fence)?, fence))).min() else {
        return line;
    };
    let inside = from + open + fence.len();
    let Some(close) = text[inside..].find(fence) else { return text.len() };
    let close = inside + close;
    text[close..].find('\n').map_or(text.len(), |end| close + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_found_in_any_text() {
        for (text, shown) in [
            ("[auth]\nsecret = \"hunter2\" # mine\nqop = 1\n", "[auth]\nsecret = qop = 1\n"),
            ("auth.secret=hunter2", "auth.secret="),
            ("auth = { secret = \"hunter2\" }\nx", "auth = { secret = x"),
            ("SECRET: hunter2\r\nx", "SECRET: x"),
            ("é secrte = \"hunter2\"\nx", "é secrte = x"),
            ("my-secrets 'hunter2\nx", "my-secrets x"),
            ("secret = \"\"\"\nhunter2\nhunter3\"\"\"\nx", "secret = x"),
            ("secret = '''hunter2\nhunter3", "secret = "),
            ("\"secret\" = \"hunter2\"\nx", "\"secret\" = x"),
            ("database = \"/var/secret/db\"\n", "database = \"/var/secret/db\"\n"),
            ("a = \"mysql://u:hunter2@h:3306/d\" # x@y\nb", "a = \"mysql://u:@h:3306/d\" # x@y\nb"),
            ("a = 'http://h:80/' # é \"b://u:hu@nt/er2@[::1]/d\nx", "a = 'http://h:80/' # é \"b://u:@[::1]/d\nx"),
            ("a = \"mysql://u@h:3306/d\"", "a = \"mysql://u@h:3306/d\""),
            ("secret_file = \"a\"\nrealm = \"example.org\"", "secret_file = \"a\"\nrealm = \"example.org\""),
        ] {
            let mut left = text.to_owned();
            for range in secrets(text).into_iter().rev() {
                left.replace_range(range, "");
            }
            assert_eq!(left, shown, "{text}");
        }
    }
}
