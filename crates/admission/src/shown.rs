//! Objects in the version that a webhook or policy requests.
//!
//! That is mostly the version of the request: then nothing is copied.

use keelson_meta::{ApiError, Object};
use keelson_registry::AdmissionAttributes;

use crate::matching::Endpoint;

/// The objects of a request as they are shown.
#[derive(Debug)]
pub(crate) enum Shown {
    /// In the version of the request.
    AsIs,
    /// In another one.
    Converted {
        /// The object that is written.
        object: Option<Object>,
        /// The old object.
        old: Option<Object>,
    },
}

impl Shown {
    /// As an endpoint shows them.
    ///
    /// # Errors
    /// 500 when they can't be converted.
    pub(crate) async fn of(
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

    /// The object that is written, which is `own` in the version of the request.
    pub(crate) fn object<'s>(&'s self, own: Option<&'s Object>) -> Option<&'s Object> {
        match self {
            Self::AsIs => own,
            Self::Converted { object, .. } => object.as_ref(),
        }
    }

    /// The old object, which is `own` in the version of the request.
    pub(crate) fn old<'s>(&'s self, own: Option<&'s Object>) -> Option<&'s Object> {
        match self {
            Self::AsIs => own,
            Self::Converted { old, .. } => old.as_ref(),
        }
    }

    /// A changed object in the version of the request again.
    ///
    /// # Errors
    /// 500 when it can't be converted.
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
