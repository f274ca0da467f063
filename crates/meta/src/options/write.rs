//! Options of writing: create, update and patch.
//!
//! Unknown values are refused with upstream's text. Options of a deletion are in `delete.rs`.

use super::query::Query;
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::go_format::is_print;

/// The maximum length of a field manager's name, in bytes.
pub const FIELD_MANAGER_MAX: usize = 128;

/// The treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown and duplicate fields are dropped silently.
    Ignore,
    /// Unknown and duplicate fields are dropped, with a warning for each.
    #[default]
    Warn,
    /// The request fails.
    Strict,
}

/// The kind of patch. A server-side apply has other rules than the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchMode {
    /// A JSON patch, a merge patch or a strategic merge patch.
    Change,
    /// A server-side apply.
    Apply,
}

/// The options of a create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// `dryRun`: performs all steps except the write.
    pub dry_run: bool,
    /// `fieldManager`.
    pub field_manager: Option<String>,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
}

/// The options of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateOptions {
    /// `dryRun`: performs all steps except the write.
    pub dry_run: bool,
    /// `fieldManager`.
    pub field_manager: Option<String>,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
}

/// The options of a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchOptions {
    /// `dryRun`: performs all steps except the write.
    pub dry_run: bool,
    /// `fieldManager`. Always present for a server-side apply.
    pub field_manager: Option<String>,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// `force`: takes fields over from other managers. Only for a server-side apply.
    pub force: Option<bool>,
}

impl CreateOptions {
    /// Reads the options of a create.
    ///
    /// # Errors
    /// 422 for values that are not allowed.
    pub fn parse(query: &Query<'_>) -> Result<Self, ApiError> {
        let Common { dry_run, field_manager, field_validation } = Common::parse(query, "CreateOptions", Vec::new())?;
        Ok(Self { dry_run, field_manager, field_validation })
    }
}

impl UpdateOptions {
    /// Reads the options of an update.
    ///
    /// # Errors
    /// 422 for values that are not allowed.
    pub fn parse(query: &Query<'_>) -> Result<Self, ApiError> {
        let Common { dry_run, field_manager, field_validation } = Common::parse(query, "UpdateOptions", Vec::new())?;
        Ok(Self { dry_run, field_manager, field_validation })
    }
}

impl PatchOptions {
    /// Reads the options of a patch.
    ///
    /// # Errors
    /// 422 for values that are not allowed.
    pub fn parse(query: &Query<'_>, kind: PatchMode) -> Result<Self, ApiError> {
        let force = query.flag("force");
        let mut errors = Vec::new();
        match kind {
            PatchMode::Change if force.is_some() => {
                errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
            }
            PatchMode::Apply if query.text("fieldManager").is_none() => {
                errors.push(FieldError::required("fieldManager", "is required for apply patch"));
            }
            PatchMode::Change | PatchMode::Apply => {}
        }
        let Common { dry_run, field_manager, field_validation } = Common::parse(query, "PatchOptions", errors)?;
        Ok(Self { dry_run, field_manager, field_validation, force })
    }
}

/// The common options of all writes.
struct Common {
    dry_run: bool,
    field_manager: Option<String>,
    field_validation: FieldValidation,
}

impl Common {
    fn parse(query: &Query<'_>, kind: &str, mut errors: Vec<FieldError>) -> Result<Self, ApiError> {
        let field_manager = query.text("fieldManager");
        errors.extend(field_manager_errors("fieldManager", field_manager.as_deref().unwrap_or_default()));
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        errors.extend(dry_run_error(&dry_run));
        let field_validation = field_validation(query.get("fieldValidation").unwrap_or_default());
        match field_validation {
            Ok(field_validation) if errors.is_empty() => {
                Ok(Self { dry_run: !dry_run.is_empty(), field_manager, field_validation })
            }
            other => {
                errors.extend(other.err().into_iter().flatten());
                Err(super::check(kind, errors).expect_err("this arm has an error"))
            }
        }
    }
}

