//! The ciphers of kube-apiserver: AES-GCM, AES-CBC, secretbox, and AES-GCM under keys derived from a seed.
//!
//! Each has the layout and the errors of upstream. AES-GCM authenticates the key of the store, so a value that was moved to another key
//! does not open. Secretbox and AES-CBC do not know the key, and AES-CBC does not even authenticate the value: upstream's formats are
//! such.

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use aws_lc_rs::iv::FixedLength;
use crypto_secretbox::aead::{AeadInPlace as _, KeyInit as _};
use crypto_secretbox::{Nonce as BoxNonce, Tag, XSalsa20Poly1305};
use keelson_meta::Random;

use crate::error::TransformError;

/// The length of the nonce of AES-GCM in bytes.
const GCM_NONCE: usize = 12;
/// The length of a block of AES, and of the initialization vector of AES-CBC, in bytes.
const BLOCK: usize = 16;
/// The length of the nonce of secretbox in bytes.
const BOX_NONCE: usize = 24;
/// The length in bytes of the secretbox tag, which precedes the text.
const BOX_TAG: usize = 16;
/// The length of seeds and derived keys, and of the random bytes that a key is derived by, in bytes.
pub(crate) const SEED: usize = 32;

const TOO_SHORT: &str = "the stored data was shorter than the required size";
const UNAUTHENTIC: &str = "cipher: message authentication failed";

/// The cipher of one key.
pub(crate) enum Cipher {
    Gcm(Gcm),
    Cbc(Box<Cbc>),
    SecretBox(SecretBox),
}

impl Cipher {
    /// Encrypts a value for a key of the store, behind a prefix.
    pub(crate) fn seal(
        &self,
        prefix: &[u8],
        value: &[u8],
        key: &[u8],
        random: &dyn Random,
    ) -> Result<Vec<u8>, TransformError> {
        match self {
            Self::Gcm(gcm) => gcm.seal(prefix, value, key, random),
            Self::Cbc(cbc) => cbc.seal(prefix, value, random),
            Self::SecretBox(secret_box) => secret_box.seal(prefix, value, random),
        }
    }

    /// Decrypts what is stored behind the prefix, under a key of the store.
    pub(crate) fn open(&self, stored: &[u8], key: &[u8]) -> Result<Vec<u8>, TransformError> {
        match self {
            Self::Gcm(gcm) => gcm.open(stored, key),
            Self::Cbc(cbc) => cbc.open(stored),
            Self::SecretBox(secret_box) => secret_box.open(stored),
        }
    }
}

/// AES-GCM with a random nonce of 96 bits before the text.
pub(crate) struct Gcm(LessSafeKey);

impl Gcm {
    /// The cipher of a key of 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Result<Self, TransformError> {
        let algorithm = match key.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            32 => &AES_256_GCM,
            other => return Err(TransformError::new(format!("crypto/aes: invalid key size {other}"))),
        };
        let key = UnboundKey::new(algorithm, key).map_err(|_| TransformError::new("the key can't be used"))?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Encrypts a value behind a prefix.
    pub(crate) fn seal(
        &self,
        prefix: &[u8],
        value: &[u8],
        key: &[u8],
        random: &dyn Random,
    ) -> Result<Vec<u8>, TransformError> {
        let mut nonce = [0; GCM_NONCE];
        random.fill(&mut nonce);
        let mut out = Vec::with_capacity(prefix.len() + GCM_NONCE + value.len() + self.0.algorithm().tag_len());
        out.extend_from_slice(prefix);
        out.extend_from_slice(&nonce);
        let begin = out.len();
        out.extend_from_slice(value);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(key), &mut out[begin..]);
        out.extend_from_slice(tag.map_err(|_| TransformError::new("the value can't be encrypted"))?.as_ref());
        Ok(out)
    }

    /// Decrypts a nonce and what follows it.
    pub(crate) fn open(&self, stored: &[u8], key: &[u8]) -> Result<Vec<u8>, TransformError> {
        let (nonce, sealed) = stored.split_first_chunk::<GCM_NONCE>().ok_or_else(|| TransformError::new(TOO_SHORT))?;
        let mut out = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(key), &mut out);
        let length = opened.map_err(|_| TransformError::new(UNAUTHENTIC))?.len();
        out.truncate(length);
        Ok(out)
    }
}

/// AES-CBC with PKCS#7 padding and a random initialization vector before the text. Nothing is authenticated.
pub(crate) struct Cbc {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
}

