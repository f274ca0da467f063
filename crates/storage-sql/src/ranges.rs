//! Ranges of keys, and their division into parts, so that several connections can read them at the same time. This
//! module does not know rows.

use keelson_storage::StoreKey;

/// Each range is its first key and the key after its last.
pub(crate) type Ranges = Vec<(StoreKey, StoreKey)>;

/// Splits ranges at a key.
pub(crate) fn halves(ranges: Ranges, middle: &StoreKey) -> (Ranges, Ranges) {
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for (from, to) in ranges {
        if to <= *middle {
            before.push((from, to));
        } else if from >= *middle {
            behind.push((from, to));
        } else {
            before.push((from, middle.clone()));
            behind.push((middle.clone(), to));
        }
    }
    (before, behind)
}

/// Divides the ranges into parts with about equal numbers of `keys`, which are a sample of the keys in the ranges. Keys
/// outside of the ranges are ignored.
#[cfg(feature = "postgres")]
pub(crate) fn divide(ranges: Ranges, mut keys: Vec<StoreKey>, parts: usize) -> Vec<Ranges> {
    keys.retain(|key| ranges.iter().any(|(from, to)| from <= key && key < to));
    keys.sort_unstable();
    let (mut divided, mut rest) = (Vec::new(), ranges);
    for part in 1..parts {
        let Some(end) = keys.get(keys.len() * part / parts) else { break };
        let (before, behind) = halves(rest, end);
        divided.push(before);
        rest = behind;
    }
    divided.push(rest);
    divided.retain(|part| !part.is_empty());
    divided
}

#[cfg(test)]
#[cfg(feature = "postgres")]
mod tests {
    use super::*;

    fn check(keys: &[&str], expected: &[&[(&str, &str)]]) {
        let key = |text: &str| StoreKey::new(text);
        let ranges = vec![(key("/a/"), key("/a0")), (key("/c/"), key("/c0"))];
        let divided = divide(ranges, keys.iter().map(|text| key(text)).collect(), 3);
        let texts = |part: &Ranges| -> Vec<(String, String)> {
            part.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect()
        };
        let expected: Vec<Vec<(String, String)>> = expected
            .iter()
            .map(|part| part.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect())
            .collect();
        assert_eq!(divided.iter().map(texts).collect::<Vec<_>>(), expected, "{keys:?}");
    }

    #[test]
    fn ranges_are_divided_where_the_keys_are() {
        check(&[], &[&[("/a/", "/a0"), ("/c/", "/c0")]]);
        check(
            &["/c/1", "/a/2", "/b/7", "/c/2"],
            &[&[("/a/", "/a0"), ("/c/", "/c/1")], &[("/c/1", "/c/2")], &[("/c/2", "/c0")]],
        );
        check(&["/c/1", "/c/1", "/c/1"], &[&[("/a/", "/a0"), ("/c/", "/c/1")], &[("/c/1", "/c0")]]);
    }
}
