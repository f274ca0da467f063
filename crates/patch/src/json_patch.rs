//! JSON patch (RFC 6902): a list of operations that are applied in order. If one fails, none is applied.
//!
//! The behaviour is that of upstream's library (evanphx/json-patch), since clients rely on it. Negative indexes count
//! from the end, and a missing `value` is null. A replaced or copied member may be absent, and a test of an absent
//! member for null succeeds.
//!
//! A few bytes of a patch can request much work, so the cost of operations is limited: see [`Limits`].

use std::io;

use keelson_meta::json::{Map, Value};

use crate::error::PatchError;
use crate::pointer::{Pointer, TargetLocation, existing, insertion};

/// The limits of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of operations.
    pub operations: usize,
    /// The JSON bytes that all `copy` operations together may add.
    pub copied_bytes: usize,
    /// The maximum depth of values that the patch adds, moves or copies: the depth that the server can read back.
    pub depth: usize,
    /// The maximum number of array elements that may be shifted, and of values whose depth may be measured because they
    /// are moved. Values in the patch are not counted.
    pub passed_values: usize,
}

/// Upstream's limits, the depth that keelson's JSON reader accepts, and a few milliseconds of work. Inserting 1,000
/// elements at the front of an array of 4,000 is within these limits.
impl Default for Limits {
    fn default() -> Self {
        Self { operations: 10_000, copied_bytes: 3 * 1024 * 1024, depth: 512, passed_values: 4_000_000 }
    }
}

const PATCH: &str = "value of type []handlers.jsonPatchOp";
const OPERATION: &str = "value of type handlers.jsonPatchOp";

/// The operations of a patch, parsed once for many objects. Only the types of their fields are checked.
pub struct Operations<'p> {
    operations: Vec<Operation<'p>>,
    limits: Limits,
}

impl<'p> Operations<'p> {
    /// Reads a patch.
    ///
    /// # Errors
    /// [`PatchError::Malformed`] for a value that is not an array of objects, and [`PatchError::TooManyOperations`].
    pub fn read(patch: &'p Value, limits: Limits) -> Result<Self, PatchError> {
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
        Ok(Self { operations, limits })
    }

    /// Applies the operations. Cost for each: the length of its path, the array elements it shifts, and the values it
    /// adds, compares or copies.
    ///
    /// # Errors
    /// The first operation that cannot be applied, or exceeded limits.
    pub fn apply(&self, target: Value) -> Result<Value, PatchError> {
        let limits = self.limits;
        let mut patched = Patched { deepest: depth(&target), root: target, limits, copied: 0, passed: 0 };
        for operation in &self.operations {
            patched.apply(operation)?;
        }
        Ok(patched.root)
    }
}

/// Applies a patch to a copy of `target`.
///
/// # Errors
/// As for [`Operations`].
pub fn apply(target: &Value, patch: &Value, limits: Limits) -> Result<Value, PatchError> {
    Operations::read(patch, limits)?.apply(target.clone())
}

/// Applies a patch, and sorts the members of every object that a path of an operation leads through. Upstream writes
/// patched objects in this order before it decodes them again.
///
/// # Errors
/// As [`apply`].
pub fn apply_in_order(target: &Value, patch: &Value, limits: Limits) -> Result<Value, PatchError> {
    let mut ordered = target.clone();
    sort(&mut ordered);
    for operation in patch.as_array().into_iter().flatten() {
        for path in ["path", "from"].into_iter().filter_map(|field| operation.get(field)?.as_str()) {
            sort_along(&mut ordered, path);
        }
    }
    let mut patched = apply(&ordered, patch, limits)?;
    // Sorting comes last, since added members are at the end, and a path may lead through a moved object at its new
    // place.
    sort(&mut patched);
    for operation in patch.as_array().into_iter().flatten() {
        if let Some(path) = operation.get("path").and_then(Value::as_str) {
            sort_along(&mut patched, path);
        }
    }
    Ok(patched)
}

fn sort(value: &mut Value) {
    if let Value::Object(map) = value {
        map.sort_keys();
    }
}

