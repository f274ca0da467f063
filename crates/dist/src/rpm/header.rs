//! A header of an RPM package: an index of numbered entries, and a store with their values.
//!
//! All numbers are big-endian, and values begin at multiples of their size.

/// A header whose entries are added in any order.
pub(super) struct Header {
    /// The number of the entry that spans all others.
    region: u32,
    entries: Vec<(u32, Value)>,
}

/// The value of an entry.
pub(super) enum Value {
    Shorts(Vec<u16>),
    Numbers(Vec<u32>),
    Text(String),
    Texts(Vec<String>),
    /// A text in the first language of the package.
    Translated(String),
}

const MAGIC: [u8; 8] = [0x8e, 0xad, 0xe8, 0x01, 0, 0, 0, 0];
/// The bytes of an entry of the index.
const ENTRY_BYTES: u32 = 16;
/// The type of an entry that is plain bytes.
const BYTES: u32 = 7;

impl Header {
    pub(super) fn new(region: u32) -> Self {
        Self { region, entries: Vec::new() }
    }

    pub(super) fn add(&mut self, tag: u32, value: Value) {
        self.entries.push((tag, value));
    }

    /// The stored header: the magic number, the lengths of index and store, the index, and the store. The store ends
    /// with the value of the entry that spans all others.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut entries: Vec<&(u32, Value)> = self.entries.iter().collect();
        entries.sort_by_key(|(tag, _)| *tag);
        let (mut index, mut store) = (Vec::new(), Vec::new());
        for (tag, value) in &entries {
            store.resize(store.len().next_multiple_of(value.alignment()), 0);
            index.push([*tag, value.kind(), u32_of(store.len()), u32_of(value.count())]);
            value.write(&mut store);
        }
        let count = u32_of(entries.len() + 1);
        index.insert(0, [self.region, BYTES, u32_of(store.len()), ENTRY_BYTES]);
        // The trailer of the region points back to the beginning of the index.
        let back = (count * ENTRY_BYTES).wrapping_neg();
        push(&mut store, &[self.region, BYTES, back, ENTRY_BYTES]);
        let mut bytes = MAGIC.to_vec();
        push(&mut bytes, &[count, u32_of(store.len())]);
        index.iter().for_each(|entry| push(&mut bytes, entry));
        bytes.extend(store);
        bytes
    }
}

impl Value {
    fn kind(&self) -> u32 {
        match self {
            Self::Shorts(_) => 3,
            Self::Numbers(_) => 4,
            Self::Text(_) => 6,
            Self::Texts(_) => 8,
            Self::Translated(_) => 9,
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Shorts(shorts) => shorts.len(),
            Self::Numbers(numbers) => numbers.len(),
            Self::Texts(texts) => texts.len(),
            Self::Text(_) | Self::Translated(_) => 1,
        }
    }

    fn alignment(&self) -> usize {
        match self {
            Self::Shorts(_) => 2,
            Self::Numbers(_) => 4,
            Self::Text(_) | Self::Texts(_) | Self::Translated(_) => 1,
        }
    }

    fn write(&self, store: &mut Vec<u8>) {
        let mut text = |text: &str| {
            store.extend_from_slice(text.as_bytes());
            store.push(0);
        };
        match self {
            Self::Text(one) | Self::Translated(one) => text(one),
            Self::Texts(all) => all.iter().for_each(|one| text(one)),
            Self::Shorts(all) => all.iter().for_each(|one| store.extend(one.to_be_bytes())),
            Self::Numbers(all) => push(store, all),
        }
    }
}

fn push(bytes: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
}

fn u32_of(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_order_and_aligned() {
        let mut header = Header::new(63);
        header.add(1028, Value::Numbers(vec![7]));
        header.add(1000, Value::Text("k".to_owned()));
        let bytes = header.to_bytes();
        let number = |place: usize| u32::from_be_bytes(bytes[place..place + 4].try_into().unwrap());
        assert_eq!((number(8), number(12)), (3, 24), "three entries, and a store of 2 + 2 + 4 + 16 bytes");
        assert_eq!([number(16), number(20), number(24), number(28)], [63, 7, 8, 16]);
        assert_eq!([number(32), number(36), number(40), number(44)], [1000, 6, 0, 1]);
        assert_eq!([number(48), number(52), number(56), number(60)], [1028, 4, 4, 1]);
        assert_eq!(number(80).wrapping_neg(), 48, "the trailer points back over the index");
    }
}
