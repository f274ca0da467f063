//! The files of the console: a page for browsers below `/console/`, which is an ordinary client of the API.
//!
//! `cargo xtask console` builds them from `web` into `assets`. They are checked in and embedded, so a build needs no
//! Node.js and a server no files. Every path below `/console/` without a file returns the page itself, which routes by
//! its URL. This crate knows nothing of HTTP except for the names of content types.

use std::io::Write as _;
use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// The path of the console.
pub const ROOT: &str = "/console/";
/// The path of its files. The next path segment is a hash of their content.
const ASSETS: &str = "/console/assets/";
/// The bytes of a hash that identify a version of the files.
const VERSION_BYTES: usize = 8;

/// The variable with a directory whose files replace the embedded ones, in debug builds only.
const DIRECTORY: &str = "KEELSON_CONSOLE_ASSETS";

/// A file in the program.
struct Embedded {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    /// The content in brotli format, which the build of the files makes.
    brotli: Option<&'static [u8]>,
}

macro_rules! embedded {
    ($name:literal, $type:literal) => {
        Embedded { name: $name, content_type: $type, bytes: include_bytes!(concat!("../assets/", $name)), brotli: None }
    };
    ($name:literal, $type:literal, "br") => {
        Embedded { brotli: Some(include_bytes!(concat!("../assets/", $name, ".br"))), ..embedded!($name, $type) }
    };
}

/// The embedded files.
const EMBEDDED: [Embedded; 10] = [
    embedded!("app.css", "text/css; charset=utf-8", "br"),
    embedded!("app.js", "text/javascript; charset=utf-8", "br"),
    embedded!("editor.js", "text/javascript; charset=utf-8", "br"),
    embedded!("icon.svg", "image/svg+xml"),
    embedded!("index.html", "text/html; charset=utf-8"),
    embedded!("licenses.txt", "text/plain; charset=utf-8"),
    embedded!("pages.js", "text/javascript; charset=utf-8", "br"),
    embedded!("shared.js", "text/javascript; charset=utf-8", "br"),
    embedded!("terminal.js", "text/javascript; charset=utf-8", "br"),
    embedded!("yaml.js", "text/javascript; charset=utf-8", "br"),
];
/// The page, which loads the other files.
const PAGE: &str = "index.html";

/// A file of the console.
#[derive(Debug)]
pub struct File {
    name: &'static str,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The content.
    pub bytes: Bytes,
    /// A strong validator, in quotes.
    pub etag: String,
    /// The content in brotli format, if there is such a file.
    pub brotli: Option<Bytes>,
    compressed: OnceLock<Bytes>,
}

/// The result for a path.
#[derive(Debug)]
pub enum Asset {
    /// A file.
    File {
        /// The file.
        file: &'static File,
        /// True if each version of the file has its own path, so that this one can be cached forever.
        lasting: bool,
    },
    /// The console is at this path instead.
    Moved(&'static str),
    /// There is no such file.
    Nothing,
}

impl File {
    fn new(of: &Embedded, bytes: Bytes, brotli: Option<Bytes>) -> Self {
        let etag = format!("\"{}\"", HEXLOWER.encode(&Sha256::digest(&bytes)));
        Self { name: of.name, content_type: of.content_type, bytes, etag, brotli, compressed: OnceLock::new() }
    }

    /// The content in gzip format. The first call compresses it.
    pub fn compressed(&self) -> Bytes {
        let compress = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            let written = encoder.write_all(&self.bytes).and_then(|()| encoder.finish());
            written.expect("a write to memory never fails").into()
        };
        self.compressed.get_or_init(compress).clone()
    }
}

struct Files {
    all: Vec<File>,
    /// The directory of this version in paths.
    directory: String,
}

static FILES: LazyLock<Files> = LazyLock::new(|| {
    let contents = EMBEDDED.map(|of| {
        let (bytes, brotli) = content(&of);
        (of, bytes, brotli)
    });
    let mut hash = Sha256::new();
    contents.iter().for_each(|(_, bytes, _)| hash.update(bytes));
    let directory = format!("{ASSETS}{}/", HEXLOWER.encode(&hash.finalize()[..VERSION_BYTES]));
    let all = contents.map(|(of, bytes, brotli)| {
        let bytes =
            if of.name == PAGE { String::from_utf8_lossy(&bytes).replace(ASSETS, &directory).into() } else { bytes };
        File::new(&of, bytes, brotli)
    });
    Files { all: all.into(), directory }
});

