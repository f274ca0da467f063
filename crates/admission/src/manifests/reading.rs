//! Reads the manifests in a directory: files with several documents or lists, decoded strictly, with defaults and
//! validated by the rules of the API.
//!
//! Names have a reserved suffix, so that no object of the API has the same. Manifests refer to nothing outside of them:
//! webhooks have URLs, and policies have no parameters.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use keelson_access_config::hash_of_parts;
use keelson_builtin::{Defaults, Rules};
use keelson_codec::yaml;
use keelson_meta::json::Value;
use keelson_meta::names::NameRule;
use keelson_meta::{GroupVersionKind, Object};
use keelson_registry::Validator as _;
use keelson_schema::{Schemas, WalkOptions, WalkReport};

use super::ManifestPlugin;

const GROUP: &str = "admissionregistration.k8s.io";
const VERSION: &str = "v1";
/// The suffix of the names of manifests.
const SUFFIX: &str = ".static.k8s.io";
/// The extensions of the files that are read.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// The largest number of files.
const MAX_FILES: usize = 1_000;
/// The largest size of all files in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// The largest depth of lists in lists.
const MAX_LISTS: u32 = 4;

/// The reason why manifests are not used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A directory is set and the feature gate is off.
    #[error(
        "staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature \
         gate to be enabled ({})", directory.display()
    )]
    GateIsOff {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory or a file cannot be read.
    #[error("reading the admission manifests in {}: {source}", path.display())]
    Unreadable {
        /// The directory or file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The directory has too many or too large files.
    #[error("the admission manifests in {} have more than {limit}", directory.display())]
    TooLarge {
        /// The directory.
        directory: PathBuf,
        /// The limit.
        limit: String,
    },
    /// A file has an invalid manifest.
    #[error("error loading {}: {fault}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The fault.
        fault: String,
    },
    /// A binding names no policy of the directory.
    #[error("binding {binding:?} references policy {policy:?} which does not exist in the manifest directory")]
    Unbound {
        /// The binding.
        binding: String,
        /// The policy.
        policy: String,
    },
}

/// The files of a directory that are not empty, sorted by name.
pub(super) struct ManifestFiles {
    files: Vec<(PathBuf, Vec<u8>)>,
    /// The hash of all files; empty if there are none.
    pub(super) hash: String,
}

impl ManifestFiles {
    /// Reads a directory, and decodes nothing.
    ///
    /// # Errors
    /// [`ManifestError::Unreadable`] and [`ManifestError::TooLarge`].
    pub(super) fn read(directory: &Path) -> Result<Self, ManifestError> {
        let mut room = MAX_BYTES;
        let mut read = Vec::new();
        for file in files(directory)? {
            let bytes = content(&file, directory, &mut room)?;
            if !bytes.is_empty() {
                read.push((file, bytes));
            }
        }
        let parts = || read.iter().flat_map(|(_, bytes)| [bytes.as_slice(), &[0]]);
        let hash = if read.is_empty() { String::new() } else { hash_of_parts(parts()) };
        Ok(Self { files: read, hash })
    }
}

/// The objects of all manifests of a plugin, sorted by name.
#[derive(Debug, Default)]
pub(super) struct ManifestObjects {
    pub(super) configurations: Vec<Object>,
    pub(super) policies: Vec<Object>,
    pub(super) bindings: Vec<Object>,
}

impl ManifestObjects {
    /// Decodes the files of a directory.
    ///
    /// # Errors
    /// [`ManifestError::Invalid`] and [`ManifestError::Unbound`].
    pub(super) fn decode(
        plugin: ManifestPlugin,
        read: &ManifestFiles,
        schemas: &Schemas,
    ) -> Result<Self, ManifestError> {
        let mut objects = Self::default();
        let mut names = BTreeSet::new();
        for (file, bytes) in &read.files {
            let invalid = |fault: String| ManifestError::Invalid { file: file.clone(), fault };
            for document in documents(bytes) {
                for object in decoded(plugin, document, schemas).map_err(invalid)? {
                    check(&object).map_err(invalid)?;
                    if !names.insert((object.kind().unwrap_or_default().to_owned(), object.name().to_owned())) {
                        return Err(invalid(format!("duplicate name {:?}", object.name())));
                    }
                    objects.add(object);
                }
            }
        }
        objects.arranged()
    }

