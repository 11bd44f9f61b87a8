//! Sets of bytes, and the character classes of the C locale.

/// Set of bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    pub(super) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }

    pub(super) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    pub(super) fn where_(wanted: impl Fn(u8) -> bool) -> Self {
        let mut set = Self::default();
        (0..=255).filter(|&byte| wanted(byte)).for_each(|byte| set.insert(byte));
        set
    }

    pub(super) fn union(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine |= theirs);
        self
    }

    pub(super) fn inverse(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// Returns the set of `.`, which includes line ends; also NUL, but a text has none.
    pub(super) fn all() -> Self {
        Self([u64::MAX; 4])
    }

    pub(super) fn word() -> Self {
        Self::where_(is_word)
    }

    pub(super) fn space() -> Self {
        Self::where_(is_space)
    }

    /// Returns the class of `[[:name:]]`, or `None` if there is no such class.
    pub(super) fn class(name: &[u8], ignore_case: bool) -> Option<Self> {
        let name = match name {
            b"upper" | b"lower" if ignore_case => b"alpha",
            other => other,
        };
        Some(match name {
            b"alnum" => Self::where_(|byte| byte.is_ascii_alphanumeric()),
            b"alpha" => Self::where_(|byte| byte.is_ascii_alphabetic()),
            b"blank" => Self::where_(|byte| matches!(byte, b' ' | b'\t')),
            b"cntrl" => Self::where_(|byte| byte.is_ascii_control()),
            b"digit" => Self::where_(|byte| byte.is_ascii_digit()),
            b"graph" => Self::where_(|byte| byte.is_ascii_graphic()),
            b"lower" => Self::where_(|byte| byte.is_ascii_lowercase()),
            b"print" => Self::where_(|byte| byte == b' ' || byte.is_ascii_graphic()),
            b"punct" => Self::where_(|byte| byte.is_ascii_punctuation()),
            b"space" => Self::space(),
            b"upper" => Self::where_(|byte| byte.is_ascii_uppercase()),
            b"xdigit" => Self::where_(|byte| byte.is_ascii_hexdigit()),
            _ => return None,
        })
    }
}

impl std::fmt::Debug for ByteSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..=255u8).filter(|&byte| self.contains(byte)).map(char::from)).finish()
    }
}

/// Returns whether `\w` matches the byte.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns whether `isspace` of the C locale accepts the byte; unlike `u8::is_ascii_whitespace` it accepts the vertical
/// tab.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
