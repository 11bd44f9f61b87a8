//! Certificate of a system, made for one start with a key of its own.

use crate::Error;
use std::net::IpAddr;
use std::path::Path;

/// Folder of certificate and key, below the folder of the start. The folder of a run has no copy of it.
pub(crate) const FOLDER: &str = ".tls";

/// Name of a mark, and of the file in [`FOLDER`] whose path is its value.
pub(super) const MARKS: [(&str, &str); 2] = [("CERTIFICATE", "certificate.pem"), ("KEY", "key.pem")];

/// Writes a certificate of an address and its key, by P-256, below this folder.
pub(super) fn write(folder: &Path, address: IpAddr) -> Result<(), Error> {
    let folder = folder.join(FOLDER);
    std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let names = vec![address.to_string(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| Error::Unexpected { what: "a certificate".into(), reason: error.to_string() })?;
    let texts = [made.cert.pem(), made.signing_key.serialize_pem()];
    for ((_, name), text) in MARKS.iter().zip(texts) {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(Error::file(&file))?;
    }
    Ok(())
}
