//! Secret values, which neither a screen nor a log shows.

use std::fmt;

use super::key::Text;

/// A secret of the configuration. Neither `Debug` nor `--effective` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Least number of characters: a shorter secret could be guessed offline from a nonce.
    pub const SHORTEST: usize = 16;
    /// Text in place of the secret.
    pub const MASK: &'static str = "********";

    /// Creates a secret from a text that is long enough.
    pub fn new(text: &str) -> Result<Self, String> {
        match text.chars().count() {
            length if length >= Self::SHORTEST => Ok(Self(text.to_owned())),
            length => Err(format!("has {length} characters, fewer than {}", Self::SHORTEST)),
        }
    }

    /// Returns the secret itself, which may be used as a key and must not be shown.
    pub fn reveal(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::MASK)
    }
}

impl Text for Secret {
    const EXPECTED: &'static str = "at least 16 random characters in quotes (openssl rand -hex 32 makes some)";

    fn from_text(text: &str) -> Result<Self, String> {
        Self::new(text)
    }

    fn to_text(&self) -> String {
        Self::MASK.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("correct horse battery").expect("long enough");
        assert_eq!(format!("{secret:?} {}", secret.to_text()), "******** ********");
        assert_eq!(secret.reveal(), b"correct horse battery");
        assert!(Secret::new("short").is_err());
    }
}
