//! Waits for a state of the server by repeated requests.
//!
//! The server reaches some states after its response, such as a signed certificate.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// The interval of requests. A local server answers in less time than this.
const POLL: Duration = Duration::from_millis(2);

/// Repeats `look` until it returns a value. A `Continue` describes the missing state.
///
/// # Errors
/// [`Error::Late`] with the last description after `limit`, or the error of `look`.
pub(crate) async fn until<T, L>(limit: Duration, mut look: impl FnMut() -> L) -> Result<T, Error>
where
    L: Future<Output = Result<ControlFlow<T, String>, Error>>,
{
    let deadline = Instant::now() + limit;
    loop {
        match look().await? {
            ControlFlow::Break(found) => return Ok(found),
            ControlFlow::Continue(state) if Instant::now() > deadline => return Err(Error::Late { state, limit }),
            ControlFlow::Continue(_) => tokio::time::sleep(POLL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_state_or_names_the_missing_one() {
        let mut looks = 0;
        let found = until(Duration::from_secs(1), || {
            looks += 1;
            let is_third = looks == 3;
            async move { Ok(if is_third { ControlFlow::Break(3) } else { ControlFlow::Continue(String::new()) }) }
        });
        assert_eq!(found.await.unwrap(), 3);
        let late =
            until(Duration::from_secs(1), || async { Ok(ControlFlow::<(), _>::Continue("it is late".to_owned())) });
        assert_eq!(late.await.unwrap_err().to_string(), "it is late within 1s");
        let failed = until(Duration::from_secs(1), || async { Err::<ControlFlow<(), String>, _>(Error::Ended) });
        assert!(matches!(failed.await, Err(Error::Ended)));
    }
}
