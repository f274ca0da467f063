//! JSON patch (RFC 6902): a list of operations, applied in order, all or none.
//!
//! Where the RFC leaves room or upstream's library (evanphx/json-patch) is more lenient, this follows the library, since
//! clients have been written against it: negative indexes count from the end, a missing `value` is null, and testing
//! an absent member for null succeeds.

use std::io;

use keelson_meta::json::{Map, Value};

use crate::error::PatchError;
use crate::pointer::{Place, Pointer, existing, insertion};

/// What a patch may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of operations.
    pub operations: usize,
    /// The JSON bytes all `copy` operations may add together.
    pub copied_bytes: usize,
    /// How deep the result may nest, as far as the patch decides it: what the server can read back.
    pub depth: usize,
}

/// The limits of upstream, and the depth keelson's JSON reader accepts.
impl Default for Limits {
    fn default() -> Self {
        Self { operations: 10_000, copied_bytes: 3 * 1024 * 1024, depth: 512 }
    }
}

const PATCH: &str = "value of type []handlers.jsonPatchOp";
const OPERATION: &str = "value of type handlers.jsonPatchOp";

/// Applies the operations to a copy of `target`. Cost: one copy of the target, then the work of each operation, which
/// is proportional to the length of its path, the arrays it shifts, and the values it adds, compares or copies.
///
/// # Errors
/// The first operation that cannot be applied, or limits that are exceeded. A patch that is not an array of objects is
/// [`PatchError::Malformed`].
pub fn apply(target: &Value, patch: &Value, limits: Limits) -> Result<Value, PatchError> {
    let operations = match patch {
        Value::Array(operations) => &operations[..],
        // Go decodes null into an empty list.
        Value::Null => &[],
        other => return Err(PatchError::malformed(other, PATCH)),
    };
    let operations = operations.iter().map(Operation::read).collect::<Result<Vec<_>, _>>()?;
    if operations.len() > limits.operations {
        return Err(PatchError::TooManyOperations { limit: limits.operations, actual: operations.len() });
    }
    let mut patched = Patched { root: target.clone(), limits, copied: 0 };
    for operation in &operations {
        patched.apply(operation)?;
    }
    Ok(patched.root)
}

/// One operation, its fields checked for their types only.
struct Operation<'a> {
    name: &'a str,
    path: &'a str,
    from: &'a str,
    value: Option<&'a Value>,
}

impl<'a> Operation<'a> {
    fn read(operation: &'a Value) -> Result<Self, PatchError> {
        let fields = operation.as_object().ok_or_else(|| PatchError::malformed(operation, OPERATION))?;
        Ok(Self {
            name: text(fields, "op", "struct field jsonPatchOp.op of type string")?.unwrap_or("unknown"),
            path: text(fields, "path", "struct field jsonPatchOp.path of type string")?.unwrap_or_default(),
            from: text(fields, "from", "struct field jsonPatchOp.from of type string")?.unwrap_or_default(),
            value: fields.get("value"),
        })
    }

    fn value(&self) -> Value {
        self.value.cloned().unwrap_or_default()
    }
}

fn text<'a>(fields: &'a Map, name: &str, target: &'static str) -> Result<Option<&'a str>, PatchError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(PatchError::malformed(other, target)),
    }
}

/// The value between two operations.
struct Patched {
    root: Value,
    limits: Limits,
    copied: usize,
}

impl Patched {
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        match operation.name {
            "add" => self.add("add", operation.path, operation.value()),
            "remove" => self.remove("remove", operation.path).map(drop),
            "replace" => self.replace(operation.path, operation.value()),
            "move" => {
                let value = self.remove("move", operation.from)?;
                self.add("move", operation.path, value)
            }
            "copy" => {
                let value = self.copy(operation.from)?;
                self.add("copy", operation.path, value)
            }
            "test" => self.test(operation),
            unknown => Err(PatchError::UnknownOperation(unknown.to_owned())),
        }
    }

    fn add(&mut self, operation: &'static str, path: &str, value: Value) -> Result<(), PatchError> {
        let pointer = pointer(path)?;
        self.check_depth(&pointer, &value)?;
        match pointer.place(&mut self.root).ok_or_else(|| missing(operation, path))? {
            Place::Root(root) => *root = value,
            Place::Member(map, key) => drop(map.insert(key, value)),
            Place::Element(items, step) => {
                let index = insertion(step, items.len()).ok_or_else(|| missing(operation, path))?;
                items.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, operation: &'static str, path: &str) -> Result<Value, PatchError> {
        let pointer = pointer(path)?;
        let removed = match pointer.place(&mut self.root) {
            // Nothing would be left to put anything into.
            None | Some(Place::Root(_)) => None,
            Some(Place::Member(map, key)) => map.remove(key),
            Some(Place::Element(items, step)) => existing(step, items.len()).map(|index| items.remove(index)),
        };
        removed.ok_or_else(|| missing(operation, path))
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        let pointer = pointer(path)?;
        self.check_depth(&pointer, &value)?;
        let old = match pointer.place(&mut self.root) {
            None => None,
            Some(Place::Root(root)) => Some(root),
            Some(Place::Member(map, key)) => map.get_mut(key),
            Some(Place::Element(items, step)) => existing(step, items.len()).and_then(|index| items.get_mut(index)),
        };
        *old.ok_or_else(|| missing("replace", path))? = value;
        Ok(())
    }

    fn copy(&mut self, from: &str) -> Result<Value, PatchError> {
        let value = pointer(from)?.get(&self.root).ok_or_else(|| missing("copy", from))?;
        self.copied += json_len(value);
        if self.copied > self.limits.copied_bytes {
            return Err(PatchError::CopyTooLarge { limit: self.limits.copied_bytes, actual: self.copied });
        }
        Ok(value.clone())
    }

    fn test(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        let path = operation.path;
        let pointer = pointer(path)?;
        let wanted = operation.value.unwrap_or(&Value::Null);
        let same = match pointer.get(&self.root) {
            Some(found) => equal(found, wanted),
            None => match pointer.place(&mut self.root) {
                Some(Place::Member(..)) => wanted.is_null(),
                Some(Place::Root(_) | Place::Element(..)) | None => return Err(missing("test", path)),
            },
        };
        if same { Ok(()) } else { Err(PatchError::TestFailed { path: path.to_owned() }) }
    }

    fn check_depth(&self, pointer: &Pointer<'_>, value: &Value) -> Result<(), PatchError> {
        let limit = self.limits.depth;
        if pointer.len() + depth(value) > limit { Err(PatchError::TooDeep { limit }) } else { Ok(()) }
    }
}

fn pointer(path: &str) -> Result<Pointer<'_>, PatchError> {
    Pointer::parse(path).ok_or_else(|| PatchError::BadPointer(path.to_owned()))
}

fn missing(operation: &'static str, path: &str) -> PatchError {
    PatchError::MissingPath { operation, path: path.to_owned() }
}

/// RFC 6902, section 4.6: numbers are equal by value, so `1` is `1.0`; the order of members does not matter.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() != b.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The length of the value as compact JSON.
fn json_len(value: &Value) -> usize {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("keys are strings and the counter takes every byte");
    counter.0
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
