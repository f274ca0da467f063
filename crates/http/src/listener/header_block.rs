//! Shortens HTTP/2 header blocks (HPACK, RFC 7541) that are too long.
//!
//! Each block changes a compression table that client and server share, so no block can be skipped. [`shrunk`] keeps
//! the fields that change the table and drops all others. The shortened request has the method of the original and a
//! mark, and serves only to be refused.

/// The longest URL of a request in bytes: the `http` crate parses no longer one.
pub(super) const MOST_URL_BYTES: usize = u16::MAX as usize - 1;
/// The bytes of all header fields of a request, as they are sent, with 32 for each field.
pub(super) const MOST_FIELD_BYTES: usize = 256 * 1024;

/// The size of the table in bytes. The server requests no other size, and a client may use a smaller one.
const TABLE_BYTES: usize = 4096;
/// Two size updates, to 0 and back, which empty the table. They must be at the beginning of a block.
const EMPTIED_TABLE: [u8; 4] = [0x20, 0x3f, 0xe1, 0x1f];
/// The bytes that a field counts in addition to its name and value (RFC 7541, section 4.1).
const FIELD_BYTES: usize = 32;
/// The first and last static table index of the names `:authority`, `:method`, `:path` and `:scheme`.
const PSEUDO: [(u64, u64); 4] = [(1, 1), (2, 3), (4, 5), (6, 7)];
const METHOD: usize = 1;
const PATH: usize = 2;
/// The last index of the static table.
const LAST_STATIC: u64 = 61;
/// The indexed fields `:method: GET`, `:path: /` and `:scheme: https`, in the order of [`PSEUDO`].
const DEFAULTS: [Option<u8>; 4] = [None, Some(0x82), Some(0x84), Some(0x87)];
/// The longest method that the shortened block keeps, in bytes.
const MOST_METHOD_BYTES: usize = 32;
/// The number of Huffman codes of each length in bits, from 0 on. The code is canonical: codes of one length are
/// consecutive.
const CODES: [u32; 31] =
    [0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 4];

/// The reason why a request head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadFault {
    /// Its URL is too long.
    Url,
    /// Its header fields are too long.
    Fields,
}

/// A block that violates the encoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedBlock;

#[derive(Clone, Copy)]
enum Field<'b> {
    /// A field by its index in the table.
    Indexed(u64),
    /// A size update of the table.
    Resize,
    Literal(Literal<'b>),
}

#[derive(Clone, Copy)]
struct Literal<'b> {
    /// True if the field is added to the table.
    is_inserted: bool,
    /// The index of its name in the table, or 0.
    name_entry: u64,
    name: Text<'b>,
    value: Text<'b>,
}

/// A string literal as the client sent it, with or without Huffman coding.
#[derive(Clone, Copy, Default)]
struct Text<'b> {
    bytes: &'b [u8],
    is_huffman: bool,
}

/// The fields of a block, each with its bytes.
struct Fields<'b>(&'b [u8]);

/// Returns the fault of a header block, if a part of it is too long.
///
/// Cost: one pass over the block, and over the bits of a URL that may be too long.
///
/// # Errors
/// The block violates the encoding.
pub(super) fn fault(block: &[u8]) -> Result<Option<HeadFault>, MalformedBlock> {
    let mut bytes = 0;
    for field in Fields(block) {
        let (_, field) = field?;
        let Field::Literal(literal) = field else {
            bytes += FIELD_BYTES;
            continue;
        };
        if literal.pseudo() == Some(PATH) && literal.value.is_longer_than(MOST_URL_BYTES) {
            return Ok(Some(HeadFault::Url));
        }
        bytes += literal.name.bytes.len() + literal.value.bytes.len() + FIELD_BYTES;
    }
    Ok((bytes > MOST_FIELD_BYTES).then_some(HeadFault::Fields))
}

/// Returns a short block with the same method, this field, and the same changes of the table.
///
/// # Errors
/// The block violates the encoding.
pub(super) fn shrunk(block: &[u8], (name, value): (&str, &str)) -> Result<Vec<u8>, MalformedBlock> {
    let (mut resized, mut pseudo, mut method) = (Vec::new(), Vec::new(), None);
    let (mut inserted, mut is_there, mut is_emptied) = (Vec::new(), [false; 4], false);
    for field in Fields(block) {
        let (bytes, field) = field?;
        match field {
            Field::Resize => resized.extend_from_slice(bytes),
            Field::Indexed(entry) if pseudo_of(entry) == Some(METHOD) => method = Some(bytes),
            Field::Indexed(_) => {}
            // An entry that is larger than the table empties it.
            Field::Literal(literal) if literal.is_inserted && literal.size() > TABLE_BYTES => {
                (is_emptied, is_there) = (true, [false; 4]);
                pseudo.clear();
                inserted.clear();
            }
            Field::Literal(literal) if literal.is_inserted => match literal.pseudo() {
                Some(place) => {
                    is_there[place] = true;
                    pseudo.extend_from_slice(bytes);
                }
                None => inserted.push((bytes, literal)),
            },
            Field::Literal(literal) if literal.pseudo() == Some(METHOD) && bytes.len() <= MOST_METHOD_BYTES => {
                method = Some(bytes);
            }
            Field::Literal(_) => {}
        }
    }
    let mut block = resized;
    block.extend(EMPTIED_TABLE.into_iter().filter(|_| is_emptied));
    block.extend(pseudo);
    for (place, default) in DEFAULTS.into_iter().enumerate().filter(|(place, _)| !is_there[*place]) {
        match method.filter(|_| place == METHOD) {
            Some(method) => block.extend_from_slice(method),
            None => block.extend(default),
        }
    }
    block.push(0x10);
    for text in [name, value] {
        block.push(u8::try_from(text.len()).ok().filter(|length| *length < 0x7f).ok_or(MalformedBlock)?);
        block.extend_from_slice(text.as_bytes());
    }
    insert(&mut block, &inserted);
    Ok(block)
}

