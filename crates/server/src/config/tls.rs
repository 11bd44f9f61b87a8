//! `[tls]`: certificates shown and demanded (RFC 3261 section 26.3, RFC 5922).

use std::path::PathBuf;

use super::key::words;
use super::reader::{ANY, section};

words! {
    /// Whether a client must show a certificate.
    pub enum VerifyClient {
        /// Clients are not asked.
        Never = "never",
        /// Clients may show one; if they do it must be good.
        Optional = "optional",
        /// Without a good certificate no client gets in.
        Required = "required",
    }
}

words! {
    /// Oldest version of TLS that is spoken.
    pub enum TlsVersion {
        /// RFC 5246.
        V1_2 = "1.2",
        /// RFC 8446.
        V1_3 = "1.3",
    }
}

section! {
    /// Certificates shown and demanded (RFC 3261 section 26.3, RFC 5922); what holds for every tls and wss listener.
    pub struct Tls = "tls" {
        /// Certificate chain in PEM, the server's own first.
        pub certificate: Option<PathBuf> = None, ANY.or("");
        /// Private key in PEM, not encrypted; protect it by the rights of the file.
        pub key: Option<PathBuf> = None, ANY.or("");
        /// Authorities in PEM that sign the certificates of clients.
        pub client_ca: Option<PathBuf> = None, ANY.or("");
        /// Whether a client must show a certificate.
        pub verify_client: VerifyClient = VerifyClient::Never, ANY;
        /// Oldest version of TLS that is spoken.
        pub min_version: TlsVersion = TlsVersion::V1_2, ANY;
        /// Authorities in PEM that servers we connect to must be signed by; "system": those of the system.
        pub outbound_ca: Option<PathBuf> = None, ANY.or("system");
        /// Check the certificates of servers we connect to (RFC 5922 section 7); false only for experiments.
        pub outbound_verify: bool = true, ANY;
    }
}
