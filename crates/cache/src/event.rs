//! One change of one object, with its watch frames.
//!
//! A frame is encoded for the first watch that needs it, and all other watches share it. Old events in the history drop
//! their frames, and a slow watch encodes the frames of these events itself.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use keelson_codec::watch::{EventType, event_frame};
use keelson_meta::Revision;
use parking_lot::Mutex;

use crate::entry::Entry;

/// The maximum number of frames of one event: all kinds of frames in a few views.
const MAX_FRAMES: usize = 12;

/// One change of one object.
pub struct Event {
    /// The revision of the change.
    pub revision: Revision,
    /// The object before the change. `None` for a creation.
    pub previous: Option<Arc<Entry>>,
    /// The object after the change. `None` for a deletion.
    pub current: Option<Arc<Entry>>,
    frames: Mutex<Frames>,
}

/// The type of a watch event. It depends on the selection of the watch: an object that leaves the selection is deleted
/// for this watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// The object was created, or entered the selection.
    Added,
    /// The object changed.
    Modified,
    /// The object was deleted, or left the selection.
    Deleted,
}

/// A format of frames: a version and a media type. The registry of views assigns the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewId(pub u16);

impl ViewId {
    /// JSON in the stored version.
    pub const IDENTITY: Self = Self(0);
}

enum Frames {
    Kept(Vec<(ViewId, FrameKind, Bytes)>),
    /// The event is too old to keep frames.
    Closed,
}

impl Event {
    /// A change at a revision.
    pub const fn new(revision: Revision, previous: Option<Arc<Entry>>, current: Option<Arc<Entry>>) -> Self {
        Self { revision, previous, current, frames: Mutex::new(Frames::Kept(Vec::new())) }
    }

    /// The key of the object, relative to its collection.
    pub fn key(&self) -> &str {
        self.object(FrameKind::Modified).map_or("", |entry| &entry.key)
    }

    /// The object for a frame of this kind: the old content for a deletion, otherwise the new one. Returns the other
    /// content if this one is absent.
    pub fn object(&self, kind: FrameKind) -> Option<&Arc<Entry>> {
        match kind {
            FrameKind::Added | FrameKind::Modified => self.current.as_ref().or(self.previous.as_ref()),
            FrameKind::Deleted => self.previous.as_ref().or(self.current.as_ref()),
        }
    }

    /// The frame in the identity view, one line of JSON. The frame of a deletion has the old content with the revision
    /// of the event.
    pub fn frame(&self, kind: FrameKind) -> Bytes {
        let framed = self.frame_in(ViewId::IDENTITY, kind, |entry, revision| {
            let kind = match kind {
                FrameKind::Added => EventType::Added,
                FrameKind::Modified => EventType::Modified,
                FrameKind::Deleted => EventType::Deleted,
            };
            Ok::<_, Infallible>(event_frame(kind, &entry.object(), revision, None))
        });
        let Ok(frame) = framed;
        frame
    }

    /// The frame in any view. `encode` builds the frame from the object and its revision, and must depend on nothing
    /// else. While the event is recent, `encode` is called once for each view and kind.
    ///
    /// # Errors
    /// An error of `encode`, which is not cached.
    pub fn frame_in<E>(
        &self,
        view: ViewId,
        kind: FrameKind,
        encode: impl FnOnce(&Entry, Revision) -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let encoded = || self.object(kind).map_or_else(|| Ok(Bytes::new()), |entry| encode(entry, self.revision));
        let mut frames = self.frames.lock();
        match &mut *frames {
            Frames::Closed => {
                drop(frames);
                encoded()
            }
            // The lock is held while encoding, so that concurrent watches encode a frame once.
            Frames::Kept(kept) => {
                match kept.iter().find(|(in_view, of_kind, _)| (*in_view, *of_kind) == (view, kind)) {
                    Some((_, _, frame)) => Ok(frame.clone()),
                    None => {
                        let frame = encoded()?;
                        if kept.len() < MAX_FRAMES {
                            kept.push((view, kind, frame.clone()));
                        }
                        Ok(frame)
                    }
                }
            }
        }
    }

    /// Drops the frames. The event keeps no frames from now on.
    pub(crate) fn close_frames(&self) {
        *self.frames.lock() = Frames::Closed;
    }
}
