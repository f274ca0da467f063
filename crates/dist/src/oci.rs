//! The image, as a tar of an OCI layout, which `docker load`, `podman load`, `skopeo` and `crane` read. No daemon makes it.
//!
//! The image has the program, the C library that it loads, and the public certificate authorities. The server writes to
//! its data directory alone. There is no shell.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::archive::{gzip, tar};
use crate::files::Files;
use crate::release::{Release, debian_machine};
use crate::run;
use crate::symbols::libraries;

/// The user of the server, which owns only the data directory.
pub(crate) const USER: u32 = 65532;

const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
/// Libraries that the C library loads at run time to resolve host names.
const RESOLVERS: [&str; 3] = ["libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"];
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The files of the image: the program under both names, and its dependencies.
///
/// # Errors
/// When Debian's packages of the C library and the certificate authorities can't be downloaded.
pub(crate) fn files(program: &Path, cache: &Path, licences: &[u8]) -> Result<Files> {
    let mut files = Files::default();
    files.copy("usr/bin/keelson", 0o755, program)?;
    files.link("usr/bin/kube-apiserver", "keelson");
    let base = Base::fetch(cache)?;
    let mut wanted = libraries(program)?;
    wanted.extend(RESOLVERS.map(str::to_owned));
    for library in wanted {
        base.add(&mut files, &library)?;
    }
    files.add(AUTHORITIES, 0o644, base.authorities()?);
    for package in ["libc6", "ca-certificates"] {
        let path = format!("usr/share/doc/{package}/copyright");
        files.copy(path.clone(), 0o644, &base.root.join(&path))?;
    }
    files.add("usr/share/doc/keelson/third-party-licenses.txt", 0o644, licences);
    files.add("etc/passwd", 0o644, format!("keelson:x:{USER}:{USER}:keelson:/data:/nonexistent\n").into_bytes());
    files.add("etc/group", 0o644, format!("keelson:x:{USER}:\n").into_bytes());
    files.add("etc/nsswitch.conf", 0o644, *b"hosts: files dns\n");
    files.directory("data", 0o700).owner = USER;
    files.directory("tmp", 0o1777);
    Ok(files)
}

/// The image of these files.
///
/// # Errors
/// Never in practice, because the output is in memory.
pub(crate) fn image(release: &Release, files: &Files) -> Result<Vec<u8>> {
    let layer = tar(files, "", release.seconds)?;
    let unpacked = digest(&layer);
    let layer = gzip(&layer)?;
    let config = config(release, &unpacked).to_string().into_bytes();
    let labels = labels(release);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(CONFIG, &config),
        "layers": [descriptor(LAYER, &layer)], "annotations": labels,
    });
    let manifest = manifest.to_string().into_bytes();
    let mut named = descriptor(MANIFEST, &manifest);
    let reference = format!("keelson:{}", release.version);
    named["platform"] = json!({ "os": "linux", "architecture": debian_machine() });
    named["annotations"] = json!({
        "org.opencontainers.image.ref.name": release.version, "io.containerd.image.name": format!("docker.io/library/{reference}"),
    });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });
    // Older releases of `docker load` read this file instead of the index.
    let listed = json!([{ "Config": blob(&config), "RepoTags": [reference], "Layers": [blob(&layer)] }]);
    let mut layout = Files::default();
    layout.add("oci-layout", 0o644, *br#"{"imageLayoutVersion":"1.0.0"}"#);
    layout.add("index.json", 0o644, index.to_string().into_bytes());
    layout.add("manifest.json", 0o644, listed.to_string().into_bytes());
    for content in [config, manifest, layer] {
        layout.add(blob(&content), 0o644, content);
    }
    tar(&layout, "", release.seconds)
}

fn config(release: &Release, unpacked: &str) -> Value {
    json!({
        "created": release.rfc3339(), "architecture": debian_machine(), "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/keelson"],
            "Cmd": ["serve"],
            "Env": ["PATH=/usr/bin", "KEELSON_BIND=0.0.0.0:6443", "KEELSON_DATA_DIR=/data", "HOME=/data"],
            "WorkingDir": "/data",
            "ExposedPorts": { "6443/tcp": {} },
            "Volumes": { "/data": {} },
            "StopSignal": "SIGTERM",
            "Labels": labels(release),
        },
        "rootfs": { "type": "layers", "diff_ids": [unpacked] },
        "history": [{ "created": release.rfc3339(), "created_by": "cargo xtask dist" }],
    })
}

