//! The RPM package, in the format of rpm 4: a lead, a header of digests, the header, and a cpio archive in gzip.
//!
//! Scripts come from `packaging/rpm`. The numbers of entries are defined in rpm's `rpmtag.h`.

mod header;
mod payload;

use std::path::Path;

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use self::header::{Header, Value};
use crate::archive::gzip;
use crate::files::{Content, File, Files};
use crate::release::Release;
use crate::symbols::Glibc;

const RELEASE: &str = "1";
const SUMMARY: &str = "Kubernetes API server in one program";
/// The flags of a minimum version, and of a requirement on rpm itself.
const AT_LEAST: u32 = 0x0c;
const OF_RPM: u32 = 0x0100_000a;
const EQUAL: u32 = 0x08;
/// The flag of a configuration file, which an upgrade does not replace.
const CONFIGURATION: u32 = 0x11;

mod tag {
    //! The numbers of the header's entries.
    pub(super) const HEADER_SIGNATURES: u32 = 62;
    pub(super) const HEADER_IMMUTABLE: u32 = 63;
    pub(super) const SIGNATURE_SHA256: u32 = 273;
    pub(super) const SIGNATURE_SIZE: u32 = 1000;
    pub(super) const SIGNATURE_PAYLOAD_SIZE: u32 = 1007;
}

/// The package of these files, with the scripts in this directory.
///
/// # Errors
/// When a script can't be read.
pub(crate) fn package(release: &Release, files: &Files, scripts: &Path, needs: Glibc) -> Result<Vec<u8>> {
    let files = files.with_directories();
    let owned: Vec<(&str, &File)> = files.iter().filter(|(path, file)| is_owned(path, file)).collect();
    let archive = payload::cpio(&owned, release.seconds);
    let payload = gzip(&archive)?;
    let mut header = Header::new(tag::HEADER_IMMUTABLE);
    describe(&mut header, release);
    add_scripts(&mut header, scripts)?;
    add_relations(&mut header, release, needs);
    add_files(&mut header, &owned, release);
    header.add(5062, Value::Text("utf-8".to_owned()));
    header.add(5092, Value::Texts(vec![hash(&payload)]));
    header.add(5093, Value::Numbers(vec![8]));
    let header = header.to_bytes();
    let mut signature = Header::new(tag::HEADER_SIGNATURES);
    signature.add(tag::SIGNATURE_SHA256, Value::Text(hash(&header)));
    signature.add(tag::SIGNATURE_SIZE, Value::Numbers(vec![size(header.len() + payload.len())]));
    signature.add(tag::SIGNATURE_PAYLOAD_SIZE, Value::Numbers(vec![size(archive.len())]));
    let mut package = lead(release);
    package.extend(signature.to_bytes());
    package.resize(package.len().next_multiple_of(8), 0);
    package.extend(header);
    package.extend(payload);
    Ok(package)
}

/// The name of the package's file.
pub(crate) fn file_name(release: &Release) -> String {
    format!("keelson-{}-{RELEASE}.{}.rpm", release.version, std::env::consts::ARCH)
}

/// Directories of the system belong to no package.
fn is_owned(path: &str, file: &File) -> bool {
    !matches!(file.content, Content::Directory) || path.ends_with("keelson")
}

fn describe(header: &mut Header, release: &Release) {
    let seconds = u32::try_from(release.seconds).unwrap_or(u32::MAX);
    let description = format!(
        "keelson serves the API of Kubernetes {} to kubectl, to client libraries and to\ncontrollers. It keeps objects in a \
         file of its own, in PostgreSQL or in etcd, and\nneeds no other program.",
        release.kubernetes
    );
    header.add(100, Value::Texts(vec!["C".to_owned()]));
    header.add(1000, Value::Text("keelson".to_owned()));
    header.add(1001, Value::Text(release.version.clone()));
    header.add(1002, Value::Text(RELEASE.to_owned()));
    header.add(1004, Value::Translated(SUMMARY.to_owned()));
    header.add(1005, Value::Translated(description));
    header.add(1006, Value::Numbers(vec![seconds]));
    header.add(1007, Value::Text("localhost".to_owned()));
    header.add(1014, Value::Text("Apache-2.0".to_owned()));
    header.add(1016, Value::Translated("Unspecified".to_owned()));
    header.add(1021, Value::Text("linux".to_owned()));
    header.add(1022, Value::Text(std::env::consts::ARCH.to_owned()));
    header.add(1044, Value::Text(format!("keelson-{}-{RELEASE}.src.rpm", release.version)));
    header.add(1124, Value::Text("cpio".to_owned()));
    header.add(1125, Value::Text("gzip".to_owned()));
    header.add(1126, Value::Text("9".to_owned()));
}

fn add_scripts(header: &mut Header, scripts: &Path) -> Result<()> {
    for (name, text, program) in
        [("pre", 1023, 1085), ("post", 1024, 1086), ("preun", 1025, 1087), ("postun", 1026, 1088)]
    {
        let path = scripts.join(name);
        let script = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        header.add(text, Value::Text(script));
        header.add(program, Value::Text("/bin/sh".to_owned()));
    }
    Ok(())
}

