//! The clock and the randomness of a simulated thread, in place of those of the C library.
//!
//! The standard library, tokio and all other crates read time with `clock_gettime` and randomness with `getrandom`. This
//! program defines both symbols. On a thread in a simulation they answer from the simulation, on all other threads from
//! the system. So no code of a server needs a parameter for them, and none can bypass them.
//!
//! Within a runtime the time is that of tokio's paused clock, so `std::time::Instant` and `tokio::time::Instant` agree.
#![allow(unsafe_code, reason = "it replaces two functions of the C library")]

use std::cell::Cell;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_uint, c_void, clockid_t, size_t, ssize_t, timespec};

/// The wall-clock time at the start of a simulation, in seconds since 1970: 2026-01-01.
const START_SECONDS: u64 = 1_767_225_600;
/// The monotonic time at the start, in nanoseconds. It is less than that of a machine which runs for some time, so that a
/// wait of the system until such a time ends at once.
const START_NANOS: u64 = 1000 * 1_000_000_000;

thread_local! {
    /// The monotonic time in nanoseconds. 0 outside of simulations.
    static NOW: Cell<u64> = const { Cell::new(0) };
    /// An `Instant`, and its time in nanoseconds.
    static ANCHOR: Cell<Option<(Instant, u64)>> = const { Cell::new(None) };
    /// The difference between the host's clock and the true one, in seconds.
    static SHIFT: Cell<i64> = const { Cell::new(0) };
    /// True while the time is read from tokio, which may read the clock itself.
    static READING: Cell<bool> = const { Cell::new(false) };
    /// The state of the generator. 0 outside of simulations.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Puts this thread into a simulation.
pub(crate) fn begin(seed: u64) {
    RANDOM.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    NOW.set(START_NANOS);
    READING.set(true);
    ANCHOR.set(Some((Instant::now(), START_NANOS)));
    READING.set(false);
}

/// Sets the time since the start, and the shift of the clock of the host that runs next.
pub(crate) fn set(since_start: Duration, shift_seconds: i64) {
    NOW.set(START_NANOS + nanos(since_start));
    SHIFT.set(shift_seconds);
}

/// Ends this process after this many seconds of real time.
pub(crate) fn limit_process(seconds: u32) {
    // SAFETY: it only sets a timer of the process.
    unsafe {
        libc::alarm(seconds as c_uint);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The monotonic time in nanoseconds. `None` outside of simulations.
fn monotonic() -> Option<u64> {
    let now = NOW.try_with(Cell::get).ok().filter(|now| *now != 0)?;
    if READING.get() {
        return Some(now);
    }
    let Some((anchor, at)) = ANCHOR.get() else { return Some(now) };
    READING.set(true);
    // Outside of a runtime this calls `clock_gettime` again, which answers with `NOW`.
    let read = tokio::time::Instant::now().into_std();
    READING.set(false);
    Some(at + nanos(read.saturating_duration_since(anchor)))
}

/// Replaces the function of the C library.
///
/// # Safety
/// As for `clock_gettime`: `out` is valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, out: *mut timespec) -> c_int {
    let nanos = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => monotonic().map(|now| {
            let wall = (now - START_NANOS) + START_SECONDS * 1_000_000_000;
            wall.saturating_add_signed(SHIFT.get() * 1_000_000_000)
        }),
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_BOOTTIME => {
            monotonic()
        }
        _ => None,
    };
    let Some(nanos) = nanos else {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, out) as c_int };
    };
    // SAFETY: the caller's pointer is valid.
    unsafe {
        (*out).tv_sec = (nanos / 1_000_000_000).cast_signed();
        (*out).tv_nsec = (nanos % 1_000_000_000) as c_long;
    }
    0
}

/// Replaces the function of the C library.
///
/// # Safety
/// As for `getrandom`: `buffer` is valid for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    let mut state = RANDOM.try_with(Cell::get).unwrap_or(0);
    if state == 0 {
        // SAFETY: the arguments are those of the caller.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as ssize_t };
    }
    // SAFETY: the caller's buffer is valid for this length.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for piece in bytes.chunks_mut(8) {
        let drawn = crate::dice::step(&mut state).to_le_bytes();
        piece.copy_from_slice(&drawn[..piece.len()]);
    }
    RANDOM.set(state);
    length.cast_signed()
}