/// Adds fields that leave the table in the same state as all inserted fields would.
fn insert(block: &mut Vec<u8>, inserted: &[(&[u8], Literal<'_>)]) {
    // A field whose name is an index needs the entries before it.
    let mut from = 0;
    if inserted.iter().all(|(_, literal)| literal.name_entry <= LAST_STATIC) {
        let mut size = 0;
        for (place, (_, literal)) in inserted.iter().enumerate().rev() {
            size += literal.size();
            if size > TABLE_BYTES {
                from = place;
                break;
            }
        }
    }
    inserted[from..].iter().for_each(|(bytes, _)| block.extend_from_slice(bytes));
}

fn pseudo_of(entry: u64) -> Option<usize> {
    PSEUDO.iter().position(|(first, last)| (*first..=*last).contains(&entry))
}

impl Literal<'_> {
    /// The index of its name in [`PSEUDO`], if the name is one of these, by index or as plain text.
    fn pseudo(&self) -> Option<usize> {
        const NAMES: [&[u8]; 4] = [b":authority", b":method", b":path", b":scheme"];
        if self.name_entry > 0 {
            return pseudo_of(self.name_entry);
        }
        NAMES.iter().position(|name| self.name.is(name))
    }

    /// The size of the field in the dynamic table in bytes. If the name is an index, the minimum.
    fn size(&self) -> usize {
        self.name.length() + self.value.length() + FIELD_BYTES
    }
}

impl Text<'_> {
    fn is(&self, plain: &[u8]) -> bool {
        !self.is_huffman && self.bytes == plain
    }

    fn is_longer_than(&self, most: usize) -> bool {
        // The shortest Huffman code has five bits.
        self.bytes.len().saturating_mul(8) / 5 > most && self.length() > most
    }

    /// Its decoded length.
    fn length(&self) -> usize {
        if !self.is_huffman {
            return self.bytes.len();
        }
        let (mut length, mut bits, mut code, mut first) = (0, 0, 0u32, 0u32);
        for byte in self.bytes {
            for place in (0..8).rev() {
                bits += 1;
                (code, first) = (code << 1 | u32::from(byte >> place & 1), first << 1);
                // No code is that long.
                let Some(codes) = CODES.get(bits) else { return length };
                if code < first + codes {
                    length += 1;
                    (bits, code, first) = (0, 0, 0);
                } else {
                    first += codes;
                }
            }
        }
        length
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = Result<(&'b [u8], Field<'b>), MalformedBlock>;

    fn next(&mut self) -> Option<Self::Item> {
        let whole = self.0;
        let first = *whole.first()?;
        let read = match first {
            0x80.. => integer(&mut self.0, 7).map(Field::Indexed),
            0x40.. => literal(&mut self.0, 6, true),
            0x20.. => integer(&mut self.0, 5).map(|_| Field::Resize),
            _ => literal(&mut self.0, 4, false),
        };
        let Some(field) = read else {
            self.0 = &[];
            return Some(Err(MalformedBlock));
        };
        Some(Ok((&whole[..whole.len() - self.0.len()], field)))
    }
}

fn literal<'b>(rest: &mut &'b [u8], prefix: u32, is_inserted: bool) -> Option<Field<'b>> {
    let name_entry = integer(rest, prefix)?;
    let name = if name_entry == 0 { text(rest)? } else { Text::default() };
    Some(Field::Literal(Literal { is_inserted, name_entry, name, value: text(rest)? }))
}

fn text<'b>(rest: &mut &'b [u8]) -> Option<Text<'b>> {
    let is_huffman = *rest.first()? >= 0x80;
    let length = usize::try_from(integer(rest, 7)?).ok()?;
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(Text { bytes, is_huffman })
}

