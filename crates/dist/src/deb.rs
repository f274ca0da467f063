//! The Debian package: `control.tar.gz` and `data.tar.gz` in an `ar` archive.
//!
//! Maintainer scripts and lintian overrides come from `packaging/debian`. `files` marks the configuration files.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use md5::{Digest as _, Md5};

use crate::archive::{ar, gzip, tar};
use crate::files::{Content, Files};
use crate::release::{Release, debian_machine};
use crate::symbols::Glibc;

/// The revision of the packaging of a version.
pub(crate) const REVISION: &str = "1";

const MAINTAINER: &str = "The keelson authors <maintainers@keelson.invalid>";
const SCRIPTS: [&str; 4] = ["preinst", "postinst", "prerm", "postrm"];

/// The package of these files, with the scripts in this directory.
///
/// # Errors
/// When a script can't be read.
pub(crate) fn package(release: &Release, files: &Files, scripts: &Path, needs: Glibc) -> Result<Vec<u8>> {
    let mut files = files.clone();
    files.add("usr/share/doc/keelson/changelog.Debian.gz", 0o644, gzip(changelog(release).as_bytes())?);
    let overrides = std::fs::read(scripts.join("keelson.lintian-overrides")).context("reading lintian's overrides")?;
    files.add("usr/share/lintian/overrides/keelson", 0o644, overrides);
    let mut control = Files::default();
    control.add("control", 0o644, about(release, &files, needs).into_bytes());
    control.add("md5sums", 0o644, sums(&files).into_bytes());
    control.add("conffiles", 0o644, configuration(&files).into_bytes());
    for script in SCRIPTS {
        let path = scripts.join(script);
        if path.exists() {
            control.copy(script, 0o755, &path)?;
        }
    }
    let control = gzip(&tar(&control, "./", release.seconds)?)?;
    let data = gzip(&tar(&files, "./", release.seconds)?)?;
    let members: [(&str, &[u8]); 3] =
        [("debian-binary", b"2.0\n"), ("control.tar.gz", &control), ("data.tar.gz", &data)];
    Ok(ar(&members, release.seconds))
}

/// The name of the package's file.
pub(crate) fn file_name(release: &Release) -> String {
    format!("keelson_{}-{REVISION}_{}.deb", release.version, debian_machine())
}

fn about(release: &Release, files: &Files, needs: Glibc) -> String {
    let mut text = format!(
        "Package: keelson\nVersion: {}-{REVISION}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nInstalled-Size: {}\n",
        release.version,
        debian_machine(),
        files.size().div_ceil(1024)
    );
    let _infallible = write!(
        text,
        "Depends: libc6 (>= {needs}), adduser\nRecommends: ca-certificates\nSection: net\nPriority: optional\n\
         Description: Kubernetes API server in one program\n \
         keelson serves the API of Kubernetes {} to kubectl, to client libraries and\n \
         to controllers. It keeps objects in a file of its own, in PostgreSQL or in\n etcd, and needs no other program.\n",
        release.kubernetes
    );
    text
}

fn changelog(release: &Release) -> String {
    let Release { version, .. } = release;
    format!(
        "keelson ({version}-{REVISION}) unstable; urgency=medium\n\n  * Release {version}.\n\n -- {MAINTAINER}  {}\n",
        release.rfc2822()
    )
}

fn sums(files: &Files) -> String {
    let mut text = String::new();
    for (path, file) in files.iter() {
        if let Content::Bytes(bytes) = &file.content
            && !file.is_configuration
        {
            let _infallible = writeln!(text, "{}  {path}", HEXLOWER.encode(&Md5::digest(bytes)));
        }
    }
    text
}

fn configuration(files: &Files) -> String {
    let marked = files.iter().filter(|(_, file)| file.is_configuration);
    marked.map(|(path, _)| format!("/{path}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_has_scripts_settings_and_sums() {
        let release =
            Release { version: "1.2.3".into(), kubernetes: "1.36.2".into(), commit: String::new(), seconds: 0 };
        let mut files = Files::default();
        files.add("usr/bin/keelson", 0o755, *b"program");
        files.add("etc/keelson/keelson.env", 0o640, *b"#").is_configuration = true;
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/debian");
        let package = package(&release, &files, &scripts, Glibc(2, 28)).unwrap();
        // The first member of a package is `debian-binary`, with 60 bytes of header and 4 of content.
        let control = &package[8 + 64 + 60..];
        let mut found = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(flate2::read::GzDecoder::new(control)).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
            found.insert(entry.path().unwrap().display().to_string(), text);
        }
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["conffiles", "control", "md5sums", "postinst", "postrm", "prerm"]);
        assert_eq!(found["conffiles"], "/etc/keelson/keelson.env\n");
        assert!(found["control"].contains("Version: 1.2.3-1\n") && found["control"].contains("libc6 (>= 2.28)"));
        assert!(
            found["md5sums"].contains("a9c449d4fa44e9e5a41c574ae55ce4d9  usr/bin/keelson\n"),
            "{}",
            found["md5sums"]
        );
        assert!(!found["md5sums"].contains("keelson.env"));
    }
}