/// The content of a file, and its brotli form. A debug build takes them from a directory, so that a change needs no
/// compilation.
fn content(of: &Embedded) -> (Bytes, Option<Bytes>) {
    let directory = std::env::var_os(DIRECTORY).filter(|_| cfg!(debug_assertions));
    let directory = directory.map(std::path::PathBuf::from);
    let read = |name: &str| Some(Bytes::from(std::fs::read(directory.as_ref()?.join(name)).ok()?));
    match read(of.name) {
        Some(bytes) => (bytes, read(&format!("{}.br", of.name))),
        None => (Bytes::from_static(of.bytes), of.brotli.map(Bytes::from_static)),
    }
}

/// Finds the file of a path; `None` for a path outside of the console.
pub fn find(path: &str) -> Option<Asset> {
    if path == ROOT.trim_end_matches('/') {
        return Some(Asset::Moved(ROOT));
    }
    let below = path.strip_prefix(ROOT)?;
    let files = &*FILES;
    let named = |name: &str| files.all.iter().find(|file| file.name == name);
    let (name, lasting) = match (path.strip_prefix(files.directory.as_str()), path.strip_prefix(ASSETS)) {
        (Some(name), _) => (name, true),
        (None, Some(name)) => (name, false),
        // The page handles this path, unless it is a file that browsers request by themselves.
        (None, None) if !below.contains('.') || below.contains('/') => (PAGE, false),
        (None, None) => return Some(Asset::Nothing),
    };
    Some(named(name).map_or(Asset::Nothing, |file| Asset::File { file, lasting }))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn check(path: &str, expect: &str) {
        let found = match find(path) {
            None => "another".to_owned(),
            Some(Asset::Nothing) => "nothing".to_owned(),
            Some(Asset::Moved(to)) => format!("at {to}"),
            Some(Asset::File { file, lasting }) => format!("{}{}", file.name, if lasting { " for good" } else { "" }),
        };
        assert_eq!(found, expect, "{path}");
    }

    #[test]
    fn every_path_below_the_console_is_a_file_or_the_page() {
        check("/", "another");
        check("/consoles", "another");
        check("/console", "at /console/");
        check("/console/", "index.html");
        check("/console/r/apps/v1/deployments", "index.html");
        check("/console/r/core/v1/configmaps/kube-system/kube-root-ca.crt", "index.html");
        check("/console/favicon.ico", "nothing");
        check("/console/assets/app.js", "app.js");
        check("/console/assets/0123/app.js", "nothing");
        check(&format!("{}app.js", FILES.directory), "app.js for good");
        check(&format!("{}nothing.js", FILES.directory), "nothing");
    }

    #[test]
    fn the_page_leads_to_the_files_of_its_version_and_to_nothing_else() {
        let Some(Asset::File { file, lasting: false }) = find(ROOT) else { panic!("the page is there") };
        let page = String::from_utf8(file.bytes.to_vec()).unwrap();
        let leads = page.split(['"', '\'']).filter(|text| text.starts_with('/') || text.contains("://"));
        let leads: Vec<_> = leads.collect();
        assert!(leads.len() >= 3, "{leads:?}");
        for to in leads {
            assert!(matches!(find(to), Some(Asset::File { lasting: true, .. })), "{to}");
        }
        assert!(!page.contains("<style") && !page.contains("style=") && !page.contains(" on"), "{page}");
    }

    #[test]
    fn the_compressed_form_is_the_same_file() {
        for file in &FILES.all {
            let mut read = Vec::new();
            flate2::read::GzDecoder::new(&*file.compressed()).read_to_end(&mut read).unwrap();
            assert_eq!(read, file.bytes);
            // A file without a brotli form, or with one of other content, shows as a difference of `cargo xtask console
            // --check`. Here it must only be worth sending.
            assert!(file.brotli.as_ref().is_none_or(|brotli| brotli.len() < file.compressed().len()), "{}", file.name);
        }
    }
}
