//! Writes large JSON objects member by member, so that no value tree of a whole document is built.
//!
//! Members can be written separately and joined later.

use keelson_meta::json::Value;

/// Appends `{"name":value,...}`.
pub(crate) fn write_object<N: AsRef<str>>(out: &mut Vec<u8>, members: impl IntoIterator<Item = (N, Value)>) {
    out.push(b'{');
    for (position, (name, value)) in members.into_iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write(out, &Value::from(name.as_ref()));
        out.push(b':');
        write(out, &value);
    }
    out.push(b'}');
}

/// `"name":value`, a member of an object.
pub(crate) fn member(name: &str, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, &Value::from(name));
    out.push(b':');
    write(&mut out, value);
    out
}

/// Appends pieces of JSON separated by commas.
pub(crate) fn join<'p>(out: &mut Vec<u8>, pieces: impl Iterator<Item = &'p [u8]>) {
    for (position, piece) in pieces.enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.extend_from_slice(piece);
    }
}

fn write(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value).expect("a JSON value can be written to memory");
}
