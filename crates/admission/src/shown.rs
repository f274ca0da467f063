//! The objects of a request, in the version that a webhook or policy requests.
//!
//! Most webhooks and policies request the version of the request. Then no object is copied or converted.

use keelson_meta::{ApiError, Object};
use keelson_registry::AdmissionAttributes;

use crate::matching::Endpoint;

/// The objects of a request for a webhook or policy.
#[derive(Debug)]
pub(crate) enum AdmissionObjects {
    /// The objects in the version of the request.
    AsIs,
    /// The objects in another version.
    Converted {
        /// The object that is written.
        object: Option<Object>,
        /// The old object.
        old: Option<Object>,
    },
}

impl AdmissionObjects {
    /// Converts the objects to the kind of an endpoint, if needed.
    ///
    /// # Errors
    /// 500 if the conversion fails.
    pub(crate) async fn new(
        attributes: &AdmissionAttributes<'_>,
        endpoint: &Endpoint,
        object: Option<&Object>,
    ) -> Result<Self, ApiError> {
        if endpoint.kind == attributes.target.taken_kind() {
            return Ok(Self::AsIs);
        }
        let (mut object, mut old) = (object.cloned(), attributes.old.cloned());
        for shown in object.iter_mut().chain(&mut old) {
            attributes.convert(shown, &endpoint.kind).await?;
        }
        Ok(Self::Converted { object, old })
    }

    /// The new object; `own` is the object in the version of the request.
    pub(crate) fn object<'s>(&'s self, own: Option<&'s Object>) -> Option<&'s Object> {
        match self {
            Self::AsIs => own,
            Self::Converted { object, .. } => object.as_ref(),
        }
    }

    /// The old object; `own` is the object in the version of the request.
    pub(crate) fn old<'s>(&'s self, own: Option<&'s Object>) -> Option<&'s Object> {
        match self {
            Self::AsIs => own,
            Self::Converted { old, .. } => old.as_ref(),
        }
    }

    /// Converts a changed object back to the version of the request.
    ///
    /// # Errors
    /// 500 if the conversion fails.
    pub(crate) async fn taken_back(
        &self,
        attributes: &AdmissionAttributes<'_>,
        mut changed: Object,
    ) -> Result<Object, ApiError> {
        if matches!(self, Self::Converted { .. }) {
            attributes.convert(&mut changed, attributes.target.kind()).await?;
        }
        Ok(changed)
    }
}