/// Sorts the objects along a path.
fn sort_along(root: &mut Value, path: &str) {
    let Some(pointer) = Pointer::parse(path) else { return };
    pointer.each_container(root, sort);
}

/// One operation. Only the types of its fields are checked.
struct Operation<'a> {
    name: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: Option<&'a Value>,
}

impl<'a> Operation<'a> {
    fn read(operation: &'a Value) -> Result<Self, PatchError> {
        // Go decodes null into an operation without fields.
        if operation.is_null() {
            return Ok(Self { name: "unknown", path: None, from: None, value: None });
        }
        let fields = operation.as_object().ok_or_else(|| PatchError::malformed(operation, OPERATION))?;
        Ok(Self {
            name: text(fields, "op", "struct field jsonPatchOp.op of type string")?.unwrap_or("unknown"),
            path: text(fields, "path", "struct field jsonPatchOp.path of type string")?,
            from: text(fields, "from", "struct field jsonPatchOp.from of type string")?,
            value: fields.get("value"),
        })
    }

    fn path(&self) -> Result<&'a str, PatchError> {
        self.path.ok_or(PatchError::MissingField("path"))
    }

    fn from(&self) -> Result<&'a str, PatchError> {
        self.from.ok_or(PatchError::MissingField("from"))
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
    passed: usize,
    /// An upper bound of the depth of all values. It does not decrease after removals.
    deepest: usize,
}

