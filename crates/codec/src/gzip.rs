//! Assembles one gzip member from blocks that were deflated separately.
//!
//! A block ends on a byte boundary and refers to no earlier text. So blocks can be cached, shared between responses and
//! concatenated in any order (RFC 1951). The checksum of the whole text is combined from those of the blocks.

use bytes::Bytes;
use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress, Status};

/// The empty last block that ends every deflate stream: final bit, fixed codes, end of block.
const FINAL_BLOCK: [u8; 2] = [0x03, 0x00];

/// The header of RFC 1952: magic number, deflate, no flags, no time, fastest compression, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];

/// A deflated piece of a longer text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeflateBlock {
    /// Raw deflate data that ends on a byte boundary and is not final.
    pub bytes: Bytes,
    /// The CRC-32 of the text.
    pub crc32: u32,
    /// The length of the text in bytes.
    pub len: u64,
}

impl DeflateBlock {
    /// Deflates `text`. `level` is 0 to 9; upstream uses 1. Needs about 260 KiB of working memory, and five bytes of
    /// output for the boundary, so texts should have tens of KiB.
    pub fn compress(text: &[u8], level: u32) -> Self {
        let mut deflate = Compress::new(Compression::new(level), false);
        let mut out = Vec::with_capacity(text.len() / 4 + 64);
        loop {
            let rest = usize::try_from(deflate.total_in()).map_or(text, |done| &text[done..]);
            let status = deflate
                .compress_vec(rest, &mut out, FlushCompress::Sync)
                .expect("the stream is not ended and its state is only touched here");
            let consumed = deflate.total_in() == text.len() as u64;
            // The flush is complete only if there is room left in the output.
            if consumed && (out.len() < out.capacity() || status == Status::BufError) {
                break;
            }
            out.reserve(out.capacity().max(64));
        }
        Self { bytes: Bytes::from(out), crc32: crc32fast::hash(text), len: text.len() as u64 }
    }
}

/// An empty stored block. Decoders that buffer their output, such as Go's, flush it at such a block.
const FLUSH_BLOCK: [u8; 5] = [0x00, 0x00, 0x00, 0xff, 0xff];

/// The maximum length of a stored block in bytes: its length has 16 bits.
const MAX_STORED_BYTES: usize = 0xffff;

/// The state of one gzip member: its header, then the bytes of every pushed block in order, then the result of
/// [`finish`](Self::finish).
#[derive(Clone, Debug, Default)]
pub struct MemberWriter {
    crc: Hasher,
    len: u64,
}

impl MemberWriter {
    /// A member without any text.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first bytes of every member.
    pub fn header() -> [u8; 10] {
        HEADER
    }

    /// Records that the bytes of `block` are sent next.
    pub fn push(&mut self, block: &DeflateBlock) {
        self.crc.combine(&Hasher::new_with_initial_len(block.crc32, block.len));
        self.len += block.len;
    }

    /// Appends `text` to `out` without compression, as stored blocks (RFC 1951, section 3.2.4) and a flush. It needs no
    /// working memory, and ten bytes of output for each 64 KiB.
    pub fn store(&mut self, text: &[u8], out: &mut Vec<u8>) {
        self.crc.update(text);
        self.len += text.len() as u64;
        for block in text.chunks(MAX_STORED_BYTES) {
            let len = u16::try_from(block.len()).expect("a stored block has at most 65,535 bytes");
            out.push(0);
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&(!len).to_le_bytes());
            out.extend_from_slice(block);
        }
        out.extend_from_slice(&FLUSH_BLOCK);
    }

    /// The last bytes of the member: the final block, the checksum and the length modulo 2^32.
    pub fn finish(self) -> [u8; 10] {
        let mut end = [0; 10];
        let [low @ .., _, _, _, _] = self.len.to_le_bytes();
        end[..2].copy_from_slice(&FINAL_BLOCK);
        end[2..6].copy_from_slice(&self.crc.finalize().to_le_bytes());
        end[6..].copy_from_slice(&low);
        end
    }
}
