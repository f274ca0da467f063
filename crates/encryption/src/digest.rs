//! The format of hashes in logs and metrics, which is upstream's.
//!
//! Operators compare the hashes of files, key IDs and server names by it.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// The SHA-256 hash of bytes: `sha256:` and hexadecimal digits.
pub fn sha256_of(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}
