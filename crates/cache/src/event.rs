//! One change of one object, with its watch frames.
//!
//! A frame is encoded when the first watcher asks for it and shared by all others. Events that have been in the history
//! for long give their frames back; a watcher that is still behind them encodes for itself.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use keelson_codec::watch::{EventType, event_frame};
use keelson_meta::Revision;
use parking_lot::Mutex;

use crate::entry::Entry;

/// How many different frames one event keeps. More than every kind in a few views is nobody's common case.
const MAX_FRAMES: usize = 12;

/// One change of one object.
pub struct Event {
    /// The revision of the change.
    pub revision: Revision,
    /// The object before; `None` when it was created.
    pub previous: Option<Arc<Entry>>,
    /// The object after; `None` when it was deleted.
    pub current: Option<Arc<Entry>>,
    frames: Mutex<Frames>,
}

/// What a watcher is told has happened. It depends on its selection: an object that leaves it is deleted for this watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// The object came to be, or came into the selection.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone, or left the selection.
    Deleted,
}

/// A form in which frames are sent: a version and a media type. The holder of the views gives out the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewId(pub u16);

impl ViewId {
    /// JSON in the version that objects are stored in.
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

    /// The object that a frame of this kind shows: the content before for a deletion, else the content after. An event
    /// always has one of them; the other one stands in.
    pub fn object(&self, kind: FrameKind) -> Option<&Arc<Entry>> {
        match kind {
            FrameKind::Added | FrameKind::Modified => self.current.as_ref().or(self.previous.as_ref()),
            FrameKind::Deleted => self.previous.as_ref().or(self.current.as_ref()),
        }
    }

    /// The frame in the identity view: one line of JSON. A deletion shows the old content with the event's revision.
    pub fn frame(&self, kind: FrameKind) -> Bytes {
        let framed = self.frame_in(ViewId::IDENTITY, kind, |entry, revision| {
            let kind = match kind {
                FrameKind::Added => EventType::Added,
                FrameKind::Modified => EventType::Modified,
                FrameKind::Deleted => EventType::Deleted,
            };
            Ok::<_, Infallible>(event_frame(kind, &entry.object, revision, None))
        });
        let Ok(frame) = framed;
        frame
    }

    /// The frame in any view. `encode` makes it from the object and the revision to show it with; it is called once for
    /// each view and kind as long as the event is recent, and its result must depend on nothing else.
    ///
    /// # Errors
    /// That of `encode`, which is not kept.
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
            // The lock is held while encoding, so that nobody encodes the same frame at the same time.
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

    /// Gives the memory of the frames back and keeps none from now on.
    pub(crate) fn close_frames(&self) {
        *self.frames.lock() = Frames::Closed;
    }
}
