//! What a registrar's owner may choose.

/// What becomes of a Path header (RFC 3327).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathRule {
    /// Path is not supported: the header is passed over, `Require: path` is answered 420.
    Ignore,
    /// Kept with the binding and echoed in the 200, whether the phone says that it supports it or not.
    #[default]
    Keep,
    /// Kept only if the phone says that it supports it; else 421 (RFC 3327 section 5.3).
    Demand,
}

/// The settings of a [`super::Registrar`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrarSettings {
    /// Shortest interval granted, in seconds; a shorter one under an hour is answered 423. Default 60.
    pub min_expires: u32,
    /// Longest interval granted, in seconds; a longer one is cut to it. Default 7,200.
    pub max_expires: u32,
    /// Interval of a contact that asks for none, in seconds. Default 3,600.
    pub default_expires: u32,
    /// Most contacts that one address-of-record may have; those that cannot be reached give way, then a request for
    /// more is answered 403. Default 10.
    pub max_contacts: usize,
    /// Default [`PathRule::Keep`].
    pub path: PathRule,
    /// Service-Route of every 200, ready to be written: name-addrs joined with commas (RFC 3608). Empty: none.
    pub service_route: Vec<u8>,
    /// Option tags beside `path` that a REGISTER may require, in lower case. Default none.
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
