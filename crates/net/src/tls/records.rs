//! Keys of the records of a connection.

use zeroize::Zeroize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Suite {
    #[default]
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    Tls12,
    #[default]
    Tls13,
}

#[derive(Default)]
pub(crate) struct RecordKeys {
    pub(super) key: [u8; 32],
    pub(super) iv: [u8; 12],
    pub(super) seq: u64,
}

pub(crate) struct Records {
    pub(super) tx: RecordKeys,
    pub(super) rx: RecordKeys,
    pub(super) secrets: [[u8; 48]; 2],
    pub(super) suite: Suite,
    pub(super) version: Version,
    pub(super) is_client: bool,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            tx: RecordKeys::default(),
            rx: RecordKeys::default(),
            secrets: [[0; 48]; 2],
            suite: Suite::default(),
            version: Version::default(),
            is_client: false,
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        for keys in [&mut self.tx, &mut self.rx] {
            keys.key.zeroize();
            keys.iv.zeroize();
        }
        self.secrets.iter_mut().for_each(|secret| secret.zeroize());
    }
}