/// The faults of a field manager's name.
///
/// Each invalid character of a name is a fault that repeats the name. A name that is too long has only the first of them,
/// so that the faults are not hundreds of times as long as the name.
pub(crate) fn field_manager_errors(field: &str, name: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let is_long = name.len() > FIELD_MANAGER_MAX;
    if is_long {
        errors.push(FieldError::too_long(field, FIELD_MANAGER_MAX));
    }
    let most = if is_long { 1 } else { FIELD_MANAGER_MAX };
    for (position, c) in name.char_indices().filter(|(_, c)| !is_print(*c)).take(most) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        errors.push(FieldError::invalid(field, name, detail));
    }
    errors
}

/// The fault of `dryRun` values other than `All`.
pub(super) fn dry_run_error(values: &[&str]) -> Option<FieldError> {
    let known = values.iter().all(|value| *value == "All");
    (!known).then(|| FieldError::not_supported("dryRun", values.to_vec(), &["All"]))
}

fn field_validation(text: &str) -> Result<FieldValidation, Vec<FieldError>> {
    match text {
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Ignore" => Ok(FieldValidation::Ignore),
        "Strict" => Ok(FieldValidation::Strict),
        other => Err(vec![FieldError::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"])]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(query: &str) -> Result<CreateOptions, String> {
        CreateOptions::parse(&Query::parse(query)).map_err(|error| error.to_string())
    }

    fn patch(query: &str, kind: PatchMode) -> Result<PatchOptions, String> {
        PatchOptions::parse(&Query::parse(query), kind).map_err(|error| error.to_string())
    }

    #[test]
    fn empty_write_options_are_the_defaults() {
        assert_eq!(create(""), Ok(CreateOptions::default()));
        assert_eq!(create("fieldManager=&fieldValidation="), Ok(CreateOptions::default()));
    }

    #[test]
    fn values_are_read() {
        let expected = CreateOptions {
            dry_run: true,
            field_manager: Some("kubectl-create".into()),
            field_validation: FieldValidation::Strict,
        };
        assert_eq!(create("dryRun=All&dryRun=All&fieldManager=kubectl-create&fieldValidation=Strict"), Ok(expected));
        assert_eq!(patch("force=true&fieldManager=a", PatchMode::Apply).expect("valid").force, Some(true));
    }

    #[test]
    fn faults_have_upstream_texts() {
        let prefix = "CreateOptions.meta.k8s.io \"\" is invalid: ";
        for (query, text) in [
            ("dryRun=Some", "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""),
            (
                "fieldValidation=Maybe",
                "fieldValidation: Unsupported value: \"Maybe\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            ("fieldManager=a%07b", "fieldManager: Invalid value: \"a\\ab\": invalid character U+0007 (at position 1)"),
            (
                "dryRun=&fieldValidation=x",
                "[dryRun: Unsupported value: [\"\"]: supported values: \"All\", fieldValidation: Unsupported value: \
                 \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"]",
            ),
        ] {
            assert_eq!(create(query), Err(format!("{prefix}{text}")), "{query}");
        }
        let long = format!("fieldManager={}", "m".repeat(129));
        assert_eq!(create(&long), Err(format!("{prefix}fieldManager: Too long: may not be more than 128 bytes")));
    }

    #[test]
    fn apply_and_change_have_their_own_rules() {
        let prefix = "PatchOptions.meta.k8s.io \"\" is invalid: ";
        assert_eq!(
            patch("", PatchMode::Apply),
            Err(format!("{prefix}fieldManager: Required value: is required for apply patch"))
        );
        assert_eq!(
            patch("force=false", PatchMode::Change),
            Err(format!("{prefix}force: Forbidden: may not be specified for non-apply patch"))
        );
        assert!(patch("", PatchMode::Change).is_ok());
    }

    #[test]
    fn updates_name_their_own_options() {
        let error = UpdateOptions::parse(&Query::parse("dryRun=x")).expect_err("not allowed");
        assert_eq!(error.code(), 422);
        assert!(error.to_string().starts_with("UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: "));
    }
}
