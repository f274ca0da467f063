//! Assembles a gzip member from blocks, and decompresses it with another implementation.
//!
//! Lists send blocks that were compressed at different times, so every way of splitting a text must make one valid
//! member.

use std::io::Read;

use flate2::read::GzDecoder;
use keelson_codec::{DeflateBlock, MemberWriter};
use proptest::collection::vec;
use proptest::prelude::*;

/// Assembles a response from blocks and decompresses it.
fn sent_and_unpacked(texts: &[Vec<u8>], level: u32) -> Vec<u8> {
    let mut member = MemberWriter::new();
    let mut sent = MemberWriter::header().to_vec();
    for text in texts {
        let block = DeflateBlock::compress(text, level);
        member.push(&block);
        sent.extend_from_slice(&block.bytes);
    }
    sent.extend_from_slice(&member.finish());
    let mut decoder = GzDecoder::new(&sent[..]);
    let mut unpacked = Vec::new();
    decoder.read_to_end(&mut unpacked).unwrap();
    assert!(decoder.into_inner().is_empty(), "one member and nothing after it");
    unpacked
}

proptest! {
    #[test]
    fn a_member_holds_its_blocks(texts in vec(vec(0..20u8, 0..300), 0..6), level in 0..10u32) {
        prop_assert_eq!(sent_and_unpacked(&texts, level), texts.concat());
    }

    #[test]
    fn text_that_does_not_compress_survives(texts in vec(vec(any::<u8>(), 0..3000), 0..4)) {
        prop_assert_eq!(sent_and_unpacked(&texts, 1), texts.concat());
    }
}

#[test]
fn long_texts_compress_well() {
    let text = b"{\"metadata\":{\"name\":\"pod\",\"namespace\":\"default\"}},".repeat(20_000);
    assert_eq!(sent_and_unpacked(std::slice::from_ref(&text), 1), text);
    assert!(DeflateBlock::compress(&text, 1).bytes.len() < text.len() / 20);
}
