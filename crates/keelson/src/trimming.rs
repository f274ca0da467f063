//! Gives memory back when a server for tests is ready, since many of them run side by side.
//!
//! The start frees much of what it allocates, and runs code that nothing needs again. jemalloc keeps freed pages for ten
//! seconds. The kernel keeps all touched pages of the program in the page tables of the process, with their neighbours,
//! which is most of the memory of an empty server.
//!
//! Other servers keep both: their first requests would be slower, and their memory is that of their objects.

use std::ops::Range;

use tikv_jemalloc_ctl::arenas;

/// The file with the mappings of the process.
const MAPPINGS: &str = "/proc/self/maps";

/// Returns freed pages to the system, and unmaps the pages of the program until they are used again. Failures are
/// ignored: they only cost memory.
pub(crate) fn after_start() {
    purge();
    let mappings = std::fs::read_to_string(MAPPINGS).unwrap_or_default();
    for range in program_ranges(&mappings, after_start as fn() as usize) {
        unmap(range);
    }
}

/// Purges each arena, by setting its decay time to zero for a moment.
#[expect(unsafe_code, reason = "jemalloc has no safe call for a single arena")]
fn purge() {
    for arena in 0..arenas::narenas::read().unwrap_or_default() {
        let name = format!("arena.{arena}.dirty_decay_ms\0");
        // SAFETY: the value has the type `ssize_t`, as jemalloc documents for this name. Unused arenas return an error.
        unsafe {
            if let Ok(before) = tikv_jemalloc_ctl::raw::read::<isize>(name.as_bytes()) {
                let _ = tikv_jemalloc_ctl::raw::write(name.as_bytes(), 0_isize);
                let _ = tikv_jemalloc_ctl::raw::write(name.as_bytes(), before);
            }
        }
    }
}

/// Unmaps the pages of a range of the program file. The kernel maps each again at its next use.
#[expect(unsafe_code, reason = "the system call takes addresses")]
fn unmap(range: Range<usize>) {
    // SAFETY: the range is a mapping of the program file that was never writable, so its pages have the content of the
    // file. A page that is used again is read from the file or its cache, with the same content.
    unsafe {
        libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED);
    }
}

/// The mappings that never were writable of the file whose code has this address: its code, and its first part, which
/// has constants and tables for unwinding. Later parts were writable while the program was linked.
fn program_ranges(mappings: &str, address: usize) -> Vec<Range<usize>> {
    struct Mapping<'m> {
        range: Range<usize>,
        rights: &'m str,
        offset: &'m str,
        file: (&'m str, &'m str),
    }
    let mapping = |line| {
        let mut words = str::split_ascii_whitespace(line);
        let (start, end) = words.next()?.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let (rights, offset) = (words.next()?, words.next()?);
        Some(Mapping { range, rights, offset, file: (words.next()?, words.next()?) })
    };
    let all: Vec<Mapping<'_>> = mappings.lines().filter_map(mapping).collect();
    let is_code = |mapping: &&Mapping<'_>| mapping.rights == "r-xp";
    let Some(code) = all.iter().filter(is_code).find(|mapping| mapping.range.contains(&address)) else {
        return Vec::new();
    };
    let is_first = |mapping: &Mapping<'_>| {
        mapping.rights == "r--p" && mapping.file == code.file && mapping.offset.bytes().all(|digit| digit == b'0')
    };
    let first = all.iter().filter(|mapping| is_first(mapping)).map(|mapping| mapping.range.clone());
    first.chain([code.range.clone()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPINGS_OF_A_PROGRAM: &str = "\
55b93f000000-55b940000000 r--p 00000000 fe:00 6335827                    /usr/bin/keelson
55b940000000-55b942000000 r-xp 01000000 fe:00 6335827                    /usr/bin/keelson
55b9429d1000-55b942b62000 r--p 03734000 fe:00 6335827                    /usr/bin/keelson
55b942b62000-55b942b71000 rw-p 038c4000 fe:00 6335827                    /usr/bin/keelson
7f0efde00000-7f0efec00000 rw-p 00000000 00:00 0
7f0f02000000-7f0f02028000 r--p 00000000 fe:00 1234                       /usr/lib/libc.so.6
7f0f02028000-7f0f02180000 r-xp 00028000 fe:00 1234                       /usr/lib/libc.so.6
";

    #[test]
    fn only_parts_of_the_program_that_never_were_writable_are_unmapped() {
        let found = program_ranges(MAPPINGS_OF_A_PROGRAM, 0x55b9_4000_1234);
        assert_eq!(found, [0x55b9_3f00_0000..0x55b9_4000_0000, 0x55b9_4000_0000..0x55b9_4200_0000]);
        assert!(program_ranges(MAPPINGS_OF_A_PROGRAM, 0x1000).is_empty());
        assert!(program_ranges("no mapping\n1-z r-xp\n\n", 0x1000).is_empty());
    }

    #[test]
    fn the_program_runs_on_after_it() {
        let text = "kept".repeat(1000);
        after_start();
        assert_eq!(text.len(), 4000);
        assert!(!program_ranges(&std::fs::read_to_string(MAPPINGS).unwrap(), after_start as fn() as usize).is_empty());
    }
}