fn labels(release: &Release) -> Value {
    json!({
        "org.opencontainers.image.title": "keelson",
        "org.opencontainers.image.description": "Kubernetes API server in one program",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.created": release.rfc3339(),
        "org.opencontainers.image.licenses": "Apache-2.0",
        "io.kubernetes.version": release.kubernetes,
    })
}

fn descriptor(kind: &str, content: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": digest(content), "size": content.len() })
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(content)))
}

/// The path of a blob in the layout.
fn blob(content: &[u8]) -> String {
    format!("blobs/sha256/{}", HEXLOWER.encode(&Sha256::digest(content)))
}

/// Debian packages, unpacked below the target directory.
struct Base {
    root: std::path::PathBuf,
}

impl Base {
    fn fetch(cache: &Path) -> Result<Self> {
        let root = cache.join("image-base");
        if !root.join("usr/share/doc/libc6/copyright").exists() {
            let partial = cache.join("image-base.partial");
            let _absent = std::fs::remove_dir_all(&partial);
            std::fs::create_dir_all(&partial)?;
            let packages = ["libc6", "libgcc-s1", "ca-certificates"];
            let mut download = Command::new("apt-get");
            download.args(["--quiet", "download"]).args(packages).current_dir(&partial);
            run::output(&mut download).context(
                "the image needs Debian's packages libc6 and ca-certificates, which apt-get fetches (try `apt-get update` first)",
            )?;
            let unpacked = partial.join("root");
            for archive in std::fs::read_dir(&partial)? {
                let archive = archive?.path();
                if archive.extension().is_some_and(|end| end == "deb") {
                    run::output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
                }
            }
            // Renamed when complete, so that an interrupted run leaves no partial directory under this name.
            std::fs::rename(&unpacked, &root)?;
            std::fs::remove_dir_all(&partial)?;
        }
        Ok(Self { root })
    }

    /// Adds a library at the path where the dynamic loader finds it.
    fn add(&self, files: &mut Files, library: &str) -> Result<()> {
        let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
        let places = [format!("lib/{machine}"), format!("usr/lib/{machine}"), "lib64".to_owned(), "lib".to_owned()];
        let found = places.iter().map(|place| self.root.join(place).join(library)).find(|path| path.exists());
        let Some(found) = found else { bail!("no package of the image has {library}") };
        let place = match library {
            loader if loader.starts_with("ld-linux-x86-64") => "lib64".to_owned(),
            loader if loader.starts_with("ld-linux") => "lib".to_owned(),
            _ => format!("usr/lib/{machine}"),
        };
        files.copy(format!("{place}/{library}"), 0o755, &found)?;
        // Every dynamically linked program names its loader.
        if library == "libc.so.6" {
            let loader = if machine.starts_with("x86_64") { "ld-linux-x86-64.so.2" } else { "ld-linux-aarch64.so.1" };
            self.add(files, loader)?;
        }
        Ok(())
    }

    /// The public certificate authorities in one file, in the format of Debian's `update-ca-certificates`.
    fn authorities(&self) -> Result<Vec<u8>> {
        let directory = self.root.join("usr/share/ca-certificates/mozilla");
        let mut files: Vec<_> =
            std::fs::read_dir(&directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        files.sort();
        let mut all = Vec::new();
        for file in files {
            all.extend(std::fs::read(file)?);
            if all.last() != Some(&b'\n') {
                all.push(b'\n');
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_stored_under_their_hashes() {
        let release = Release {
            version: "1.2.3".to_owned(),
            kubernetes: "1.36.2".to_owned(),
            commit: "4c0ffee".to_owned(),
            seconds: 1_795_773_600,
        };
        let mut files = Files::default();
        files.add("usr/bin/keelson", 0o755, *b"program");
        let image = image(&release, &files).unwrap();
        let mut contents = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(&*image).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
            contents.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        let read = |path: &str| serde_json::from_slice::<Value>(&contents[path]).unwrap();
        let of_digest =
            |value: &Value| format!("blobs/sha256/{}", value.as_str().unwrap().trim_start_matches("sha256:"));
        let manifest = read(&of_digest(&read("index.json")["manifests"][0]["digest"]));
        let config = read(&of_digest(&manifest["config"]["digest"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Labels"]["org.opencontainers.image.revision"], "4c0ffee");
        let layer = &contents[&of_digest(&manifest["layers"][0]["digest"])];
        assert_eq!(manifest["layers"][0]["size"], layer.len());
        assert_eq!(read("manifest.json")[0]["Layers"][0].as_str().unwrap(), blob(layer));
    }
}
