//! The place of an object in its entry, in which the object is plain or packed.
//!
//! Readers hold the lock shared, for as long as they use a plain object. Packing and its reverse take the lock only if
//! it is free. So readers do not wait for one another, and a thread may read an object twice at once.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use keelson_codec::stored::{HeaderText, StoredObject, StoredShape};
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};

use super::RECENT_TICKS;
use super::dictionary::{Encoder, Form};
use super::pool::Pool;
use crate::entry::Entry;

/// The tick of an object that was never read since it was packed.
const NEVER: u32 = 0;
/// The tick of an object that stays plain.
const PINNED: u32 = u32::MAX;

/// The object of an entry.
pub(crate) struct Slot {
    state: RwLock<State>,
    /// The tick of the last read.
    read_at: AtomicU32,
    /// The pool in which the object counts. `None` for a conversion, which is not packed.
    pool: Option<Arc<Pool>>,
    /// The entry of this slot.
    entry: Weak<Entry>,
}

enum State {
    Plain(StoredObject),
    Packed(Packed),
}

struct Packed {
    shape: StoredShape,
    form: Arc<Form>,
    text: Box<[u8]>,
}

/// The object of an entry, while it is read. Do not hold it for long: meanwhile the object is not packed.
pub struct ObjectRef<'e>(Source<'e>);

enum Source<'e> {
    Plain(MappedRwLockReadGuard<'e, StoredObject>),
    Unpacked(StoredObject),
}

/// The outcome of packing an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackResult {
    /// It is packed now. The sizes of the plain and the packed text in bytes.
    Packed { plain: u64, packed: u64 },
    /// It stays plain, since compression saves too little.
    Incompressible { plain: u64 },
    /// It is packed already, or stays plain by its kind.
    Nothing,
    /// It is being read.
    Busy,
}

impl Packed {
    fn unpack(&self) -> StoredObject {
        self.shape.with_skeleton(self.form.unpack(&self.text, self.shape.skeleton_len()))
    }
}

impl Slot {
    /// The slot of a conversion, which is never packed.
    pub(crate) const fn unpooled(object: StoredObject) -> Self {
        Self {
            state: RwLock::new(State::Plain(object)),
            read_at: AtomicU32::new(PINNED),
            pool: None,
            entry: Weak::new(),
        }
    }

    /// The slot of an object in a pool.
    pub(crate) fn pooled(object: StoredObject, pool: Arc<Pool>) -> Self {
        pool.add_plain(object.skeleton().len());
        let tick = pool.tick();
        Self {
            state: RwLock::new(State::Plain(object)),
            read_at: AtomicU32::new(tick),
            pool: Some(pool),
            entry: Weak::new(),
        }
    }

    /// Sets the entry of the slot.
    pub(crate) fn belongs_to(&mut self, entry: &Weak<Entry>) {
        self.entry = entry.clone();
    }

