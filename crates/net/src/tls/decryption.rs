//! Decryption of the received bytes of a connection.

use super::reason;
use rustls::Connection;
use std::io::Read;

/// Appends the decrypted bytes to `plain`. Returns whether the peer has ended its side, now or before.
pub(crate) fn decrypt(tls: &mut Connection, bytes: &[u8], plain: &mut Vec<u8>) -> Result<bool, String> {
    let mut rest = bytes;
    loop {
        if !rest.is_empty() {
            tls.read_tls(&mut rest).map_err(|e| e.to_string())?;
        }
        let state = tls.process_new_packets().map_err(|e| reason(&e))?;
        let n = state.plaintext_bytes_to_read();
        if n > 0 {
            let start = plain.len();
            plain.resize(start + n, 0);
            tls.reader().read_exact(&mut plain[start..]).map_err(|e| e.to_string())?;
        }
        if state.peer_has_closed() || rest.is_empty() {
            return Ok(state.peer_has_closed());
        }
    }
}