impl Cbc {
    /// The cipher of a key of 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Result<Self, TransformError> {
        let algorithm = match key.len() {
            16 => &AES_128,
            24 => &AES_192,
            32 => &AES_256,
            other => return Err(TransformError::new(format!("crypto/aes: invalid key size {other}"))),
        };
        let unusable = |_| TransformError::new("the key can't be used");
        let unbound = || UnboundCipherKey::new(algorithm, key).map_err(unusable);
        let encrypting = EncryptingKey::cbc(unbound()?).map_err(unusable)?;
        Ok(Self { encrypting, decrypting: DecryptingKey::cbc(unbound()?).map_err(unusable)? })
    }

    fn seal(&self, prefix: &[u8], value: &[u8], random: &dyn Random) -> Result<Vec<u8>, TransformError> {
        let mut vector = [0; BLOCK];
        random.fill(&mut vector);
        let padding = BLOCK - value.len() % BLOCK;
        let mut out = Vec::with_capacity(prefix.len() + BLOCK + value.len() + padding);
        out.extend_from_slice(prefix);
        out.extend_from_slice(&vector);
        let begin = out.len();
        out.extend_from_slice(value);
        out.resize(out.len() + padding, u8::try_from(padding).unwrap_or(0));
        let context = EncryptionContext::Iv128(FixedLength::from(vector));
        self.encrypting
            .less_safe_encrypt(&mut out[begin..], context)
            .map_err(|_| TransformError::new("the value can't be encrypted"))?;
        Ok(out)
    }

    fn open(&self, stored: &[u8]) -> Result<Vec<u8>, TransformError> {
        const UNPADDED: &str = "invalid PKCS7 data (empty or not padded)";
        let (vector, sealed) = stored.split_first_chunk::<BLOCK>().ok_or_else(|| TransformError::new(TOO_SHORT))?;
        if !sealed.len().is_multiple_of(BLOCK) {
            return Err(TransformError::new("the stored data is not a multiple of the block size"));
        }
        if sealed.is_empty() {
            return Err(TransformError::new(UNPADDED));
        }
        let mut out = sealed.to_vec();
        let context = DecryptionContext::Iv128(FixedLength::from(*vector));
        self.decrypting.decrypt(&mut out, context).map_err(|_| TransformError::new(UNPADDED))?;
        let last = out.last().copied().unwrap_or_default();
        let padding = usize::from(last);
        if padding == 0 || padding > out.len() {
            return Err(TransformError::new(UNPADDED));
        }
        let length = out.len() - padding;
        if out[length..].iter().any(|byte| *byte != last) {
            return Err(TransformError::new("invalid padding on input"));
        }
        out.truncate(length);
        Ok(out)
    }
}

/// XSalsa20 and Poly1305 with a random nonce of 192 bits, then the tag, before the text.
pub(crate) struct SecretBox(XSalsa20Poly1305);

impl SecretBox {
    /// The cipher of a key of 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Result<Self, TransformError> {
        XSalsa20Poly1305::new_from_slice(key)
            .map(Self)
            .map_err(|_| TransformError::new(format!("expected key size 32 for secretbox provider, got {}", key.len())))
    }

    fn seal(&self, prefix: &[u8], value: &[u8], random: &dyn Random) -> Result<Vec<u8>, TransformError> {
        let mut nonce = [0; BOX_NONCE];
        random.fill(&mut nonce);
        let mut out = Vec::with_capacity(prefix.len() + BOX_NONCE + BOX_TAG + value.len());
        out.extend_from_slice(prefix);
        out.extend_from_slice(&nonce);
        let tag_at = out.len();
        out.resize(tag_at + BOX_TAG, 0);
        out.extend_from_slice(value);
        let text = &mut out[tag_at + BOX_TAG..];
        let tag = self.0.encrypt_in_place_detached(BoxNonce::from_slice(&nonce), b"", text);
        let tag = tag.map_err(|_| TransformError::new("the value can't be encrypted"))?;
        out[tag_at..tag_at + BOX_TAG].copy_from_slice(&tag);
        Ok(out)
    }

    fn open(&self, stored: &[u8]) -> Result<Vec<u8>, TransformError> {
        let too_short = || TransformError::new(TOO_SHORT);
        let (nonce, sealed) = stored.split_first_chunk::<BOX_NONCE>().ok_or_else(too_short)?;
        let (tag, text) = sealed.split_first_chunk::<BOX_TAG>().ok_or_else(too_short)?;
        let mut out = text.to_vec();
        let opened = self.0.decrypt_in_place_detached(BoxNonce::from_slice(nonce), b"", &mut out, Tag::from_slice(tag));
        // Upstream's words for a box that does not open.
        opened.map_err(|_| TransformError::new("output array was not large enough for encryption"))?;
        Ok(out)
    }
}

/// AES-GCM with one key per value. The key is derived from a seed and from random bytes that precede the value.
pub(crate) struct DerivedKeyGcm(Prk);

/// The length of a derived key.
struct DerivedLength;

impl KeyType for DerivedLength {
    fn len(&self) -> usize {
        SEED
    }
}

impl DerivedKeyGcm {
    /// The cipher of a seed of at least 32 bytes.
    pub(crate) fn new(seed: &[u8]) -> Result<Self, TransformError> {
        if seed.len() < SEED {
            return Err(TransformError::new(format!("invalid seed length {} used for key generation", seed.len())));
        }
        Ok(Self(Prk::new_less_safe(HKDF_SHA256, seed)))
    }