    /// The number of objects.
    pub(super) fn count(&self) -> usize {
        self.configurations.len() + self.policies.len() + self.bindings.len()
    }

    fn add(&mut self, object: Object) {
        let kind = object.kind().unwrap_or_default();
        if kind.ends_with("Binding") {
            self.bindings.push(object);
        } else if kind.ends_with("Policy") {
            self.policies.push(object);
        } else {
            self.configurations.push(object);
        }
    }

    /// Sorts the objects, and checks the references of bindings.
    fn arranged(mut self) -> Result<Self, ManifestError> {
        for list in [&mut self.configurations, &mut self.policies, &mut self.bindings] {
            list.sort_by(|left, right| left.name().cmp(right.name()));
        }
        let is_known = |policy: &str| self.policies.iter().any(|known| known.name() == policy);
        match self.bindings.iter().find(|binding| !is_known(policy_of(binding))) {
            None => Ok(self),
            Some(binding) => Err(ManifestError::Unbound {
                binding: binding.name().to_owned(),
                policy: policy_of(binding).to_owned(),
            }),
        }
    }
}

fn policy_of(binding: &Object) -> &str {
    binding.get(&["spec", "policyName"]).and_then(Value::as_str).unwrap_or_default()
}

/// The files of a directory with one of the extensions, sorted by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let unreadable = |source| ManifestError::Unreadable { path: directory.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
        if extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            let limit = format!("{MAX_FILES} files");
            return Err(ManifestError::TooLarge { directory: directory.to_owned(), limit });
        }
    }
    files.sort();
    Ok(files)
}

/// The content of a file, within the room that is left. Directories are empty.
fn content(file: &Path, directory: &Path, room: &mut u64) -> Result<Vec<u8>, ManifestError> {
    let unreadable = |source| ManifestError::Unreadable { path: file.to_owned(), source };
    let metadata = fs::metadata(file).map_err(unreadable)?;
    if metadata.is_dir() {
        return Ok(Vec::new());
    }
    if !metadata.is_file() {
        return Err(unreadable(io::Error::other("it is no regular file")));
    }
    let mut bytes = Vec::new();
    File::open(file).map_err(unreadable)?.take(*room + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match room.checked_sub(bytes.len() as u64) {
        Some(left) => *room = left,
        None => {
            let limit = format!("{} MiB", MAX_BYTES >> 20);
            return Err(ManifestError::TooLarge { directory: directory.to_owned(), limit });
        }
    }
    Ok(bytes)
}

/// The documents of a file, which lines of three dashes separate. Empty ones are left out.
fn documents(bytes: &[u8]) -> Vec<&[u8]> {
    let is_separator = |line: &[u8]| line.strip_prefix(b"---").is_some_and(|rest| rest.trim_ascii().is_empty());
    let (mut documents, mut begun, mut at) = (Vec::new(), 0, 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if is_separator(line) {
            documents.push(&bytes[begun..at]);
            begun = at + line.len();
        }
        at += line.len();
    }
    documents.push(&bytes[begun..]);
    documents.retain(|document| !document.trim_ascii().is_empty());
    documents
}

/// The objects of a document: one, or those of a list.
fn decoded(plugin: ManifestPlugin, document: &[u8], schemas: &Schemas) -> Result<Vec<Object>, String> {
    let parsed = yaml::parse(document).map_err(|error| error.to_string())?;
    if let Some(duplicate) = parsed.duplicates.first() {
        return Err(format!("strict decoding error: {duplicate}"));
    }
    // A document of comments alone.
    if parsed.value.is_null() {
        return Ok(Vec::new());
    }
    let mut objects = Vec::new();
    gather(plugin, parsed.value, schemas, MAX_LISTS, &mut objects)?;
    Ok(objects)
}

fn gather(
    plugin: ManifestPlugin,
    mut value: Value,
    schemas: &Schemas,
    depth: u32,
    into: &mut Vec<Object>,
) -> Result<(), String> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&value, "apiVersion"), text(&value, "kind"));
    let own_version = format!("{GROUP}/{VERSION}");
    if api_version == own_version && plugin.kinds().contains(&kind.as_str()) {
        into.push(object(kind, value, schemas)?);
        return Ok(());
    }
    let of_list = kind.strip_suffix("List").filter(|kind| plugin.kinds().contains(kind));
    let is_list = (api_version == own_version && of_list.is_some()) || (api_version == "v1" && kind == "List");
    if !is_list || depth == 0 {
        return Err(format!("unsupported resource type {api_version} {kind} in manifests of {}", plugin.name()));
    }
    let Some(Value::Array(items)) = value.get_mut("items").map(std::mem::take) else { return Ok(()) };
    for mut item in items {
        // The items of a typed list have its version and kind.
        if let (Some(kind), Value::Object(item)) = (of_list, &mut item) {
            item.insert("apiVersion", Value::from(own_version.as_str()));
            item.insert("kind", Value::from(kind));
        }
        gather(plugin, item, schemas, depth - 1, into)?;
    }
    Ok(())
}

