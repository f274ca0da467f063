//! Tests of the queue under a paused clock: the times of turns after each outcome and for each kind of addition.
//!
//! A wait may exceed its backoff by a random part.

use super::*;

const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(4) };

/// Runs the queue for `seconds`. Returns the keys of all turns with their times in seconds.
async fn worked<W: Future<Output = Outcome>>(
    queue: &Queue<&'static str>,
    seconds: u64,
    work: impl Fn(&'static str) -> W,
) -> Vec<(&'static str, f64)> {
    let start = Instant::now();
    let seen = Mutex::new(Vec::new());
    let running = queue.run(2, |key| {
        seen.lock().push((key, start.elapsed().as_secs_f64()));
        work(key)
    });
    assert!(tokio::time::timeout(Duration::from_secs(seconds), running).await.is_err());
    seen.into_inner()
}

/// Compares the turns in a period with the expected ones. A wait may be longer by a random part.
async fn check(queue: &Queue<&'static str>, seconds: u64, outcome: impl Fn(&str) -> Outcome, expect: &[(&str, f64)]) {
    let seen = worked(queue, seconds, |key| std::future::ready(outcome(key))).await;
    let is_expected = |(seen, expected): (&(&str, f64), &(&str, f64))| {
        seen.0 == expected.0 && seen.1 >= expected.1 && seen.1 <= expected.1 * 1.13
    };
    assert!(seen.len() == expect.len() && seen.iter().zip(expect).all(is_expected), "{seen:?}\n{expect:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_worked_on_once_however_often_it_was_added() {
    let queue = Queue::new("test", BACKOFF);
    ["a", "b", "a", "b", "a"].into_iter().for_each(|key| queue.add(key));
    check(&queue, 60, |_| Outcome::Done, &[("a", 0.0), ("b", 0.0)]).await;
    queue.add("c");
    check(&queue, 60, |_| Outcome::Done, &[("c", 0.0)]).await;
    assert_eq!(queue.state.lock().known.len(), 1, "keys that were at rest for long are forgotten");
}

#[tokio::test(start_paused = true)]
async fn failing_keys_back_off_and_delay_no_other_key() {
    let queue = Queue::new("test", BACKOFF);
    ["stuck", "a", "b", "c"].into_iter().for_each(|key| queue.add(key));
    let outcome = |key: &str| if key == "stuck" { Outcome::Again } else { Outcome::Done };
    let at = |key, second: u32| (key, f64::from(second));
    let expect = [
        at("stuck", 0),
        at("a", 0),
        at("b", 0),
        at("c", 0),
        at("stuck", 1),
        at("stuck", 3),
        at("stuck", 7),
        at("stuck", 11),
    ];
    check(&queue, 13, outcome, &expect).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_added_again_does_not_wait_for_its_time() {
    let queue = Queue::new("test", BACKOFF);
    queue.add("a");
    check(&queue, 2, |_| Outcome::Again, &[("a", 0.0), ("a", 1.0)]).await;
    queue.add("a");
    check(&queue, 60, |_| Outcome::Done, &[("a", 0.0)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_added_during_its_processing_is_processed_again() {
    let queue = Queue::new("test", BACKOFF);
    queue.add("a");
    let count = Mutex::new(0);
    let seen = worked(&queue, 60, |key| {
        let is_first = {
            let mut count = count.lock();
            *count += 1;
            *count == 1
        };
        let queue = &queue;
        async move {
            if is_first {
                queue.add(key);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Outcome::Done
        }
    });
    assert_eq!(seen.await.len(), 2);
}

/// The number of turns in ten minutes for keys whose work adds these keys.
async fn turns_of(adds: impl Fn(&'static str) -> Vec<&'static str>, outcome: Outcome) -> usize {
    let queue = Queue::new("test", BACKOFF);
    queue.add("a");
    let seen = worked(&queue, 600, |key| {
        let (added, queue) = (adds(key), &queue);
        async move {
            added.into_iter().for_each(|key| queue.add(key));
            outcome
        }
    });
    seen.await.len()
}

#[tokio::test(start_paused = true)]
async fn keys_that_add_themselves_or_each_other_wait_ever_longer() {
    // One turn in four seconds, and a few more at the start.
    for outcome in [Outcome::Done, Outcome::Again] {
        let of_itself = turns_of(|key| vec![key], outcome).await;
        assert!((130..=170).contains(&of_itself), "{outcome:?} {of_itself}");
    }
    let ring = |key: &str| match key {
        "a" => vec!["b"],
        "b" => vec!["c"],
        _ => vec!["a"],
    };
    let in_a_ring = turns_of(ring, Outcome::Done).await;
    assert!((130..=170).contains(&in_a_ring), "{in_a_ring}");
    let everybody = turns_of(|_| vec!["a", "b", "c"], Outcome::Done).await;
    assert!((390..=520).contains(&everybody), "{everybody}");
}

#[tokio::test(start_paused = true)]
async fn constantly_changing_keys_are_processed_a_few_times_per_second() {
    let queue = Queue::new("test", BACKOFF);
    let changing = async {
        loop {
            queue.add("a");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let working = worked(&queue, 60, |_| std::future::ready(Outcome::Done));
    let seen = tokio::select! {
        seen = working => seen,
        () = changing => unreachable!("it changes without end"),
    };
    assert!((200..=300).contains(&seen.len()), "{}", seen.len());
}

#[tokio::test(start_paused = true)]
async fn unchained_additions_start_with_the_first_delay() {
    let queue = Queue::new("test", BACKOFF);
    queue.add("busy");
    let seen = worked(&queue, 100, |key| {
        let queue = &queue;
        async move {
            if key == "busy" {
                queue.add("busy");
                unchained(|| queue.add("news"));
            }
            Outcome::Done
        }
    })
    .await;
    let waits = seen.iter().zip(&seen[1..]).filter(|(one, next)| one.0 == "busy" && next.0 == "news");
    assert!(waits.into_iter().all(|(busy, news)| news.1 - busy.1 < 0.001), "{seen:?}");
    assert_eq!(seen.iter().filter(|(key, _)| *key == "news").count(), seen.len() / 2);
}

/// Work without any wait must still yield to other tasks.
#[tokio::test]
async fn work_that_never_waits_leaves_the_thread_to_others() {
    let queue = Queue::new("test", BACKOFF);
    (0..100_000).for_each(|key| queue.add(key));
    let working = tokio::spawn(async move { queue.run(8, |_| std::future::ready(Outcome::Done)).await });
    tokio::task::yield_now().await;
    assert!(!working.is_finished(), "this test has its turn while a hundred thousand keys wait");
    working.abort();
}
