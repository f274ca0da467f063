//! Selection by fields of objects that a webhook converts. As in kube-apiserver, the values in the version of the
//! request count.
//!
//! The cache keeps fields of the stored version, which may have other values. All objects that the other selectors
//! select are therefore converted, and then compared. The conversion cache has these conversions, as it has those of
//! lists and watches.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::ApiError;

use super::Selection;

impl Selection {
    /// Returns true if fields of converted objects are selected.
    pub(crate) fn is_of_converted(&self) -> bool {
        self.converted.is_some()
    }

    /// Returns true for an entry that may be selected. Conditions that need a conversion are not evaluated.
    pub(crate) fn may_match(&self, entry: &Entry) -> bool {
        match &self.converted {
            Some(view) if !view.fits_entry(entry) => self.is_in_place(entry) && self.has_labels(entry),
            _ => self.matches(entry),
        }
    }

    /// Returns each selected entry in the version of the request, and `None` for each other entry.
    ///
    /// Cost: a conversion of each entry that is stored in another version and that all other selectors select.
    ///
    /// # Errors
    /// 500 if an object cannot be converted.
    pub(crate) async fn shown(&self, entries: Vec<Arc<Entry>>) -> Result<Vec<Option<Arc<Entry>>>, ApiError> {
        let may_match = |entry: Arc<Entry>| self.may_match(&entry).then_some(entry);
        let mut selected: Vec<Option<Arc<Entry>>> = entries.into_iter().map(may_match).collect();
        let Some(view) = &self.converted else { return Ok(selected) };
        let foreign = |entry: &&mut Option<Arc<Entry>>| entry.as_ref().is_some_and(|entry| !view.fits_entry(entry));
        let mut unknown: Vec<&mut Option<Arc<Entry>>> = selected.iter_mut().filter(foreign).collect();
        let stored: Vec<Arc<Entry>> = unknown.iter().filter_map(|entry| (**entry).clone()).collect();
        for (place, converted) in unknown.iter_mut().zip(view.show_all(stored).await?) {
            let entry = converted.with_fields_of(converted.object().clone());
            let is_selected = self.fields.iter().all(|condition| condition.matches(&entry));
            **place = is_selected.then(|| Arc::new(entry));
        }
        Ok(selected)
    }
}