/// Decodes an object strictly, fills in its defaults, and validates it.
fn object(kind: String, value: Value, schemas: &Schemas) -> Result<Object, String> {
    let mut object = Object::from_value(value).ok_or("a manifest is no object")?;
    let schema = schemas.kind(GROUP, VERSION, &kind).ok_or_else(|| format!("no schema of {kind}"))?;
    let kind = GroupVersionKind { group: GROUP.to_owned(), version: VERSION.to_owned(), kind };
    if let Some(defaults) = Defaults::for_kind(&kind) {
        defaults.fill(&mut object);
    }
    let mut report = WalkReport::default();
    schema.walk(&mut object, &mut report, WalkOptions::STORE);
    if let Some(fault) = report.type_error() {
        return Err(fault);
    }
    let unknown: Vec<String> = report.unknown_field_messages().collect();
    if !unknown.is_empty() {
        return Err(format!("strict decoding error: {}", unknown.join(", ")));
    }
    let name = object.name();
    let faults = NameRule::DnsSubdomain.check(name, false);
    if !name.is_empty() && !faults.is_empty() {
        return Err(format!("metadata.name: Invalid value: {name:?}: {}", faults.join(", ")));
    }
    let faults = Rules::for_kind(GROUP, &kind.kind).map(|rules| rules.create(&object)).unwrap_or_default();
    if !faults.is_empty() {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        return Err(format!("{} {name:?} is invalid: {}", kind.kind, faults.join(", ")));
    }
    Ok(object)
}

