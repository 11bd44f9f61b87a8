//! Users of a file.

use super::plan::User;

/// Parses users, one a line: `name;password`, `name,password`, `name:password` or a name alone. The first separator of
/// a line separates all its fields, so that a password may contain the other separators. `#` comments, empty lines, a
/// heading and SIPp's first line (SEQUENTIAL, RANDOM, USERS) are skipped. A name may be a SIP URI, whose user part is
/// the name.
///
/// # Errors
/// The fault with its line and its cure.
pub fn parse(content: &str, file: &str) -> Result<Vec<User>, String> {
    let mut users = Vec::new();
    for (number, line) in content.lines().enumerate() {
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with('#') || (users.is_empty() && is_heading(line)) {
            continue;
        }
        let uri = ["sip:", "sips:"].iter().find_map(|scheme| line.strip_prefix(scheme)).unwrap_or(line);
        // A colon may precede the port of a URI, so it separates fields only if no other separator does.
        let sign = uri.chars().find(|sign| SIGNS.contains(sign));
        let mut fields = uri.split(|letter| Some(letter) == sign).map(unquoted);
        let (mut name, mut password) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        if sign.is_none()
            && let Some((before, after)) = uri.split_once(':').filter(|(before, _)| !before.contains('@'))
        {
            (name, password) = (before.trim(), after.trim());
        }
        let name = name.split('@').next().unwrap_or_default();
        if !is_name(name) || password.contains(char::is_control) {
            return Err(format!(
                "{file}:{}: '{}' names no user; a line is name;password",
                number + 1,
                line.escape_debug()
            ));
        }
        users.push(User { name: name.into(), password: password.into() });
    }
    // Calls take users from a list whose separator is `;`.
    if let Some(user) = users.iter().find(|user| users.len() > 1 && user.password.contains(';')) {
        return Err(format!(
            "{file}: the password of {} has a semicolon, which a list of several users cannot have: call with it alone (--auth)",
            user.name
        ));
    }
    if users.is_empty() {
        return Err(format!("{file}: there is no user in it; a line is name;password"));
    }
    Ok(users)
}

/// Separators of fields.
const SIGNS: [char; 3] = [';', ',', '\t'];

/// Removes blanks around a field, and a pair of quotation marks.
fn unquoted(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field)
}

/// Returns true for SIPp's first line, and for names of columns. A user may be called `user`, but no password is
/// `password`.
fn is_heading(line: &str) -> bool {
    let mut fields = line.split(SIGNS).map(|field| unquoted(field).to_ascii_lowercase());
    let (first, second) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let named = ["users", "user", "name", "username"].contains(&&*first);
    ["sequential", "random"].contains(&&*first)
        || named && ["", "password", "passwd", "pass", "pw", "secret"].contains(&&*second)
        || named && second.starts_with("printf")
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Parses `name:password`.
///
/// # Errors
/// The cure.
pub fn one(text: &str) -> Result<User, String> {
    let (name, password) = text.split_once(':').unwrap_or((text, ""));
    let name = name.split('@').next().unwrap_or_default();
    if !is_name(name) || password.contains(char::is_control) {
        return Err(format!("'{}' names no user; write NAME:PASSWORD", text.escape_debug()));
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
        let of = |line: &str| parse(line, "u.csv").map(|users| (users[0].name.clone(), users[0].password.clone()));
        for (line, name, password) in [
            ("alice;pass,word:1", "alice", "pass,word:1"),
            ("alice,pass:w;rd", "alice", "pass:w;rd"),
            ("sip:carol@example.org:5070;x", "carol", "x"),
            ("sip:carol@example.org:5070", "carol", ""),
            ("dave:pa:ss", "dave", "pa:ss"),
            ("user;geheim", "user", "geheim"),
            ("gina;say \"yes\"", "gina", "say \"yes\""),
            ("USER\n\"erin\", \"pw\"", "erin", "pw"),
            ("name,password\nfrank,x", "frank", "x"),
        ] {
            assert_eq!(of(line), Ok((name.into(), password.into())), "{line}");
        }
        assert!(parse("\n", "u.csv").unwrap_err().contains("no user in it"));
        assert!(parse("alice;x\n;pw\n", "u.csv").unwrap_err().starts_with("u.csv:2:"));
        for line in ["bo b;x", "al\0ice;x", "alice;x\u{1}y"] {
            assert!(parse(line, "u.csv").unwrap_err().starts_with("u.csv:1: '"), "{line:?}");
            assert!(one(&line.replace(';', ":")).is_err(), "{line:?}");
        }
        assert_eq!(one("alice:a:b").unwrap().password, "a:b");
        assert!(one(":x").is_err());
    }
}
