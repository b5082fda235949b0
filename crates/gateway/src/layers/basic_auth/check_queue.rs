//! Password checks, outside of the workers.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use blocking::unblock;

/// Maximum number of waiting checks of all layers; further ones are answered 503. Each occupies one
/// of the 500 threads for blocking work.
pub(super) const WAITING: usize = 64;

/// Maximum number of waiting checks of one client, so that a client that guesses does not lock
/// others out.
pub(super) const WAITING_OF_CLIENT: usize = 8;

/// Maximum number of requests that wait for the check of one password.
const WAITING_FOR_ONE: usize = 1024;

/// The clients of the waiting checks.
static WAIT: Mutex<Vec<Option<IpAddr>>> = Mutex::new(Vec::new());

/// Serialises checks: all password guessing together uses at most one processor.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The checks of one layer. A browser requests a page and its resources at once; they share one
/// check of their password.
#[derive(Default)]
pub(super) struct Checks(Mutex<HashMap<Vec<u8>, Arc<Check>>>);

#[derive(Default)]
struct Check(Mutex<State>);

#[derive(Default)]
struct State {
    result: Option<bool>,
    waiting: Vec<Waker>,
}

impl Checks {
    /// Returns the result of `verify`, or of the running check with the same `key`. `None` if too
    /// many checks wait.
    pub(super) async fn ask(
        self: &Arc<Self>,
        key: Vec<u8>,
        client: Option<IpAddr>,
        verify: impl FnOnce() -> bool + Send + 'static,
    ) -> Option<bool> {
        let (check, conclusion) = self.check(key, client)?;
        if let Some(mut conclusion) = conclusion {
            // The check goes on if the first client does not wait for it.
            let task = unblock(move || {
                let _one_at_a_time = lock(&ONE_AT_A_TIME);
                conclusion.result = verify();
                drop(conclusion);
            });
            task.detach();
        }
        poll_fn(|cx| {
            let mut state = lock(&check.0);
            if state.result.is_some() {
                return Poll::Ready(state.result);
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                if state.waiting.len() >= WAITING_FOR_ONE {
                    return Poll::Ready(None);
                }
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the running check for this key, or a new one with its conclusion.
    fn check(
        self: &Arc<Self>,
        key: Vec<u8>,
        client: Option<IpAddr>,
    ) -> Option<(Arc<Check>, Option<CheckGuard>)> {
        let mut pending = lock(&self.0);
        if let Some(check) = pending.get(&key) {
            return Some((check.clone(), None));
        }
        let permit = CheckPermit::take(client)?;
        let check = Arc::<Check>::default();
        pending.insert(key.clone(), check.clone());
        Some((
            check.clone(),
            Some(CheckGuard {
                checks: self.clone(),
                key,
                check,
                result: false,
                permit: Some(permit),
            }),
        ))
    }
}

/// Notifies all waiting requests on drop, even if the check panicked.
struct CheckGuard {
    checks: Arc<Checks>,
    key: Vec<u8>,
    check: Arc<Check>,
    result: bool,
    permit: Option<CheckPermit>,
}

impl Drop for CheckGuard {
    fn drop(&mut self) {
        lock(&self.checks.0).remove(&self.key);
        self.permit = None;
        let waiting = {
            let mut state = lock(&self.check.0);
            state.result = Some(self.result);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

struct CheckPermit(Option<IpAddr>);

impl CheckPermit {
    fn take(client: Option<IpAddr>) -> Option<Self> {
        let mut waiting = lock(&WAIT);
        let of_client = waiting.iter().filter(|one| **one == client).count();
        if waiting.len() >= WAITING || of_client >= WAITING_OF_CLIENT {
            return None;
        }
        waiting.push(client);
        Some(Self(client))
    }
}

impl Drop for CheckPermit {
    fn drop(&mut self) {
        let mut waiting = lock(&WAIT);
        if let Some(index) = waiting.iter().position(|one| *one == self.0) {
            waiting.swap_remove(index);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::{Context, Wake};
    use std::time::Duration;

    use super::*;

    /// The queue is shared by all tests.
    static ALONE: Mutex<()> = Mutex::new(());

    struct Woken(Sender<()>);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> (Poll<F::Output>, Receiver<()>) {
        let (sender, receiver) = channel();
        let waker = Arc::new(Woken(sender)).into();
        (future.poll(&mut Context::from_waker(&waker)), receiver)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn same_password_is_checked_once_for_all_who_wait() {
        let _alone = lock(&ALONE);
        let (checks, count) = (Arc::<Checks>::default(), Arc::<AtomicUsize>::default());
        let (go, gate) = channel::<()>();
        let mut first = pin!(checks.ask(b"key".to_vec(), None, {
            let count = count.clone();
            move || {
                count.fetch_add(1, Ordering::Relaxed);
                gate.recv_timeout(LONG).is_ok()
            }
        }));
        let (polled, first_woken) = poll(first.as_mut());
        assert!(polled.is_pending());
        let mut second = pin!(checks.ask(b"key".to_vec(), None, || panic!("it is being checked")));
        let (polled, second_woken) = poll(second.as_mut());
        assert!(polled.is_pending());
        go.send(()).expect("it waits");
        first_woken.recv_timeout(LONG).expect("woken");
        second_woken.recv_timeout(LONG).expect("woken");
        assert_eq!(poll(first).0, Poll::Ready(Some(true)));
        assert_eq!(poll(second).0, Poll::Ready(Some(true)));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert!(lock(&checks.0).is_empty());
    }

    #[test]
    fn one_client_leaves_room_for_others_and_all_have_an_end() {
        let _alone = lock(&ALONE);
        let checks = Arc::<Checks>::default();
        let (go, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let ask = |number: usize, client: usize| {
            let gate = gate.clone();
            let client = u32::try_from(client).expect("a small number");
            let asked = checks.ask(
                number.to_be_bytes().to_vec(),
                Some(IpAddr::V4(client.into())),
                move || lock(&gate).recv_timeout(LONG).is_ok(),
            );
            Box::pin(asked)
        };
        let mut waiting = Vec::new();
        for number in 0..WAITING {
            let mut asked = ask(number, number / WAITING_OF_CLIENT);
            let (polled, woken) = poll(asked.as_mut());
            assert!(polled.is_pending(), "{number}");
            waiting.push((asked, woken));
            if number + 1 == WAITING_OF_CLIENT {
                assert_eq!(poll(ask(1000, 0).as_mut()).0, Poll::Ready(None));
            }
        }
        assert_eq!(poll(ask(1000, 1000).as_mut()).0, Poll::Ready(None));
        for _ in 0..WAITING {
            go.send(()).expect("they wait");
        }
        for (mut asked, woken) in waiting {
            woken.recv_timeout(LONG).expect("woken");
            assert_eq!(poll(asked.as_mut()).0, Poll::Ready(Some(true)));
        }
        assert!(lock(&WAIT).is_empty());
    }

    #[test]
    fn check_that_does_not_end_well_is_a_no() {
        let _alone = lock(&ALONE);
        let checks = Arc::<Checks>::default();
        let mut asked = pin!(checks.ask(b"key".to_vec(), None, || panic!("for the test")));
        // The other thread may be done before this one checks.
        let said = match poll(asked.as_mut()) {
            (Poll::Pending, woken) => {
                woken.recv_timeout(LONG).expect("woken");
                poll(asked).0
            }
            (said, _) => said,
        };
        assert_eq!(said, Poll::Ready(Some(false)));
        assert!(lock(&WAIT).is_empty());
    }
}