/// Checks the rules for manifests alone.
fn check(object: &Object) -> Result<(), String> {
    let (kind, name) = (object.kind().unwrap_or_default(), object.name());
    if name.is_empty() {
        return Err("the resource must have a name".to_owned());
    }
    if !name.ends_with(SUFFIX) {
        return Err(format!("{name:?} must have a name ending with {SUFFIX:?}"));
    }
    let spec = |field: &str| object.get(&["spec", field]).filter(|value| !value.is_null());
    if kind.ends_with("Binding") {
        let policy = policy_of(object);
        if !policy.ends_with(SUFFIX) {
            return Err(format!("binding {name:?}: spec.policyName {policy:?} must end with {SUFFIX:?}"));
        }
        if spec("paramRef").is_some() {
            return Err(format!("binding {name:?}: spec.paramRef is not supported for static manifests"));
        }
    } else if spec("paramKind").is_some() {
        return Err(format!("{kind} {name:?}: spec.paramKind is not supported for static manifests"));
    }
    let webhooks = object.get(&["webhooks"]).and_then(Value::as_array);
    for webhook in webhooks.into_iter().flatten() {
        let (hook, client) = (webhook["name"].as_str().unwrap_or_default(), &webhook["clientConfig"]);
        if !client["service"].is_null() {
            return Err(format!(
                "webhook {hook:?} in {name:?}: clientConfig.service is not supported for static manifests; use \
                 clientConfig.url instead"
            ));
        }
        if client["url"].as_str().unwrap_or_default().is_empty() {
            return Err(format!("webhook {hook:?} in {name:?}: clientConfig.url is required for static manifests"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
        metadata: {name: a.static.k8s.io}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], \
        operations: [CREATE], resources: [configmaps]}]}\n  validations: [{expression: 'true'}]\n";
    const BINDING: &str = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
        metadata: {name: a.static.k8s.io}\nspec: {policyName: a.static.k8s.io, validationActions: [Deny]}\n";
    const HOOK: &str = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
        metadata: {name: h.static.k8s.io}\nwebhooks:\n- name: h.example.org\n  admissionReviewVersions: [v1]\n  \
        sideEffects: None\n  clientConfig: {url: 'https://127.0.0.1/'}\n";

    fn read(plugin: ManifestPlugin, texts: &[(&str, &str)]) -> Result<(ManifestFiles, ManifestObjects), String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in texts {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let read = ManifestFiles::read(directory.path()).and_then(|files| {
            let objects = ManifestObjects::decode(plugin, &files, Schemas::builtin())?;
            Ok((files, objects))
        });
        read.map_err(|error| error.to_string().replace(&directory.path().display().to_string(), "DIR"))
    }

    #[test]
    fn files_have_several_documents_and_lists() {
        let both = format!("# head\n---\n{POLICY}---  \n{BINDING}---\n");
        let (files, objects) = read(ManifestPlugin::ValidatingPolicy, &[("a.yaml", &both), ("b.txt", "x: y")]).unwrap();
        assert_eq!((objects.policies.len(), objects.bindings.len()), (1, 1));
        assert!(files.hash.starts_with("sha256:"));
        assert_eq!(objects.policies[0].get(&["spec", "failurePolicy"]), Some(&Value::from("Fail")), "defaults");
        let item = |text: &str| text.trim_end().replace('\n', "\n  ");
        let list = format!("apiVersion: v1\nkind: List\nitems:\n- {}\n- {}\n", item(POLICY), item(BINDING));
        let (_, objects) = read(ManifestPlugin::ValidatingPolicy, &[("a.yml", &list)]).unwrap();
        assert_eq!(objects.count(), 2);
        assert_eq!(read(ManifestPlugin::ValidatingWebhook, &[("h.json", HOOK)]).unwrap().1.configurations.len(), 1);
        assert!(read(ManifestPlugin::ValidatingWebhook, &[]).unwrap().0.hash.is_empty());
    }

    #[test]
    fn invalid_manifests_are_refused_with_their_file() {
        use ManifestPlugin::{MutatingWebhook, ValidatingPolicy, ValidatingWebhook};
        let check = |plugin, text: &str, expected: &str| {
            let error = read(plugin, &[("a.yaml", text)]).map(drop).unwrap_err();
            assert!(error.starts_with("error loading DIR/a.yaml: ") && error.contains(expected), "{error}");
        };
        check(
            ValidatingPolicy,
            &POLICY.replace("a.static.k8s.io", "a"),
            "must have a name ending with \".static.k8s.io\"",
        );
        check(ValidatingPolicy, &POLICY.replace("name: a.static", "name: A.static"), "metadata.name: Invalid value");
        check(ValidatingPolicy, &format!("{POLICY}---\n{POLICY}"), "duplicate name \"a.static.k8s.io\"");
        check(ValidatingPolicy, &POLICY.replace("'true'", "'1 +'"), "is invalid: spec.validations[0].expression");
        check(ValidatingPolicy, &POLICY.replace("validations:", "validation:"), "strict decoding error: unknown field");
        let params = POLICY.replace("spec:\n", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n");
        check(ValidatingPolicy, &params, "spec.paramKind is not supported for static manifests");
        let other = BINDING.replace("policyName: a.static.k8s.io", "policyName: a");
        check(ValidatingPolicy, &other, "spec.policyName \"a\" must end with");
        check(
            MutatingWebhook,
            HOOK,
            "unsupported resource type admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
        );
        let service = HOOK.replace("url: 'https://127.0.0.1/'", "service: {namespace: ns, name: s}");
        check(ValidatingWebhook, &service, "clientConfig.service is not supported for static manifests");
        check(ValidatingWebhook, "a: [", "");
        let error = read(ValidatingPolicy, &[("a.yaml", BINDING)]).map(drop).unwrap_err();
        assert!(error.contains("references policy \"a.static.k8s.io\" which does not exist"), "{error}");
        let large = "#".repeat(17 << 20);
        assert!(read(ValidatingPolicy, &[("a.yaml", &large)]).map(drop).unwrap_err().ends_with("more than 16 MiB"));
    }
}
