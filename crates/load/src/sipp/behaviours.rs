//! `-default_behaviors`: behaviour where the scenario is silent.

/// Default behaviours, each on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviours {
    pub goodbye: bool,
    pub abort_unexpected: bool,
    pub answer_ping: bool,
    pub cseq: bool,
}

impl Behaviours {
    pub(super) const ALL: Self = Self { goodbye: true, abort_unexpected: true, answer_ping: true, cseq: true };
    pub(super) const NONE: Self = Self { goodbye: false, abort_unexpected: false, answer_ping: false, cseq: false };

    /// Parses the list of `-default_behaviors`.
    ///
    /// # Errors
    /// An unknown name.
    pub(super) fn of(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL;
        for (i, word) in text.split(',').enumerate() {
            let (name, on) = match word.strip_prefix('-') {
                Some(name) => (name, false),
                None => (word.strip_prefix('+').unwrap_or(word), true),
            };
            // A list that begins with a name has only the named ones.
            if i == 0 && on && !matches!(name, "all" | "none") && !word.starts_with('+') {
                all = Self::NONE;
            }
            match name {
                "all" => all = if on { Self::ALL } else { Self::NONE },
                "none" => all = Self::NONE,
                "bye" => all.goodbye = on,
                "abortunexp" => all.abort_unexpected = on,
                "pingreply" => all.answer_ping = on,
                "cseq" => all.cseq = on,
                _ => {
                    return Err(format!(
                        "unknown default behavior '{name}'; there are all, none, bye, abortunexp, pingreply, cseq"
                    ));
                }
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviours() {
        let of = |text| Behaviours::of(text).unwrap();
        assert_eq!(of("all,-bye"), Behaviours { goodbye: false, ..Behaviours::ALL });
        assert_eq!(of("none"), Behaviours::NONE);
        assert_eq!(of("bye"), Behaviours { goodbye: true, ..Behaviours::NONE });
    }
}
