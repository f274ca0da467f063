//! The login token for etcd. All calls share it, and one of them renews it after it has expired.
//!
//! Tokens end when etcd restarts, or some minutes after their last use, and then many calls fail at once. Checking a
//! password costs etcd 100 ms of CPU, so one call logs in and the others wait for it.

use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};

use crate::config::Login;
use crate::error::Failure;
use crate::proto::AuthenticateRequest;

/// A token. The default is no token.
#[derive(Clone, Default)]
pub(crate) struct Token {
    /// The number of tokens before it.
    number: u64,
    pub(crate) value: Option<MetadataValue<Ascii>>,
}

/// A user with the newest token.
pub(crate) struct Session {
    login: Login,
    token: RwLock<Token>,
    /// Locked during a login. Contains the time and the failure of the last failed login.
    renewing: Mutex<Option<(Instant, Failure)>>,
}

impl Session {
    pub(crate) fn new(login: Login) -> Self {
        Self { login, token: RwLock::default(), renewing: Mutex::default() }
    }

    pub(crate) fn token(&self) -> Token {
        self.token.read().clone()
    }

    /// Ensures that there is a newer token than `ended`. One caller at a time runs `log_in`, and callers that arrive
    /// meanwhile share its result. `log_in` returns None if etcd has no authentication.
    pub(crate) async fn renew<F>(
        &self,
        ended: &Token,
        log_in: impl FnOnce(AuthenticateRequest) -> F,
    ) -> Result<(), Failure>
    where
        F: Future<Output = Result<Option<String>, Failure>>,
    {
        let came = Instant::now();
        let mut last_failure = self.renewing.lock().await;
        if self.token.read().number != ended.number {
            return Ok(());
        }
        if let Some((at, failure)) = &*last_failure
            && *at >= came
        {
            return Err(failure.clone());
        }
        let Login { user, password } = &self.login;
        let request = AuthenticateRequest { name: user.clone(), password: password.clone() };
        let fetched = log_in(request).await.and_then(|token| token.map(|token| readable(&token)).transpose());
        let value = fetched.inspect_err(|failure| *last_failure = Some((Instant::now(), failure.clone())))?;
        let mut token = self.token.write();
        *token = Token { number: token.number + 1, value };
        Ok(())
    }
}

fn readable(token: &str) -> Result<MetadataValue<Ascii>, Failure> {
    token.parse().map_err(|_| Failure::Nonsense("etcd gave a token with odd characters".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::future::join_all;

    use super::*;

    fn session() -> Session {
        Session::new(Login { user: "u".to_owned(), password: "p".to_owned() })
    }

    #[tokio::test(start_paused = true)]
    async fn many_calls_that_meet_an_ended_token_log_in_once() {
        let (session, logins) = (session(), AtomicUsize::new(0));
        let log_in = |request: AuthenticateRequest| async {
            assert_eq!((request.name, request.password), ("u".to_owned(), "p".to_owned()));
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(Some(format!("token.{}", logins.fetch_add(1, Ordering::Relaxed))))
        };
        for round in 1..=3 {
            let ended = session.token();
            let all = join_all((0..50).map(|_| session.renew(&ended, log_in))).await;
            assert!(all.iter().all(Result::is_ok));
            assert_eq!(logins.load(Ordering::Relaxed), round);
            assert_eq!(session.token().value.unwrap(), format!("token.{}", round - 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_login_fails_all_waiters_and_is_retried_later() {
        let (session, logins) = (session(), AtomicUsize::new(0));
        let log_in = |_| async {
            logins.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
            Err(Failure::Refused("no".to_owned()))
        };
        for round in 1..=2 {
            let ended = session.token();
            let all = join_all((0..50).map(|_| session.renew(&ended, log_in))).await;
            assert!(all.iter().all(|renewed| *renewed == Err(Failure::Refused("no".to_owned()))));
            assert_eq!(logins.load(Ordering::Relaxed), round);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
