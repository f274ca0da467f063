//! The crates in the program, for its bill of materials, its licences, and the embedded list for `cargo audit bin`.
//!
//! `cargo tree` returns the crates that are built, `cargo metadata` their dependencies, and the lock file their hashes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::release::Release;
use crate::run;

/// A crate in the program.
struct Crate {
    name: String,
    version: String,
    licence: Option<String>,
    /// True for those of this repository.
    is_own: bool,
    /// The hash of the crate's archive in the registry.
    checksum: Option<String>,
    directory: PathBuf,
    /// The indexes of the crate's dependencies in the list of all crates.
    uses: Vec<usize>,
}

/// All crates in the program, by name and version.
pub(crate) struct Dependencies(Vec<Crate>);

/// The file names of licences in a crate.
const LICENCE_FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

impl Dependencies {
    /// The crates of the package `keelson` of the workspace at `root`.
    ///
    /// # Errors
    /// When cargo fails, or its output can't be parsed.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let cargo = || {
            let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            command.current_dir(root);
            command
        };
        let tree =
            ["tree", "--locked", "--package", "keelson", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
        let tree = run::output(cargo().args(tree))?;
        let built: BTreeSet<(String, String)> = tree.lines().filter_map(name_and_version).collect();
        let metadata = run::output(cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
        let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata printed no JSON")?;
        let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
        Ok(Self::read(&metadata, &built, &checksums(&lock)))
    }

    fn read(
        metadata: &Value,
        built: &BTreeSet<(String, String)>,
        checksums: &BTreeMap<(String, String), String>,
    ) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut packages: Vec<&Value> = array(&metadata["packages"])
            .filter(|package| built.contains(&(text(&package["name"]), text(&package["version"]))))
            .collect();
        packages.sort_by_key(|package| (text(&package["name"]), text(&package["version"])));
        let places: HashMap<&str, usize> =
            packages.iter().enumerate().filter_map(|(place, package)| Some((package["id"].as_str()?, place))).collect();
        let mut uses: HashMap<usize, Vec<usize>> = HashMap::new();
        for node in array(&metadata["resolve"]["nodes"]) {
            let Some(place) = node["id"].as_str().and_then(|id| places.get(id)) else { continue };
            let is_normal = |dependency: &&Value| array(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
            let on = array(&node["deps"]).filter(is_normal).filter_map(|on| places.get(on["pkg"].as_str()?).copied());
            let mut on: Vec<usize> = on.collect();
            on.sort_unstable();
            uses.insert(*place, on);
        }
        let crates = packages.iter().enumerate().map(|(place, package)| {
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            Crate {
                checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
                licence: package["license"].as_str().map(str::to_owned),
                is_own: package["source"].is_null(),
                directory: Path::new(&text(&package["manifest_path"])).parent().map(Path::to_owned).unwrap_or_default(),
                uses: uses.remove(&place).unwrap_or_default(),
                name,
                version,
            }
        });
        Self(crates.collect())
    }

    /// The bill of materials, in CycloneDX 1.6.
    pub(crate) fn bill(&self, release: &Release) -> Value {
        let component = |one: &Crate| {
            let mut component = json!({
                "type": "library", "bom-ref": one.reference(), "name": one.name, "version": one.version,
                "scope": "required", "purl": one.reference(),
            });
            if let Some(licence) = &one.licence {
                component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
            }
            if let Some(checksum) = &one.checksum {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
            }
            component
        };
        let references = |places: &[usize]| places.iter().map(|place| self.0[*place].reference()).collect::<Vec<_>>();
        let dependencies =
            self.0.iter().map(|one| json!({ "ref": one.reference(), "dependsOn": references(&one.uses) }));
        let main = self.0.iter().find(|one| one.name == "keelson");
        let mut root = main.map_or(Value::Null, component);
        root["type"] = json!("application");
        let others = self.0.iter().filter(|one| one.name != "keelson");
        json!({
            "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "serialNumber": serial(release),
            "metadata": {
                "timestamp": release.rfc3339(),
                "tools": { "components": [{ "type": "application", "name": "cargo xtask dist", "version": release.version }] },
                "component": root,
            },
            "components": others.map(component).collect::<Vec<_>>(),
            "dependencies": dependencies.collect::<Vec<_>>(),
        })
    }

    /// The list of crates that auditing tools read from a program: compressed JSON.
    ///
    /// # Errors
    /// Never in practice, because the output is in memory.
    pub(crate) fn audit_section(&self) -> Result<Vec<u8>> {
        let packages = self.0.iter().map(|one| {
            let source = if one.is_own { "local" } else { "crates.io" };
            let mut package =
                json!({ "name": one.name, "version": one.version, "source": source, "dependencies": one.uses });
            if one.name == "keelson" {
                package["root"] = json!(true);
            }
            package
        });
        let list = json!({ "packages": packages.collect::<Vec<_>>() });
        let mut writer = ZlibEncoder::new(Vec::new(), Compression::best());
        writer.write_all(list.to_string().as_bytes()).context("compressing")?;
        writer.finish().context("compressing")
    }

    /// The licences of all external crates: the crates of each licence, and each text once.
    ///
    /// # Errors
    /// When the source of a crate can't be read.
    pub(crate) fn licences(&self) -> Result<String> {
        let mut list = "Programs of keelson contain these crates, under these licences.\n\n".to_owned();
        let mut texts: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
        for one in self.0.iter().filter(|one| !one.is_own) {
            let name = format!("{} {}", one.name, one.version);
            list.push_str(&format!("{name}: {}\n", one.licence.as_deref().unwrap_or("see below")));
            for text in one.licence_texts()? {
                let key = HEXLOWER.encode(&Sha256::digest(text.split_whitespace().collect::<String>().as_bytes()));
                texts.entry(key).or_insert_with(|| (text, Vec::new())).1.push(name.clone());
            }
        }
        for (text, names) in texts.into_values() {
            list.push_str(&format!("\n{}\n{}:\n\n{}\n", "-".repeat(80), names.join(", "), text.trim_end()));
        }
        Ok(list)
    }
}