    /// Encrypts a value.
    pub(crate) fn seal(&self, value: &[u8], key: &[u8], random: &dyn Random) -> Result<Vec<u8>, TransformError> {
        let mut info = [0; SEED];
        random.fill(&mut info);
        self.key_of(&info)?.seal(&info, value, key, random)
    }

    /// Decrypts what is stored.
    pub(crate) fn open(&self, stored: &[u8], key: &[u8]) -> Result<Vec<u8>, TransformError> {
        let (info, sealed) = stored.split_first_chunk::<SEED>().ok_or_else(|| TransformError::new(TOO_SHORT))?;
        self.key_of(info)?.open(sealed, key)
    }

    fn key_of(&self, info: &[u8; SEED]) -> Result<Gcm, TransformError> {
        let mut derived = [0; SEED];
        let info: [&[u8]; 1] = [info];
        let filled = self.0.expand(&info, DerivedLength).and_then(|okm| okm.fill(&mut derived));
        filled.map_err(|_| TransformError::new("failed to KDF expand seed with info"))?;
        Gcm::new(&derived)
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::random::SystemRandom;

    use super::*;

    const KEY: [u8; 32] = [b'1'; 32];

    fn all() -> [Cipher; 3] {
        [
            Cipher::Gcm(Gcm::new(&KEY).unwrap()),
            Cipher::Cbc(Box::new(Cbc::new(&KEY).unwrap())),
            Cipher::SecretBox(SecretBox::new(&KEY).unwrap()),
        ]
    }

    #[test]
    fn values_of_every_length_decrypt() {
        for cipher in all() {
            for length in (0..70).chain([1 << 20]) {
                let value = vec![b'v'; length];
                let sealed = cipher.seal(b"p:", &value, b"/registry/a", &SystemRandom).unwrap();
                let stored = sealed.strip_prefix(b"p:").unwrap();
                assert_eq!(cipher.open(stored, b"/registry/a").unwrap(), value);
                assert!(length < 16 || !stored.windows(16).any(|part| part == [b'v'; 16]));
            }
        }
    }

    #[test]
    fn truncated_and_changed_values_do_not_decrypt() {
        let value = b"a value that is longer than two blocks of sixteen";
        for cipher in all() {
            let sealed = cipher.seal(b"", value, b"k", &SystemRandom).unwrap();
            for length in 0..sealed.len() {
                assert!(cipher.open(&sealed[..length], b"k").ok().is_none_or(|opened| opened != value));
            }
        }
        for cipher in [&all()[0], &all()[2]] {
            let sealed = cipher.seal(b"", value, b"k", &SystemRandom).unwrap();
            for place in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[place] ^= 1;
                assert!(cipher.open(&changed, b"k").is_err(), "{place}");
            }
        }
    }

    #[test]
    fn only_aes_gcm_binds_a_value_to_its_key() {
        let moves = all().map(|cipher| {
            let sealed = cipher.seal(b"", b"value", b"/registry/a", &SystemRandom).unwrap();
            cipher.open(&sealed, b"/registry/b").map_err(|error| error.to_string())
        });
        assert_eq!(moves[0], Err(UNAUTHENTIC.to_owned()));
        assert!(moves[1].is_ok() && moves[2].is_ok());
        let derived = DerivedKeyGcm::new(&KEY).unwrap();
        let sealed = derived.seal(b"value", b"/registry/a", &SystemRandom).unwrap();
        assert_eq!(derived.open(&sealed, b"/registry/a").unwrap(), b"value");
        assert_eq!(derived.open(&sealed, b"/registry/b").unwrap_err().to_string(), UNAUTHENTIC);
        assert_eq!(derived.open(&sealed[..31], b"/registry/a").unwrap_err().to_string(), TOO_SHORT);
        assert!(DerivedKeyGcm::new(&KEY[..31]).is_err());
    }

    /// The first block of the second step of RFC 5869.
    #[test]
    fn keys_are_derived_as_hkdf_expand_does() {
        let hmac = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &KEY);
        let info = [7; SEED];
        let expected = aws_lc_rs::hmac::sign(&hmac, &[&info[..], &[1]].concat());
        let sealed = Gcm::new(expected.as_ref()).unwrap().seal(&info, b"value", b"k", &SystemRandom).unwrap();
        assert_eq!(DerivedKeyGcm::new(&KEY).unwrap().open(&sealed, b"k").unwrap(), b"value");
    }

    #[test]
    fn keys_of_other_lengths_are_refused() {
        for length in [0, 10, 15, 31, 33] {
            assert!(Gcm::new(&KEY.repeat(2)[..length]).is_err() && Cbc::new(&KEY.repeat(2)[..length]).is_err());
        }
        assert!(SecretBox::new(&KEY[..16]).is_err());
    }
}