fn add_relations(header: &mut Header, release: &Release, needs: Glibc) {
    let bits = if cfg!(target_pointer_width = "64") { "(64bit)" } else { "" };
    let mut required = vec![
        ("/bin/sh".to_owned(), 0, ""),
        ("/usr/sbin/useradd".to_owned(), 0, ""),
        (format!("libc.so.6(GLIBC_{needs}){bits}"), 0, ""),
        ("rpmlib(CompressedFileNames)".to_owned(), OF_RPM, "3.0.4-1"),
        ("rpmlib(FileDigests)".to_owned(), OF_RPM, "4.6.0-1"),
        ("rpmlib(PayloadFilesHavePrefix)".to_owned(), OF_RPM, "4.0-1"),
    ];
    required.push(("systemd".to_owned(), AT_LEAST, "239"));
    required.sort();
    header.add(1048, Value::Numbers(required.iter().map(|(_, flags, _)| *flags).collect()));
    header.add(1049, Value::Texts(required.iter().map(|(name, ..)| name.clone()).collect()));
    header.add(1050, Value::Texts(required.iter().map(|(_, _, version)| (*version).to_owned()).collect()));
    header.add(1047, Value::Texts(vec!["keelson".to_owned()]));
    header.add(1112, Value::Numbers(vec![EQUAL]));
    header.add(1113, Value::Texts(vec![format!("{}-{RELEASE}", release.version)]));
}

fn add_files(header: &mut Header, owned: &[(&str, &File)], release: &Release) {
    let seconds = u32::try_from(release.seconds).unwrap_or(u32::MAX);
    let numbers = |of: &dyn Fn(usize, &File) -> u32| {
        Value::Numbers(owned.iter().enumerate().map(|(place, (_, file))| of(place, file)).collect())
    };
    let texts = |of: &dyn Fn(&File) -> String| Value::Texts(owned.iter().map(|(_, file)| of(file)).collect());
    let mut directories: Vec<String> = Vec::new();
    let (mut indexes, mut names) = (Vec::new(), Vec::new());
    for (path, _) in owned {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = format!("/{directory}/");
        let place = directories.iter().position(|known| *known == directory).unwrap_or_else(|| {
            directories.push(directory);
            directories.len() - 1
        });
        indexes.push(size(place));
        names.push(name.to_owned());
    }
    let sizes: Vec<u32> = owned.iter().map(|(_, file)| size(payload::content(file).len())).collect();
    header.add(1009, Value::Numbers(vec![sizes.iter().sum()]));
    header.add(1028, Value::Numbers(sizes));
    header.add(1030, Value::Shorts(owned.iter().map(|(_, file)| payload::mode(file)).collect()));
    header.add(1033, Value::Shorts(vec![0; owned.len()]));
    header.add(1034, numbers(&|_, _| seconds));
    header.add(
        1035,
        texts(&|file| match &file.content {
            Content::Bytes(bytes) => hash(bytes),
            Content::Link(_) | Content::Directory => String::new(),
        }),
    );
    header.add(
        1036,
        texts(&|file| match &file.content {
            Content::Link(to) => to.clone(),
            Content::Bytes(_) | Content::Directory => String::new(),
        }),
    );
    header.add(1037, numbers(&|_, file| if file.is_configuration { CONFIGURATION } else { 0 }));
    header.add(1039, texts(&|_| "root".to_owned()));
    // Settings may contain a password, so only the service's group can read them.
    header.add(1040, texts(&|file| if file.is_configuration { "keelson" } else { "root" }.to_owned()));
    header.add(1045, numbers(&|_, _| u32::MAX));
    header.add(1095, numbers(&|_, _| 1));
    header.add(1096, numbers(&|place, _| size(place + 1)));
    header.add(1097, texts(&|_| String::new()));
    header.add(1116, Value::Numbers(indexes));
    header.add(1117, Value::Texts(names));
    header.add(1118, Value::Texts(directories));
    header.add(5011, Value::Numbers(vec![8]));
}

/// The lead, which only identifies the file as a package.
fn lead(release: &Release) -> Vec<u8> {
    const MAGIC: [u8; 4] = [0xed, 0xab, 0xee, 0xdb];
    const NAME_BYTES: usize = 66;
    const BYTES: usize = 96;
    let mut lead = MAGIC.to_vec();
    // Version 3.0 of the lead, a binary package, of the machine number 1.
    lead.extend([3, 0, 0, 0, 0, 1]);
    let mut name = format!("keelson-{}-{RELEASE}", release.version).into_bytes();
    name.resize(NAME_BYTES, 0);
    lead.extend(name);
    // Linux, followed by a header of digests.
    lead.extend([0, 1, 0, 5]);
    lead.resize(BYTES, 0);
    lead
}

fn hash(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// A size in four bytes, as in the format. Packages are far smaller than 4 GiB.
fn size(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_begins_after_the_headers() {
        let release =
            Release { version: "1.2.3".into(), kubernetes: "1.36.2".into(), commit: String::new(), seconds: 7 };
        let mut files = Files::default();
        files.add("usr/bin/keelson", 0o755, *b"program");
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/rpm");
        let package = package(&release, &files, &scripts, Glibc(2, 28)).unwrap();
        let number = |place: usize| u32::from_be_bytes(package[place..place + 4].try_into().unwrap()) as usize;
        // After the magic number, a header has the number of its entries and of its bytes.
        let end = |start: usize| start + 16 + number(start + 8) * 16 + number(start + 12);
        let header = end(96).next_multiple_of(8);
        let payload = &package[end(header)..];
        let mut archive = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(payload), &mut archive).unwrap();
        assert!(archive.starts_with(b"070701"));
        assert!(archive.windows(17).any(|window| window == b"./usr/bin/keelson"));
        assert!(archive.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