/// Reads an integer whose first byte has this many bits of it (RFC 7541, section 5.1).
fn integer(rest: &mut &[u8], prefix: u32) -> Option<u64> {
    /// The most continuation bytes of a length in a block of a megabyte.
    const MOST_BYTES: usize = 5;
    let (first, mut behind) = rest.split_first()?;
    let most = (1u64 << prefix) - 1;
    let mut value = u64::from(*first) & most;
    if value == most {
        for place in 0..=MOST_BYTES {
            let (byte, next) = behind.split_first().filter(|_| place < MOST_BYTES)?;
            behind = next;
            value += u64::from(byte & 0x7f) << (7 * place);
            if *byte < 0x80 {
                break;
            }
        }
    }
    *rest = behind;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: (&str, &str) = ("mark", "1");

    /// Encodes a literal field with plain name and value.
    fn literal(kind: u8, name: &str, value: &str) -> Vec<u8> {
        let mut out = vec![kind];
        for text in [name, value] {
            if text.len() < 0x7f {
                out.push(text.len() as u8);
            } else {
                let mut rest = text.len() - 0x7f;
                out.push(0x7f);
                while rest >= 0x80 {
                    out.push(0x80 | (rest & 0x7f) as u8);
                    rest >>= 7;
                }
                out.push(rest as u8);
            }
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    /// `:method: GET`, `:path` as given, `:scheme: https` and other fields.
    fn request(path: &str, fields: &[Vec<u8>]) -> Vec<u8> {
        [vec![0x82, 0x87], literal(0x00, ":path", path), fields.concat()].concat()
    }

    #[test]
    fn the_huffman_code_is_complete_and_counts_characters() {
        let sum: f64 = CODES.iter().enumerate().map(|(bits, codes)| f64::from(*codes) / 2f64.powi(bits as i32)).sum();
        assert!((sum - 1.0).abs() < f64::EPSILON && CODES.iter().sum::<u32>() == 257);
        // RFC 7541, appendix C.4.1 and C.6.1.
        let check = |bytes: &[u8], text: &str| {
            assert_eq!(Text { bytes, is_huffman: true }.length(), text.len(), "{text}");
        };
        check(&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], "www.example.com");
        check(&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private");
        check(&[0x64, 0x02], "302");
    }

    #[test]
    fn too_long_headers_are_reported() {
        let check = |block: &[u8], expect: Option<HeadFault>| assert_eq!(fault(block), Ok(expect));
        check(&request("/a", &[literal(0x00, "x", "y")]), None);
        check(&request(&"a".repeat(MOST_URL_BYTES), &[]), None);
        check(&request(&"a".repeat(MOST_URL_BYTES + 1), &[]), Some(HeadFault::Url));
        check(&request("/a", &[literal(0x00, "x", &"y".repeat(MOST_FIELD_BYTES))]), Some(HeadFault::Fields));
        check(&request("/a", &vec![literal(0x00, "x", &"y".repeat(3000)); 90]), Some(HeadFault::Fields));
        assert_eq!(fault(&[0x00, 0x05, b'a']), Err(MalformedBlock));
        assert_eq!(fault(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), Err(MalformedBlock));
    }

    #[test]
    fn only_fields_that_change_the_table_are_kept() {
        let mark = literal(0x10, MARK.0, MARK.1);
        let check = |block: &[u8], expect: &[&[u8]]| assert_eq!(shrunk(block, MARK).unwrap(), expect.concat());
        let long = literal(0x00, "x", &"y".repeat(MOST_FIELD_BYTES));
        let defaults: &[u8] = &[0x82, 0x84, 0x87];
        check(&request("/a", std::slice::from_ref(&long)), &[defaults, &mark]);
        // The method, a size update, and fields that are added to the table.
        let (small, other) = (literal(0x40, "a", "b"), literal(0x40, "c", "d"));
        let block = [&[0x20, 0x3f, 0xe1, 0x1f, 0x83, 0x87][..], &long, &small, &long, &other].concat();
        check(&block, &[&[0x20, 0x3f, 0xe1, 0x1f, 0x83, 0x84, 0x87], &mark, &small, &other]);
        // Of the added fields the table keeps the last.
        let half = literal(0x40, "h", &"h".repeat(2100));
        check(
            &request("/a", &[small.clone(), half.clone(), half.clone(), other.clone()]),
            &[defaults, &mark, &half, &half, &other],
        );
        // An entry that is larger than the table empties it, including the fields added before.
        let block = request("/a", &[small.clone(), literal(0x40, "z", &"z".repeat(300_000)), other.clone()]);
        check(&block, &[&EMPTIED_TABLE, defaults, &mark, &other]);
        let path = literal(0x40, ":path", &"z".repeat(70_000));
        let (before, behind) = (literal(0x40, ":authority", "b"), literal(0x40, ":scheme", "http"));
        let block = [&[0x83][..], &before, &path, &behind, &small].concat();
        check(&block, &[&EMPTIED_TABLE, &behind, &[0x83, 0x84], &mark, &small]);
    }
}
