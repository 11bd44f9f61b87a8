//! Settings of a registrar.

/// Treatment of a Path header field (RFC 3327).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathRule {
    /// Path is not supported: the header field is ignored, `Require: path` gets 420.
    Ignore,
    /// Path is kept with the binding and echoed in the 200, with or without declared support of the phone.
    #[default]
    Keep,
    /// Path is kept only if the phone declares support for it; else 421 (RFC 3327 section 5.3).
    Demand,
}

/// Settings of a [`super::Registrar`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrarSettings {
    /// Shortest granted interval in seconds; a shorter requested interval that is under an hour gets 423. Default 60.
    pub min_expires: u32,
    /// Longest granted interval in seconds; a longer requested interval is reduced to it. Default 7,200.
    pub max_expires: u32,
    /// Interval of a contact that requests none, in seconds. Default 3,600.
    pub default_expires: u32,
    /// Maximum number of contacts of one address-of-record. Unreachable contacts are removed to make room; a request
    /// for more contacts gets 403. Default 10.
    pub max_contacts: usize,
    /// Treatment of Path. Default [`PathRule::Keep`].
    pub path: PathRule,
    /// Service-Route of every 200, ready to be written: name-addrs joined with commas (RFC 3608); empty for none.
    pub service_route: Vec<u8>,
    /// Option tags, other than `path`, that a REGISTER may require, in lower case. Default none.
    pub supported: Vec<String>,
}

impl Default for RegistrarSettings {
    fn default() -> Self {
        Self {
            min_expires: 60,
            max_expires: 7200,
            default_expires: 3600,
            max_contacts: 10,
            path: PathRule::default(),
            service_route: Vec::new(),
            supported: Vec::new(),
        }
    }
}
