//! The paths and definitions that one part of the API adds to the version 2 document, and their compressed form for
//! custom parts.
//!
//! There may be thousands of custom parts, and a change of one must not render the others again. Their additions are
//! therefore kept compressed, at about a tenth of the size. Decompressing an addition takes much less time than
//! rendering it. Compressed additions never leave the process.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// The compression level of additions: the lowest, which is enough for repetitive text.
const LEVEL: u32 = 1;
/// The size of a length prefix in bytes.
const LENGTH_BYTES: usize = 4;

/// The content that a part of the API adds to the version 2 document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Addition {
    /// The paths of the addition, each as a member of the enclosing object.
    pub(crate) paths: Vec<(String, Vec<u8>)>,
    /// The names of shared definitions that they refer to, directly or indirectly.
    pub(crate) shared_definitions: Vec<&'static str>,
    /// The definitions of the addition, each as a member of the enclosing object.
    pub(crate) own_definitions: Vec<(String, Vec<u8>)>,
}

/// An addition in compressed form.
#[derive(Debug)]
pub(crate) struct PackedAddition {
    /// Names and members of paths and definitions, each with a length prefix.
    deflated: Box<[u8]>,
    paths: usize,
    own_definitions: usize,
    shared_definitions: Box<[&'static str]>,
}

impl PackedAddition {
    pub(crate) fn new(addition: &Addition) -> Self {
        let Addition { paths, shared_definitions, own_definitions } = addition;
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
        for (name, member) in paths.iter().chain(own_definitions) {
            for bytes in [name.as_bytes(), member] {
                let length = u32::try_from(bytes.len()).expect("a definition of 4 GiB is not taken");
                encoder.write_all(&length.to_le_bytes()).expect("memory can be written to");
                encoder.write_all(bytes).expect("memory can be written to");
            }
        }
        Self {
            deflated: encoder.finish().expect("memory can be written to").into(),
            paths: paths.len(),
            own_definitions: own_definitions.len(),
            shared_definitions: shared_definitions.as_slice().into(),
        }
    }

    pub(crate) fn unpack(&self) -> Addition {
        let mut decoder = DeflateDecoder::new(&*self.deflated);
        let mut next = || {
            let mut length = [0; LENGTH_BYTES];
            decoder.read_exact(&mut length).expect("it was packed here");
            let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
            decoder.read_exact(&mut bytes).expect("it was packed here");
            bytes
        };
        let mut members = |count: usize| -> Vec<(String, Vec<u8>)> {
            let mut member = || (String::from_utf8(next()).expect("names are texts"), next());
            (0..count).map(|_| member()).collect()
        };
        Addition {
            paths: members(self.paths),
            own_definitions: members(self.own_definitions),
            shared_definitions: self.shared_definitions.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_round_trips() {
        let members = |names: &[&str]| -> Vec<(String, Vec<u8>)> {
            names.iter().map(|name| ((*name).to_owned(), [name.as_bytes(), &[0, 255]].concat())).collect()
        };
        let some = Addition {
            paths: members(&["/apis/a", "", "/ä"]),
            shared_definitions: vec!["Status", "ObjectMeta"],
            own_definitions: members(&["org.example.Widget"]),
        };
        assert_eq!(PackedAddition::new(&some).unpack(), some);
        let none = Addition { paths: vec![], shared_definitions: vec![], own_definitions: vec![] };
        assert_eq!(PackedAddition::new(&none).unpack(), none);
    }
}
