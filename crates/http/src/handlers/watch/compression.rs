//! The body of a watch as one gzip member: initial events are compressed, later events are stored blocks.
//!
//! Each frame is flushed, so that no event waits for the next one. A watch keeps a checksum and a length between frames
//! and no compressor. There is one member, because some clients stop at the end of the first one.

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use keelson_codec::{DeflateBlock, MemberWriter};

use crate::handlers::list_body::{GZIP_LEVEL, done};

/// Encoded events of a watch.
pub(super) struct WatchFrame {
    /// Whole events.
    pub(super) bytes: Bytes,
    /// True if one of them is an initial event.
    pub(super) is_initial: bool,
}

/// The frames of a gzip member with these frames as its text. It is complete even if the watch has no event.
pub(super) fn gzip(
    frames: impl Stream<Item = WatchFrame> + Send + Unpin + 'static,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let begun = Some((frames, MemberWriter::new(), MemberWriter::header().to_vec()));
    let steps = stream::unfold(begun, |state| async move {
        let (mut frames, mut member, mut out) = state?;
        let Some(frame) = frames.next().await else {
            out.extend_from_slice(&member.finish());
            return Some((out.into(), None));
        };
        if frame.is_initial {
            let text = frame.bytes;
            let block = done(text.len() as u64, move || DeflateBlock::compress(&text, GZIP_LEVEL)).await;
            member.push(&block);
            out.extend_from_slice(&block.bytes);
        } else {
            member.store(&frame.bytes, &mut out);
        }
        Some((Bytes::from(out), Some((frames, member, Vec::new()))))
    });
    Box::pin(steps)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    #[tokio::test]
    async fn each_frame_can_be_read_before_the_next_one() {
        let frame = |text: &'static str, is_initial| WatchFrame { bytes: Bytes::from(text), is_initial };
        let frames = [frame("a\n", true), frame("b\n", true), frame("c\n", false)];
        let mut pieces = gzip(stream::iter(frames));
        let (mut sent, mut expected) = (Vec::new(), String::new());
        for text in ["a\n", "b\n", "c\n"] {
            sent.extend_from_slice(&pieces.next().await.unwrap());
            expected.push_str(text);
            let mut decoder = GzDecoder::new(&sent[..]);
            let mut read = vec![0; expected.len()];
            decoder.read_exact(&mut read).unwrap();
            assert_eq!(read, expected.as_bytes());
        }
        sent.extend_from_slice(&pieces.next().await.unwrap());
        assert!(pieces.next().await.is_none());
        let mut decoder = GzDecoder::new(&sent[..]);
        let mut read = String::new();
        decoder.read_to_string(&mut read).unwrap();
        assert!(read == expected && decoder.into_inner().is_empty(), "one member: {read}");
    }

    #[tokio::test]
    async fn a_watch_without_events_is_an_empty_member() {
        let sent: Vec<Bytes> = gzip(stream::empty()).collect().await;
        let mut read = Vec::new();
        GzDecoder::new(&sent.concat()[..]).read_to_end(&mut read).unwrap();
        assert!(read.is_empty());
    }
}
