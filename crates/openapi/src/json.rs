//! Writes large JSON objects member by member, so that a document is never held as a tree.

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

fn write(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value).expect("a JSON value can be written to memory");
}