impl Patched {
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        match operation.name {
            "add" => {
                let (path, value) = (operation.path()?, operation.value());
                self.reach(path, depth(&value))?;
                self.add("add", path, value)
            }
            "remove" => self.remove("remove", operation.path()?).map(drop),
            "replace" => self.replace(operation.path()?, operation.value()),
            "move" => self.move_value(operation.from()?, operation.path()?),
            "copy" => {
                let path = operation.path()?;
                let value = self.copy(operation.from()?)?;
                self.reach(path, depth(&value))?;
                self.add("copy", path, value)
            }
            "test" => self.test(operation.path()?, operation.value.unwrap_or(&Value::Null)),
            unknown => Err(PatchError::UnknownOperation(unknown.to_owned())),
        }
    }

    fn add(&mut self, operation: &'static str, path: &str, value: Value) -> Result<(), PatchError> {
        let pointer = inner(operation, path)?;
        match pointer.place(&mut self.root).ok_or_else(|| missing(operation, path))? {
            TargetLocation::Root => return Err(missing(operation, path)),
            TargetLocation::Member(map, key) => drop(map.insert(key, value)),
            TargetLocation::Element(items, step) => {
                let index = insertion(step, items.len()).ok_or_else(|| missing(operation, path))?;
                pass(&mut self.passed, self.limits, items.len() - index)?;
                items.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, operation: &'static str, path: &str) -> Result<Value, PatchError> {
        let pointer = inner(operation, path)?;
        let removed = match pointer.place(&mut self.root) {
            None | Some(TargetLocation::Root) => None,
            Some(TargetLocation::Member(map, key)) => map.remove(key),
            Some(TargetLocation::Element(items, step)) => match existing(step, items.len()) {
                Some(index) => {
                    pass(&mut self.passed, self.limits, items.len() - index)?;
                    Some(items.remove(index))
                }
                None => None,
            },
        };
        removed.ok_or_else(|| missing(operation, path))
    }

    /// Replaces a value. An absent member of an object is added. An absent element of an array is an error.
    fn replace(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        self.reach(path, depth(&value))?;
        if path.is_empty() {
            if !(value.is_object() || value.is_array()) {
                return Err(PatchError::NoContainer);
            }
            self.root = value;
            return Ok(());
        }
        match inner("replace", path)?.place(&mut self.root) {
            None | Some(TargetLocation::Root) => Err(missing("replace", path)),
            Some(TargetLocation::Member(map, key)) => {
                map.insert(key, value);
                Ok(())
            }
            Some(TargetLocation::Element(items, step)) => {
                let old = existing(step, items.len()).and_then(|index| items.get_mut(index));
                *old.ok_or_else(|| missing("replace", path))? = value;
                Ok(())
            }
        }
    }

    fn move_value(&mut self, from: &str, path: &str) -> Result<(), PatchError> {
        let value = self.remove("move", from)?;
        // The value is at this depth, so its own depth is at most the rest of `deepest`. It is therefore rarely
        // measured.
        let below = self.deepest.saturating_sub(steps(from));
        if steps(path) + below > self.limits.depth {
            let passed = &mut self.passed;
            let found = counted_depth(&value, &mut |values| pass(passed, self.limits, values))?;
            self.reach(path, found)?;
        } else {
            self.reach(path, below)?;
        }
        self.add("move", path, value)
    }

    /// The value to copy. An absent member is null.
    fn copy(&mut self, from: &str) -> Result<Value, PatchError> {
        let pointer = inner("copy", from)?;
        let value = match pointer.get(&self.root) {
            Some(value) => value,
            None => match pointer.place(&mut self.root) {
                Some(TargetLocation::Member(..)) => &Value::Null,
                Some(TargetLocation::Root | TargetLocation::Element(..)) | None => return Err(missing("copy", from)),
            },
        };
        self.copied += json_len(value);
        if self.copied > self.limits.copied_bytes {
            return Err(PatchError::CopyTooLarge { limit: self.limits.copied_bytes, actual: self.copied });
        }
        Ok(value.clone())
    }

    fn test(&mut self, path: &str, wanted: &Value) -> Result<(), PatchError> {
        let pointer = if path.is_empty() { Pointer::root() } else { inner("test", path)? };
        let same = match pointer.get(&self.root) {
            Some(found) => equal(found, wanted),
            None => match pointer.place(&mut self.root) {
                Some(TargetLocation::Member(..)) => wanted.is_null(),
                Some(TargetLocation::Root | TargetLocation::Element(..)) | None => return Err(missing("test", path)),
            },
        };
        if same { Ok(()) } else { Err(PatchError::TestFailed { path: path.to_owned() }) }
    }

    /// Records that a value of this depth is placed at the end of a path.
    fn reach(&mut self, path: &str, depth: usize) -> Result<(), PatchError> {
        let reached = steps(path) + depth;
        if reached > self.limits.depth {
            return Err(PatchError::TooDeep { limit: self.limits.depth });
        }
        self.deepest = self.deepest.max(reached);
        Ok(())
    }
}

/// Counts values that an operation shifts or measures. Fails above the limit.
fn pass(passed: &mut usize, limits: Limits, values: usize) -> Result<(), PatchError> {
    *passed += values;
    if *passed > limits.passed_values {
        return Err(PatchError::TooMuchWork { limit: limits.passed_values });
    }
    Ok(())
}

/// The number of steps of a path.
fn steps(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// The pointer to a place below the root.
fn inner<'p>(operation: &'static str, path: &'p str) -> Result<Pointer<'p>, PatchError> {
    Pointer::parse(path).ok_or_else(|| missing(operation, path))
}

fn missing(operation: &'static str, path: &str) -> PatchError {
    PatchError::MissingPath { operation, path: path.to_owned() }
}

/// RFC 6902, section 4.6: numbers are equal by value, so `1` equals `1.0`. The order of members does not matter.
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

/// As [`depth`]. `count` receives the number of values that are visited next, and may end the visit with an error.
fn counted_depth(value: &Value, count: &mut impl FnMut(usize) -> Result<(), PatchError>) -> Result<usize, PatchError> {
    let mut deepest = 0;
    match value {
        Value::Array(items) => {
            count(items.len())?;
            for item in items {
                deepest = deepest.max(counted_depth(item, count)?);
            }
        }
        Value::Object(map) => {
            count(map.len())?;
            for item in map.values() {
                deepest = deepest.max(counted_depth(item, count)?);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(0),
    }
    Ok(1 + deepest)
}

/// The length of the value as compact JSON.
fn json_len(value: &Value) -> usize {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("keys are strings, and counting cannot fail");
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