    /// The object.
    ///
    /// Cost: about a microsecond if it is packed.
    pub(crate) fn read(&self) -> ObjectRef<'_> {
        let packed = match RwLockReadGuard::try_map(self.state.read(), |state| match state {
            State::Plain(object) => Some(object),
            State::Packed(_) => None,
        }) {
            Ok(plain) => {
                self.note_hit();
                return ObjectRef(Source::Plain(plain));
            }
            Err(packed) => packed,
        };
        let object = match &*packed {
            State::Plain(object) => object.clone(),
            State::Packed(packed) => packed.unpack(),
        };
        drop(packed);
        self.note_miss(&object);
        ObjectRef(Source::Unpacked(object))
    }

    /// The object, unless it is packed. Does not count as a read.
    pub(crate) fn read_plain(&self) -> Option<ObjectRef<'_>> {
        let plain = RwLockReadGuard::try_map(self.state.read(), |state| match state {
            State::Plain(object) => Some(object),
            State::Packed(_) => None,
        });
        Some(ObjectRef(Source::Plain(plain.ok()?)))
    }

    fn note_hit(&self) {
        let Some(pool) = &self.pool else { return };
        pool.packer().counters.hits.increment();
        let tick = pool.packer().last_tick();
        let last = self.read_at.load(Ordering::Relaxed);
        if last != tick && last != PINNED {
            self.read_at.store(tick, Ordering::Relaxed);
        }
    }

    /// Makes the object plain if it was read in an earlier tick too.
    fn note_miss(&self, object: &StoredObject) {
        let Some(pool) = &self.pool else { return };
        let packer = pool.packer();
        packer.counters.misses.increment();
        let now = packer.now();
        let last = self.read_at.load(Ordering::Relaxed);
        if last == now || last == PINNED {
            return;
        }
        self.read_at.store(now, Ordering::Relaxed);
        if last != NEVER && now.saturating_sub(last) <= RECENT_TICKS && !packer.is_full() {
            self.unpack_with(object, pool);
            packer.enqueue(self.entry.clone(), now);
        }
    }

    /// Replaces the packed object by the plain one.
    fn unpack_with(&self, object: &StoredObject, pool: &Pool) {
        let Some(mut state) = self.state.try_write() else { return };
        let State::Packed(packed) = &*state else { return };
        pool.remove_packed(packed.text.len());
        pool.add_plain(object.skeleton().len());
        let before = std::mem::replace(&mut *state, State::Plain(object.clone()));
        drop(state);
        drop(before);
        pool.note_promotion();
    }

    /// Makes the object plain for good, unless it is being read, and returns it. Its bytes then keep their address.
    pub(crate) fn pin(&self) -> StoredObject {
        let Some(mut state) = self.state.try_write() else { return self.read().clone() };
        self.read_at.store(PINNED, Ordering::Relaxed);
        let packed = match &*state {
            State::Plain(object) => return object.clone(),
            State::Packed(packed) => packed,
        };
        let object = packed.unpack();
        if let Some(pool) = &self.pool {
            pool.remove_packed(packed.text.len());
            pool.add_plain(object.skeleton().len());
        }
        *state = State::Plain(object.clone());
        object
    }

    /// Packs the object.
    pub(crate) fn pack(&self, encoder: &Encoder) -> PackResult {
        let Some(pool) = self.pool.as_ref().filter(|_| !self.is_pinned()) else { return PackResult::Nothing };
        let least = pool.packer().settings.least_bytes;
        let object = match &*self.state.read() {
            State::Plain(object) if object.skeleton().len() >= least => object.clone(),
            State::Plain(_) | State::Packed(_) => return PackResult::Nothing,
        };
        let header = object.header().bytes();
        let plain = object.skeleton().len() as u64;
        let Some(text) = encoder.pack(&object.skeleton()[header.len()..]) else {
            return PackResult::Incompressible { plain };
        };
        let packed = Packed { shape: object.shape(), form: encoder.form(header), text };
        let size = packed.text.len();
        let Some(mut state) = self.state.try_write() else { return PackResult::Busy };
        if self.is_pinned() || matches!(&*state, State::Packed(_)) {
            return PackResult::Nothing;
        }
        *state = State::Packed(packed);
        self.read_at.store(NEVER, Ordering::Relaxed);
        drop(state);
        pool.remove_plain(object.skeleton().len());
        pool.add_packed(size);
        PackResult::Packed { plain, packed: size as u64 }
    }

    /// Returns true if the object stays plain.
    pub(crate) fn is_pinned(&self) -> bool {
        self.read_at.load(Ordering::Relaxed) == PINNED
    }

    /// The tick of the last read.
    pub(crate) fn read_at(&self) -> u32 {
        self.read_at.load(Ordering::Relaxed)
    }

    pub(crate) const fn pool(&self) -> Option<&Arc<Pool>> {
        self.pool.as_ref()
    }

    pub(crate) fn is_packed(&self) -> bool {
        matches!(&*self.state.read(), State::Packed(_))
    }

    /// Calls `look` with kind and apiVersion, which are known without decoding.
    pub(crate) fn header<T>(&self, look: impl FnOnce(HeaderText<'_>) -> T) -> T {
        match &*self.state.read() {
            State::Plain(object) => look(object.header()),
            State::Packed(packed) => look(HeaderText::of_bytes(&packed.form.header)),
        }
    }

    /// The length of the skeleton, which is known without decoding.
    pub(crate) fn skeleton_len(&self) -> usize {
        match &*self.state.read() {
            State::Plain(object) => object.skeleton().len(),
            State::Packed(packed) => packed.shape.skeleton_len(),
        }
    }

    /// The size of the whole object, which is known without decoding.
    pub(crate) fn size(&self) -> usize {
        match &*self.state.read() {
            State::Plain(object) => object.size(),
            State::Packed(packed) => packed.shape.size(),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(pool) = &self.pool else { return };
        match self.state.get_mut() {
            State::Plain(object) => pool.remove_plain(object.skeleton().len()),
            State::Packed(packed) => pool.remove_packed(packed.text.len()),
        }
    }
}

impl Deref for ObjectRef<'_> {
    type Target = StoredObject;

    fn deref(&self) -> &StoredObject {
        match &self.0 {
            Source::Plain(object) => object,
            Source::Unpacked(object) => object,
        }
    }
}

impl AsRef<StoredObject> for ObjectRef<'_> {
    fn as_ref(&self) -> &StoredObject {
        self
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.read();
        let (form, length) = match &*state {
            State::Plain(object) => ("plain", object.skeleton().len()),
            State::Packed(packed) => ("packed", packed.text.len()),
        };
        f.debug_struct("Slot").field("form", &form).field("bytes", &length).finish_non_exhaustive()
    }
}