/// Starts this program again without random addresses, unless it runs so already. Hash maps of some crates are seeded
/// by addresses. Continues if the system refuses.
pub(crate) fn fix_addresses() {
    const WHOLE: libc::c_ulong = 0xffff_ffff;
    // SAFETY: it reads and sets a flag of this process, which only an exec applies.
    let changed = unsafe {
        let before = libc::personality(WHOLE);
        before >= 0
            && before & libc::ADDR_NO_RANDOMIZE == 0
            && libc::personality((before | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) >= 0
    };
    if changed && let Ok(program) = std::env::current_exe() {
        use std::os::unix::process::CommandExt as _;
        // It returns only if it fails.
        let _error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    }
}

/// Runs `work` in a copy of this process, and returns the text that it made. Copies start from the same state, so equal
/// work has equal results. The calling process must have one thread.
///
/// # Errors
/// The process could not be copied, or it died. The text has the signal.
pub(crate) fn in_copy(work: impl FnOnce() -> String) -> Result<String, String> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err("no pipe".to_owned());
    }
    // SAFETY: this process has one thread, so no lock is held by another.
    match unsafe { libc::fork() } {
        -1 => Err("the process could not be copied".to_owned()),
        0 => {
            let text = work();
            write_all(ends[1], text.as_bytes());
            // SAFETY: ends the copy without running what the original has registered for its end.
            unsafe { libc::_exit(0) }
        }
        child => {
            // SAFETY: the descriptor is this function's own.
            unsafe { libc::close(ends[1]) };
            let text = read_all(ends[0]);
            let mut status = 0;
            // SAFETY: waits for the child of this call.
            unsafe {
                libc::close(ends[0]);
                libc::waitpid(child, &raw mut status, 0);
            }
            if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
                return Ok(text);
            }
            Err(match libc::WTERMSIG(status) {
                libc::SIGALRM => "the run did not end in its real time".to_owned(),
                signal => format!("the process of the run died of signal {signal}"),
            })
        }
    }
}

fn write_all(descriptor: c_int, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are those of a slice.
        let written = unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) };
        let Ok(written @ 1..) = usize::try_from(written) else { return };
        bytes = &bytes[written..];
    }
}

fn read_all(descriptor: c_int) -> String {
    let (mut read, mut buffer) = (Vec::new(), [0u8; 4096]);
    loop {
        // SAFETY: the pointer and the length are those of a buffer.
        let count = unsafe { libc::read(descriptor, buffer.as_mut_ptr().cast(), buffer.len()) };
        let Ok(count @ 1..) = usize::try_from(count) else { return String::from_utf8_lossy(&read).into_owned() };
        read.extend_from_slice(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::hash_map::RandomState;
    use std::hash::BuildHasher as _;
    use std::time::SystemTime;

    /// Runs the work on a thread of its own in a simulation.
    fn simulated<T: Send + 'static>(seed: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(move || {
            begin(seed);
            work()
        });
        thread.join().unwrap()
    }

    #[test]
    fn time_passes_only_in_the_simulation() {
        let (before, after, wall) = simulated(1, || {
            let before = Instant::now();
            set(Duration::from_secs(90), -3600);
            (before, Instant::now(), SystemTime::now())
        });
        assert_eq!(after - before, Duration::from_secs(90));
        let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since, Duration::from_secs(START_SECONDS + 90 - 3600));
    }

    #[test]
    fn a_runtime_has_the_time_of_its_timers() {
        let slept = simulated(1, || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let begun = Instant::now();
                tokio::time::sleep(Duration::from_secs(1000)).await;
                begun.elapsed()
            })
        });
        assert_eq!(slept, Duration::from_secs(1000));
    }

    #[test]
    fn the_seed_fixes_the_order_of_hash_maps() {
        let hash = |seed| simulated(seed, || RandomState::new().hash_one("a"));
        assert_eq!(hash(5), hash(5));
        assert_ne!(hash(5), hash(6));
    }
}