impl Crate {
    /// The package URL (purl) of the crate in the bill of materials.
    fn reference(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version.replace('+', "%2B"))
    }

    fn licence_texts(&self) -> Result<Vec<String>> {
        let reading = || format!("reading {}", self.directory.display());
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(&self.directory).with_context(reading)? {
            let path = entry.with_context(reading)?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_uppercase()).unwrap_or_default();
            if path.is_file() && LICENCE_FILES.iter().any(|beginning| name.starts_with(beginning)) {
                files.push(path);
            }
        }
        files.sort();
        files
            .iter()
            .map(|path| std::fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned()))
            .collect::<std::io::Result<_>>()
            .with_context(reading)
    }
}

fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
}

/// The hashes in a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
            Some(line.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) = (value("name"), value("version"), value("checksum")) {
            found.insert((name, version), checksum);
        }
    }
    found
}

/// The serial number of a bill of materials. It depends only on the release.
fn serial(release: &Release) -> String {
    let hash = HEXLOWER.encode(&Sha256::digest(format!("keelson {} {}", release.version, release.commit)));
    // UUID version 8 is for custom derivations.
    format!("urn:uuid:{}-{}-8{}-a{}-{}", &hash[..8], &hash[8..12], &hash[12..15], &hash[15..18], &hash[18..30])
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_read_out_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\nchecksum = \"ff\"\n\n\
                    [[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let found = checksums(lock);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(("a".to_owned(), "1.0.0".to_owned()), "ff".to_owned())]);
    }

    #[test]
    fn the_bill_of_materials_lists_crates_with_their_dependencies() {
        let metadata = json!({
            "packages": [
                { "id": "1", "name": "keelson", "version": "0.1.0", "source": null, "license": "Apache-2.0", "manifest_path": "/k/Cargo.toml" },
                { "id": "2", "name": "a", "version": "1.0.0", "source": "registry", "license": "MIT/Apache-2.0", "manifest_path": "/a/Cargo.toml" },
                { "id": "3", "name": "test-only", "version": "1.0.0", "source": "registry", "license": "MIT", "manifest_path": "/t/Cargo.toml" },
            ],
            "resolve": { "nodes": [{ "id": "1", "deps": [
                { "pkg": "2", "dep_kinds": [{ "kind": null }] }, { "pkg": "3", "dep_kinds": [{ "kind": "dev" }] },
            ] }] },
        });
        let built = [("keelson", "0.1.0"), ("a", "1.0.0")].map(|(name, version)| (name.to_owned(), version.to_owned()));
        let checksums = [(("a".to_owned(), "1.0.0".to_owned()), "ff".to_owned())];
        let found = Dependencies::read(&metadata, &built.into(), &checksums.into());
        let release =
            Release { version: "0.1.0".into(), kubernetes: "1.36.2".into(), commit: String::new(), seconds: 0 };
        let bill = found.bill(&release);
        assert_eq!(bill["components"].as_array().unwrap().len(), 1);
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "ff");
        let of_keelson =
            &bill["dependencies"].as_array().unwrap().iter().find(|one| one["ref"] == "pkg:cargo/keelson@0.1.0");
        assert_eq!(of_keelson.unwrap()["dependsOn"], json!(["pkg:cargo/a@1.0.0"]));
        assert_eq!(bill["metadata"]["component"]["type"], "application");
    }
}
