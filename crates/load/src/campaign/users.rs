//! Users from a file.

use super::plan::User;

/// Reads users: a line each, `name;password`, `name,password`, `name:password` or a name alone. `#` comments, empty lines, a
/// heading and SIPp's first line (SEQUENTIAL, RANDOM, USERS) are passed over; a name may be a SIP URI, of which the user counts.
///
/// # Errors
/// With the line, and what would be right.
pub fn parse(content: &str, file: &str) -> Result<Vec<User>, String> {
    let mut users = Vec::new();
    for (number, line) in content.lines().enumerate() {
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with('#') || (users.is_empty() && is_heading(line)) {
            continue;
        }
        let uri = ["sip:", "sips:"].iter().find_map(|scheme| line.strip_prefix(scheme)).unwrap_or(line);
        let (name, rest) = uri.split_once([';', ',', '\t', ':']).unwrap_or((uri, ""));
        let name = name.split('@').next().unwrap_or_default().trim().trim_matches('"');
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("{file}:{}: '{line}' names no user; a line is name;password", number + 1));
        }
        let password = rest.split([';', ',', '\t']).next().unwrap_or_default().trim().trim_matches('"');
        users.push(User { name: name.into(), password: password.into() });
    }
    if users.is_empty() {
        return Err(format!("{file}: there is no user in it; a line is name;password"));
    }
    Ok(users)
}

fn is_heading(line: &str) -> bool {
    let first = line.split([';', ',', '\t']).next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(first.as_str(), "sequential" | "random" | "users" | "user" | "name" | "username")
}

/// `name:password`.
///
/// # Errors
/// What would be right.
pub fn one(text: &str) -> Result<User, String> {
    let (name, password) = text.split_once(':').unwrap_or((text, ""));
    let name = name.split('@').next().unwrap_or_default();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(format!("'{text}' names no user; write NAME:PASSWORD"));
    }
    Ok(User { name: name.into(), password: password.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_users() {
        let users =
            parse("SEQUENTIAL\nalice;secret;more\n# nobody\n\nbob,pw\nsip:carol@example.org;x\ndave\n", "u.csv")
                .unwrap();
        let all: Vec<(&str, &str)> = users.iter().map(|u| (u.name.as_str(), u.password.as_str())).collect();
        assert_eq!(all, [("alice", "secret"), ("bob", "pw"), ("carol", "x"), ("dave", "")]);
        assert!(parse("\n", "u.csv").unwrap_err().contains("no user in it"));
        assert!(parse("alice;x\n;pw\n", "u.csv").unwrap_err().starts_with("u.csv:2:"));
        assert_eq!(one("alice:a:b").unwrap().password, "a:b");
        assert!(one(":x").is_err());
    }
}
